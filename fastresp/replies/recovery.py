"""Keep reading from a cluster while nodes die, fail over, or temporarily refuse commands.

The source index of a command is its index among all commands of the source.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Future
from functools import partial
from typing import Any

from ..outcome.errors import CommandError, TransportError
from ..resp.slots import Rules
from ..resp.split import arguments
from ..server.answers import Answers
from ..server.cluster import Topology
from ..server.cluster_view import ClusterView
from ..transports.driver import Blocking, Steps
from ..transports.lanes import STALLED_S
from ..transports.resend import Refused
from .node_core import NodeCore
from .redirects import HOME, Redirects
from .reply_core import ReplyCore

__all__ = ["Recovery", "sleeping"]


class Recovery:
    """Resends the commands that nodes temporarily refused, and the commands of lost nodes.

    Args:
        core: a ReplyCore with the server that the user named, and the RowKeys.
        answers: what the server replied about itself and the cluster.
        redirects: the redirected commands.
        replies: received replies, by the source index of their commands.

    Attributes:
        message: why the last query of the topology failed.
        view: the nodes of the cluster.
    """

    def __init__(
        self, core: ReplyCore, answers: Answers, redirects: Redirects, replies: dict[int, Any]
    ) -> None:
        self.message = ""
        self._keys = core.keys
        self._redirects = redirects
        self._replies = replies
        self._rules = Rules(answers.positions)
        self._one = answers.topology is None  # the slots are unknown
        self.view = ClusterView(core.server, answers.topology, answers.processes)

    def postpone(self, command: Refused, message: str) -> None:
        """Postpone a command; ``message`` says why the command was not answered."""
        slot = max(self._rules.slot(command.command), -1)
        self._redirects.postpone(command, slot, message)

    def part_with(self, node: NodeCore, message: str, reader: Any) -> None:
        """Postpone the unanswered commands of a lost node, until a node serves their slots again.

        Args:
            node: the lost node; its connection is closed, and may be replaced later.
            message: how the node was lost.
            reader: the reader for the next connection.
        """
        self._redirects.postponed.lost = self._redirects.postponed.lost or message
        self._redirects.moved = True
        for command in node.left():
            self.postpone(command, message)
        node.renew(reader)

    def looking(self, nodes: Iterable[NodeCore]) -> Steps[Topology | None]:
        """Query nodes for the cluster's topology; return None if no node returns it.

        Args:
            nodes: all nodes. Connected nodes are queried first, the most recently heard node first.
        """
        connected = [node for node in nodes if node.stream is not None and not node.over]
        connected.sort(key=lambda node: node.heard, reverse=True)
        look = partial(self.view.look, [node.server for node in connected], STALLED_S)
        try:
            topology: Topology = yield Blocking(look, late=_nothing)
        except TransportError as error:
            self.message = str(error.args[0])
            return None
        return topology

    def sending(self, nodes: Sequence[NodeCore]) -> Steps[None]:
        """Pause, and send postponed commands to the current owners of their slots.

        Args:
            nodes: all nodes. All sent commands must be answered, except at nodes that stopped
                reading (``is_full``).

        Raises:
            TransportError: commands have waited too long, or can't be sent in order.
        """
        postponed = self._redirects.postponed
        for node in nodes:
            for command in node.left() if node.is_full else ():
                if command.tries:
                    postponed.ran(command)
        for slot, command, message in postponed.overtaken():
            sent = arguments(command.command)
            self._replies[command.place] = CommandError(
                message, index=command.place, row=command.row, arguments=sent,
                row_key=self._keys.of(sent),
            )  # fmt: skip
            self._redirects.settle(slot, command.place)
        if not postponed:
            return
        yield from sleeping(postponed.pause())
        topology = yield from self.looking(nodes)
        if topology is None:
            postponed.message = self.message
            if not self._one:
                return
        for slot, command in postponed.portion(partial(_owner_of, topology)):
            owner = _owner_of(topology, slot)
            assert owner is not None
            self._redirects.send(command, slot, owner)

    def checking(self, waits: Mapping[NodeCore, Any], nodes: Iterable[NodeCore]) -> Steps[bool]:
        """Give up silent nodes that no longer own slots; return whether the topology was queried.

        Args:
            waits: the nodes that have not answered all sent commands.
            nodes: all nodes.
        """
        now = time.monotonic()
        silent = [node for node in waits if node.address and node.heard < now - STALLED_S]
        if not silent or now < self.view.look_at:
            return False
        topology = yield from self.looking(nodes)
        served = [node.address for node in silent] if topology is None else topology.nodes
        for node in silent:
            if node.stream is not None and node.address not in served:
                message = "it does not answer, and another node owns its slots"
                node.stream.give_up(ConnectionError(message))
        return True


def _owner_of(topology: Topology | None, slot: int) -> tuple[str, int] | None:
    """Return the address to which commands of a slot are sent; None for a slot without an owner."""
    if topology is None or slot < 0:
        return HOME
    node = topology.slots[slot]
    return None if node < 0 else topology.nodes[node]


def sleeping(seconds: float) -> Steps[None]:
    """Wait for some seconds; return immediately if ``seconds`` is not above 0."""
    if seconds > 0:
        yield Blocking(partial(time.sleep, seconds), late=_nothing)


def _nothing(_: Future[Any]) -> None:
    """Ignore a result that arrives after a cancellation."""
