"""Follow the slots of a load from node to node: discover nodes, connect, and resend commands.

A lane is one connection of a load; the lanes of a node have consecutive numbers.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from ..outcome.errors import CommandError, TransportError
from ..outcome.report import counted
from ..resp.slots import SLOTS, Rules
from ..server.cluster import Topology
from ..server.cluster_view import LOOK_S, RECONNECT_TIMEOUT_S, ClusterView
from .connection import Connection, LostConnection
from .driver import Blocking, Steps, ignore, sleeping
from .ledger import Deadline, Key, Ledger, ranges
from .resend import ResendUnit, unit_of, units_of
from .sending import Sending

if TYPE_CHECKING:
    from ..resp.buffer import Chunk
    from ..server.answers import Answers
    from ..server.options import Options
    from ..server.settings import Server
    from .lane import Lane
    from .lanes import Lanes
    from .window import Counts

__all__ = ["Nodes", "close_all_late", "looking"]

# Maximum number of lanes in a load: the router stores a lane's number in 16 bits.
MAX_MADE = 30_000
# Maximum number of consecutive connections to a node that are lost without a reply. If more are
# lost, the sent commands are the cause. The pause before a new connection doubles each time, up to
# LOOK_S * 8.
MAX_FRUITLESS = 10
# The key of a single server, in place of a node's address.
ONE = ("", 0)


class Nodes:
    """The nodes that a load writes to, or its single server."""

    def __init__(
        self, server: Server, options: Options, answers: Answers, lanes: Lanes, ledger: Ledger
    ) -> None:
        self._server = server
        self._view = ClusterView(server, answers.topology, answers.processes)
        self._options = options
        self._lanes = lanes
        self._ledger = ledger
        self._rules = Rules(answers.positions)
        self._cluster = answers.topology is not None
        topology = answers.topology or one_server()
        # For each group of ``connections`` lanes, the node; None if the lanes were closed.
        self._nodes: list[tuple[str, int] | None] = [*topology.nodes]
        self._slots = topology.lanes(self._nodes, options.connections)
        self._topology = topology
        # The numbers of replaced nodes, whose lanes must be closed.
        self._former: set[int] = set()
        # Nodes that acknowledged commands before their connections were lost.
        self._written: set[tuple[str, int]] = set()
        # For each node, the number of consecutive connections lost without a reply, and the node's
        # number at the last loss.
        self._fruitless: dict[tuple[str, int], tuple[int, int]] = {}
        # For each lane that had slots, a lane that now has some of those slots.
        self._successors = {lane: lane for lane in self._slots}
        # Nodes named by ASK, which are importing slots.
        self._asked: set[tuple[str, int]] = set()
        self._deadline = Deadline(options.timeout)  # for the number of replies
        self._deadline.check(0)

    def refresh_topology(self) -> Steps[bool]:
        """Find the nodes for commands to resend, connect to them, and wait for all replies.

        Returns:
            Whether ``reroute()`` can resend the commands.

        Raises:
            TransportError: commands can't be resent in order, or within the timeout.
            LostConnection: a connection was lost and can't be replaced.
        """
        try:
            return (yield from self._preparing())
        except TransportError:
            # Otherwise, commands in flight to other nodes would count as in doubt.
            with suppress(LostConnection, TransportError):
                yield from self._lanes.finishing()
            raise

    def _preparing(self) -> Steps[bool]:
        """Refresh the topology. After a TransportError, the caller must receive missing replies."""
        lanes, ledger = self._lanes, self._ledger
        self._deadline.resume()
        if ledger:
            yield from lanes.draining()
            yield from sleeping(ledger.pause(lanes.report, self._slot_of))
        else:
            yield from sleeping(lanes.look_at - time.monotonic())
        self._asked.update(unit.node for unit in ledger.units if unit.node is not None)
        began = time.monotonic()
        topology = yield from self._looking()
        ready = topology is not None and (yield from self._opening(topology))
        lanes.look_at = self._view.pause_after(began)
        self._check_lost()
        self._check_progress()
        if topology is None or not ready:
            return False
        yield from lanes.draining()  # so that no command overtakes a command to resend
        self._lose(topology, lanes.unanswered)
        if lanes.unanswered:
            return False
        self._check_order()
        self._topology = topology
        return True

    def _lose(self, topology: Topology, silent: Iterable[Lane]) -> None:
        """Give up silent lanes whose node no longer owns slots.

        Raises:
            TransportError: such a lane exists, and the load can be resumed from a checkpoint.
        """
        for lane in silent:
            node = self._node_of(lane)
            if node is not None and node not in topology.nodes:
                if self._lanes.resumable:
                    raise TransportError(
                        f"the node at {lane.server} does not answer, and another has its slots; "
                        "resume the load",
                        self._lanes.report,
                    )
                lane.lose("it does not answer, and another node has its slots")

    def _looking(self) -> Steps[Topology | None]:
        """Return the topology; None if no node reports it, or if a slot has lost its node."""
        if not self._cluster:
            return one_server()
        try:
            topology = yield from looking(self._view, self._lanes.connected)
        except TransportError as error:
            self._ledger.message = str(error)
            return None
        self._lose(topology, self._lanes.stalled)
        before, after = self._slots, topology.slots
        if any(new < 0 <= old for old, new in zip(before, after, strict=True)):
            return None
        return topology

    def _opening(self, topology: Topology) -> Steps[bool]:
        """Connect to new or lost nodes; return whether commands can be resent.

        If a lost node can't be reached, its commands wait in its lanes.

        Raises:
            TransportError: a node is new, and the load has a checkpoint.
        """
        lost = {self._node_of(lane) for lane in self._lanes.lost}
        if self._ledger.was_demoted() and not self._cluster:
            lost.add(ONE)  # another server may have taken over its address
        asked = [unit.node for unit in self._ledger.units if unit.node is not None]
        needed = dict.fromkeys([*topology.nodes, *asked])
        fresh = [node for node in needed if node not in self._nodes]
        back = [node for node in needed if node in lost]
        if fresh and self._lanes.resumable:
            # A loader that takes over can close only the connections that the checkpoint names.
            [server, *_] = self._server.nodes_of(fresh, 1)
            raise TransportError(
                f"the node at {server} has become a primary since the load began; resume the load",
                self._lanes.report,
            )
        try:
            for node in fresh:
                yield from self._connecting(node, None)
        except (TransportError, CommandError) as error:
            self._ledger.message = str(error)
            return False
        changed = bool(fresh) or bool(self._ledger)
        for node in back:
            number = self._nodes.index(node)
            yield from sleeping(self._check_fruitful(node, number))
            try:
                yield from self._connecting(node, number)
                changed = True
            except (TransportError, CommandError) as error:
                self._ledger.message = str(error)
        return changed or any(node not in topology.nodes for node in lost)

    def _connecting(self, node: tuple[str, int], former: int | None) -> Steps[None]:
        """Open the connections to a node as additional lanes.

        ``former`` is the number of the lost node whose lanes these replace; None for a new node.
        """
        count, timeout = self._options.connections, self._options.timeout
        if len(self._nodes) * count > MAX_MADE:
            raise TransportError(
                f"connections were lost {MAX_MADE:,} times; find out what closes them (CONFIG GET "
                "timeout, a proxy), then load the remaining rows"
            )
        if former is not None:
            timeout = min(timeout or RECONNECT_TIMEOUT_S, RECONNECT_TIMEOUT_S)
        if self._cluster:
            servers = self._server.nodes_of([node], count)
            opening = partial(self._server.open_nodes, servers, timeout)
        else:
            servers = [self._server] * count
            opening = partial(self._server.open_again, count, timeout)
        reopening = partial(self._view.processes.reopen, servers[0], opening)
        connections, restarted = yield Blocking(reopening, late=close_all_late)
        if restarted and node in self._written:
            self._lanes.lack_data(restarted + self._slots_at(node))
        self._lanes.extend(connections, servers)
        if former is not None:
            self._former.add(former)
            self._nodes[former] = None
        self._nodes.append(node)

    def _check_fruitful(self, node: tuple[str, int], former: int) -> float:
        """Count connections lost without a reply; return the seconds to wait before reconnecting.

        Raises:
            TransportError: the node was lost repeatedly without replying.
        """
        count = self._options.connections
        lanes = self._lanes.lanes[former * count :][:count]
        if any(lane.window.acknowledged for lane in lanes):
            self._written.add(node)
            self._fruitless[node] = 0, former
        rows = [lane.window.first_unanswered for lane in lanes if lane.window.totals()[2]]
        unanswered = [row for row in rows if row is not None]
        tries, number = self._fruitless.get(node, (0, -1))
        if not unanswered or number == former:
            return 0.0
        tries += 1
        self._fruitless[node] = tries, former
        if tries > MAX_FRUITLESS:
            raise TransportError(
                f"{lanes[0].server} closed {MAX_FRUITLESS} connections in a row before it "
                f"answered anything, the first command being of row {min(unanswered):,}: "
                f"{lanes[0].cause} (a command may be too large for it: check its log, "
                "client-query-buffer-limit and maxmemory-clients)",
                self._lanes.report,
            )
        return min(LOOK_S * 2.0 ** (tries - 4), LOOK_S * 8)

    def defer(self, chunk: Chunk) -> None:
        """Queue a chunk behind the commands that must be resent."""
        lanes, ledger = self._lanes, self._ledger
        held = Sending(chunk, None, lanes.position)
        entries: dict[Key, ResendUnit | Counts] = {
            (-held.end.command, replies[0]): unit_of(held, replies, 0, chunk.lane)
            for replies in units_of(held, 0, transactions=ledger.transactions)
        }
        ledger.add(entries)
        lanes.after = held.end

    def reroute(self, made: Iterable[Chunk]) -> list[int]:
        """Close the lanes of replaced nodes, and resend commands.

        Call this only if ``refresh_topology()`` returned True.

        Args:
            made: encoded chunks that were routed to the old lanes; they follow the resent commands.

        Returns:
            The lane of each slot.
        """
        lanes, ledger, count = self._lanes, self._ledger, self._options.connections
        topology = self._topology
        for chunk in made:
            self.defer(chunk)
        lost = {self._node_of(lane) for lane in lanes.lost}
        for number, node in enumerate(self._nodes):
            # A node without slots may be shut down, unless it is importing slots.
            needed = node in topology.nodes or (node in self._asked and node not in lost)
            if node is not None and not needed:
                self._nodes[number] = None
                self._former.add(number)
        for number in tuple(self._former):
            lanes.retire(range(number * count, (number + 1) * count))
            self._former.discard(number)  # only now: an interruption repeats the step
        before, self._slots = self._slots, topology.lanes(self._nodes, count)
        self._successors = dict(zip(before, self._slots, strict=True))
        if lanes.live_report.stopped:
            return self._slots
        again: dict[int, list[tuple[Key, ResendUnit]]] = {}
        for slot, key, unit in ledger.ready(self._slot_of):
            again.setdefault(self._lane_of(slot, unit), []).append((key, unit))
        lanes.resend(again)
        return self._slots

    def _slot_of(self, unit: ResendUnit) -> int:
        """Return the slot of the first key in a unit; -1 if it has no key."""
        slots = (self._rules.slot(each.command) for each in unit.commands)
        return next((slot for slot in slots if slot >= 0), -1)

    def _lane_of(self, slot: int, unit: ResendUnit) -> int:
        """Return the number of the lane for a unit; ``slot`` is -1 if the unit has no key."""
        if unit.node is not None and unit.node in self._nodes:
            count = self._options.connections
            return self._nodes.index(unit.node) * count + slot % count
        if slot < 0:
            # SCRIPT LOAD and the like, for a lane's node or for the new owner of the node's slots.
            return self._successors.get(unit.lane, self._slots[0])
        return self._slots[slot]

    def _slots_of(self, number: int) -> list[int]:
        """Return the slots that are routed to the lanes of a node."""
        count = self._options.connections
        return [slot for slot, lane in enumerate(self._slots) if lane // count == number]

    def _slots_at(self, node: tuple[str, int]) -> str:
        """Return the slots of a node in this load as text, for messages."""
        slots = self._slots_of(self._nodes.index(node)) if node in self._nodes else []
        return f" (slots {ranges(slots)})" if self._cluster and slots else ""

    def _node_of(self, lane: Lane) -> tuple[str, int] | None:
        return self._nodes[self._lanes.lanes.index(lane) // self._options.connections]

    def _check_lost(self) -> None:
        """Check that no lane has waited for a new connection longer than ``timeout`` seconds.

        Raises:
            TransportError: a lane has waited longer.
        """
        timeout = self._options.timeout
        for lane in self._lanes.lost:
            assert lane.lost_at is not None
            if timeout is None or time.monotonic() - lane.lost_at <= timeout:
                continue
            message = f"lost the connection to {lane.server}: {lane.cause}; "
            if self._cluster:
                slots = self._slots_of(self._lanes.lanes.index(lane) // self._options.connections)
                message += f"no node serves slots {ranges(slots)} after {timeout:g} s"
            else:
                message += f"it was not back after {timeout:g} s"
            raise TransportError(f"{message}: {self._ledger.message}", self._lanes.report)

    def _check_order(self) -> None:
        """Once all replies have arrived, check that no command overtook a refused command.

        Raises:
            TransportError: a later command of the same key ran before a refused command.
        """
        if any(lane.retry and lane.retry.overtaken(lane.window) for lane in self._lanes.lanes):
            units = self._ledger.units
            count = counted(sum(unit.command_count for unit in units), "command")
            when = "while a slot of the cluster was moved, " if self._cluster else ""
            raise TransportError(
                f"{when}a command was refused for a while, and a later command of the same key "
                f"ran; {count}, the first of row {units[0].first_row:,}, can't be resent in order "
                f"(the last reply was: {self._ledger.message})",
                self._lanes.report,
            )

    def _check_progress(self) -> None:
        """Check that replies still arrive; reopening connections is not progress.

        Raises:
            TransportError: ``refresh_topology()`` got no reply for ``timeout`` seconds.
        """
        self._deadline.check(self._lanes.report.replies)
        if self._deadline.exceeded:
            raise TransportError(
                f"no reply for {self._deadline.timeout:g} s, although connections were reopened: "
                f"{self._ledger.message}",
                self._lanes.report,
            )


def looking(
    view: ClusterView, connections: Iterable[Connection], min_pause: float = LOOK_S
) -> Steps[Topology]:
    """Query nodes for the topology; the connection that was heard most recently is queried first.

    Raises:
        TransportError: no node answers.
    """
    newest = sorted(connections, key=lambda each: each.heard, reverse=True)
    look = partial(view.look, [each.server for each in newest], min_pause)
    topology: Topology = yield Blocking(look, late=ignore)
    return topology


def one_server() -> Topology:
    return Topology([ONE], [0] * SLOTS)


def close_all_late(opening: Future[Any]) -> None:
    """Close connections that were opened after the wait for them was cancelled."""
    if opening.exception() is None:
        result = opening.result()
        for connection in result[0] if isinstance(result, tuple) else result:
            connection.disconnect()
