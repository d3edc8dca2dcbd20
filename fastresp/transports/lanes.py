"""A load over one or several connections, each chunk whole over one of them."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Any

from ..outcome.errors import ProtocolError, TransportError
from ..outcome.excerpts import shortened
from ..outcome.report import Report
from ..resp.buffer import Chunk
from ..resp.scan import ReplyScanner
from ..server.options import Options
from ..server.settings import Server
from .connection import PORTION_S, Connection, LostConnection
from .driver import Blocking, Steps
from .error_policy import ErrorPolicy
from .resend import Resending, ResendingWindow
from .window import WINDOW_BYTES, Position

__all__ = ["Lane", "Lanes"]

# Several connections share the window, but each has room for some chunks.
LEAST_WINDOW_BYTES = 2 << 20
# After the loss of one connection the others are waited for, at most so long without progress.
DRAIN_S = 10.0
# Of the error replies that answer no command so many are told.
LAST_WORDS = 5


class Lanes:
    """The connections of a load: which one a chunk goes over, and one report of them all.

    The cores yield what each connection waits for whenever there is nothing to do but wait.

    Args:
        server: where they lead to.
        policy: what error replies do.
        options: how many connections, of which each may hold 3 MB; after how many seconds without
            any move to give up; how many commands may go in a second in all.
        resending: which commands are to be sent again if the server refuses them for now.
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
        count = options.connections
        self.so_far = Report("socket", connections=count)
        window_bytes = max(WINDOW_BYTES // count, LEAST_WINDOW_BYTES)
        windows = [ResendingWindow(resending, window_bytes) for _ in range(count)]
        self.lanes = [Lane(self, options, window) for window in windows]
        self.pace = None if options.rate_limit is None else Pace(options.rate_limit)
        self._started = 0.0

    def attach(self, connections: Sequence[Any]) -> None:
        """Take over connected redis-py connections, as many as there are lanes."""
        self._started = time.monotonic()
        if self.pace is not None:
            self.pace.start = self._started
        for lane, connection in zip(self.lanes, connections, strict=True):
            lane.attach(connection)

    def detach(self) -> None:
        """Close the connections that are open. What has come until now is counted."""
        with ExitStack() as stack:  # an interruption of one leaves none of the others open
            for lane in self.lanes:
                stack.callback(lane.detach)

    @property
    def running(self) -> bool:
        """Whether a connection is open."""
        return any(lane.stream is not None for lane in self.lanes)

    @property
    def _open(self) -> list[Lane]:
        """The lanes whose connection is open, but for those that a signal left unsure."""
        lanes = [lane for lane in self.lanes if lane.stream is not None]
        return [lane for lane in lanes if lane.stream and lane.stream.sure] or lanes or self.lanes

    @property
    def sent(self) -> int:
        """Commands that have gone as a whole."""
        return sum(lane.window.sent for lane in self.lanes)

    @property
    def made(self) -> int:
        """Commands taken over so far, sent or not."""
        return self._position.command

    @property
    def report(self) -> Report:
        """The report so far: what was sent, what was answered, what is in doubt.

        A command that is to be sent again counts as not sent, and not answered.
        """
        report = self.so_far
        totals = [lane.window.totals() for lane in self.lanes]
        report.rows, report.commands, report.bytes_sent = map(sum, zip(*totals, strict=True))
        report.replies = report.commands - sum(lane.window.in_doubt for lane in self.lanes)
        report.unsent = sum(lane.window.unsent for lane in self.lanes)
        report.failed = sum(lane.failed for lane in self.lanes)
        if self.running:
            report.seconds = time.monotonic() - self._started
        return report

    def judge(self) -> None:
        """Stop the load if there are more error replies than may be."""
        if not self.so_far.stopped:
            self.so_far.stopped = self.policy.verdict(self.report)
            if self.so_far.stopped:
                self.stop()

    def stop(self) -> None:
        """Send nothing more, but the rest of commands of which a part has gone."""
        for lane in self.lanes:
            lane.stop()

    def touch(self) -> None:
        """Count the time without progress from now."""
        for lane in self.lanes:
            lane.touch()

    def tend(self) -> None:
        """Move what can be moved, from outside of the generators.

        Raises:
            LostConnection: to be turned into a TransportError by ``losing()``.
            TransportTimeout: nothing moved for ``timeout`` seconds.
        """
        for lane in self._open:
            if self._moves(lane) and not lane.finished:
                lane.wait()  # looks at the deadline

    @property
    def has_room(self) -> bool:
        """Whether the next chunk may be made."""
        return any(lane.has_room for lane in self._open)

    def add(self, chunk: Chunk) -> None:
        """Take the next chunk, for the connection that has the least to do."""
        lanes = self._open
        lane = min([lane for lane in lanes if lane.has_room] or lanes, key=lambda lane: lane.load)
        lane.window.add(chunk, self._position)

    @property
    def _position(self) -> Position:
        """Where in the source the chunk ends that was made last."""
        return max(lane.window.position for lane in self.lanes)

    def writing(self, chunk: Chunk) -> Steps[None]:
        """Take a chunk, and go on until there is room to make the next.

        Raises:
            LostConnection: to be turned into a TransportError by ``losing()``.
            TransportTimeout: nothing moved for ``timeout`` seconds.
        """
        self.add(chunk)
        yield from self._until(lambda: self.has_room, self._open)

    def finishing(self) -> Steps[None]:
        """Send what is left, and go on until all replies have come; errors as ``writing()``."""
        sure = [lane for lane in self.lanes if lane.stream is not None and lane.stream.sure]
        yield from self._until(lambda: False, sure)

    def _until(self, reached: Callable[[], bool], lanes: Sequence[Lane]) -> Steps[None]:
        """Move bytes both ways until something is reached, or these lanes have finished."""
        while True:
            lanes = [lane for lane in lanes if self._moves(lane)]
            going = [lane for lane in lanes if not lane.finished]
            # Also where nothing is waited for: one may be dead while the others go on.
            waits = [(lane.stream, lane.wait()) for lane in going if lane.stream is not None]
            if reached() or not going:
                return
            yield waits

    def _moves(self, lane: Lane) -> bool:
        """Receive and send what can be; False when the lane is lost and nobody misses it.

        A server, or what is in between, may close a connection that had nothing to do.
        """
        try:
            lane.step()
        except LostConnection:
            if not lane.finished or len(self._open) == 1:
                raise
            lane.detach()
            return False
        if lane.finished:
            lane.touch()
        return True

    def losing(self) -> Steps[TransportError]:
        """Give the exception for a lost connection: wait for the others, then ask the server."""
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
            self.detach()  # a Ctrl-C, or a cancellation, waits for nothing more
            raise
        first = max(lost, key=lambda lane: lane.stream is not None and lane.stream.lost is not None)
        for lane in self.lanes:
            if lane is not first:
                lane.detach()
        error: TransportError = yield Blocking(first.loss)
        return error

    def _going(self) -> list[Lane]:
        """The lanes whose connection is not lost."""
        streams = [(lane, lane.stream) for lane in self.lanes]
        return [lane for lane, stream in streams if stream and stream.sure and not stream.lost]


class Pace:
    """How many commands may have gone by now under a rate limit.

    Args:
        rate: commands a second.

    Attributes:
        start: when the first may go.
    """

    def __init__(self, rate: float) -> None:
        self.rate = rate
        self.start = time.monotonic()

    def allowed(self, sent: int) -> int:
        """How many. What a slow source leaves unused is not made up for by a storm."""
        allowed = 1 + int((time.monotonic() - self.start) * self.rate)
        unused = allowed - sent - 1 - int(2 * PORTION_S * self.rate)
        if unused > 0:
            self.start += unused / self.rate
            allowed -= unused
        return allowed


class Lane(Connection):
    """One connection of a load: its replies are counted, and matched with their commands.

    Args:
        load: the load that it is a part of.
        options: as for Lanes.
        window: as for Connection.
    """

    window: ResendingWindow

    def __init__(self, load: Lanes, options: Options, window: ResendingWindow) -> None:
        super().__init__(
            load.server, timeout=options.timeout, rate_limit=options.rate_limit, window=window
        )
        self._load = load
        self._scanner = ReplyScanner()
        # Error replies that answer no whole command.
        self._unasked = 0
        self.sink = self._scanner

    @property
    def report(self) -> Report:
        """The report so far, of all connections."""
        return self._load.report

    @property
    def failed(self) -> int:
        """Commands that were answered by an error."""
        return self._scanner.failed - self._unasked - self.window.refused

    @property
    def load(self) -> tuple[int, int, Position]:
        """How much it has to do: bytes to send, commands to be answered; and its latest chunk.

        Of lanes that have nothing to do the one comes first that was idle the longest.
        """
        window = self.window
        return window.unsent_bytes, window.made - window.acknowledged, window.position

    def room(self) -> int | None:
        load = self._load
        if load.pace is None:
            return None
        sent = load.sent
        return self.window.sent + max(0, load.pace.allowed(sent) - sent)

    def overdue(self) -> float | None:
        """As of any connection; but what moves over another connection is progress of the load.

        One that is silent while others are not is waited for longer: a server goes from one to
        the next, and answers some of each.
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
            # Before the commands are let go of; if it raises, the next step goes on with it.
            self._load.policy.take(scanner.errors, window, self._load.so_far)
        window.acknowledge(min(scanner.replies, sent))
        if self.end is None:
            window.resend()
        if self.failed:
            self._load.judge()

    def _take_last_words(self, count: int) -> None:
        """Take the replies that answer no whole command.

        A server that refuses the first part of a command says why, and closes the connection.
        """
        assert self.stream is not None
        errors, sent = self._scanner.errors, self.window.sent
        late = [error for error in errors if error[0] >= sent]
        errors[:] = [error for error in errors if error[0] < sent]
        self._unasked += len({index for index, _, _ in late})
        words = [text.decode(errors="replace") for _, text, _ in late[:LAST_WORDS]]
        self.last_words = shortened("; ".join(filter(None, [self.last_words, *words])))
        if self.stream.lost is None:
            fault = f"{count:,} replies more than commands: {self.last_words}"
            self.stream.give_up(ProtocolError(fault, self._scanner.offset))
