"""A cluster: its primaries, and rules about them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

from ..outcome.report import counted, size_text
from ..resp.slots import SLOTS
from ..server.cluster import node_slots_of, topology_of
from ..server.settings import Server
from .connections import StateReader
from .rules import Findings, Grade, Verdict, in_order

__all__ = [
    "CLUSTER_RULES", "Cluster", "Primary", "NODE_TIMEOUT_S", "grouped", "names", "open_slots",
    "read_cluster",
]  # fmt: skip

# Seconds for a node to accept a connection, and to answer each command.
NODE_TIMEOUT_S = 3.0
SPECIFICATION = (
    "Redis documentation, cluster specification: "
    "https://redis.io/docs/latest/operate/oss_and_stack/reference/cluster-spec/"
)
TUTORIAL = (
    "Redis documentation, scaling with a cluster: "
    "https://redis.io/docs/latest/operate/oss_and_stack/management/scaling/"
)
# A node is uneven if it has at least this multiple of the average.
UNEVEN_SLOTS = 1.5
UNEVEN_SHARE = 2.0
# Minimum amount of data, and number of commands, to judge whether they are uneven.
MIN_BYTES = 64 << 20
MIN_COMMANDS = 1_000
# Settings that should be equal on all nodes.
SETTINGS = ("maxmemory_human", "maxmemory_policy", "aof_enabled")
MAX_NAMED = 4


@dataclass(frozen=True, eq=False)
class Primary:
    """A cluster node that serves slots.

    Attributes:
        server: the settings of the node, with the announced address.
        slots: the slots that the node serves.
        replicas: number of working replicas of the node.
    """

    server: Server
    slots: Sequence[int]
    replicas: int

    @property
    def place(self) -> str:
        """Host and port."""
        return str(self.server)


@dataclass(frozen=True)
class Cluster:
    """A cluster, as described by one of its nodes.

    Attributes:
        primaries: the nodes that serve slots.
        unserved: slots that no node serves.
        unreachable: why nodes can't be used, by host and port.
    """

    primaries: Sequence[Primary]
    unserved: Sequence[int] = ()
    unreachable: Mapping[str, str] = field(default_factory=dict)


def read_cluster(server: Server, reader: StateReader, info: Mapping[str, str]) -> Cluster | None:
    """Read the primaries of a cluster.

    No ClusterView is used: the slots are read only once, and a server may refuse CLUSTER SLOTS.

    Returns:
        The cluster; None if the server is not a cluster node, has no slots yet, or refuses CLUSTER
        SLOTS.
    """
    reply = reader.ask("CLUSTER", "SLOTS") if info.get("cluster_enabled") == "1" else None
    if not reply:
        return None
    host = getattr(reader.connection, "host", None) or "localhost"
    topology = topology_of(reply, host, str(server), server.remap)
    slots: list[list[int]] = [[] for _ in topology.nodes]
    unserved: list[int] = []
    for slot, node in enumerate(topology.slots):
        (unserved if node < 0 else slots[node]).append(slot)
    replicas: list[set[Any]] = [set() for _ in topology.nodes]
    for first, _, _, *others in reply:
        replicas[topology.slots[first]].update(tuple(each[:2]) for each in others)
    servers = server.nodes_of(topology.nodes, 1)
    found = zip(servers, slots, map(len, replicas), strict=True)
    return Cluster([Primary(*each) for each in found if each[1]], unserved)


def open_slots(reader: StateReader) -> list[int]:
    """Return the slots that a node reports as importing or migrating."""
    slots = node_slots_of(reader.ask("CLUSTER", "NODES"))
    return sorted(slots.importing | slots.migrating)


ClusterRule: TypeAlias = Callable[[Cluster, Mapping[str, Findings]], Verdict | None]


def names(places: Sequence[str], most: int = MAX_NAMED) -> str:
    """Return the names of nodes as text; if there are many, the first names and how many more."""
    more = len(places) - most
    if more <= 1:
        return ", ".join(places)
    return f"{', '.join(places[:most])} and {more:,} more"


def grouped(verdicts: Mapping[str, Sequence[Verdict]]) -> Iterable[Verdict]:
    """Combine equal findings about several nodes into one verdict that names the nodes.

    If the figures differ, the verdict has the figure and the name of the node with the largest
    gain.
    """
    groups: defaultdict[tuple[str, Grade], dict[str, Verdict]] = defaultdict(dict)
    for place, found in verdicts.items():
        for verdict in found:
            groups[verdict.code, verdict.grade][place] = verdict
    for group in groups.values():
        first = in_order(group.values())[0]
        figure = first.figure
        if any(each.figure != figure for each in group.values()):
            place = next(place for place, each in group.items() if each is first)
            figure = f"{place}: {figure}"
        yield replace(first, figure=figure, nodes=tuple(group))


def unserved(cluster: Cluster, nodes: Mapping[str, Findings]) -> Verdict | None:
    slots = cluster.unserved
    if not slots:
        return None
    return Verdict(
        "slots-unserved", "problem", "Slots have no node",
        f"{len(slots):,} of {SLOTS:,} slots, the first is {slots[0]:,}",
        "Run redis-cli --cluster fix. Until then, commands on keys of these slots fail; with "
        "cluster-require-full-coverage yes, the default, all commands do.",
        "the load succeeds", SPECIFICATION,
    )  # fmt: skip


def unreachable(cluster: Cluster, nodes: Mapping[str, Findings]) -> Verdict | None:
    if not cluster.unreachable:
        return None
    places = tuple(cluster.unreachable)
    return Verdict(
        "node-unreachable", "problem",
        "A node of the cluster can't be used" if len(places) == 1
        else f"{len(places):,} nodes of the cluster can't be used",
        cluster.unreachable[places[0]],
        "Check that it is running, and that its announced address can be reached from the "
        "machines of its clients (cluster-announce-ip, cluster-announce-port, "
        "cluster-announce-hostname).",
        "the load succeeds", SPECIFICATION, nodes=places,
    )  # fmt: skip


def without_replica(cluster: Cluster, nodes: Mapping[str, Findings]) -> Verdict | None:
    """Check whether each primary has a replica; only a note if no primary has a replica."""
    alone = tuple(each.place for each in cluster.primaries if not each.replicas)
    if not alone:
        return None
    every = len(alone) == len(cluster.primaries)
    figure = f"{len(alone):,} of {counted(len(cluster.primaries), 'primary', 'primaries')}"
    return Verdict(
        "no-replica", "note" if every else "advice",
        "No primary has a replica" if every else "Some primaries have no working replica",
        figure,
        "Add a replica (redis-cli --cluster add-node ... --cluster-slave), unless the data can be "
        "loaded again: if such a node dies, its slots and their data are gone.",
        "the cluster survives the loss of a node", TUTORIAL, nodes=alone,
    )  # fmt: skip


def moving(cluster: Cluster, nodes: Mapping[str, Findings]) -> Verdict | None:
    """Check for slots that are being moved, perhaps by a move that was interrupted."""
    places = tuple(place for place, each in nodes.items() if each.facts.moving)
    slots = sorted({slot for place in places for slot in nodes[place].facts.moving})
    if not slots:
        return None
    return Verdict(
        "slots-moving", "advice", "Slots are being moved",
        f"{counted(len(slots), 'slot')}, the first is {slots[0]:,}",
        "If no resharding is in progress, one was interrupted: run redis-cli --cluster fix. Loads "
        "wait for such slots, and other clients need several attempts (ASK, TRYAGAIN).",
        "no commands are redirected", SPECIFICATION, nodes=places,
    )  # fmt: skip


def uneven_slots(cluster: Cluster, nodes: Mapping[str, Findings]) -> Verdict | None:
    counts = {each.place: len(each.slots) for each in cluster.primaries}
    return _uneven(
        counts, UNEVEN_SLOTS, "slots-uneven", "Slots are distributed unevenly",
        lambda count: f"{count:,.0f} slots",
        "Run redis-cli --cluster rebalance, unless the machines of these nodes differ accordingly.",
    )  # fmt: skip


def uneven_memory(cluster: Cluster, nodes: Mapping[str, Findings]) -> Verdict | None:
    used = {place: found.facts.number("used_memory") or 0.0 for place, found in nodes.items()}
    if max(used.values(), default=0.0) < MIN_BYTES:
        return None
    return _uneven(
        used, UNEVEN_SHARE, "memory-uneven", "Data is distributed unevenly", size_text,
        "Look for large keys with redis-cli --bigkeys on this node, and for a hash tag that many "
        "keys share, which puts them in one slot. Otherwise move slots away (redis-cli --cluster "
        "reshard).",
    )  # fmt: skip


def uneven_use(cluster: Cluster, nodes: Mapping[str, Findings]) -> Verdict | None:
    """Check whether a watched node got far more commands than the average."""
    uses = {place: found.use for place, found in nodes.items()}
    rates = {
        place: use.per_second(use.commands) for place, use in uses.items() if use and use.watched
    }
    if sum(use.commands for use in uses.values() if use) < MIN_COMMANDS:
        return None
    return _uneven(
        rates, UNEVEN_SHARE, "use-uneven", "One node gets most of the commands",
        lambda rate: f"{rate:,.0f} commands per second",
        "Look for keys that are used far more than others (redis-cli --hotkeys), and for a hash "
        "tag that many keys share: divide such data among several keys.",
    )  # fmt: skip


def _uneven(
    values: Mapping[str, float],
    most: float,
    code: str,
    title: str,
    shown: Callable[[float], str],
    advice: str,
) -> Verdict | None:
    """Return a verdict if the largest value is at least ``most`` times the average."""
    if len(values) < 2 or not sum(values.values()):
        return None
    place = max(values, key=lambda each: values[each])
    average = sum(values.values()) / len(values)
    share = values[place] / average
    if share < most:
        return None
    return Verdict(
        code, "advice", title,
        f"{shown(values[place])}; the average of {len(values):,} nodes is {shown(average)}",
        advice, f"up to {share:.1f}x, if this node is the limit", TUTORIAL, share, nodes=(place,),
    )  # fmt: skip


def different(cluster: Cluster, nodes: Mapping[str, Findings]) -> Verdict | None:
    figures = []
    for name in ("version", *SETTINGS):
        by_value: defaultdict[str, list[str]] = defaultdict(list)
        for place, found in nodes.items():
            facts = found.facts
            by_value[facts.version if name == "version" else facts.info.get(name, "")].append(place)
        if len(by_value) > 1 and "" not in by_value:
            setting = name.removesuffix("_human").replace("_", "-")
            figures += [f"{setting} {value} on {names(at, 2)}" for value, at in by_value.items()]
    if not figures:
        return None
    return Verdict(
        "nodes-differ", "note", "The nodes differ in version or settings",
        "; ".join(figures[:MAX_NAMED]),
        "Configure all nodes alike, unless their machines differ: a load fails when the first node "
        "is full or refuses a command.",
        "not measured", TUTORIAL,
    )  # fmt: skip


CLUSTER_RULES: tuple[ClusterRule, ...] = (
    unserved, unreachable, without_replica, moving, uneven_slots, uneven_memory, uneven_use,
    different,
)  # fmt: skip
