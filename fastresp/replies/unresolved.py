"""Commands that a server refused or left unanswered; each slot's are in source order.

The index of a command is its index among all commands of the source.
"""

from __future__ import annotations

import heapq
import time
from collections.abc import Callable, Iterable
from typing import Generic, NamedTuple, Protocol, TypeVar

from ..outcome.errors import TransportError
from ..resp.idempotent import command_keys, only_reads
from ..resp.slots import Rules
from ..server.cluster import MAX_NODES, Redirect, Topology
from ..server.cluster_view import LOOK_S, Address
from ..transports.ledger import LOADING, MAX_S, PAUSE_S, REFUSED, Deadline, ranges
from ..transports.resend import PendingCommand

__all__ = ["HOME", "Refusal", "SlotQueue", "Unresolved", "refusal_of"]

T = TypeVar("T")

# Represents the address of the node that the caller named; commands without a key are sent there.
HOME = ("", 0)
# If a command is redirected at least this many times, pause before resending.
MANY_REDIRECTS = 3


class Refusal(NamedTuple):
    """What an error reply says about a command that the server did not run.

    Attributes:
        moved: whether another node may own the slot.
        may_pass: whether the command may be accepted soon, without a redirection.
        pause_s: seconds to wait before each further attempt.
    """

    moved: bool = False
    may_pass: bool = False
    pause_s: float = PAUSE_S

    @property
    def unserved(self) -> bool:
        """Whether no node serves the slot."""
        return self.moved and self.may_pass


# NOSCRIPT is not in this table: ReplyCore resends these commands to the same server.
REFUSALS = {
    # Another node owns the slot; the reply names it.
    "MOVED": Refusal(moved=True),
    # The slot is being moved, and the key of the command is on the new node, which the reply names.
    "ASK": Refusal(),
    # The slot is being moved, and the keys of the command are on both nodes.
    "TRYAGAIN": Refusal(may_pass=True),
    # No node serves the slot, for example during a failover.
    "CLUSTERDOWN": Refusal(moved=True, may_pass=True, pause_s=LOOK_S),
    # The server is loading its data.
    "LOADING": Refusal(may_pass=True),
    # The node became a replica while a blocking command waited.
    "UNBLOCKED": Refusal(moved=True),
}
UNBLOCKED = "UNBLOCKED force unblock"


def refusal_of(text: str) -> Refusal | None:
    """Return the meaning of an error reply; None if the command must not be resent."""
    data = text.encode(errors="replace")
    if REFUSED.match(data) or data.startswith(LOADING) or text.startswith(UNBLOCKED):
        return REFUSALS[text.partition(" ")[0]]
    return None


class SlotQueue(Generic[T]):
    """Commands of one slot that wait to be resent, by index.

    A node may begin to accept commands of a slot at any moment, so it could refuse one command and
    run the next. So after a refusal, only the first command is sent. The later commands follow once
    the first has run.

    Attributes:
        served: whether all commands may be sent.
    """

    def __init__(self) -> None:
        self.commands: dict[int, T] = {}
        self.served = True

    def add(self, index: int, command: T, *, refused: bool = True) -> None:
        """Add a command; ``refused`` is False if no server has refused it."""
        self.commands[index] = command
        self.served = self.served and not refused

    def take(self) -> list[tuple[int, T]]:
        """Remove and return the commands to send now, with their indexes, in order."""
        indexes = sorted(self.commands)[: None if self.served else 1]
        self.served = False
        return [(index, self.commands.pop(index)) for index in indexes]


class ResendTarget(Protocol):
    """A separate connection for redirected commands; see RedirectCore."""

    def put(self, command: PendingCommand, slot: int, *, asking: bool) -> None: ...
    @property
    def expected(self) -> dict[int, int]: ...
    @property
    def waiting(self) -> int: ...


C = TypeVar("C", bound=ResendTarget)


class InFlight(NamedTuple, Generic[C]):
    """A command in flight over a separate connection.

    Attributes:
        origin: the node that redirected the command first, which must not get it back; None if any
            node may get it, because no later command can overtake it.
        node: the connection over which the command is resent.
        since: the time of the first redirection.
        times: the number of redirections.
    """

    origin: Address | None
    node: C
    since: float
    times: int


class Deferred(NamedTuple):
    """The reason why an unanswered command last had to wait, and the command's keys."""

    message: str
    keys: tuple[bytes, ...]


class Unresolved(Generic[C]):
    """Commands that nodes redirected or temporarily refused, and commands of lost nodes.

    A redirected command is resent immediately, over a separate connection. Commands of a slot stay
    in order: a command is sent to the same node as its predecessor, and this node redirects both
    or neither. If the predecessor waits, the command waits.

    A command waits if its node refused it temporarily, or if its node was lost. Until all waiting
    commands are answered, no later commands are sent. If a later command was in flight and ran,
    waiting commands with the same key are not resent, since they would run out of order.

    Args:
        timeout: seconds for which commands may wait or be redirected; None for 30 s.
        rules: finds the slots of commands.
        connect: a function that receives an address, and returns a separate connection.

    Attributes:
        nodes: the separate connections, by address.
        moved: whether a slot has moved since the caller last set this attribute to False.
        pause: whether to pause before resending, because commands were redirected many times.
        message: the last error reply, or why no node could be queried.
        lost: how a node was lost, for messages; empty if no node was lost.
    """

    def __init__(
        self, timeout: float | None, rules: Rules, connect: Callable[[Address], C]
    ) -> None:
        self.nodes: dict[Address, C] = {}
        self.moved = self.pause = False
        self.message = self.lost = ""
        self.deadline = Deadline(timeout or MAX_S)
        self._rules = rules
        self._connect = connect
        # Commands in flight over separate connections, by slot and index, and the slot of each.
        self._in_flight: dict[int, dict[int, InFlight[C]]] = {}
        self._slots: dict[int, int] = {}
        # The waiting commands of each slot; slot -1 for commands without a key.
        self._waiting: dict[int, SlotQueue[PendingCommand]] = {}
        # By index: the commands that had to wait, including commands in flight again.
        self._deferred: dict[int, Deferred] = {}
        self._indexes: list[int] = []  # a heap of indexes, some of answered commands
        # By key and index: whether a deferred command writes the key.
        self._writes: dict[bytes, dict[int, bool]] = {}
        self._overtaken: set[int] = set()

    def __bool__(self) -> bool:
        """Whether commands wait."""
        return bool(self._waiting)

    @property
    def first(self) -> int | None:
        """The index of the first unanswered deferred command; None if all are answered."""
        indexes = self._indexes
        while indexes and indexes[0] not in self._deferred:
            heapq.heappop(indexes)
        return indexes[0] if indexes else None

    @property
    def _commands(self) -> Iterable[PendingCommand]:
        return (each for queue in self._waiting.values() for each in queue.commands.values())

    @property
    def unanswered(self) -> int:
        """The number of commands without an answer."""
        waiting = sum(len(queue.commands) for queue in self._waiting.values())
        return waiting + sum(len(node.expected) for node in self.nodes.values())

    @property
    def unsent(self) -> int:
        """The number of commands that were never sent."""
        waiting = sum(not command.tries for command in self._commands)
        return waiting + sum(node.waiting for node in self.nodes.values())

    def redirect(
        self, command: PendingCommand, origin: Address | None, message: str, to: Redirect
    ) -> None:
        """Resend a redirected command; ``to`` is the redirection parsed from ``message``.

        Args:
            origin: the node that redirects the command, which must not get it back; None if any
                node may get it.

        Raises:
            TransportError: the command was redirected for too long, or was redirected back; or
                commands were redirected to too many nodes.
        """
        self.moved = self.moved or not to.asking
        before = self._in_flight.get(self._slots.get(command.place, to.slot), {}).get(command.place)
        if to.slot in self._waiting:
            self.defer(command, message, to.slot)
            return
        resent = self._in_flight.setdefault(to.slot, {})
        if before is not None:
            self._check_redirect(before, message, to)
            now = before._replace(node=self._node(to.node), times=before.times + 1)
            if command.place not in resent:  # its slot was unknown so far
                self._forget(command.place)
        else:
            # Send the command after the slot's commands in flight, to the same node.
            last = next(reversed(resent.values())).node if resent else self._node(to.node)
            now = InFlight(origin, last, time.monotonic(), 1)
        self._send(command, to.slot, now, asking=to.asking)
        self.pause = self.pause or now.times >= MANY_REDIRECTS

    def _send(
        self, command: PendingCommand, slot: int, resent: InFlight[C], *, asking: bool = False
    ) -> None:
        self._in_flight.setdefault(slot, {})[command.place] = resent
        self._slots[command.place] = slot
        resent.node.put(command, slot, asking=asking)

    def _check_redirect(self, resent: InFlight[C], message: str, to: Redirect) -> None:
        """Raise if a command must not be redirected again."""
        if to.node == resent.origin:
            # A later command with the same key may have run on that node already.
            raise TransportError(
                f"slot {to.slot:,} of the cluster moved to another node and back while its "
                "commands were in flight; run the commands without a reply again"
            )
        if time.monotonic() - resent.since > self.deadline.timeout:
            raise TransportError(
                f"a command was redirected for {self.deadline.timeout:g} s, last with: {message} "
                "(check the cluster with redis-cli --cluster check)"
            )

    def _node(self, address: Address) -> C:
        if address not in self.nodes:
            if len(self.nodes) >= MAX_NODES:
                raise TransportError(f"the cluster redirects to more than {MAX_NODES:,} nodes")
            self.nodes[address] = self._connect(address)
        return self.nodes[address]

    def defer(self, command: PendingCommand, message: str, slot: int | None = None) -> None:
        """Let a command wait until it is resent; ``message`` says why it was not answered."""
        if slot is None:
            slot = max(self._rules.slot(command.command), -1)
        index = command.place
        self._forget(index)
        if not self._deferred:
            self.deadline.resume()
        self._waiting.setdefault(slot, SlotQueue()).add(index, command)
        self.message = message
        if index in self._deferred:
            self._deferred[index] = self._deferred[index]._replace(message=message)
            return
        keys = _keys_of(command.command)
        self._deferred[index] = Deferred(message, keys)
        heapq.heappush(self._indexes, index)
        writes = not only_reads(command.command)
        for key in keys:
            self._writes.setdefault(key, {})[index] = writes

    def resolve(self, index: int, slot: int) -> None:
        """Record that a command was answered."""
        self._forget(index)
        self._overtaken.discard(index)
        deferred = self._deferred.pop(index, None)
        for key in () if deferred is None else deferred.keys:
            writes = self._writes[key]
            writes.pop(index, None)
            if not writes:
                del self._writes[key]
        if slot in self._waiting:
            self._waiting[slot].served = True
        if not self._deferred:
            self.lost = ""

    def _forget(self, index: int) -> None:
        """Forget that a command is in flight over a separate connection."""
        slot = self._slots.pop(index, None)
        if slot is not None:
            del self._in_flight[slot][index]
            if not self._in_flight[slot]:
                del self._in_flight[slot]

    def note_run(self, command: PendingCommand) -> None:
        """Record that a command may have run while earlier commands waited."""
        writes = None
        for key in _keys_of(command.command):
            for index, wrote in self._writes.get(key, {}).items():
                if index >= command.place:
                    continue
                if writes is None:
                    writes = not only_reads(command.command)
                if wrote or writes:
                    self._overtaken.add(index)

    def take_overtaken(self) -> list[tuple[int, PendingCommand, str]]:
        """Remove and return the commands that a later command has overtaken.

        Returns:
            Tuples of the slot, the command, and the command's error reply.

        Raises:
            TransportError: an overtaken command has no error reply, because a node was lost.
        """
        found = []
        for slot, queue in [*self._waiting.items()]:
            for index in sorted(self._overtaken.intersection(queue.commands)):
                command, message = queue.commands[index], self._deferred[index].message
                refusal = refusal_of(message)
                if refusal is None or not refusal.may_pass:
                    raise TransportError(
                        f"the command of row {command.row:,} was not answered ({message}), and is "
                        "not resent, since a later command with the same key has already run"
                    )
                del queue.commands[index]
                found.append((slot, command, message))
        self._drop_empty()
        return found

    def pause_s(self) -> float:
        """Return the seconds to wait before the waiting commands are resent.

        Raises:
            TransportError: the first command has waited too long.
        """
        first = min(self._commands, key=lambda command: command.place)
        if self.deadline.check(first.place):
            return 0.0
        if self.deadline.exceeded:
            raise TransportError(self._overdue(first.row))
        return LOOK_S if self.lost else PAUSE_S

    def _overdue(self, row: int) -> str:
        """Return the error message for commands that have waited too long."""
        known = sorted(slot for slot in self._waiting if slot >= 0)
        slots = f" slots {ranges(known)}" if known else " commands without a key"
        seconds = f"{self.deadline.timeout:g} s"
        if self.lost:
            return (
                f"{self.lost}; no node serves{slots} after {seconds}; the first waiting "
                f"command is of row {row:,}: {self.message}"
            )
        return (
            f"commands{' of' if known else ''}{slots if known else ''} were refused for "
            f"{seconds}, the first of row {row:,}; the last reply was: {self.message} "
            "(check the cluster with redis-cli --cluster check)"
        )

    def resend(self, topology: Topology | None) -> None:
        """Send waiting commands to the owners of their slots; commands without an owner wait.

        If the topology is None, send all commands to the server that the user named.
        """
        for slot, queue in self._waiting.items():
            address = HOME
            if topology is not None and slot >= 0:
                if topology.slots[slot] < 0:
                    queue.served = False
                    continue
                address = topology.nodes[topology.slots[slot]]
            for _, command in queue.take():
                resent = InFlight(None, self._node(address), time.monotonic(), 0)
                self._send(command, slot, resent)
        self._drop_empty()

    def _drop_empty(self) -> None:
        self._waiting = {slot: queue for slot, queue in self._waiting.items() if queue.commands}


def _keys_of(command: bytes) -> tuple[bytes, ...]:
    """Return the keys of a command, without duplicates."""
    return tuple(dict.fromkeys(*command_keys([command])))
