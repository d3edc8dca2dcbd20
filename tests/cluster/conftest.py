"""Fixtures: a cluster of three primaries per module, its clients, lists and replies."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest
import redis
from buffers import Awaited, Open
from local_cluster import LocalCluster
from moving_lists import KEY
from server_programs import need

import fastresp


@pytest.fixture(scope="module")
def shared_cluster() -> Iterator[LocalCluster]:
    need("server")
    with LocalCluster() as cluster:
        yield cluster


@pytest.fixture
def cluster(shared_cluster: LocalCluster) -> LocalCluster:
    for node in shared_cluster.nodes:
        assert node.process.poll() is None, node.log.read_text(errors="replace")[-5_000:]
    shared_cluster.empty()
    return shared_cluster


@pytest.fixture(params=[fastresp.ListBuffer, Awaited], ids=["sync", "asyncio"])
def open_buffer(request: pytest.FixtureRequest, cluster: LocalCluster) -> Iterator[Open]:
    """Return a function that opens a buffer on a list of the cluster."""
    opened: list[Any] = []

    def open_buffer(**options: Any) -> Any:
        opened.append(request.param(KEY, **({"server": cluster.url} | options)))
        return opened[-1]

    yield open_buffer
    for each in opened:
        with suppress(fastresp.TransportError):  # the test has lost its server
            each.close()
        if isinstance(each, Awaited):
            each.loop.close()


@pytest.fixture
def cluster_client(cluster: LocalCluster) -> Iterator[redis.RedisCluster]:
    with redis.RedisCluster("127.0.0.1", cluster.ports[0]) as client:
        yield client
