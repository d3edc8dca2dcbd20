"""The nodes of a cluster and their slots. Source: CLUSTER SLOTS."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias

from ..outcome.errors import TransportError
from ..outcome.messages import shown_reply
from ..resp.slots import SLOTS

__all__ = [
    "MAX_NODES", "NodeSlots", "Redirect", "Remap", "Topology", "node_slots_of", "positions_of",
    "redirect_of", "topology_of",
]  # fmt: skip

# Maps the host and port that a node announces to a reachable host and port, as redis-py's
# address_remap does. None if announced addresses are reachable.
Remap: TypeAlias = Callable[[tuple[str, int]], tuple[str, int]] | None

# Maximum primaries, according to the cluster specification.
MAX_NODES = 1000
# A host name or an address, with the zone of IPv6. A name has at most 253 bytes. Source: RFC 1035.
HOST = re.compile(rb"[0-9A-Za-z_.:%-]{1,253}")
# The name that a node sends for an unknown endpoint.
UNKNOWN = "?"
# Limits for numbers in replies, since a server may answer anything.
MAX_POSITION = 1000
MAX_PORT = 65535
# MOVED: another node owns the slot. ASK: the slot is being moved to the named node, and the key has
# already moved. Source: clusterRedirectClient() of Redis.
REDIRECT = re.compile(r"(MOVED|ASK) (\d{1,5}) ([0-9A-Za-z_.:%?-]{0,253}):(\d{1,5})")
# The ninth and later words of a node's own line in CLUSTER NODES: a slot or range of slots that the
# node owns, or a slot that it is importing (<) or migrating (>).
OWN_SLOTS = re.compile(rb"(\d{1,5})(?:-(\d{1,5}))?|\[(\d{1,5})-([<>])-(\w+)\]")
# The second word of each line of CLUSTER NODES begins with the address of the node.
ADDRESS = re.compile(rb"([0-9A-Za-z_.:%-]{1,253}):(\d{1,5})(?=[@,]|$)")


@dataclass
class Topology:
    """The nodes of a cluster, and their slots.

    Attributes:
        nodes: the reachable host and port of each primary.
        slots: for each slot, the index in ``nodes`` of its primary; -1 if no node serves the slot.
        replicas: the host and port of each replica.
    """

    nodes: list[tuple[str, int]] = field(default_factory=list)
    slots: list[int] = field(default_factory=lambda: [-1] * SLOTS)
    replicas: list[tuple[str, int]] = field(default_factory=list)

    def lanes(self, nodes: Sequence[tuple[str, int] | None], count: int) -> list[int]:
        """Return the connection number of each slot, for ``count`` connections to each node."""
        places = [nodes.index(node) * count for node in self.nodes]
        return [
            node if node < 0 else places[node] + slot % count
            for slot, node in enumerate(self.slots)
        ]

    def node_of(self, slot: int, address: str) -> tuple[str, int]:
        """Return the node that serves a slot; ``address`` is the server's name, for messages."""
        node = self.slots[slot]
        if node < 0:
            raise TransportError(
                f"can't use the cluster at {address}: no node serves slot {slot:,} (check it with "
                "redis-cli --cluster check)"
            )
        return self.nodes[node]

    def add(self, node: tuple[str, int], first: int, last: int) -> None:
        """Add a range of slots that a node serves."""
        if node not in self.nodes:
            self.nodes.append(node)
        if len(self.nodes) > MAX_NODES:
            raise ValueError
        self.slots[first : last + 1] = [self.nodes.index(node)] * (last + 1 - first)

    def remapped(self, remap: Remap) -> Topology:
        """Return the topology with addresses translated by ``remap``."""
        addresses = [remapped(each, remap) for each in self.nodes]
        nodes = list(dict.fromkeys(addresses))  # several nodes may be mapped to one address
        places = [*map(nodes.index, addresses), -1]
        replicas = [remapped(each, remap) for each in self.replicas]
        return Topology(nodes, [places[node] for node in self.slots], replicas)


def remapped(address: tuple[str, int], remap: Remap) -> tuple[str, int]:
    if remap is None:
        return address
    try:
        host, port = remap(address)
        return str(host), int(port)
    except Exception as error:
        raise TransportError(
            f"the address_remap of the cluster's client failed for {address!r}: {error!r} (it must "
            "return the host and port of every node)"
        ) from error


def topology_of(reply: Any, host: str, address: str, remap: Remap = None) -> Topology:
    """Return the topology in a node's reply to CLUSTER SLOTS.

    Args:
        host: host of the node that replied, since the reply may omit it.
        address: the name of the server, for messages.
    """
    found = Topology()
    try:
        for first, last, *nodes in reply:
            primary, *replicas = [
                (_host_of(name, more) or host, port) for name, port, *more in nodes
            ]
            if not (0 <= first <= last < SLOTS and 0 < primary[1] <= MAX_PORT):
                raise ValueError
            found.add(primary, first, last)
            found.replicas += [each for each in replicas if 0 < each[1] <= MAX_PORT]
    except (TypeError, ValueError, AttributeError) as error:
        raise TransportError(
            f"can't use the cluster at {address}: it answers CLUSTER SLOTS with "
            f"{shown_reply(reply)}"
        ) from error
    found.replicas = list(dict.fromkeys(found.replicas))[:MAX_NODES]
    if not found.nodes:
        raise TransportError(
            f"can't use the cluster at {address}: no node serves a slot; create the cluster with "
            "redis-cli --cluster create"
        )
    return found if remap is None else found.remapped(remap)


def _host_of(name: Any, more: list[Any]) -> str:
    """Return the host of a node; empty for the replying node.

    ``name`` is the node's preferred endpoint in CLUSTER SLOTS; ``more`` is the rest of its entry.
    """
    text = name or b""
    if text == UNKNOWN.encode():
        known = dict(zip(more[1][::2], more[1][1::2], strict=False)) if len(more) > 1 else {}
        text = known.get(b"ip", b"")
    if text and not HOST.fullmatch(text):
        raise ValueError
    return str(text.decode())


def positions_of(reply: Any) -> dict[bytes, tuple[int, int, int]]:
    """Return the key positions in a reply to COMMAND: first key, last key, and step.

    Commands with variable key positions are omitted.
    """
    found = {}
    for each in reply if isinstance(reply, list) else []:
        match each:
            case [bytes(name), int(_), [*flags], int(first), int(last), int(step), *_] if (
                b"movablekeys" not in flags
                and 0 <= first <= MAX_POSITION
                and -MAX_POSITION <= last <= MAX_POSITION
                and 0 <= step <= MAX_POSITION
            ):
                found[name.upper()] = first, last, step
    return found


class NodeSlots(NamedTuple):
    """The slots whose keys a node may have, as reported by the node itself.

    Attributes:
        own: slots that the node serves.
        importing: slots that the node is importing.
        migrating: own slots that the node is migrating to other nodes.
        targets: host and port of the nodes that import ``migrating``, even if they serve no slot.
    """

    own: frozenset[int] = frozenset()
    importing: frozenset[int] = frozenset()
    migrating: frozenset[int] = frozenset()
    targets: tuple[tuple[str, int], ...] = ()


def node_slots_of(reply: Any, remap: Remap = None) -> NodeSlots:
    """Return the slots whose keys a node may have, from the node's reply to CLUSTER NODES."""
    text = reply.encode() if isinstance(reply, str) else reply
    lines = [line.split() for line in text.splitlines()] if isinstance(text, bytes) else []
    addresses = {fields[0]: ADDRESS.match(fields[1]) for fields in lines if len(fields) > 2}
    own: set[int] = set()
    importing: set[int] = set()
    migrating: dict[int, bytes] = {}
    for fields in lines:
        if len(fields) < 3 or b"myself" not in fields[2].split(b","):
            continue
        for found in filter(None, map(OWN_SLOTS.fullmatch, fields[8:])):
            first, last, slot, direction, node = found.groups()
            if slot is None:
                if int(first) not in own:  # a malicious server could repeat slots
                    own.update(range(int(first), min(int(last or first), SLOTS - 1) + 1))
            elif direction == b"<":
                importing.add(int(slot))
            else:
                migrating[int(slot)] = node
    known = [each for each in map(addresses.get, sorted({*migrating.values()})) if each]
    targets = [(each[1].decode(), int(each[2])) for each in known[:MAX_NODES]]
    targets = [remapped(each, remap) for each in targets if 0 < each[1] <= MAX_PORT]
    return NodeSlots(frozenset(own), frozenset(importing), frozenset(migrating), tuple(targets))


class Redirect(NamedTuple):
    """The node to resend a command to, and whether to send ASKING first."""

    asking: bool
    slot: int
    node: tuple[str, int]


def redirect_of(message: str, host: str, remap: Remap = None) -> Redirect | None:
    """Return where an error reply redirects its command; None for other errors.

    ``host`` is the host of the node that replied, since the reply may omit it.
    """
    found = REDIRECT.fullmatch(message)
    if found is None:
        return None
    kind, slot, name, port = found.groups()
    if int(slot) >= SLOTS or not 0 < int(port) <= MAX_PORT:
        return None
    address = host if name in ("", UNKNOWN) else name, int(port)
    return Redirect(kind == "ASK", int(slot), remapped(address, remap))
