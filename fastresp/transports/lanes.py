"""Divide a load among one or more connections, chunk by chunk.

A lane is one connection of a load. A chunk contains encoded whole commands. The window of a lane
holds the commands that are unsent or unanswered.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from ..outcome.errors import ProtocolError
from ..outcome.report import Report
from ..server.forks import Inherited
from ..server.options import SNAPSHOT, Options
from .connection import LostConnection
from .lane import Lane
from .resend import NotMarked, NotRun
from .sending import Pace, Position, ResumePoint
from .window import WINDOW_BYTES

if TYPE_CHECKING:
    from ..encode.script import ForgottenScripts
    from ..resp.buffer import Chunk
    from ..server.settings import Server
    from .driver import Steps
    from .error_policy import ErrorPolicy
    from .ledger import Key, Ledger
    from .resend import ResendUnit

__all__ = ["Lanes"]

# Minimum window of a lane: lanes divide WINDOW_BYTES, but each needs room for a few chunks.
MIN_WINDOW_BYTES = 2 << 20
# If a node is silent for this many seconds, check whether another node has taken over its slots.
# A cluster detects a failure after cluster-node-timeout, 15 s by default.
STALLED_S = 1.0
# Causes of a lost connection that a new connection would not fix.
FINAL = ProtocolError | Inherited | NotRun | NotMarked
# Average number of lanes served per chunk.
SERVED = 4


class Lanes:
    """The connections of a load. Chooses a connection for each chunk, and keeps one report.

    Methods that return ``Steps`` are cores (see ``driver``): they yield the waits of all
    connections whenever no connection can send or receive.

    Args:
        options: the number of connections (3 MB of memory each), the timeout in seconds, and the
            rate limit for all connections together.
        resending: resends commands after NOSCRIPT; None if the template has no script.
        start: where a load with a checkpoint starts; None if the load has no checkpoint.
        nudges: whether a silent server gets a PING; see NudgeFilter.
        field_sets: the HIMPORT PREPARE commands that each connection needs so far; the list grows
            before the chunk that needs a new one is added. None if the load never uses HIMPORT.
    """

    def __init__(
        self,
        server: Server,
        policy: ErrorPolicy,
        options: Options,
        resending: ForgottenScripts | None = None,
        start: ResumePoint | None = None,
        field_sets: Sequence[bytes] | None = None,
        *,
        nudges: bool = False,
    ) -> None:
        self.server = server
        self.nudges = nudges
        self._saved: bool | None = None  # see note_saved()
        self.policy = policy
        self.live_report = Report("socket")
        self._options = options
        self.resending = resending
        self.field_sets = field_sets
        # Whether commands are sent in transactions that set a marker.
        self.batched = start is not None and start.batched
        self.resumable = start is not None  # whether a lost connection ends the load
        if start is not None:
            start.note_in(self.live_report)
        self.ledger: Ledger | None = None
        self.pipeline_bytes: int | None = None  # see attach()
        self._make_lanes([server] * options.connections)
        self.pace = None if options.rate is None else Pace(options.rate)
        self._started = 0.0
        self.routed = False
        self.asking = False  # whether ASK has redirected commands to nodes that import slots
        # Number and bytes of the chunks added since all lanes were last served, and how many bytes
        # were free at that time.
        self._turn = self._added = self._free = 0
        # The position in the source after the deferred commands.
        self.after = Position() if start is None else Position(row=start.row)
        self.look_at = 0.0  # when to refresh the topology again

    def _make_lanes(self, servers: Sequence[Server]) -> None:
        self._window_bytes = max(WINDOW_BYTES // len(servers), MIN_WINDOW_BYTES)
        self.lanes = [self._lane(server, number) for number, server in enumerate(servers)]
        self.live_report.connections = len(servers)

    def _lane(self, server: Server, number: int) -> Lane:
        return Lane(self, server, self._options, number, self._window_bytes)

    def attach(
        self,
        connections: Sequence[Any],
        servers: Sequence[Server] | None = None,
        ledger: Ledger | None = None,
        pipeline_bytes: int | None = None,
    ) -> None:
        """Take over connected redis-py connections, one for each lane.

        Args:
            servers: the node of each connection to a cluster.
            ledger: collects the commands to resend; None to resend nothing.
            pipeline_bytes: maximum bytes in flight on a connection, for servers that need a limit.
        """
        self.ledger, self.pipeline_bytes = ledger, pipeline_bytes
        self._make_lanes(servers or [self.server] * self._options.connections)
        self._started = time.monotonic()
        if self.pace is not None:
            self.pace.start = self._started
        for lane, connection in zip(self.lanes, connections, strict=True):
            lane.attach(connection)

    def extend(self, connections: Sequence[Any], servers: Sequence[Server]) -> None:
        """Add lanes to new nodes of a cluster, or to a server whose lanes were lost."""
        for connection, server in zip(connections, servers, strict=True):
            lane = self._lane(server, len(self.lanes))
            lane.attach(connection)
            self.lanes.append(lane)
        self.live_report.connections = len(self.connected)

    def retire(self, lanes: Iterable[int]) -> None:
        """Close the connections of lanes that will get no more commands.

        All commands of these lanes must be answered, unless the connection was lost: the unanswered
        commands of a lost lane are moved to the ledger.
        """
        for number in lanes:
            lane = self.lanes[number]
            assert lane.retry is not None
            self.after = self.position
            if lane.lost_at is not None:
                self.policy.doubt(lane.retry.lose(lane.window), self.live_report)
                if self.live_report.stopped:
                    self.stop()
            lane.detach()
            lane.retry.release(lane.window)
            lane.lost_at = None
        self.live_report.connections = len(self.connected)

    def resend(self, units: Mapping[int, Sequence[tuple[Key, ResendUnit]]]) -> None:
        """Resend units of the ledger: for each lane number, pairs (key in the ledger, unit)."""
        self.asking = any(unit.node for pairs in units.values() for _, unit in pairs)
        for number, pairs in units.items():
            lane = self.lanes[number]
            assert lane.retry is not None
            lane.retry.resend(lane.window, pairs, self.position)

    @property
    def lost(self) -> list[Lane]:
        """The lanes with commands that wait for a new connection."""
        if self.ledger is None:
            return []
        return [lane for lane in self.lanes if lane.lost_at is not None]

    @property
    def stalled(self) -> list[Lane]:
        """In a cluster, the lanes that wait for replies and have been silent for STALLED_S."""
        if self.ledger is None or not self.ledger.cluster:
            return []
        latest = time.monotonic() - STALLED_S
        return [lane for lane in self.connected if lane.heard < latest and lane.window.in_doubt]

    @property
    def unanswered(self) -> list[Lane]:
        return [lane for lane in self.connected if not lane.finished]

    @property
    def due(self) -> bool:
        """Whether commands must be resent, or the topology must be refreshed."""
        if self.ledger is None or self.live_report.stopped:
            return False
        if self.ledger:
            return True
        if time.monotonic() >= self.look_at:
            return bool(self.lost or self.stalled)
        return bool(self.lost) and not self.has_room

    @property
    def unsettled(self) -> bool:
        """Whether commands are unanswered, or must be resent."""
        return bool(self.ledger) or not all(lane.finished for lane in self.lanes)

    def detach(self) -> None:
        """Count the replies already received, and close all open connections."""
        with ExitStack() as stack:  # closes all, even if one close is interrupted
            for lane in self.lanes:
                stack.callback(lane.detach)

    @property
    def running(self) -> bool:
        return any(lane.stream is not None for lane in self.lanes)

    @property
    def connected(self) -> list[Lane]:
        return [lane for lane in self.lanes if lane.stream is not None]

    @property
    def _open(self) -> list[Lane]:
        """The lanes to use: if possible, lanes with an open connection in a known state."""
        lanes = self.connected
        if not lanes and self.lost:
            return []
        return [lane for lane in lanes if lane.stream and lane.stream.sure] or lanes or self.lanes

    @property
    def sent(self) -> int:
        """Number of whole commands sent."""
        return sum(lane.window.sent_commands for lane in self.lanes)

    @property
    def sent_bytes(self) -> int:
        return sum(lane.window.totals()[2] for lane in self.lanes)

    @property
    def made(self) -> int:
        return self.position.command

    @property
    def report(self) -> Report:
        """The live report: commands sent, acknowledged and in doubt.

        A command that will be resent counts as unsent or, if it may have run, as in doubt.
        """
        report = self.live_report
        totals = [lane.window.totals() for lane in self.lanes]
        rows, report.commands, report.bytes_sent = map(sum, zip(*totals, strict=True))
        report.rows = max(report.rows, rows)  # includes skipped rows that the load has added
        report.replies = report.commands - sum(lane.window.in_doubt for lane in self.lanes)
        report.unsent = sum(lane.window.unsent for lane in self.lanes)
        if self.ledger:
            report.commands += self.ledger.sent
            report.unsent += self.ledger.unsent
        if self._options.durable == SNAPSHOT:
            report.durable = report.replies if self._saved else 0
            report.replies = 0 if self._saved is False else report.replies
        elif self._options.confirms:
            report.durable = report.replies
        report.failed = sum(lane.counts.failed for lane in self.lanes)
        report.existing = sum(lane.counts.existing for lane in self.lanes)
        if self.running:
            report.seconds = time.monotonic() - self._started
        return report

    def judge(self) -> None:
        """Stop the load if the error policy requires it."""
        if not self.live_report.stopped:
            self.live_report.stopped = self.policy.verdict(self.report)
            if self.live_report.stopped:
                self.stop()

    def note_saved(self, saved: bool) -> None:
        """Note whether ``durable="snapshot"`` was successful; if not, all commands are in doubt."""
        self._saved = saved

    def lack_data(self, message: str) -> None:
        """Pass a possible loss of data to the error policy, and stop if the policy requires it."""
        self.policy.lack_data(message, self.live_report)
        if self.live_report.stopped:
            self.stop()

    def stop(self) -> None:
        """Stop sending, except for the rest of partially sent commands."""
        for lane in self.lanes:
            lane.stop()

    def pump(self) -> None:
        """Send and receive without waiting, while the core waits for a source.

        Raises as ``writing()`` does.
        """
        for lane in self._open:
            if self._step(lane) and not lane.finished:
                lane.wait()  # checks the deadline

    @property
    def has_room(self) -> bool:
        """Whether the next chunk may be encoded."""
        windows = [lane.window for lane in self.lanes]
        if self.ledger is not None:
            windows = [lane.window for lane in (*self.connected, *self.lost)] or windows
        if self.ledger or any(window.fence is not None for window in windows):
            return False
        # A chunk can be much larger than a window, so one chunk per lane could use too much memory.
        held = sum(window.held_bytes for window in windows)
        most = sum(window.max_bytes for window in windows)
        self._free = most - held
        if held >= most:
            return False
        lanes = self._open
        if self.ledger is not None:
            lanes = lanes + self.lost
        if self.routed and self.pace is not None:
            return all(lane.has_room for lane in lanes)
        if self.routed and not all(lane.window.has_room for lane in lanes):
            return False
        return any(lane.has_room for lane in lanes)

    def add(self, chunk: Chunk) -> Lane:
        """Add a chunk to its lane, or to the least busy lane if it has no lane; return the lane."""
        if chunk.lane < 0:
            lanes = self._open or self.lost
            ready = [lane for lane in lanes if lane.has_room]
            lane = min(ready or lanes, key=lambda lane: lane.load)
        else:
            self.routed = True
            lane = self.lanes[chunk.lane]
            try:
                lane = self._usable(lane)
            except LostConnection:
                pass  # raised again by the next step
            except BaseException:
                lane.window.add(chunk, self.position)
                raise
        lane.window.add(chunk, self.position)
        return lane

    def _serve_only(self, lane: Lane, chunk: Chunk) -> bool:
        """Serve the chunk's lane; return False if the other lanes must be served too.

        Serving 100 lanes takes ten times as long as encoding a chunk.
        """
        self._turn += 1
        self._added += chunk.memory
        if (
            self._turn * SERVED >= len(self.lanes)
            or self._added >= self._free
            or self.pace is not None
            or chunk.lane < 0
            or chunk.fence
            or lane.stream is None
            or not lane.stream.sure
        ):
            self._turn = self._added = 0
            return False
        return self._step(lane) and lane.window.has_room and not self.ledger

    def _usable(self, lane: Lane) -> Lane:
        """Return the lane, or its replacement."""
        while True:
            while lane.replacement is not None:
                lane = lane.replacement
            if lane.stream is None or not lane.stream.sure:
                return lane  # if the connection was lost, the chunk waits in this lane
            # The server may have closed the connection after the last reply.
            if self._step(lane):
                return lane

    @property
    def position(self) -> Position:
        """The position in the source after the newest chunk."""
        return max(self.after, *(lane.window.position for lane in self.lanes))

    def writing(self, chunk: Chunk) -> Steps[None]:
        """Add a chunk, then send and receive until there is room for the next chunk.

        Raises:
            LostConnection: the connection is lost; see ``explain_loss()``.
            TransportTimeout: no progress for ``timeout`` seconds.
        """
        if not self._serve_only(self.add(chunk), chunk):
            yield from self.wait_for_room()

    def wait_for_room(self) -> Steps[None]:
        """Send and receive until the next chunk may be encoded, or commands must be resent.

        Raises as ``writing()`` does.
        """
        began = time.monotonic()
        full = [lane for lane in self.connected if lane.window.node and not lane.window.has_room]
        yield from self.until(lambda: self.has_room or self.due, self._open)
        if full:
            seconds = (time.monotonic() - began) / len(full)
            waited = self.live_report.waited_for
            for lane in full:
                node = str(lane.window.node)
                waited[node] = waited.get(node, 0.0) + seconds

    def draining(self) -> Steps[None]:
        """Send commands and receive all replies, but stop if the topology must be refreshed."""
        yield from self.until(lambda: time.monotonic() >= self.look_at and self.stalled, self._open)

    def finishing(self) -> Steps[None]:
        """Send the remaining commands, and receive all replies; raises as ``writing()`` does."""
        sure = [lane for lane in self.lanes if lane.stream is not None and lane.stream.sure]
        yield from self.until(lambda: False, sure)

    def until(self, reached: Callable[[], object], lanes: Sequence[Lane]) -> Steps[None]:
        """Send and receive until ``reached()`` is true, or all of ``lanes`` have finished."""
        while True:
            lanes = [lane for lane in lanes if self._step(lane)]
            unfinished = [lane for lane in lanes if not lane.finished]
            # Check deadlines before returning: one lane may hang while the others continue.
            waits = [(lane.stream, lane.wait()) for lane in unfinished if lane.stream is not None]
            if reached() or not unfinished:
                return
            yield waits

    def _step(self, lane: Lane) -> bool:
        """Receive and send without waiting; return False if the connection was lost.

        In this case, the load continues: the lane was idle and another lane replaces it, or its
        commands wait for a new connection.

        Raises:
            LostConnection: the connection was lost, and the load can't continue.
        """
        try:
            lane.step()
        except LostConnection:
            if self._keep_commands(lane):
                return False
            others = [each for each in self._open if each is not lane]
            replacement = [each for each in others if each.server is lane.server]
            if not lane.finished or not replacement:
                raise
            lane.detach()
            lane.replacement = replacement[0]
            return False
        if lane.finished:
            lane.restart_timeout()
        return True

    def _keep_commands(self, lane: Lane) -> bool:
        """Keep a lost lane's commands for a new connection; return False if this is not allowed."""
        assert lane.stream is not None
        cause = lane.stream.lost
        if self.ledger is None or self.resumable or isinstance(cause, FINAL):
            return False
        if lane.last_reply:  # the server closes every connection that sends this command
            return False
        if self.live_report.stopped and not lane.finished:
            return False
        if self.ledger.message == "" or not self.ledger:
            self.ledger.message = f"lost the connection to {lane.server}: {cause}"
        lane.lose(cause)
        self.look_at = time.monotonic()
        return True
