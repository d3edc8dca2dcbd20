"""One connection, full duplex: what to send and what came back, without ever waiting.

A core calls ``step()``, and then has the driver wait as ``wait()`` says.
"""

from __future__ import annotations

import time
from contextlib import suppress
from typing import Any

from ..outcome.errors import ProtocolError, TransportError, TransportTimeout
from ..outcome.messages import Hint, Message
from ..outcome.report import Report
from ..resp.buffer import Chunk
from ..server.forks import Inherited
from ..server.settings import Server
from .causes import LIKELY_CAUSES, idle_cause, with_second_look
from .stream import Sink, Stream, Wait
from .window import Window

__all__ = ["LostConnection", "Connection"]

# While there is something to send, replies are looked for so often: waking for each of the
# server's small writes would cost more than all the rest. A unix socket holds 7 ms of them.
READ_EVERY_S = 0.003
# How much may be ready to go while the next chunk is made: one chunk, and its slack.
AHEAD_BYTES = (1 << 20) + (1 << 17)
# And with a rate limit, in bytes for each command a second.
AHEAD_LIMITED = 5
# From a connection that is lost so many times what a step reads is taken: at least 16 MiB, where
# the buffers between two processes hold 6 MB.
LAST_READS = 64
# How long a wait lasts at most before the deadline is looked at.
TICK_S = 0.2
# With a rate limit commands go in portions of so many seconds.
PORTION_S = 0.01


class Connection:
    """Chunks out, replies in, over one connection.

    Attributes:
        moved: when bytes last moved, either way.
        since: from when on the time without progress counts: as ``moved``, or later.

    Args:
        server: whose connection it is, for messages.
        timeout: seconds without any progress after which to give up; None for never.
        rate_limit: send at most this many commands per second; None for no limit.
        window: what bounds the commands in flight.
    """

    # What takes the bytes of replies; to be set by those who know what to do with them.
    sink: Sink
    # How many reads a step may make: a mebibyte, which may hold 200,000 errors.
    most_reads = 16

    def __init__(
        self,
        server: Server,
        *,
        timeout: float | None = 30.0,
        rate_limit: float | None = None,
        window: Window | None = None,
    ) -> None:
        self.server = server
        self.timeout = timeout
        self.rate_limit = rate_limit
        self.window = window or Window()
        self.stream: Stream | None = None
        self.started = self.moved = self.since = time.monotonic()
        self._pause = 0.0  # in which nothing had moved before the connection was lost
        # No command from this one on is sent; None for no end.
        self.end: int | None = None
        # What the server said of a command that it had a part of, before it closed the connection.
        self.last_words = ""
        self._report = Report("socket")

    def attach(self, connection: Any) -> None:
        """Take over a connected redis-py connection."""
        self.stream = Stream(connection, self.sink)
        self.started = self.moved = self.since = time.monotonic()

    def detach(self) -> None:
        """Close the connection, if it is open. What has come until now is counted."""
        if self.stream is not None and self.stream.sure and self.stream.lost is None:
            with suppress(Exception):
                self.stream.receive()
                self.understand()
        try:
            self._report = self.report
        finally:
            stream, self.stream = self.stream, None
            if stream is not None:
                stream.close()

    def raised(self, error: BaseException) -> bool:
        """Whether an exception is this connection's, and not that of a source."""
        lost = isinstance(error, TransportError) and error.report is self._report
        return lost or isinstance(error, LostConnection)

    def touch(self) -> None:
        """Count the time without progress from now: what others took of it does not count."""
        self.since = time.monotonic()

    def tend(self) -> None:
        """Move what can be moved, from outside of the generators.

        Raises:
            LostConnection: to be turned into a TransportError by ``loss()``.
            TransportTimeout: nothing moved for ``timeout`` seconds.
        """
        self.step()
        if self.finished:
            self.touch()
        else:
            self.wait()  # looks at the deadline

    def stop(self) -> None:
        """Send nothing more, but the rest of a command of which a part has gone."""
        self.end = self.window.begun

    def understand(self) -> None:
        """Look at what came in, and acknowledge it in the window."""
        raise NotImplementedError

    @property
    def has_room(self) -> bool:
        """Whether the next chunk may be made.

        A chunk's worth is held ready while the socket is full, so that the server never waits for
        the next to be made.
        """
        ahead = AHEAD_BYTES
        if self.rate_limit is not None:
            # What is made goes, at that rate, after a Ctrl-C, too: little, as of small commands.
            ahead = min(ahead, int(self.rate_limit * AHEAD_LIMITED))
        return self.window.unsent_bytes <= ahead and self.window.has_room

    def add(self, chunk: Chunk) -> None:
        """Take the next chunk."""
        self.window.add(chunk)

    @property
    def finished(self) -> bool:
        """Whether all that is to be sent has gone and was answered."""
        sent = self.window.sent
        last = self.window.made if self.end is None else self.end
        return sent >= last and self.window.acknowledged >= sent

    def step(self) -> None:
        """Receive and send what can be, now.

        Raises:
            LostConnection: to be turned into a TransportError by ``loss()``.
            TransportError: this connection can't be used any more.
        """
        stream = self.stream
        if stream is None or stream.lost is not None or not stream.sure:
            stream = self._usable_stream()
        moved = stream.receive(self.most_reads)
        self.understand()
        if stream.lost is not None or self.stream is None:
            self._usable_stream()  # what a user's function did in between may have been a fork
        if stream.lost is None:
            moved |= self._send(stream)
        if stream.lost is not None:
            # What the server said before it went is still to be had, but it may go on for ever.
            reads = 0 if isinstance(stream.lost, ProtocolError) else LAST_READS
            while reads > 0 and stream.receive(self.most_reads):
                self.understand()
                reads -= 1
            self.understand()
            self._pause = time.monotonic() - self.moved
            raise LostConnection
        if moved:
            self.moved = self.since = time.monotonic()

    def _usable_stream(self) -> Stream:
        """The connection; refuse to use one that is closed, torn, or another process's."""
        stream = self.stream
        if stream is None:
            raise TransportError("this transport is closed", self.report)
        if isinstance(stream.lost, Inherited):
            raise TransportError(str(stream.lost), self.report)
        if not stream.sure:
            raise TransportError(
                "an interruption in the midst of a TLS call left it unknown what was sent; this "
                "connection can't be used any more",
                self.report,
            )
        return stream

    def wait(self) -> Wait:
        """What to wait for when nothing can be done.

        Raises:
            TransportTimeout: nothing moved for ``timeout`` seconds.
        """
        stream, window = self.stream, self.window
        assert stream is not None
        if stream.full:
            wait = Wait(False, True, READ_EVERY_S)
        elif self.rate_limit is not None and window.unsent and self.end is None:
            wait = Wait(True, False, PORTION_S)
            if not window.in_doubt:
                self.touch()
        else:
            wait = Wait(True, False, TICK_S)
        overdue = self.overdue()
        if overdue is not None:
            raise TransportTimeout(
                Message(
                    f"nothing moved for {overdue:g} s between here and {self.server}: the server "
                    "is frozen, or busy with commands that take longer (a larger ",
                    Hint("timeout", ...),
                    " waits longer; a server answers about 16 KB of commands at once)",
                ),
                self.report,
            )
        return wait

    @property
    def report(self) -> Report:
        """The report so far: what was sent, what was answered, what is in doubt."""
        report, window = self._report, self.window
        report.rows, report.commands, report.bytes_sent = window.totals()
        report.replies, report.unsent = window.acknowledged, window.unsent
        if self.stream is not None:
            report.seconds = time.monotonic() - self.started
        return report

    def _send(self, stream: Stream) -> bool:
        """Send what may go by now, and return whether anything went."""
        end, room = self.end, self.room()
        if end is not None:
            room = end if room is None else min(end, room)
        return stream.send(self.window, room)

    def room(self) -> int | None:
        """How many commands may have gone, that the replies, or the rate, stay within bounds."""
        return None

    def overdue(self) -> float | None:
        """How long nothing may move, where nothing has for longer; else None."""
        timeout = self.timeout
        late = timeout is not None and time.monotonic() - self.since > timeout
        return timeout if late else None

    def loss(self) -> TransportError:
        """The exception for a lost connection. Asks the server again: may take seconds."""
        report = self.report
        cause = self.stream.lost if self.stream is not None else None
        idle = "" if self.window.in_doubt else idle_cause(self._pause)
        self.detach()
        if isinstance(cause, ProtocolError):
            message = f"the server at {self.server} sent what can't be understood: {cause}"
        else:
            message = f"lost the server at {self.server}: {cause}"
            words = self.last_words
            message += f"; its last words: {words}" if words else f" ({LIKELY_CAUSES}{idle})"
        return TransportError(with_second_look(message, self.server, self.timeout), report)


class LostConnection(Exception):
    """The connection is lost; ``loss()`` makes the exception that the user gets."""
