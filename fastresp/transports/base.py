"""What the transports have in common: begun, written to, ended, and never left half done."""

from __future__ import annotations

from asyncio import CancelledError
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Self

from ..outcome.errors import FastrespError, ProtocolError, TransportError
from ..outcome.report import LoadErrors, Report
from ..resp.buffer import Chunk
from ..resp.split import CommandSplitter
from ..server.answers import Answers
from ..server.settings import Server, ServerLike
from .driver import Steps, run
from .lanes import Lanes

__all__ = ["Transport", "add_report"]

# What ends a task or a coroutine, which can wait for nothing more.
UNAWAITED = (CancelledError, GeneratorExit)


class Transport:
    """RESP to one server, to be used in a ``with`` statement, or by a core.

    ``write()`` takes RESP: bytes in pieces of any size, or Chunks. Only whole commands are sent.
    Leaving the block sends the last whole command, waits for the last reply, and completes
    ``report``; error replies raise nothing, they are in the report.

    Args:
        server: a URL, a ``redis.Redis`` client, or None for ``REDIS_URL``, else localhost.

    Attributes:
        answers: what the server said when it was asked; None before the start.
        lanes: the connections, where they are ours, and not redis-cli's.
        in_event_loop: whether an event loop waits for it, as it can't after a cancellation.
    """

    lanes: Lanes | None = None
    in_event_loop = False

    def __init__(self, server: ServerLike | Server = None) -> None:
        self.server = server if isinstance(server, Server) else Server(server)
        self.answers: Answers | None = None
        self._splitter = CommandSplitter()

    def __enter__(self) -> Self:
        run(self.opening())
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if error is None:
            try:
                self.close()
            except FastrespError:
                raise
            except BaseException as interruption:
                run(self.ending_after(interruption))
                raise
        else:
            run(self.ending_after(error))

    def write(self, data: bytes | bytearray | memoryview | Chunk) -> None:
        """Send RESP. Of bytes, a command that is not whole yet is held back.

        Raises:
            ProtocolError: the bytes are not RESP commands; those before the fault were sent.
            EncodeError: a command changes the reply stream; those before it were sent.
            TransportError, TransportTimeout: the connection was lost, or nothing moves.
        """
        if not self.running:
            name = type(self).__name__
            raise TransportError(f"{name} is not running; use it in a 'with' statement")
        self.flush()
        chunk = data if isinstance(data, Chunk) else self._splitter.feed(data)
        if chunk is not None:
            run(self.writing(chunk))
        if self._splitter.fault is not None:
            raise self._splitter.fault

    def close(self) -> Report:
        """End after the last whole command, and wait for the last reply.

        Raises:
            ProtocolError: the last command written is not whole; it was not sent.
            TransportError, TransportTimeout: as ``write()``.
        """
        run(self.closing())
        if self._splitter.pending and self._splitter.fault is None:
            raise ProtocolError(
                f"not RESP commands: the last command is cut off after {self._splitter.pending:,} "
                "bytes, and was not sent",
                self.report.bytes_sent,
            )
        return self.report

    # Cores: see driver.

    def opening(self) -> Steps[None]:
        """Ask the server, then connect.

        Raises:
            TransportError: the server can't be used; nothing was sent.
        """
        try:
            yield from self.connecting()
        except Exception:
            raise
        except BaseException as interruption:
            self.kill()
            add_report(interruption, self.report, str(self.report))
            raise

    def closing(self) -> Steps[None]:
        """Wait for the last reply, then close the connection; errors as ``write()``."""
        if self.running:
            try:
                yield from self.finishing()
            except TransportError:
                self.kill()
                raise
            # Not after an interruption: whoever has it waits for the replies.
            self.kill()

    def ending_after(
        self, error: BaseException, rest: Callable[[int], Iterable[Chunk]] | None = None
    ) -> Steps[None]:
        """End after an exception, which is to go up as it is: what was whole still goes in.

        A cancellation in an event loop waits for nothing; nor does a Ctrl-C where the rate is
        limited, at which the rest may take for ever.

        Args:
            rest: gives the chunks that follow so many commands.
        """
        # A source may raise one, too: that of another load, or of a reading.
        own = isinstance(error, TransportError) and error.report is self.report
        try:
            over = self.in_event_loop and isinstance(error, UNAWAITED)
            if self.running and not over and not own:
                if self.limited and not isinstance(error, Exception):
                    self.stop()
                elif rest is not None:
                    yield from self._writing_rest(error, rest)
                if self.running:
                    yield from self.finishing()
            outcome = str(self.report)
        except TransportError as second:
            outcome = str(second)
        except BaseException as second:  # nothing is waited for a second time
            self.kill()
            add_report(second, self.report, str(self.report))
            raise
        finally:
            self.kill()
        if not own:
            add_report(error, self.report, outcome)

    def _writing_rest(
        self, error: BaseException, rest: Callable[[int], Iterable[Chunk]]
    ) -> Steps[None]:
        """Send the whole commands before an error, unless there is a gap before them."""
        try:
            self.flush()
            for chunk in rest(self.made):
                yield from self.writing(chunk)
        except TransportError as second:
            error.add_note(f"fastresp: {second}")

    # What each transport does in its own way.

    @property
    def report(self) -> Report:
        """The report so far."""
        raise NotImplementedError

    @property
    def running(self) -> bool:
        """Whether there is a connection."""
        raise NotImplementedError

    @property
    def made(self) -> int:
        """Commands taken over so far, sent or not."""
        raise NotImplementedError

    @property
    def limited(self) -> bool:
        """Whether commands go at a limited rate."""
        return False

    def connecting(self) -> Steps[None]:
        """As ``opening()``, without a report in the exception of an interruption."""
        raise NotImplementedError

    def writing(self, chunk: Chunk) -> Steps[None]:
        """Send a chunk, or hold it ready; errors as ``write()``."""
        raise NotImplementedError

    def finishing(self) -> Steps[None]:
        """Send what is left, and wait for the last reply; errors as ``write()``."""
        raise NotImplementedError

    def losing(self) -> Steps[TransportError]:
        """Give the exception for a lost connection; the others are waited for first."""
        raise NotImplementedError

    def flush(self) -> None:
        """Go on with what an interruption left unsent. Safe to call again after another."""

    def stop(self) -> None:
        """Send nothing more, but the rest of a command of which a part has gone."""
        raise NotImplementedError

    def kill(self) -> None:
        """Close the connection at once, if it is open."""
        raise NotImplementedError


def add_report(error: BaseException, report: Report, outcome: str) -> None:
    """Give an exception that is not ours the report: as a note, and as an attribute."""
    error.add_note(f"fastresp: {outcome}")
    if isinstance(error, LoadErrors):
        return  # of a load that the source made: it is the text of its own report
    with suppress(AttributeError, TypeError):
        error.report = report  # type: ignore[attr-defined]
