"""Resend redirected commands of a cluster to the node named in the redirection.

The source index of a command is its index among all commands of the source.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, NamedTuple

from ..outcome.errors import CommandError, TransportError
from ..resp.split import CommandSplitter
from ..resp.values import pack
from ..server.cluster import MAX_NODES, Redirect
from ..server.failure import asking_refused
from ..server.settings import Server
from ..transports.resend import Refused, Resent
from ..transports.retries import MAX_S
from .node_core import Arrived, NodeCore, Nodes, NodeWindow
from .postponed import Postponed

__all__ = ["HOME", "RedirectCore", "Redirects"]

# Represents the address of the node that the caller named; commands without a key are sent there.
HOME = ("", 0)

# Allows the next command to use a slot that the node is importing.
ASKING = Refused(-1, -1, pack("ASKING"), 0)
# If a command is redirected at least this many times, pause before resending.
MANY = 3


class RedirectWindow(NodeWindow):
    """The unacknowledged commands of a RedirectCore; these are not in chunks of the source."""

    def put(self, commands: list[Refused]) -> None:
        """Add commands, including ASKING before commands that need it."""
        chunk = CommandSplitter().feed(b"".join(each.command for each in commands))
        assert chunk is not None
        self._held.append(Resent(chunk, self.last, commands))

    @property
    def waiting(self) -> int:
        """The number of commands not sent over any connection yet; ASKING is not counted."""
        held = (each for each in self._held if isinstance(each, Resent))
        return sum(is_new(command) for each in held for command in each.refused[each.whole :])


class RedirectCore(NodeCore):
    """A separate connection to a node, so that redirected commands don't wait for other commands.

    Attributes:
        expected: the slots of unanswered commands, by source index.
    """

    window: RedirectWindow

    def __init__(self, nodes: Nodes, server: Server, **settings: Any) -> None:
        super().__init__(nodes, server, **settings)
        self.window = RedirectWindow()
        self.expected: dict[int, int] = {}
        self._queue: list[Refused] = []

    @property
    def waiting(self) -> int:
        """The number of commands not sent over any connection yet."""
        return self.window.waiting + sum(map(is_new, self._queue))

    @property
    def is_full(self) -> bool:
        return super().is_full and self._nodes.next not in self.expected

    def has(self, place: int) -> bool:
        return place in self.expected

    def room(self) -> int:
        return self.window.begun if self._behind else self.window.acknowledged + self._most

    def put(self, command: Refused, slot: int, *, asks: bool) -> None:
        """Queue a command until ``flush()`` is called.

        Args:
            command: the command.
            slot: the command's slot.
            asks: whether to send ASKING before the command.
        """
        self._queue += [ASKING, command] if asks else [command]
        self.expected[command.place] = slot

    def left(self) -> list[Refused]:
        return super().left() + [each for each in self._queue if each.place >= 0]

    def renew(self, reader: Any) -> None:
        super().renew(reader)
        self.expected, self._queue = {}, []

    def flush(self) -> None:
        """Let the next ``step()`` send the queued commands."""
        queue, self._queue = self._queue, []
        if queue:
            if self.finished:
                self.restart_timeout()
            self.window.put(queue)

    def _put(self, first: int, replies: list[Any], size: int) -> None:
        last, chunks = -1, []
        for index, reply in enumerate(replies, first):
            held, at = self.window.locate(index)
            assert isinstance(held, Resent)
            command = held.refused[at]
            if command.place < 0:
                if type(reply) is CommandError:
                    raise TransportError(asking_refused(reply.text), self._nodes.report)
                continue  # the reply to ASKING
            slot = self.expected.pop(command.place)
            if type(reply) is CommandError:
                if self._nodes.redirect(self, command, reply.text):
                    continue
                reply = self._located(index, reply)
            else:
                self._nodes.postponed.ran(command)
            self._nodes.settle(slot, command.place)
            self._nodes.waiting[command.place] = reply
            last = max(last, command.place)
            if self._nodes.keeps_commands and held not in chunks:
                chunks.append(held)
        self.hold(Arrived(last, len(replies), size, chunks))


def is_new(command: Refused) -> bool:
    """Return whether a command was never sent, and is not ASKING."""
    return command.place >= 0 and not command.tries


class Pending(NamedTuple):
    """A redirected command that is not answered yet.

    Attributes:
        origin: the node that redirected the command first; None if a redirection back to this node
            is allowed, because no later command can overtake the command.
        node: the connection over which the command is resent.
        since: the time of the first redirection.
        times: the number of redirections.
    """

    origin: tuple[str, int] | None
    node: RedirectCore
    since: float
    times: int


class Redirects:
    """Resends commands that nodes redirected or temporarily refused, and commands of lost nodes.

    Commands of a slot stay in order: a command is sent to the same node as its predecessor, and
    this node redirects both or neither. If the predecessor is postponed, the command is postponed.

    Args:
        timeout: seconds for which a command may be redirected repeatedly; None for 30.
        connect: a function that receives an address, and returns a RedirectCore for this node.

    Attributes:
        nodes: the connections, by address.
        postponed: the postponed commands.
        moved: whether a slot has moved since the caller set this to False.
        pause: whether to pause before resending, since some commands were redirected many times.
    """

    def __init__(
        self, timeout: float | None, connect: Callable[[tuple[str, int]], RedirectCore]
    ) -> None:
        self.nodes: dict[tuple[str, int], RedirectCore] = {}
        self.postponed = Postponed(timeout)
        self.moved = self.pause = False
        self._timeout = timeout or MAX_S
        self._connect = connect
        self._pending: dict[int, dict[int, Pending]] = {}
        self._slots: dict[int, int] = {}  # slots of redirected commands, by source index

    @property
    def unanswered(self) -> int:
        """The number of redirected or postponed commands without an answer."""
        return sum(len(node.expected) for node in self.nodes.values()) + self.postponed.count

    @property
    def unsent(self) -> int:
        """The number of redirected or postponed commands that have not run."""
        return sum(node.waiting for node in self.nodes.values()) + self.postponed.unsent

    def put(
        self, command: Refused, origin: tuple[str, int] | None, message: str, to: Redirect
    ) -> None:
        """Resend a redirected command.

        Args:
            command: the command.
            origin: the node that redirects the command; None if a redirection back to this node is
                allowed.
            message: the error reply.
            to: the redirection parsed from ``message``.

        Raises:
            TransportError: the command was redirected for too long, or was redirected back; or
                commands were redirected to too many nodes.
        """
        self.moved = self.moved or not to.asking
        before = self._pending.get(self._slots.get(command.place, to.slot), {}).get(command.place)
        if self.postponed.has(to.slot):
            self.postpone(command, to.slot, message)
            return
        pending = self._pending.setdefault(to.slot, {})
        if before is not None:
            self._check(before, message, to)
            now = before._replace(node=self._node(to.node), times=before.times + 1)
            if command.place not in pending:  # its slot was unknown so far
                self._forget(command.place)
        else:
            # Send the command after the slot's commands in flight, to the same node.
            last = next(reversed(pending.values())).node if pending else self._node(to.node)
            now = Pending(origin, last, time.monotonic(), 1)
        pending[command.place] = now
        self._slots[command.place] = to.slot
        now.node.put(command, to.slot, asks=to.asking)
        self.pause = self.pause or now.times >= MANY

    def postpone(self, command: Refused, slot: int, message: str) -> None:
        """Postpone a command; the arguments are as for ``Postponed.add()``."""
        self._forget(command.place)
        self.postponed.add(command, slot, message)

    def send(self, command: Refused, slot: int, node: tuple[str, int]) -> None:
        """Send a postponed command to a node.

        Raises:
            TransportError: commands were redirected to too many nodes.
        """
        pending = Pending(None, self._node(node), time.monotonic(), 0)
        self._pending.setdefault(slot, {})[command.place] = pending
        self._slots[command.place] = slot
        pending.node.put(command, slot, asks=False)

    def _check(self, pending: Pending, message: str, to: Redirect) -> None:
        """Raise if a command must not be redirected again."""
        if to.node == pending.origin:
            # A later command with the same key may have run on that node already.
            raise TransportError(
                f"slot {to.slot:,} of the cluster moved to another node and back while its "
                "commands were in flight; run the commands without a reply again"
            )
        if time.monotonic() - pending.since > self._timeout:
            raise TransportError(
                f"a command was redirected for {self._timeout:g} s, last with: {message} (check "
                "the cluster with redis-cli --cluster check)"
            )

    def settle(self, slot: int, place: int) -> None:
        """Record that a redirected command was answered."""
        self._forget(place)
        self.postponed.answered(place, slot)

    def _forget(self, place: int) -> None:
        """Remove the record of a redirected command."""
        slot = self._slots.pop(place, None)
        if slot is not None:
            pending = self._pending[slot]
            del pending[place]
            if not pending:
                del self._pending[slot]

    def _node(self, node: tuple[str, int]) -> RedirectCore:
        if node not in self.nodes:
            if len(self.nodes) >= MAX_NODES:
                raise TransportError(f"the cluster redirects to more than {MAX_NODES:,} nodes")
            self.nodes[node] = self._connect(node)
        return self.nodes[node]
