"""``loader()``: a load whose rows are written one at a time.

No thread is needed: ``write()`` encodes a row, and about every 2 ms runs the core of the load until
the core needs more rows.
"""

from __future__ import annotations

import warnings
from collections import deque
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from functools import partial
from time import monotonic
from types import TracebackType
from typing import Any, Literal, Self
from weakref import finalize

from ..encode.template import Template, TemplateLike, as_template
from ..encode.writer import CHUNK_SECONDS
from ..outcome.errors import CheckpointError, TransportError
from ..outcome.messages import Hint, Message
from ..outcome.report import LoadErrors, Report
from ..outcome.tracebacks import public, shorten
from ..resp.buffer import Chunk
from ..server.forks import Inherited, on_fork
from ..server.options import (
    Checkpoint,
    Durable,
    MaxErrors,
    Metrics,
    Mode,
    Nulls,
    Options,
    Progress,
    RateLimit,
    ReceiptPath,
    Rejects,
    Replicate,
)
from ..server.settings import ServerLike
from ..sources.chunks import Chunks
from ..sources.source import fewer_rows, row_writer
from ..transports.driver import ChunkSender, Emit, Steps, send_gathered, stream
from .load import Choose, Load
from .mass_insert import choose, features

__all__ = ["BaseLoader", "Loader", "loader", "raised_in_block"]

# Why a loader can't be used, by its state.
REFUSALS = {
    "new": "use the loader in a 'with' statement",
    "running": "another thread is using the loader, or a function that the loader has called",
    "ended": "the load has ended; open another loader",
}


class WrittenRows(Chunks):
    """Chunks of rows that are passed to ``write()``.

    Raises:
        CheckpointError: a checkpoint has no ``source_id``.
    """

    def __init__(self, template: Template | None, options: Options) -> None:
        if options.checkpoint is not None and not options.checkpoint.source_id:
            message = "written rows can't be read again to resume their load; identify them with "
            raise CheckpointError(Message(message, Hint("source_id", ...)))
        super().__init__(None, template, options)
        self._to_skip = 0

    def open(self) -> None:
        if self._source is None:
            self.writer = row_writer(self.template, self.options)
            self.writer.start_at(self.start_row)
            self._to_skip, self._source = self.start_row, ()

    def write(self, row: Any) -> bool:
        """Encode a row, unless an earlier load has loaded it; return whether a chunk is full.

        Raises:
            EncodeError, TemplateError: the row can't be encoded; it is not written.
        """
        if self._to_skip:
            self._to_skip -= 1
            return False
        return self.writer.fill((row,))

    def end(self) -> None:
        """End the rows.

        Raises:
            CheckpointError: there are fewer rows than earlier loads have loaded.
        """
        if self._to_skip:
            raise fewer_rows(self.start_row)
        self._more = False

    def is_due(self) -> bool:
        """Cut the written rows into chunks; return whether to call ``next()``."""
        self._drop_delivered()
        if not self._ready:
            self._cut()
            if self._gatherer is not None and self._is_due(self._gatherer):
                self._flush()
        return bool(self._ready) or self.blocked or not self._more

    def next(self) -> Chunk | None:
        self._check_own()
        return self._deliver()

    def ready(self) -> deque[Chunk]:
        self._cut()
        return super().ready()

    def check(self) -> None:
        """Raise the error of a row that was encoded, but can't be sent."""
        self._cut()
        self._raise_refused()


class RowLoad(Load):
    """A load that pauses when it needs more rows."""

    chunks: WrittenRows

    def __init__(self, chunks: WrittenRows, choose: Choose) -> None:
        super().__init__(chunks, choose, features(chunks))
        self._flushing = False
        self._sender: ChunkSender | None = None

    def fail(self, error: BaseException) -> None:
        """Continue with an exception, as if a source had raised it."""
        self._failure = error

    def end(self) -> None:
        """Continue with the end of the rows."""
        try:
            self.chunks.end()
        except CheckpointError as error:
            self.fail(error)

    def flush_rows(self) -> None:
        """Continue by sending all rows, and waiting until every command is answered."""
        self._flushing = True

    def send_rows(self) -> None:
        """Send the rows written so far, and receive replies, without waiting."""
        if self._failure is not None or self._sender is None:
            return
        try:
            for work in self._due():
                work()
            send_gathered(self.chunks, self._sender)
        except Exception as error:
            self.fail(error)

    def _next_chunk(self, sender: ChunkSender | None) -> Steps[Chunk | None]:
        assert self.transport is not None
        chunks, self._sender = self.chunks, sender
        while not (self._failure or self.transport.live_report.stopped):
            if chunks.is_due():
                return chunks.next()
            if self._flushing:
                yield from self.flush()
                self._flushing = False
            else:
                try:
                    yield Emit((None,))  # type: ignore[misc]
                except GeneratorExit:  # the loader was dropped; nothing can be awaited
                    self.transport.kill()
                    raise
        if isinstance(self._failure, Exception):
            chunks.check()
        if self._failure is not None:
            raise self._failure
        return None  # the load was stopped


class BaseLoader:
    """The base class of ``Loader`` and of its asyncio form.

    A loader is ``new`` at first, ``open`` in its block, and ``ended`` at the end. During calls that
    run the load, it is ``running``. It is ``complete`` if an earlier load has loaded all rows, and
    ``inherited`` in a forked child.
    """

    def __init__(self, template: TemplateLike, options: Options, choose: Choose) -> None:
        self._template = as_template(template)
        if isinstance(options.mode, Replicate):
            raise ValueError(
                "a loader can't use mode='replicate': the server reads all keys at the end; use "
                "mass_insert, or mode='serialize'"
            )
        self._options = options
        self._choose = choose
        self._state = "new"
        self._error: BaseException | None = None  # the exception that ended the load
        self._due = 0.0  # when to send the rows written so far

    @property
    def report(self) -> Report:
        """The live report; after the block, the final report."""
        return Report("") if self._state == "new" else self._load.report

    def _begin(self, stream: Callable[[Any], Any]) -> bool:
        """Create the load, which connects when it first runs."""
        if self._state != "new":
            raise ValueError("a loader can be used only once; open another one")
        self._rows = WrittenRows(self._template, self._options)
        self._load = RowLoad(self._rows, self._choose)
        self._steps = stream(self._load.core())
        self._abandoning = finalize(self, abandon, self._steps)
        self._state = "open"
        on_fork(self, lambda inherited: inherited._release())
        return True

    def _release(self) -> None:
        """In a forked child, refuse all calls."""
        self._state = "inherited"
        self._abandoning.detach()

    def _put(self, row: Any) -> bool:
        """Encode a row; return whether the load must run."""
        if self._state != "open":
            return self._is_open()
        return self._rows.write(row) or monotonic() >= self._due

    def _flush(self) -> bool:
        """Request that all rows be sent; return whether the load must run."""
        if not self._is_open():
            return False
        if self._load.transport is not None and self._load.transport.lanes is None:
            message = "redis-cli --pipe can't wait for replies before the end; use "
            raise ValueError(Message(message, Hint("transport", "socket")))
        self._load.flush_rows()
        return True

    def _close(self, error: BaseException | None) -> bool:
        """Request the end of the load; return whether the load must still be run to its end.

        Args:
            error: the exception that the block raised; None if it ended normally.
        """
        if self._state == "running":
            raise ValueError(REFUSALS[self._state])
        if self._state == "open":
            if error is None:
                self._load.end()
            else:
                self._load.fail(error)
            return True
        if self._state == "complete":
            self._state = "ended"
        elif error is None and self._error is not None:
            raise self._error  # the block caught it and went on
        return False

    @contextmanager
    def _running(self) -> Iterator[None]:
        """Record the outcome when the load needs more rows, or has ended."""
        self._state = "running"
        error: BaseException | None = None
        try:
            yield
        except (StopIteration, StopAsyncIteration):
            pass
        except BaseException as caught:
            error = caught
            raise
        finally:
            self._due = monotonic() + CHUNK_SECONDS
            if self._state == "running":  # not in a forked child
                self._state = "open"
            if self._load.over:
                self._error = error
                self._abandoning.detach()
                if self._state == "open":
                    self._state = "complete" if self.report.ended_before else "ended"

    def _is_open(self) -> bool:
        """Return whether rows can be written; False if there is nothing to load.

        Raises:
            LoadErrors: a load with ``on_error="collect"`` was stopped.
            TransportError: this is a forked child.
            ValueError: the loader is not open.
        """
        if self._state in ("open", "complete"):
            return self._state == "open"
        if self._state == "inherited":
            raise TransportError(str(Inherited("loader")))
        if self._state == "ended" and self._error is None and self.report.stopped:
            raise LoadErrors(self.report, hint="(the load was stopped; this row was not written)")
        raise ValueError(REFUSALS[self._state])


def abandon(steps: Any) -> None:
    """Close the connections of a loader whose block was not left."""
    warnings.warn(
        "a loader was not closed, so rows may be lost; use it in a 'with' statement",
        ResourceWarning,
        stacklevel=2,
    )
    if isinstance(steps, Generator):
        steps.close()


class Loader(BaseLoader):
    """Load rows that are written one at a time; returned by ``loader``.

    Use it in a ``with`` statement. Leaving the block waits for all replies, and raises the same
    exceptions as ``mass_insert``.

    An exception in the block ends the load, as an exception of a source ends ``mass_insert``: all
    rows that were written are sent, and the exception propagates with the report as its ``report``
    attribute. A loader that is dropped without leaving its block closes its connections; rows
    written last are lost.

    Only one thread at a time may use a loader. After a fork, only the parent can use it.
    """

    def write(self, row: Any) -> None:
        """Write a row, as ``mass_insert`` accepts it: a dict, a tuple or a list, for example.

        The row is encoded immediately, so it may be changed later. A call sends the encoded
        rows as a chunk if they have reached 512 KiB, or if the previous chunk was sent at least
        2 ms ago. Waits while the server is slower than this program, so memory stays bounded.
        Before a pause, call ``flush()``.

        If a checkpoint is resumed, write all rows again: rows that were loaded before are skipped.

        Args:
            row: the row; without a template, a command.

        Raises:
            EncodeError, TemplateError: the row can't be encoded, and was not written. If the block
                catches the exception, the load continues.
            LoadErrors: the load was stopped by ``on_error="stop"`` or ``max_errors``.
            ValueError: the block was left, or the load has ended with an exception.
            others: as in ``mass_insert``, for this or an earlier row. They end the load.
        """
        try:
            if self._put(row):
                self._run()
        except BaseException as error:
            shorten(error)
            raise

    def flush(self) -> None:
        """Send all rows written so far, and wait for the replies, which ``report`` then counts.

        With ``mode="serialize"``, the rows of the last key are not sent, since more may follow.

        Raises:
            ValueError: the loader is not open, or uses redis-cli.
            others: as in ``write()``.
        """
        self._call(self._flush)

    def __enter__(self) -> Self:
        self._call(partial(self._begin, stream))
        return self

    def __exit__(
        self, kind: object, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with raised_in_block(error, trace):
            self._call(partial(self._close, error))

    def _call(self, prepare: Callable[[], bool]) -> None:
        try:
            if prepare():
                self._run()
        except BaseException as error:
            shorten(error)
            raise

    def _run(self) -> None:
        with self._running():
            next(self._steps)


@contextmanager
def raised_in_block(error: BaseException | None, trace: TracebackType | None) -> Iterator[None]:
    """Suppress the exception of a ``with`` block if the load raises it: ``with`` raises it again.

    Args:
        error: the exception; None if there is none.
        trace: its traceback, which is restored.
    """
    try:
        yield
    except BaseException as raised:
        # Generators raise a StopIteration as the cause of a RuntimeError.
        if error is None or (raised is not error and raised.__cause__ is not error):
            raise
    finally:
        if error is not None:
            error.with_traceback(trace)


@public
def loader(
    template: TemplateLike = None,
    server: ServerLike = None,
    *,
    transport: Literal["auto", "redis-cli", "socket"] = "auto",
    on_error: Literal["raise", "collect", "stop"] = "raise",
    max_errors: MaxErrors = None,
    rejects: Rejects = None,
    rate_limit: RateLimit = None,
    connections: int = 1,
    nulls: Nulls = "auto",
    timeout: float | None = 30.0,
    progress: Progress = None,
    default: Callable[[Any], Any] | None = None,
    mode: Mode = "commands",
    retry: Literal["never", "idempotent", "always"] | None = None,
    durable: Durable = "acknowledged",
    checkpoint: str | Checkpoint | None = None,
    metrics: Metrics = None,
    receipt: ReceiptPath = None,
    lineage: bool = False,
    import_source: bool = False,
    wait_index: bool = False,
    index_backlog: int | None = None,
    pause_saves: bool = False,
) -> Loader:
    """Return a Loader, to write rows one at a time and load them into Redis or Valkey.

    Like ``mass_insert``, for programs that call a function for each row instead of passing an
    iterable::

        with fastresp.loader("HSET user:{id} {**}", server) as load:
            for user in users:
                load.write(user)
        print(load.report)

    The same rows have the same result as with ``mass_insert``: commands, errors, and report.

    Args:
        template: a command template, as for ``mass_insert``.
        server: a URL or a client, as for ``mass_insert``.
        others: as for ``mass_insert``. A Checkpoint needs a ``source_id``.

    Returns:
        A Loader, which connects when its ``with`` block is entered.

    Raises:
        TemplateError: the template is invalid.
        ValueError: an option, or a combination of options, is invalid.

        The ``with`` statement raises the other exceptions of ``mass_insert``.
    """
    return Loader(template, Options.of(locals()), choose)
