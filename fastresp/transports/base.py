"""The base class of transports.

A Chunk contains encoded whole commands. A core is a generator that yields what it waits for; see
``driver``.
"""

from __future__ import annotations

from asyncio import CancelledError
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import TYPE_CHECKING, Protocol, Self

from ..outcome.errors import FastrespError, ProtocolError, TransportError
from ..outcome.report import LoadErrors, Report
from ..resp.buffer import Chunk
from ..resp.split import CommandSplitter
from ..server.settings import Server, ServerLike
from .driver import Steps, run

if TYPE_CHECKING:
    from ..server.answers import Answers
    from .lanes import Lanes
    from .ledger import Ledger

__all__ = ["RoutedChunks", "Transport", "add_report"]

# Exceptions after which a task or a coroutine can't await anything.
UNAWAITED = (CancelledError, GeneratorExit)


class RoutedChunks(Protocol):
    """Chunks that are divided among the lanes of nodes."""

    def drain(self) -> Iterable[Chunk]: ...
    def remap(self, lanes: list[int], /) -> None: ...


class Transport:
    """Send RESP to one server, in a ``with`` statement or from a core (see ``driver``).

    ``write()`` accepts RESP: bytes in pieces of any size, or Chunks. Only whole commands are sent.
    Leaving the block sends the last whole command, waits for the last reply, and completes
    ``report``. Error replies do not raise; they are in the report.

    Args:
        server: a URL, a ``redis.Redis`` client, or None for ``REDIS_URL`` (default: localhost).

    Attributes:
        answers: the server's answers about itself; None before the start.
        lanes: the connections; None for redis-cli.
        in_event_loop: whether an event loop runs the transport; if so, nothing can be awaited after
            a cancellation.
        limited: whether there is a rate limit.
        ledger: the commands to resend; None if this transport never resends commands.
    """

    lanes: Lanes | None = None
    ledger: Ledger | None = None
    in_event_loop = limited = False

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
        """Send RESP. If the bytes end inside a command, send the command with the next bytes.

        Raises:
            ProtocolError: the bytes are not RESP commands; earlier commands were sent.
            EncodeError: a command, such as SUBSCRIBE, does not get exactly one reply; earlier
                commands were sent.
            TransportError: the connection was lost.
            TransportTimeout: no progress for ``timeout`` seconds.
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
        """Send the last whole command, wait for the last reply, and close.

        Raises:
            ProtocolError: the last command is incomplete and was not sent.
            TransportError, TransportTimeout: see ``write()``.
        """
        run(self.closing())
        if self._splitter.pending and self._splitter.fault is None:
            size = self._splitter.pending
            raise ProtocolError(
                f"not RESP commands: the last command is cut off after {size:,} "
                f"{'byte' if size == 1 else 'bytes'}, and was not sent",
                self.report.bytes_sent,
            )
        return self.report

    # Cores; see ``driver``.

    def opening(self) -> Steps[None]:
        """Check the server, then connect.

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
        """Wait for the last reply, then close the connection.

        Raises:
            TransportError, TransportTimeout: see ``write()``.
        """
        if self.running:
            try:
                yield from self.finishing()
            except TransportError:
                self.kill()
                raise
            # Not in a ``finally``: after an interruption, ``ending_after()`` waits for the replies.
            self.kill()

    def ending_after(
        self,
        error: BaseException,
        rest: Callable[[int], Iterable[Chunk]] | None = None,
        following: Callable[[], Steps[None]] | None = None,
        locating: Callable[[], Steps[None]] | None = None,
    ) -> Steps[None]:
        """After an exception, send the remaining whole commands, and close the connection.

        No further command is sent after a cancellation in an event loop, where nothing can be
        awaited then. Nor is any sent after a Ctrl-C if there is a rate limit, which could make
        sending take forever.

        Args:
            error: the exception, to which the report is added.
            rest: receives the number of accepted commands, and returns the remaining chunks.
            following: resends commands; not called after a Ctrl-C.
            locating: finds the file and the line of errors; not called after a Ctrl-C.
        """
        # The source may raise an exception that comes from another load or reader.
        is_loss = isinstance(error, TransportError) and error.report is self.report
        lost: TransportError | None = None
        try:
            over = self.in_event_loop and isinstance(error, UNAWAITED)
            if self.running and not over and not is_loss:
                try:
                    yield from self._sending_rest(error, rest, following)
                except TransportError as second:
                    lost = second
            if locating is not None and isinstance(error, Exception):
                yield from locating()
            outcome = str(lost or self.report)
        except BaseException as second:  # do not wait a second time
            self.kill()
            add_report(second, self.report, str(self.report))
            raise
        finally:
            self.kill()
        if not is_loss:
            add_report(error, self.report, outcome)

    def _sending_rest(
        self,
        error: BaseException,
        rest: Callable[[int], Iterable[Chunk]] | None,
        following: Callable[[], Steps[None]] | None,
    ) -> Steps[None]:
        """Send the remaining commands after an error, and wait for the last reply."""
        if self.limited and not isinstance(error, Exception):
            self.stop()
        elif rest is not None:
            yield from self._writing_rest(error, rest)
        if self.running and following is not None and isinstance(error, Exception):
            yield from following()
        if self.running:
            yield from self.finishing()

    def _writing_rest(
        self, error: BaseException, rest: Callable[[int], Iterable[Chunk]]
    ) -> Steps[None]:
        """Send the chunks that precede an error; add a note to the error if this fails."""
        try:
            self.flush()
            yield from self.wait_for_room()
            while chunks := list(rest(self.made)):  # the rest of a large key waits for replies
                made = self.made
                for chunk in chunks:
                    if self.ledger:
                        self.defer(chunk)  # the chunk must follow the commands to resend
                    else:
                        yield from self.writing(chunk)
                if self.made == made:
                    break
        except TransportError as second:
            error.add_note(f"fastresp: {second}")

    # Implemented by each transport.

    @property
    def report(self) -> Report:
        """The live report, with current counters."""
        raise NotImplementedError

    @property
    def live_report(self) -> Report:
        """The live report; its counters may be outdated."""
        return self.report

    @property
    def running(self) -> bool:
        """Whether a connection is open, or was lost and will be reopened."""
        raise NotImplementedError

    @property
    def made(self) -> int:
        """Number of accepted commands, sent or not."""
        raise NotImplementedError

    def connecting(self) -> Steps[None]:
        """Connect; called by ``opening()``, which adds the report to exceptions."""
        raise NotImplementedError

    def writing(self, chunk: Chunk) -> Steps[None]:
        """Send a chunk, or queue it to be sent later; raises as ``write()`` does."""
        raise NotImplementedError

    def resend_refused(
        self, chunks: RoutedChunks, idle: Callable[[], Steps[None]], *, end: bool = False
    ) -> Steps[None]:
        """Resend commands that a node refused, or that a lost node left unanswered.

        Ready chunks that were routed to the old nodes are sent with the resent commands, so that no
        command overtakes an earlier command of the same key.

        Args:
            idle: called after each attempt.
            end: whether to continue until every command is answered.
        """
        yield from ()

    def defer(self, chunk: Chunk) -> None:
        """Queue a chunk behind the commands that must be resent."""
        raise NotImplementedError

    def wait_for_room(self) -> Steps[None]:
        """Wait for room for the next chunk; raises as ``write()`` does."""
        yield from ()

    def finishing(self) -> Steps[None]:
        """Send the remaining commands, and wait for the last reply; raises as ``write()`` does."""
        raise NotImplementedError

    def explain_loss(self) -> Steps[TransportError]:
        """Return the exception for a lost connection, after waiting for the other connections."""
        raise NotImplementedError

    def flush(self) -> None:
        """Send the bytes that an interruption left unsent. Can be called again if interrupted."""

    def stop(self) -> None:
        """Stop sending, except for the rest of a partially sent command."""
        raise NotImplementedError

    def kill(self) -> None:
        """Close the connection immediately, if it is open."""
        raise NotImplementedError


def add_report(error: BaseException, report: Report, outcome: str) -> None:
    """Add ``outcome`` as a note, and the report as an attribute, to an exception."""
    error.add_note(f"fastresp: {outcome}")
    if isinstance(error, LoadErrors):
        return  # raised by another load, the source, which has already set its own report
    with suppress(AttributeError, TypeError):
        error.report = report  # type: ignore[attr-defined]
