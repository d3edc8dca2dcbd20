"""Read from all nodes of a cluster, and yield replies in the order of the source.

A lane is the index of a node; a chunk contains commands for one lane. The index of a command is its
index among all commands of the source.
"""

from __future__ import annotations

import time
from collections.abc import Generator, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from ..outcome.errors import CommandError, DecodeError, TransportError
from ..outcome.report import Report
from ..resp.read import RawReplies, ReplyReader
from ..resp.slots import Rules
from ..resp.split import arguments
from ..server.cluster import MAX_NODES, Topology, redirect_of
from ..server.cluster_view import RECONNECT_TIMEOUT_S, Address, ClusterView, LostData
from ..transports.connection import LostConnection
from ..transports.driver import Blocking, Emit, Step, Steps, sleeping
from ..transports.lanes import STALLED_S
from ..transports.ledger import PAUSE_S
from ..transports.nodes import close_all_late, looking
from ..transports.sending import Position
from ..transports.window import WINDOW_BYTES
from .node_core import NodeCore, RedirectCore, waits_of
from .reply_core import ReplyCore, add_next
from .unresolved import HOME, Unresolved, refusal_of

if TYPE_CHECKING:
    from ..resp.buffer import Chunk
    from ..server.answers import Answers
    from ..sources.chunks import Chunks
    from ..transports.resend import PendingCommand

__all__ = ["ClusterCore", "RawCluster"]

N = TypeVar("N", bound=NodeCore)

# The maximum number of bytes of replies that wait for earlier replies. Each node may use an equal
# share of WAITING_BYTES, and at least MIN_WAITING_BYTES.
WAITING_BYTES = 16 << 20
MIN_WAITING_BYTES = 1 << 18
# The maximum number of nodes that a cluster may name during a read.
MAX_LANES = 4 * MAX_NODES
# While a node is idle, more chunks are made only if fewer bytes than this are unsent.
AHEAD_BYTES = 1 << 20
OF_A_TRANSACTION = "fastresp: the keys of this transaction moved to another node; run its row again"


class ClusterCore:
    """Sends commands to the nodes of a cluster, and yields replies in the order of the source.

    All nodes work concurrently. A reply waits until all earlier replies are yielded. A command is
    resent after a redirection or a temporary refusal. After the loss of a node, its unanswered
    commands are resent, unless a command that is not idempotent may have run.

    Args:
        core: a ReplyCore with the settings.
        connections: a connection to each node, or to any node if the slots are unknown.
        follows: whether commands are resent.

    Attributes:
        waiting: received replies that are not yielded yet, by the index of their commands.
        next: the index of the next reply to yield.
        unresolved: the refused commands, and the commands of lost nodes.
        keeps_commands: whether nodes keep the commands of received replies, for ``sender()``.
    """

    keeps_commands = False

    def __init__(
        self, core: ReplyCore, connections: list[Any], answers: Answers, *, follows: bool
    ) -> None:
        self.server = core.server
        self.timeout = core.timeout
        self.waiting: dict[int, Any] = {}
        self.next = 0
        self.ended = False
        self._raising = core.raising
        self._settings = core.settings
        self._follows = follows
        self._keys = core.keys
        self._view = ClusterView(core.server, answers.topology, answers.processes)
        self.unresolved = Unresolved(core.timeout, Rules(answers.positions), self._connect)
        self._report = Report("socket", connections=len(connections))
        self._started = time.monotonic()
        self._position = Position()
        self._lost: NodeCore | None = None
        self._look_failure = ""  # why no node has returned the topology
        addresses = [] if answers.topology is None else answers.topology.nodes
        # The lane of commands without a key, and of all commands if the slots are unknown.
        self._home = len(addresses)
        share = max(WAITING_BYTES // (len(addresses) + 1), MIN_WAITING_BYTES)
        self._reply_bytes = min(ReplyCore.reply_bytes, share)
        self._evicts = answers.evicts
        self._nodes = [self._node(NodeCore, address) for address in (*addresses, None)]
        for node, connection in zip(self._nodes, connections, strict=False):
            node.attach(connection)

    def _node(self, kind: type[N], address: Address | None) -> N:
        """Return a connection for the node at ``address``; None means the node the user named."""
        node = kind(self, self._view.server_of(address), **self._settings)
        node.address = address
        node.reply_bytes = self._reply_bytes
        if self._evicts:
            node.ask_for_sizes()
        return node

    def _connect(self, address: Address) -> RedirectCore:
        return self._node(RedirectCore, None if address == HOME else address)

    def new_reader(self) -> Any:
        settings = self._settings
        return ReplyReader(settings["decode"], max_reply_bytes=settings["max_reply_bytes"])

    @property
    def made(self) -> int:
        return self._position.command

    @property
    def _all(self) -> list[NodeCore]:
        return [*self._nodes, *self.unresolved.nodes.values()]

    @property
    def received(self) -> int:
        return sum(node.received for node in self._all)

    @property
    def report(self) -> Report:
        report, unresolved = self._report, self.unresolved
        windows = [node.window for node in self._nodes]
        totals = [window.totals() for window in windows]
        report.rows = sum(rows for rows, _, _ in totals)
        report.commands = sum(commands for _, commands, _ in totals) - unresolved.unsent
        report.replies = sum(window.acknowledged for window in windows) - unresolved.unanswered
        report.unsent = sum(window.unsent for window in windows) + unresolved.unsent
        report.bytes_sent = sum(node.sent_bytes for node in self._all)
        report.seconds = time.monotonic() - self._started
        return report

    @property
    def has_room(self) -> bool:
        """Whether the limit of bytes in memory allows another chunk."""
        held: int = sum(node.window.held_bytes for node in self._nodes)
        return held < WINDOW_BYTES

    def add(self, chunk: Chunk) -> None:
        """Pass the next chunk to the node of the chunk's lane."""
        node = self._nodes[max(chunk.lane, 0)]
        if node.finished:
            node.restart_timeout()
        node.window.add(chunk, self._position)
        self._position = max(self._position, node.window.position)

    def pump(self) -> None:
        """Send and receive without waiting, between calls of the generator."""
        for node in self._all:
            if node.stream is not None and not node.idle:
                self._step_of(node)
                if node.stream is not None and node.expects and not node.failed:
                    node.wait()  # checks the deadline
                else:
                    node.restart_timeout()
        if self._lost is not None:
            raise LostConnection

    def restart_timeout(self) -> None:
        for node in self._all:
            node.restart_timeout()

    def raised(self, error: BaseException) -> bool:
        lost = isinstance(error, TransportError) and error.report is self._report
        return lost or isinstance(error, LostConnection)

    def loss(self) -> TransportError:
        assert self._lost is not None
        return self._lost.loss()

    def detach(self) -> None:
        with ExitStack() as stack:  # closes all connections, even if one close is interrupted
            for node in self._all:
                stack.callback(node.detach)

    def sender(self, index: int) -> tuple[NodeCore, bytes]:
        """Return a reply's node and command; raise LookupError if the reply is no longer kept."""
        for node in self._all:
            command = node.command_at(index)
            if command is not None:
                return node, command
        raise LookupError(f"reply {index:,} was released")

    def redirect(self, node: NodeCore, command: PendingCommand, message: str) -> bool:
        """Resend a redirected or temporarily refused command; return False for other errors."""
        refusal = refusal_of(message) if self._follows else None
        if refusal is None:
            return False
        if refusal.may_pass:
            self.unresolved.defer(command, message)
            return True
        settings = node.server.settings
        host, port = settings.get("host") or "localhost", settings.get("port") or 0
        found = node.server.redirect(message)
        if found is None:
            return False
        with self._reporting():
            # If there is only one lane, no command on another lane can be overtaken.
            origin = (host, port) if self._home else None
            self.unresolved.redirect(command, origin, message, found)
        return True

    @contextmanager
    def _reporting(self) -> Iterator[None]:
        """Add the report to a TransportError."""
        try:
            yield
        except TransportError as error:
            error.report = self.report
            raise

    def exchange(self, chunks: Chunks) -> Generator[Step | Emit, Any, Exception | None]:
        """Send chunks, and yield their replies, like ``ReplyCore.exchange()``."""
        failure = None
        while True:
            busy = False
            if self._stale and self._drained and not self.ended:
                failure, busy = (yield from self._refresh(chunks)), True
            elif self._wants_more:
                failure, busy = (yield from self._add_next(chunks)), True
            yield from self._open()
            busy = self._step() or busy
            before = self.next
            yield Emit(self.results())
            if self.next > before:
                busy = True
                for node in self._all:
                    node.release(self.next)
                self.restart_timeout()
                self.unresolved.deadline.resume()
            self._check_lost()
            if self.ended and self._drained:
                return failure
            if not busy:
                yield from self._waiting()

    def results(self) -> Iterator[Any]:
        """Yield the results that are ready for the caller."""
        return self.replies()

    def replies(self) -> Iterator[Any]:
        waiting, index = self.waiting, self.next
        try:
            while index in waiting:
                reply = waiting.pop(index)
                index += 1
                kind = type(reply)
                if kind is CommandError:
                    self._report.failed += 1
                    if not self._follows and redirect_of(reply.text, "") is not None:
                        reply.add_note(OF_A_TRANSACTION)
                if kind is DecodeError or (kind is CommandError and self._raising):
                    raise reply
                yield reply
        finally:
            self.next = index

    @property
    def _drained(self) -> bool:
        """Whether the replies to all commands so far are yielded."""
        return self.next >= self.made

    @property
    def _stale(self) -> bool:
        """Whether slots have moved since the topology was last queried."""
        return self.unresolved.moved and self._home > 0

    @property
    def _wants_more(self) -> bool:
        blocked = self._lost or self._stale or self.unresolved.first is not None
        if self.ended or blocked or not self.has_room:
            return False
        home = self._nodes[self._home]
        nodes = [node for node in self._nodes if node is not home] or [home]
        unsent = [node.window.unsent_bytes for node in nodes]
        return 0 in unsent and sum(unsent) < AHEAD_BYTES

    def _add_next(self, chunks: Chunks, *, ready: bool = False) -> Steps[Exception | None]:
        try:
            return (yield from add_next(self, chunks, ready=ready, routed=True))
        except LostConnection:
            return None  # the error is raised again after all earlier replies

    def _open(self) -> Steps[None]:
        """Connect to nodes that have work and no connection."""
        for each in self.unresolved.nodes.values():
            each.flush()
        for node in self._all:
            if node.stream is None and not node.idle and node.may_send:
                yield from self._open_one(node)
        if self.unresolved.pause:
            self.unresolved.pause = False
            yield from sleeping(PAUSE_S)

    def _open_one(self, node: NodeCore) -> Steps[None]:
        # A frozen node never answers, but a different node may be able to run the commands.
        timeout = (
            self.timeout
            if self.unresolved.first is None
            else min(self.timeout or RECONNECT_TIMEOUT_S, RECONNECT_TIMEOUT_S)
        )
        opening = partial(self.server.open_nodes, [node.server], timeout)
        reopening = partial(self._view.processes.reopen, node.server, opening)
        try:
            with self._reporting():
                [connection], restarted = yield Blocking(reopening, late=close_all_late)
            node.attach(connection)
            self._report.connections += 1
        except (TransportError, CommandError) as error:
            if not self._follows:
                raise
            self._resend_commands_of(node, str(error.args[0]))
            return
        if restarted:
            raise LostData(f"{restarted}: its data may be missing", self.report)

    def _step(self) -> bool:
        """Send and receive without waiting; return whether replies have arrived."""
        arrived = False
        for node in self._all:
            if node.stream is None:
                continue
            if node.idle or node.is_full:
                node.restart_timeout()
                continue
            self._step_of(node)
            try:
                arrived = node.collect() or arrived
            except LostConnection:
                self._lose(node)
        return arrived

    def _step_of(self, node: NodeCore) -> None:
        try:
            node.step()
        except LostConnection:
            node.failed = True
            with suppress(LostConnection):  # collect() has stored the node's last error reply
                node.collect()
            assert node.stream is not None
            if self._follows and not node.lost_for_good():
                message = f"lost the connection to {node.server}: {node.stream.lost}"
                self._resend_commands_of(node, message)
            else:
                self._lose(node)

    def _resend_commands_of(self, node: NodeCore, message: str) -> None:
        """Let the unanswered commands of a lost node wait until a node serves their slots again."""
        unresolved = self.unresolved
        unresolved.lost = unresolved.lost or message
        unresolved.moved = True
        for command in node.unanswered():
            unresolved.defer(command, message)
        node.renew()

    def _lose(self, node: NodeCore) -> None:
        node.failed = True
        self._lost = self._lost or node

    def _check_lost(self) -> None:
        """Raise LostConnection if the next reply is due from a node whose connection is lost."""
        if self._lost is None or self.next in self.waiting:
            return
        for node in self._all:
            if node.failed and node.is_next(self.next):
                self._lost = node
                raise LostConnection

    def _waiting(self) -> Steps[None]:
        """Wait for replies; if all sent commands are answered, resend waiting commands."""
        waits = waits_of(self._all)
        if not waits:
            assert self.unresolved, "the next reply is not in flight"
            with self._reporting():
                yield from self._resending()
        elif not (self._follows and (yield from self._checking(waits))):
            yield [(node.stream, wait) for node, wait in waits.items() if node.stream is not None]

    def _resending(self) -> Steps[None]:
        """Pause, and send waiting commands to the current owners of their slots.

        Called once all sent commands are answered, except at nodes that stopped reading
        (``is_full``).
        """
        unresolved = self.unresolved
        for node in self._all:
            for command in node.unanswered() if node.is_full else ():
                if command.tries:
                    unresolved.note_run(command)
        for slot, command, message in unresolved.take_overtaken():
            args, index = arguments(command.command), command.place
            self.waiting[index] = CommandError(
                message, index=index, row=command.row, arguments=args, row_key=self._keys.of(args)
            )
            unresolved.resolve(index, slot)
        if not unresolved:
            return
        yield from sleeping(unresolved.pause_s())
        topology = yield from self._looking()
        if topology is None:
            unresolved.message = self._look_failure
        if topology is not None or not self._home:
            unresolved.resend(topology)

    def _looking(self) -> Steps[Topology | None]:
        """Query nodes for the topology, and return it; None if no node answers."""
        connected = [node for node in self._all if node.stream is not None and not node.failed]
        try:
            return (yield from looking(self._view, connected, STALLED_S))
        except TransportError as error:
            self._look_failure = str(error.args[0])
            return None

    def _checking(self, waits: Mapping[NodeCore, Any]) -> Steps[bool]:
        """Give up silent nodes without slots; return whether the topology was queried."""
        now = time.monotonic()
        silent = [node for node in waits if node.address and node.heard < now - STALLED_S]
        if not silent or now < self._view.look_at:
            return False
        topology = yield from self._looking()
        served = [node.address for node in silent] if topology is None else topology.nodes
        for node in silent:
            if node.stream is not None and node.address not in served:
                message = "it does not answer, and another node owns its slots"
                node.stream.give_up(ConnectionError(message))
        return True

    def _refresh(self, chunks: Chunks) -> Steps[Exception | None]:
        """Add the finished chunks; once all commands are answered, query and use the new topology.

        Returns:
            As for ``_add_next()``.
        """
        failure = yield from self._add_next(chunks, ready=True)
        if self.ended or not self._drained:
            return failure
        topology = yield from self._looking()
        if topology is None:
            raise TransportError(self._look_failure, self.report)
        known = {node.address for node in self._nodes}
        self._nodes += [self._node(NodeCore, each) for each in topology.nodes if each not in known]
        if len(self._nodes) > MAX_LANES:
            raise TransportError(f"the cluster named more than {MAX_LANES:,} nodes", self.report)
        lanes: list[int] = topology.lanes([node.address for node in self._nodes], 1)
        chunks.remap(lanes)
        # Disconnect nodes that lost all their slots, since such nodes may be shut down.
        for number in set(range(len(self._nodes))) - {*lanes, self._home}:
            self._nodes[number].address = None
            self._nodes[number].detach()
        self.unresolved.moved = False
        return None


class RawCluster(ClusterCore):
    """Returns replies as bytes, in the order of the source, for a parser."""

    def __init__(self, core: ReplyCore, *others: Any, follows: bool) -> None:
        super().__init__(core, *others, follows=follows)
        self._raising = False  # check_error() raises instead

    def new_reader(self) -> Any:
        return RawReplies(max_reply_bytes=self._settings["max_reply_bytes"])

    def raw_replies(self) -> list[bytes]:
        """Return the next replies, in order, after a check of the errors among them."""
        replies = []
        for reply in self.replies():
            if type(reply) is CommandError:
                self.check_error(reply)
                reply = b"-%b\r\n" % reply.text.encode()
            replies.append(reply)
        return replies

    def check_error(self, error: CommandError) -> None:
        """Raise an error reply, unless the parser accepts it."""
        raise NotImplementedError
