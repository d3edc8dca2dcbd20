"""One connection, full duplex: sends commands and receives replies, and never blocks.

A core (see ``driver``) calls ``step()``, and then yields the result of ``wait()``.
"""

from __future__ import annotations

import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from ..outcome.errors import ProtocolError, TransportError, TransportTimeout
from ..outcome.messages import Hint, Message, message_of
from ..outcome.report import Report
from ..server.forks import Inherited
from .resend import NotMarked, NotRun, Refused
from .sending import PORTION_S
from .stream import ReplySink, Stream, Wait
from .window import Window

if TYPE_CHECKING:
    from ..resp.buffer import Chunk
    from ..server.options import Rate
    from ..server.settings import Server

__all__ = ["LIKELY_CAUSES", "Connection", "LostConnection", "idle_cause", "with_second_look"]

# Interval between reads while there are bytes to send: waking for each small write of the server
# would cost more than everything else. A unix socket buffers 7 ms of replies.
READ_EVERY_S = 0.003
# The next chunk is encoded if at most this many bytes are unsent.
AHEAD_BYTES = (1 << 20) + (1 << 17)
# With a rate limit, the next chunk is encoded if the unsent bytes may be sent within this time.
AHEAD_LIMITED_S = 0.1
# Rounds of reads on a lost connection: at least 16 MiB, more than the 6 MB of buffers between two
# processes.
LAST_READS = 64
# Maximum wait between two checks of the deadline.
TICK_S = 0.2
# After this many seconds without a byte sent or received, a connection counts as silent.
SILENT_S = 0.2
# The server's 'timeout' setting is in whole seconds.
MIN_IDLE_S = 1.0
# Likely causes if the server closed a connection without an error reply.
LIKELY_CAUSES = (
    "the server was stopped or killed, or the connection was ended by CLIENT KILL or an output or "
    "query buffer limit"
)


class LostConnection(Exception):
    """The connection is lost; ``Connection.loss()`` returns the exception for users."""


class Connection:
    """Sends chunks of encoded commands, and receives replies, over one connection.

    Attributes:
        moved: when bytes were last sent or received.
        since: start of the timeout: the last time that bytes were sent or received, or that
            ``restart_timeout()`` was called.
        heard: the last time that bytes were received, or that ``restart_timeout()`` was called.

    Args:
        server: the server, for messages.
        timeout: maximum seconds without progress; None for no limit.
        rate: the rate limit, for all connections together; None for no limit.
    """

    # Receives the bytes of replies; set by subclasses.
    sink: ReplySink
    # An additional likely cause of a timeout.
    likely = ""
    # Maximum reads in one step: 1 MiB, which may contain 200,000 errors.
    max_reads = 16

    def __init__(
        self,
        server: Server,
        *,
        timeout: float | None = 30.0,
        rate: Rate | None = None,
        window: Window | None = None,
    ) -> None:
        self.server = server
        self.timeout = timeout
        self.rate = rate
        self.window = window or Window()
        self.stream: Stream | None = None
        self.started = self.moved = self.since = self.heard = time.monotonic()
        self._silent_s = SILENT_S if timeout is None else min(timeout, SILENT_S)
        self._pause = 0.0  # seconds without traffic before the connection was lost
        # After ``stop()``, the limit for ``sent``, in replies; otherwise None.
        self.end: int | None = None
        # Error replies that answer no whole command; the server then closed the connection.
        self.last_reply = ""
        self._report = Report("socket")

    def attach(self, connection: Any) -> None:
        """Take over a connected redis-py connection."""
        self.stream = Stream(connection, self.sink)
        self.started = self.moved = self.since = self.heard = time.monotonic()

    def detach(self) -> None:
        """Count the replies already received, and close the connection if it is open."""
        if self.stream is not None and self.stream.sure and self.stream.lost is None:
            with suppress(Exception):
                self.stream.receive()
                self.process_replies()
        try:
            self._report = self.report
        finally:
            stream, self.stream = self.stream, None
            if stream is not None:
                stream.close()

    def raised(self, error: BaseException) -> bool:
        """Return whether an exception comes from this connection, and not from a source."""
        lost = isinstance(error, TransportError) and error.report is self._report
        return lost or isinstance(error, LostConnection)

    def restart_timeout(self) -> None:
        """Restart the timeout, for example after waiting for the source."""
        self.since = self.heard = time.monotonic()

    def stop(self) -> None:
        """Stop sending, except for the rest of a partially sent command."""
        self.end = self.window.begun

    def process_replies(self) -> None:
        """Process the received replies, and release their commands from the window."""
        raise NotImplementedError

    @property
    def has_room(self) -> bool:
        """Whether the next chunk may be encoded.

        One chunk is kept ready while the socket is full, so that the server never waits for the
        encoder.
        """
        ahead = AHEAD_BYTES
        if self.rate is not None:
            # After a Ctrl-C, encoded commands are still sent at this rate, so keep them few.
            ahead = min(ahead, self.rate.bytes_in(AHEAD_LIMITED_S))
        return self.window.unsent_bytes <= ahead and self.window.has_room

    def add(self, chunk: Chunk) -> None:
        self.window.add(chunk)

    @property
    def finished(self) -> bool:
        """Whether nothing is left to send or to receive."""
        sent = self.window.sent
        last = self.window.made if self.end is None else self.end
        return sent >= last and self.window.acknowledged >= sent

    def step(self) -> None:
        """Receive and send without waiting.

        Raises:
            LostConnection: the connection is lost; ``loss()`` returns the exception for users.
            TransportError: the connection is closed, inherited from a parent process, or unusable.
        """
        stream = self.stream
        if stream is None or stream.lost is not None or not stream.sure:
            stream = self._usable_stream()
        moved = stream.receive(self.max_reads)
        if moved:
            self.heard = time.monotonic()
        self.process_replies()
        if stream.lost is not None or self.stream is None:
            self._usable_stream()  # the source may have forked, or closed the connection
        if stream.lost is None:
            moved |= self._send(stream)
        if stream.lost is not None:
            # Read the server's last bytes, but not forever.
            reads = 0 if isinstance(stream.lost, ProtocolError) else LAST_READS
            while reads > 0 and stream.receive(self.max_reads):
                self.process_replies()
                reads -= 1
            self.process_replies()
            self._pause = time.monotonic() - self.moved
            raise LostConnection
        if moved:
            self.moved = self.since = time.monotonic()

    def _usable_stream(self) -> Stream:
        """Return the stream.

        Raises:
            TransportError: the stream is closed, is in an unknown state, or belongs to the parent
                process.
        """
        stream = self.stream
        if stream is None:
            raise TransportError("this transport is closed; open a new one", self.report)
        if isinstance(stream.lost, Inherited):
            raise TransportError(str(stream.lost), self.report)
        if not stream.sure:
            raise TransportError(
                "after an interruption during a TLS call it is unknown what was sent; open a new "
                "connection",
                self.report,
            )
        return stream

    def wait(self) -> Wait:
        """Return what the driver must wait for before the next ``step()``.

        Raises:
            TransportTimeout: no progress for ``timeout`` seconds.
        """
        stream, window = self.stream, self.window
        assert stream is not None
        if stream.full:
            wait = Wait(False, True, READ_EVERY_S)
        elif self.rate is not None and window.unsent and self.end is None:
            wait = Wait(True, False, PORTION_S)
            if not window.in_doubt:
                self.restart_timeout()
        else:
            wait = Wait(True, False, TICK_S)
        silence = time.monotonic() - self.since
        if silence > self._silent_s:
            self._check_silence(silence)
        return wait

    def _check_silence(self, seconds: float) -> None:
        """React to ``seconds`` without traffic; raises as ``wait()`` does."""
        self.nudge(seconds)
        overdue = self.overdue()
        if overdue is not None:
            raise TransportTimeout(
                Message(
                    f"no progress for {overdue:g} s on the connection to {self.server}: "
                    f"{self.likely}the server is frozen, or its commands take longer (a larger ",
                    Hint("timeout", ...),
                    " waits longer; a server runs about 16 KB of commands before it answers)",
                ),
                self.report,
            )

    @property
    def report(self) -> Report:
        """The live report: commands sent, acknowledged and in doubt."""
        report, window = self._report, self.window
        report.rows, report.commands, report.bytes_sent = window.totals()
        report.replies, report.unsent = window.acknowledged, window.unsent
        if self.stream is not None:
            report.seconds = time.monotonic() - self.started
        return report

    def _send(self, stream: Stream) -> bool:
        """Send as much as is allowed now; return whether anything was sent."""
        end, room = self.end, self.room()
        if end is not None:
            room = end if room is None else min(end, room)
        return stream.send(self.window, room, self.room_bytes() if self.end is None else None)

    def room(self) -> int | None:
        """Return the current limit for ``sent``, in replies; None for no limit."""
        return None

    def room_bytes(self) -> int | None:
        """Return how many more bytes may be sent now; None for no limit."""
        return None

    def nudge(self, silence: float) -> None:
        """Send a PING, if needed, after ``silence`` seconds without traffic."""

    def overdue(self) -> float | None:
        """Return the timeout in seconds if there was no progress for this time; otherwise None."""
        timeout = self.timeout
        late = timeout is not None and time.monotonic() - self.since > timeout
        return timeout if late else None

    def loss(self) -> TransportError:
        """Return the exception for a lost connection. May take seconds to test a new connection."""
        report = self.report
        cause = self.stream.lost if self.stream is not None else None
        idle = "" if self.window.in_doubt else idle_cause(self._pause)
        self.detach()
        if isinstance(cause, NotRun | NotMarked):
            return TransportError(cause.args[0], report)
        if isinstance(cause, ProtocolError):
            message = (
                f"the server at {self.server} sent invalid replies: {cause} (check that this is "
                "Redis or Valkey, and any proxy in between)"
            )
        else:
            message = f"lost the connection to {self.server}: {cause}"
            if self.last_reply:
                message += f"; its last reply: {self.last_reply}"
            elif not isinstance(cause, Refused):
                message += f" ({LIKELY_CAUSES}{idle})"
        return TransportError(with_second_look(message, self.server, self.timeout), report)


def idle_cause(seconds: float) -> str:
    """Return text about the server's idle timeout, after a loss without traffic for ``seconds``.

    Return "" if there was traffic in the last second before the loss.
    """
    if seconds < MIN_IDLE_S:
        return ""
    return (
        f"; or the server closed it after a pause of {seconds:,.0f} s: its 'timeout' setting "
        "limits how long a connection may be idle (CONFIG GET timeout; 0 means no limit)"
    )


def with_second_look(message: str, server: Server, timeout: float | None) -> str:
    """Try a new connection, and append the result to the message. May take seconds."""
    try:
        server.ask(timeout)
    except TransportError as error:
        return Message(message, "\na new connection failed: ", message_of(error))
    return f"{message}\na new connection works"
