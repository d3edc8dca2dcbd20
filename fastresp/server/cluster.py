"""The nodes of a cluster that a load writes to, and the slots of each. Source: CLUSTER SLOTS."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from ..outcome.errors import TransportError
from ..outcome.excerpts import shown_reply

__all__ = ["SLOTS", "Topology", "positions_of", "topology_of"]

SLOTS = 16384
# The name that a node sends for an endpoint which it does not know.
UNKNOWN = "?"


@dataclass
class Topology:
    """The primaries of a cluster.

    Attributes:
        nodes: the host and port of each, as the cluster announces them to clients.
        slots: for each slot the index of its node; -1 if no node serves it.
    """

    nodes: list[tuple[str, int]] = field(default_factory=list)
    slots: list[int] = field(default_factory=lambda: [-1] * SLOTS)

    def lanes(self, nodes: list[tuple[str, int]], count: int) -> list[int]:
        """Return for each slot the lane; there are ``count`` for each of these nodes."""
        places = [nodes.index(node) * count for node in self.nodes]
        return [
            node if node < 0 else places[node] + slot % count
            for slot, node in enumerate(self.slots)
        ]

    def add(self, node: tuple[str, int], first: int, last: int) -> None:
        """Add a range of slots that a node serves."""
        if node not in self.nodes:
            self.nodes.append(node)
        self.slots[first : last + 1] = [self.nodes.index(node)] * (last + 1 - first)


def topology_of(reply: Any, host: str, place: str) -> Topology:
    """Return the topology that a node reports.

    Args:
        reply: to CLUSTER SLOTS.
        host: that was asked; a node may report itself without a name.
        place: the name of the server, for messages.

    Raises:
        TransportError: it is no such reply, or no slot has a node.
    """
    found = Topology()
    try:
        for first, last, (name, port, *_), *_ in reply:
            if not 0 <= first <= last < SLOTS:
                raise ValueError
            text = name.decode() if isinstance(name, bytes) else name or ""
            found.add((text if text not in ("", UNKNOWN) else host, int(port)), first, last)
    except (TypeError, ValueError, AttributeError) as error:
        raise TransportError(
            f"can't use the cluster at {place}: it answers CLUSTER SLOTS with {shown_reply(reply)}"
        ) from error
    if not found.nodes:
        raise TransportError(
            f"can't use the cluster at {place}: no node serves a slot; create the cluster with "
            "redis-cli --cluster create"
        )
    return found


def positions_of(reply: Any) -> dict[bytes, tuple[int, int, int]]:
    """Return where commands have their keys: the first, the last, and the step.

    Args:
        reply: to COMMAND. Commands whose keys move are left out.
    """
    found = {}
    for each in reply if isinstance(reply, list) else []:
        match each:
            case [bytes(name), int(_), [*flags], int(first), int(last), int(step), *_] if (
                b"movablekeys" not in flags
            ):
                found[name.upper()] = first, last, step
    return found
