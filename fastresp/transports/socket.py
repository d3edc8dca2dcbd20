"""The socket transport, which uses private connections and matches errors with commands."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from ..outcome.errors import TransportError
from ..outcome.report import Report
from ..resp.buffer import Chunk
from ..server.answers import Answers
from ..server.cluster_view import Processes, closed_if_failed
from ..server.known_faults import pipeline_limit
from ..server.options import Options
from ..server.reply_parser import integer_of
from ..server.settings import Server
from .base import RoutedChunks, Transport
from .connection import LostConnection
from .driver import Blocking, Steps
from .error_policy import ErrorPolicy
from .lane import Lane
from .lanes import Lanes
from .ledger import Ledger
from .nodes import Nodes, close_all_late
from .sending import ResumePoint

if TYPE_CHECKING:
    from ..encode.script import ForgottenScripts

__all__ = ["SocketTransport", "connecting"]

T = TypeVar("T")

# After a lost connection, stop waiting for the other connections if they make no progress for this
# many seconds.
DRAIN_S = 10.0


class SocketTransport(Transport):
    """Send RESP to a server over private connections, in a ``with`` statement or from a core.

    See Transport. Only the process that opened the transport may use it, one thread at a time.

    Args:
        options: the server, the number of connections, the timeout and the rate.
        server: the parsed server of ``options``; None to parse it here.
        policy: how to handle error replies; by default they are only reported.
        resending: resends commands after NOSCRIPT; None if the template has no script.
        transactions: whether the commands may contain MULTI and EXEC.
        nudges: whether a silent server gets a PING, which must not be in a transaction of the user.
        start: where a load with a checkpoint starts; None if the load has no checkpoint.
        field_sets: as for Lanes.
        in_event_loop: whether an event loop runs the transport.
    """

    def __init__(
        self,
        options: Options,
        *,
        server: Server | None = None,
        policy: ErrorPolicy | None = None,
        resending: ForgottenScripts | None = None,
        transactions: bool = False,
        nudges: bool = False,
        start: ResumePoint | None = None,
        field_sets: Sequence[bytes] | None = None,
        in_event_loop: bool = False,
    ) -> None:
        super().__init__(server or options.server)
        self.in_event_loop = in_event_loop
        self._transactions = transactions
        self._nodes: Nodes | None = None
        self.numbers: list[int] = []  # the CLIENT ID of each lane's connection, for a checkpoint
        self.options = options
        self.limited = options.rate is not None
        policy = policy or ErrorPolicy("collect")
        self.lanes: Lanes = Lanes(
            self.server, policy, options, resending, start, field_sets, nudges=nudges
        )

    @property
    def report(self) -> Report:
        return self.lanes.report

    @property
    def live_report(self) -> Report:
        return self.lanes.live_report

    @property
    def running(self) -> bool:
        return self.lanes.running or bool(self.lanes.lost)

    @property
    def made(self) -> int:
        return self.lanes.made

    def connecting(self) -> Steps[None]:
        options = self.options
        again = options.retry not in (None, "never")
        opened = yield from connecting(
            self.server, options.timeout, options.connections, again=again
        )
        connections, self.answers = opened
        topology = self.answers.topology
        servers = None
        if topology is not None:
            servers = self.server.nodes_of(topology.nodes, options.connections)
        retry = options.retry or ("never" if topology is None else "idempotent")
        # Transactions of a checkpoint are not resent by default, since only the marker shows
        # whether a lost or refused transaction has run.
        if (topology is not None and not self.lanes.batched) or retry != "never":
            self.ledger = Ledger(
                options.timeout,
                retry,
                transactions=self._transactions,
                cluster=topology is not None,
                resumable=self.lanes.resumable,
            )
            self._nodes = Nodes(self.server, options, self.answers, self.lanes, self.ledger)
        if options.checkpoint is not None:
            named = partial(_numbers_of, connections, options.checkpoint.name, self.server)
            self.numbers = yield Blocking(named)
        limit = pipeline_limit(self.answers.states)
        self.lanes.attach(connections, servers, self.ledger, limit)

    def writing(self, chunk: Chunk) -> Steps[None]:
        yield from self._unless_lost(self.lanes.writing(chunk))

    def resend_refused(
        self, chunks: RoutedChunks, idle: Callable[[], Steps[None]], *, end: bool = False
    ) -> Steps[None]:
        nodes, lanes = self._nodes, self.lanes
        if nodes is None:
            return
        if end:
            yield from self._unless_lost(lanes.draining())
        while (lanes.unsettled if end else lanes.due) and not lanes.live_report.stopped:
            if (yield from self._unless_lost(nodes.refresh_topology())):
                chunks.remap(nodes.reroute(chunks.drain()))
            if end or lanes.asking:
                yield from self._unless_lost(lanes.draining())
            yield from idle()

    def defer(self, chunk: Chunk) -> None:
        assert self._nodes is not None
        self._nodes.defer(chunk)

    def wait_for_room(self) -> Steps[None]:
        yield from self._unless_lost(self.lanes.wait_for_room())

    def finishing(self) -> Steps[None]:
        yield from self._unless_lost(self.lanes.finishing())

    def explain_loss(self) -> Steps[TransportError]:
        lanes = self.lanes
        lanes.stop()
        usable = usable_lanes(lanes)
        lost = [lane for lane in lanes.lanes if lane.stream is not None and lane not in usable]
        for lane in usable:
            lane.timeout = min(lane.timeout or DRAIN_S, DRAIN_S)
        try:
            while usable:
                try:
                    yield from lanes.until(lambda: False, usable)
                    break
                except LostConnection:
                    usable = usable_lanes(lanes)
                except TransportError:
                    break
        except BaseException:
            lanes.detach()  # stop waiting after a Ctrl-C or a cancellation
            raise
        first = max(lost, key=lambda lane: lane.stream is not None and lane.stream.lost is not None)
        for lane in lanes.lanes:
            if lane is not first:
                lane.detach()
        error: TransportError = yield Blocking(first.loss)
        return error

    def stop(self) -> None:
        self.lanes.stop()

    def kill(self) -> None:
        self.lanes.detach()

    def _unless_lost(self, steps: Steps[T]) -> Steps[T]:
        """Run steps, and convert a LostConnection to the exception for users.

        Raises:
            TransportError: a connection was lost.
            TransportTimeout: no progress for ``timeout`` seconds.
        """
        try:
            return (yield from steps)
        except LostConnection:
            raise (yield from self.explain_loss()) from None
        except TransportError as error:
            self.lanes.detach()
            error.report = self.report
            raise


def _numbers_of(connections: Iterable[Any], checkpoint: str, server: Server) -> list[int]:
    """Set the name of each connection to ``fastresp:CHECKPOINT``; return the CLIENT IDs.

    Raises:
        TransportError: a connection was lost; all connections are closed.
    """
    numbers = []
    try:
        with server.explained():
            for connection in connections:
                connection.send_command("CLIENT", "SETNAME", f"fastresp:{checkpoint}")
                connection.read_response()
                connection.send_command("CLIENT", "ID")
                numbers.append(integer_of("CLIENT ID", connection.read_response()))
    except BaseException:
        for connection in connections:
            connection.disconnect()
        raise
    return numbers


def connecting(
    server: Server, timeout: float | None, count: int = 1, *, again: bool = False
) -> Steps[Any]:
    """Call ``Server.open_all()``; return its result with the ``processes`` filled in.

    In a cluster, also fill in the ``states`` of the primaries.

    ``again`` is whether a lost connection to a single server will be reopened.

    Raises:
        CommandError: the server refuses a script.
        TransportError: the server can't be used.
    """

    def opening() -> tuple[list[Any], Answers]:
        connections, answers = server.open_all(count, timeout)
        servers = [server] if again else []
        if answers.topology is not None and server.requirements.slot is None:
            servers = server.nodes_of(answers.topology.nodes, 1)
        processes = Processes(sends_info="INFO" not in answers.unknown)
        settings = () if "CONFIG" in answers.unknown else server.requirements.settings
        with closed_if_failed(connections):
            if answers.topology is None:
                processes.record(zip(servers, connections, strict=False))
            else:
                opened = zip(servers, connections[::count], strict=False)
                answers = replace(answers, states=tuple(processes.record(opened, settings)))
        return connections, replace(answers, processes=processes)

    try:
        return (yield Blocking(opening, late=close_all_late))
    except RuntimeError as error:  # can't start a thread
        raise TransportError(f"can't open a connection to {server}: {error}") from error


def usable_lanes(lanes: Lanes) -> list[Lane]:
    streams = [(lane, lane.stream) for lane in lanes.lanes]
    return [lane for lane, stream in streams if stream and stream.sure and not stream.lost]
