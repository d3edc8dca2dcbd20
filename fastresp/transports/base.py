"""What the transports have in common: begun, written to, ended, and never left half done."""

from __future__ import annotations

from contextlib import suppress
from typing import Self

from ..outcome.errors import FastrespError, ProtocolError, TransportError
from ..outcome.report import Report
from ..resp.buffer import Chunk
from ..resp.split import CommandSplitter
from ..server.answers import Answers
from ..server.settings import Server, ServerLike

__all__ = ["LIKELY_CAUSES", "Transport", "add_report", "idle_cause"]

# The setting 'timeout' of a server is in whole seconds.
LEAST_IDLE_S = 1.0
# Of a connection that was lost without a word.
LIKELY_CAUSES = (
    "the server was stopped or killed, or the connection was ended by CLIENT KILL or an output or "
    "query buffer limit"
)


class Transport:
    """RESP to one server, to be used in a ``with`` statement.

    ``write()`` takes RESP: bytes in pieces of any size, or Chunks. Only whole commands are sent.
    Leaving the block sends the last whole command, waits for the last reply, and completes
    ``report``; error replies raise nothing, they are in the report.

    Args:
        server: a URL, a ``redis.Redis`` client, or None for ``REDIS_URL``, else localhost.

    Attributes:
        answers: what the server said when it was asked; None before the start.
    """

    def __init__(self, server: ServerLike | Server = None) -> None:
        self.server = server if isinstance(server, Server) else Server(server)
        self.answers: Answers | None = None
        self._splitter = CommandSplitter()

    def __enter__(self) -> Self:
        try:
            self.start()
        except Exception:
            raise
        except BaseException as interruption:
            add_report(interruption, self.report, str(self.report))
            raise
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if error is None:
            try:
                self.close()
            except FastrespError:
                raise
            except BaseException as interruption:
                self._end_after(interruption)
                raise
        else:
            self._end_after(error)

    def _end_after(self, error: BaseException) -> None:
        """The exception goes up as it is; what was whole still goes in."""
        try:
            if self.running and not isinstance(error, TransportError):
                self._finish()
            outcome = str(self.report)
        except TransportError as second:
            outcome = str(second)
        except BaseException as second:  # another Ctrl-C waits for nothing
            self.kill()
            add_report(second, self.report, str(self.report))
            raise
        finally:
            self.kill()
        if not isinstance(error, TransportError):
            add_report(error, self.report, outcome)

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
        if isinstance(data, Chunk):
            self._send(data)
            return
        chunk = self._splitter.feed(data)
        if chunk is not None:
            self._send(chunk)
        if self._splitter.fault is not None:
            raise self._splitter.fault

    def close(self) -> Report:
        """End after the last whole command, and wait for the last reply.

        Raises:
            ProtocolError: the last command written is not whole; it was not sent.
            TransportError, TransportTimeout: as ``write()``.
        """
        if self.running:
            try:
                self._finish()
            except TransportError:
                self.kill()
                raise
            # Not after an interruption: the end of the 'with' block waits for the replies.
            self.kill()
        if self._splitter.pending and self._splitter.fault is None:
            raise ProtocolError(
                f"not RESP commands: the last command is cut off after {self._splitter.pending:,} "
                "bytes, and was not sent",
                self.report.bytes_sent,
            )
        return self.report

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

    def start(self) -> None:
        """Ask the server, then connect.

        Raises:
            TransportError: the server can't be used; nothing was sent.
        """
        raise NotImplementedError

    def flush(self) -> None:
        """Go on with what an interruption left unsent. Safe to call again after another."""
        raise NotImplementedError

    def stop(self) -> None:
        """Send nothing more, but the rest of a command of which a part has gone."""
        raise NotImplementedError

    def kill(self) -> None:
        """Close the connection at once, if it is open."""
        raise NotImplementedError

    def _send(self, chunk: Chunk) -> None:
        raise NotImplementedError

    def _finish(self) -> None:
        raise NotImplementedError


def idle_cause(seconds: float) -> str:
    """One more likely cause of a lost connection, where nothing had moved for so long; or ""."""
    if seconds < LEAST_IDLE_S:
        return ""
    return (
        f"; or the server closed it after a pause of {seconds:,.0f} s: its setting 'timeout' says "
        "how long a connection may be idle (CONFIG GET timeout; 0 for no limit)"
    )


def add_report(error: BaseException, report: Report, outcome: str) -> None:
    """Give an exception that is not ours the report: as a note, and as an attribute."""
    error.add_note(f"fastresp: {outcome}")
    with suppress(AttributeError, TypeError):
        error.report = report  # type: ignore[attr-defined]
