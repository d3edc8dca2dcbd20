"""The primaries of a cluster: their slots, their replicas, and whether they can be reached."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..server.cluster import topology_of
from ..server.settings import Server
from .questions import Questions, text_of

__all__ = ["REACH_S", "Cluster", "Primary", "open_slots", "read_cluster"]

# Seconds for a node to accept a connection, and to answer each question.
REACH_S = 3.0
# A slot that is being moved to or from another node, in CLUSTER NODES.
OPEN_SLOT = re.compile(r"\[(\d+)-[<>]-\w+\]")


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
        moving: slots that are being moved, by host and port of the reporting node.
    """

    primaries: Sequence[Primary]
    unserved: Sequence[int] = ()
    unreachable: Mapping[str, str] = field(default_factory=dict)
    moving: Mapping[str, Sequence[int]] = field(default_factory=dict)


def read_cluster(server: Server, questions: Questions, info: Mapping[str, str]) -> Cluster | None:
    """Read the primaries of a cluster.

    Args:
        server: a node of the cluster.
        questions: asks the node, over an open connection.
        info: the fields of the node's INFO.

    Returns:
        The cluster; None if the server is not a cluster node, has no slots yet, or refuses CLUSTER
        SLOTS.
    """
    reply = questions.ask("CLUSTER", "SLOTS") if info.get("cluster_enabled") == "1" else None
    if not reply:
        return None
    host = getattr(questions.connection, "host", None) or "localhost"
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


def open_slots(questions: Questions) -> list[int]:
    """Return the slots that are being moved to or from a node, as the node reports."""
    reply = questions.ask("CLUSTER", "NODES")
    lines = text_of(reply or b"").splitlines()
    own = next((line for line in lines if "myself" in line), "")
    return sorted(map(int, OPEN_SLOT.findall(own)))
