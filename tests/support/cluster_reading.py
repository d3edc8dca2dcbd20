"""Cluster clients of redis-py and valkey-py, and the state of a cluster's nodes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import redis
import redis.asyncio
import valkey
import valkey.asyncio
from local_cluster import LocalCluster
from waiting import until

__all__ = ["clients", "connected", "keys_of", "until_down"]


def keys_of(cluster: LocalCluster, number: int, count: int) -> list[str]:
    """Return ``count`` keys whose slot is on a node."""
    client = cluster.clients[number]
    keys = (f"key:{i}" for i in range(100 * count))
    found = [key for key in keys if cluster.client_of(key) is client]
    return found[:count]


def clients(cluster: LocalCluster, kind: str) -> Any:
    port = cluster.ports[1]
    if kind.endswith("asyncio"):
        nodes = redis.asyncio if kind.startswith("redis") else valkey.asyncio
    else:
        nodes = redis if kind.startswith("redis") else valkey
    return getattr(nodes, f"{kind.split()[0].title()}Cluster")(host="127.0.0.1", port=port)


def connected(cluster: LocalCluster) -> list[int]:
    """Return how many clients each node has, without its client in ``cluster.clients``."""
    return [len(client.client_list(_type="normal")) - 1 for client in cluster.clients]


def until_down(cluster: LocalCluster, clients: Iterable[redis.Redis]) -> None:
    """Wait until some nodes refuse all commands."""
    until(lambda: all(cluster.state(each, "cluster_state") != "ok" for each in clients), 20)
