"""Spread a load over one or several connections; each chunk goes over one of them."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Any

from ..outcome.errors import ProtocolError, TransportError
from ..outcome.excerpts import shortened
from ..outcome.report import Report, counted
from ..resp.buffer import Chunk
from ..resp.scan import ReplyScanner
from ..server.options import Options
from ..server.settings import Server
from .connection import PORTION_S, Connection, LostConnection
from .driver import Blocking, Steps
from .error_policy import ErrorPolicy
from .redirect import Redirected
from .resend import Resending, ResendingWindow
from .window import WINDOW_BYTES, Position

__all__ = ["Lane", "Lanes"]

# Connections share the window, but each has room for a few chunks.
LEAST_WINDOW_BYTES = 2 << 20
# After one connection is lost, wait for the others until they make no progress for this long.
DRAIN_S = 10.0
# How many error replies that answer no command to show.
LAST_WORDS = 5


class Lanes:
    """The connections of a load: chooses one for each chunk, and keeps one report for all.

    Its cores yield what each connection waits for, whenever all of them must wait.

    Args:
        server: the server of all connections.
        policy: how to handle error replies.
        options: the number of connections (each may hold 3 MB), the timeout in seconds, and the
            rate limit for all connections together, in commands per second.
        resending: which commands to resend if the server refuses them for now.
    """

    def __init__(
        self,
        server: Server,
        policy: ErrorPolicy,
        options: Options,
        resending: Resending | None = None,
    ) -> None:
        self.server = server
        self.policy = policy
        self.so_far = Report("socket")
        self._options = options
        self._resending = resending
        self._make_lanes([server] * options.connections)
        self.pace = None if options.rate_limit is None else Pace(options.rate_limit)
        self._started = 0.0
        self.routed = False
        self.redirected: Redirected | None = None

    def _make_lanes(self, servers: Sequence[Server]) -> None:
        count = len(servers)
        self.so_far.connections = count
        window_bytes = max(WINDOW_BYTES // count, LEAST_WINDOW_BYTES)
        self.lanes = [
            Lane(self, server, self._options, ResendingWindow(self._resending, window_bytes))
            for server in servers
        ]

    def attach(
        self,
        connections: Sequence[Any],
        servers: Sequence[Server] | None = None,
        redirected: Redirected | None = None,
    ) -> None:
        """Take over connected redis-py connections, one for each lane.

        Args:
            servers: the node of each connection to a cluster.
            redirected: where to put the commands that a node redirects.
        """
        if servers is not None:
            self._make_lanes(servers)
        self.redirected = redirected
        for lane in self.lanes:
            lane.window.redirected = redirected
        self._started = time.monotonic()
        if self.pace is not None:
            self.pace.start = self._started
        for lane, connection in zip(self.lanes, connections, strict=True):
            lane.attach(connection)

    def extend(self, connections: Sequence[Any], servers: Sequence[Server]) -> None:
        """Add lanes to nodes of a cluster that are new."""
        for connection, server in zip(connections, servers, strict=True):
            window = ResendingWindow(self._resending, LEAST_WINDOW_BYTES)
            window.redirected = self.redirected
            lane = Lane(self, server, self._options, window)
            lane.attach(connection)
            self.lanes.append(lane)
        self.so_far.connections = len(self.lanes)

    def check_order(self) -> None:
        """Check, when all is answered, that no command ran before an earlier redirected one.

        Raises:
            TransportError: a slot moved away and came back while commands were in flight.
        """
        if any(lane.window.overtaken() for lane in self.lanes):
            assert self.redirected is not None
            commands = self.redirected.commands
            raise TransportError(
                "a slot of the cluster moved to another node and back while its commands were in "
                f"flight; {counted(len(commands), 'command')}, the first of row "
                f"{commands[0].row:,}, were refused and can't be sent again without overtaking "
                "later ones",
                self.report,
            )

    def detach(self) -> None:
        """Close the open connections. Replies received until now are counted."""
        with ExitStack() as stack:  # closes all, even if closing one is interrupted
            for lane in self.lanes:
                stack.callback(lane.detach)

    @property
    def running(self) -> bool:
        """Whether a connection is open."""
        return any(lane.stream is not None for lane in self.lanes)

    @property
    def _open(self) -> list[Lane]:
        """The lanes with an open connection, except those that a signal left unsure."""
        lanes = [lane for lane in self.lanes if lane.stream is not None]
        return [lane for lane in lanes if lane.stream and lane.stream.sure] or lanes or self.lanes

    @property
    def sent(self) -> int:
        """Whole commands sent so far."""
        return sum(lane.window.sent_commands for lane in self.lanes)

    @property
    def made(self) -> int:
        """Commands accepted so far, sent or not."""
        return self._position.command

    @property
    def report(self) -> Report:
        """The report so far: commands sent, acknowledged and in doubt.

        A command that will be resent counts as unsent and unanswered.
        """
        report = self.so_far
        totals = [lane.window.totals() for lane in self.lanes]
        report.rows, report.commands, report.bytes_sent = map(sum, zip(*totals, strict=True))
        report.replies = report.commands - sum(lane.window.in_doubt for lane in self.lanes)
        report.unsent = sum(lane.window.unsent for lane in self.lanes)
        report.unsent += len(self.redirected or ())
        report.failed = sum(lane.failed for lane in self.lanes)
        report.existing = sum(lane.existing for lane in self.lanes)
        if self.running:
            report.seconds = time.monotonic() - self._started
        return report

    def judge(self) -> None:
        """Stop the load if there are more error replies than allowed."""
        if not self.so_far.stopped:
            self.so_far.stopped = self.policy.verdict(self.report)
            if self.so_far.stopped:
                self.stop()

    def stop(self) -> None:
        """Send nothing more, except the rest of commands that were sent in part."""
        for lane in self.lanes:
            lane.stop()

    def touch(self) -> None:
        """Restart the timeout."""
        for lane in self.lanes:
            lane.touch()

    def tend(self) -> None:
        """Send and receive what is possible now, when called from outside the core.

        Raises:
            LostConnection: ``losing()`` turns it into a TransportError.
            TransportTimeout: no progress for ``timeout`` seconds.
        """
        for lane in self._open:
            if self._moves(lane) and not lane.finished:
                lane.wait()  # checks the deadline

    @property
    def has_room(self) -> bool:
        """Whether the next chunk may be made."""
        windows = [lane.window for lane in self.lanes]
        if self.redirected or any(window.fenced for window in windows):
            return False
        # A chunk can be much larger than a window, and one on each connection would be too much.
        held = sum(window.held_bytes for window in windows)
        most = sum(window.most_bytes for window in windows)
        lanes = self._open
        if held >= most or (self.routed and not all(lane.window.has_room for lane in lanes)):
            return False
        return any(lane.has_room for lane in lanes)

    def add(self, chunk: Chunk) -> None:
        """Accept the next chunk, for its lane, or for the one with the least to do."""
        if chunk.lane < 0:
            lanes = self._open
            ready = [lane for lane in lanes if lane.has_room]
            lane = min(ready or lanes, key=lambda lane: lane.load)
        else:
            self.routed = True
            lane = self._usable(self.lanes[chunk.lane])
        lane.window.add(chunk, self._position)

    def _usable(self, lane: Lane) -> Lane:
        """Return the lane, or the one that took its place."""
        while True:
            while lane.heir is not None:
                lane = lane.heir
            # A server may have closed it while it had nothing to do.
            if not lane.finished or lane.stream is None or self._moves(lane):
                return lane

    @property
    def _position(self) -> Position:
        """The position in the source after the newest chunk."""
        return max(lane.window.position for lane in self.lanes)

    def writing(self, chunk: Chunk) -> Steps[None]:
        """Accept a chunk, and send and receive until there is room for the next.

        Raises:
            LostConnection: ``losing()`` turns it into a TransportError.
            TransportTimeout: no progress for ``timeout`` seconds.
        """
        self.add(chunk)
        yield from self.settling()

    def settling(self) -> Steps[None]:
        """Send and receive until there is room for a chunk; raises as ``writing()`` does."""
        yield from self._until(lambda: self.has_room, self._open)

    def finishing(self) -> Steps[None]:
        """Send the rest, and receive all replies; raises as ``writing()`` does."""
        sure = [lane for lane in self.lanes if lane.stream is not None and lane.stream.sure]
        yield from self._until(lambda: False, sure)

    def _until(self, reached: Callable[[], bool], lanes: Sequence[Lane]) -> Steps[None]:
        """Send and receive until ``reached()`` is true, or these lanes have finished."""
        while True:
            lanes = [lane for lane in lanes if self._moves(lane)]
            going = [lane for lane in lanes if not lane.finished]
            # Check deadlines even if this returns: one may be dead while the others go on.
            waits = [(lane.stream, lane.wait()) for lane in going if lane.stream is not None]
            if reached() or not going:
                return
            yield waits

    def _moves(self, lane: Lane) -> bool:
        """Receive and send what is possible now; return False if the lane is lost but not needed.

        A server, or a proxy, may close a connection that had nothing to do.
        """
        try:
            lane.step()
        except LostConnection:
            if not lane.finished or len(self._open) == 1:
                raise
            lane.detach()
            lane.heir = self._open[0]
            return False
        if lane.finished:
            lane.touch()
        return True

    def losing(self) -> Steps[TransportError]:
        """Return the exception for a lost connection, after waiting for the other connections."""
        self.stop()
        going = self._going()
        lost = [lane for lane in self.lanes if lane.stream is not None and lane not in going]
        for lane in going:
            lane.timeout = min(lane.timeout or DRAIN_S, DRAIN_S)
        try:
            while going:
                try:
                    yield from self._until(lambda: False, going)
                    break
                except LostConnection:
                    going = self._going()
                except TransportError:
                    break
        except BaseException:
            self.detach()  # after a Ctrl-C or a cancellation, wait no more
            raise
        first = max(lost, key=lambda lane: lane.stream is not None and lane.stream.lost is not None)
        for lane in self.lanes:
            if lane is not first:
                lane.detach()
        error: TransportError = yield Blocking(first.loss)
        return error

    def _going(self) -> list[Lane]:
        """Return the lanes with a usable connection."""
        streams = [(lane, lane.stream) for lane in self.lanes]
        return [lane for lane, stream in streams if stream and stream.sure and not stream.lost]


class Pace:
    """Computes how many commands a rate limit allows by now.

    Args:
        rate: commands per second.

    Attributes:
        start: when the first command may be sent.
    """

    def __init__(self, rate: float) -> None:
        self.rate = rate
        self.start = time.monotonic()

    def allowed(self, sent: int) -> int:
        """Return the total number of commands allowed by now.

        After a slow source there is no burst to catch up.
        """
        allowed = 1 + int((time.monotonic() - self.start) * self.rate)
        unused = allowed - sent - 1 - int(2 * PORTION_S * self.rate)
        if unused > 0:
            self.start += unused / self.rate
            allowed -= unused
        return allowed


class Lane(Connection):
    """One connection of a load: counts its replies, and matches errors with their commands.

    Args:
        load: the load that it belongs to.
        server: what it is connected to.
        options: as for Lanes.
        window: as for Connection.

    Attributes:
        heir: the lane that gets its chunks, if it was lost when all it had was answered.
    """

    window: ResendingWindow
    heir: Lane | None = None

    def __init__(
        self, load: Lanes, server: Server, options: Options, window: ResendingWindow
    ) -> None:
        super().__init__(
            server, timeout=options.timeout, rate_limit=options.rate_limit, window=window
        )
        self._load = load
        self._scanner = ReplyScanner()
        # Error replies that answer no whole command.
        self._surplus = 0
        # Up to which reply error replies were counted, how many more commands failed than replies
        # are errors, and how many commands made keys that exist. Replaced as a whole, as in
        # ResendingWindow.
        self._counted = 0, 0, 0
        self._skips = options.exists == "skip"
        self.sink = self._scanner

    @property
    def report(self) -> Report:
        """The report so far, of all connections."""
        return self._load.report

    @property
    def failed(self) -> int:
        """Commands answered with an error."""
        self._count()  # replies that came since the last step
        return self._scanner.failed - self._surplus + self._counted[1] - self.window.refused

    @property
    def existing(self) -> int:
        """Commands that would have made keys that exist, which were to be skipped."""
        self._count()
        return self._counted[2]

    @property
    def load(self) -> tuple[int, int, Position]:
        """How much it has to do: bytes to send, commands to be answered, and its latest chunk.

        Among idle lanes, the one that has been idle longest sorts first.
        """
        window = self.window
        return window.unsent_bytes, window.made - window.acknowledged, window.position

    def room(self) -> int | None:
        load = self._load
        if load.pace is None:
            return None
        sent, window = load.sent, self.window
        allowed = load.pace.allowed(sent) - sent
        if allowed <= 0:
            return window.sent
        # At least the next, which may stand for more commands than that.
        return max(window.within(window.sent_commands + allowed), window.sent + 1)

    def overdue(self) -> float | None:
        """Return the timeout if it has passed, as for Connection; progress of others counts too.

        A lane that is silent while others are not gets more time: a server serves its
        connections in turn.
        """
        timeout = super().overdue()
        lanes = self._load.lanes
        if timeout is None or time.monotonic() - max(lane.moved for lane in lanes) > timeout:
            return timeout
        timeout *= sum(not lane.finished for lane in lanes)
        return timeout if time.monotonic() - self.since > timeout else None

    def understand(self) -> None:
        scanner, window = self._scanner, self.window
        sent = window.sent
        if scanner.replies > sent:
            self._take_last_words(scanner.replies - sent)
        if scanner.errors:
            window.sift(scanner.errors)
        if scanner.errors:
            self._count()
            if self._skips:
                scanner.errors[:] = [each for each in scanner.errors if not is_of_existing(each[1])]
            # Before the window releases the commands; if it raises, the next step continues.
            self._load.policy.take(scanner.errors, window, self._load.so_far)
        window.acknowledge(min(scanner.replies, sent))
        if self.end is None:
            window.resend()
        if self.failed:
            self._load.judge()

    def _count(self) -> None:
        """Count the commands that error replies answer."""
        counted, more, existing = self._counted
        window = self.window
        sent = window.sent
        for index, text, _ in self._scanner.errors:
            if counted <= index < sent:
                commands = window.answered(index)
                counted, more = index + 1, more + commands - 1
                existed = is_of_existing(text)
                if self._skips and existed:
                    more, existing = more - commands, existing + commands
                window.note_error(index, existed=existed)
        self._counted = counted, more, existing

    def _take_last_words(self, count: int) -> None:
        """Keep the error replies that answer no whole command.

        A server that refuses the first part of a command sends an error and closes the connection.
        """
        assert self.stream is not None
        errors, sent = self._scanner.errors, self.window.sent
        late = [error for error in errors if error[0] >= sent]
        errors[:] = [error for error in errors if error[0] < sent]
        self._surplus += len({index for index, _, _ in late})
        words = [text.decode(errors="replace") for _, text, _ in late[:LAST_WORDS]]
        self.last_words = shortened("; ".join(filter(None, [self.last_words, *words])))
        if self.stream.lost is None:
            noun = "reply" if count == 1 else "replies"
            fault = f"{count:,} more {noun} than commands: {self.last_words}"
            self.stream.give_up(ProtocolError(fault, self._scanner.offset))


def is_of_existing(reply: bytes) -> bool:
    """Return whether RESTORE was refused because its key exists."""
    return reply.startswith(b"BUSYKEY")
