"""Read replies from a cluster, for tests: sync and asyncio, and what its nodes know of it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any, TypeAlias

import redis
import redis.asyncio
import valkey
import valkey.asyncio
from local_cluster import LocalCluster

import fastresp
import fastresp.aio

__all__ = [
    "Execute", "clients", "connected", "execute_asyncio", "execute_sync", "keys_of", "wait_until",
]  # fmt: skip

Execute: TypeAlias = Callable[..., list[Any]]


def execute_sync(data: Any, command: Any = None, **options: Any) -> list[Any]:
    return list(fastresp.iter_replies(data, command, **options))


def execute_asyncio(data: Any, command: Any = None, **options: Any) -> list[Any]:
    async def collect() -> list[Any]:
        return [reply async for reply in fastresp.aio.iter_replies(data, command, **options)]

    return asyncio.run(collect())


def keys_of(cluster: LocalCluster, number: int, count: int) -> list[str]:
    """Return keys of a node."""
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
    """Return how many other clients each node has."""
    return [len(client.client_list(_type="normal")) - 1 for client in cluster.clients]


def wait_until(reached: Callable[[], object]) -> None:
    deadline = time.monotonic() + 30
    while not reached():
        assert time.monotonic() < deadline
        time.sleep(0.01)
