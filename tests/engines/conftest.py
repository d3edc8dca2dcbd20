"""Fixtures: where a sink loads to, and a check that its threads have ended."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest
import redis
from local_cluster import LocalCluster
from sink_attempts import Place, threads
from waiting import until


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    with LocalCluster(3, 0) as cluster:
        yield cluster


@pytest.fixture(params=["one", "two", "cluster"])
def place(request: pytest.FixtureRequest) -> Iterator[Place]:
    """A single server over one and two connections, and a cluster."""
    if request.param == "cluster":
        cluster = request.getfixturevalue("cluster")
        cluster.empty()
        with redis.RedisCluster.from_url(cluster.url) as client:
            yield Place(cluster.url, client)
        return
    server, client = map(request.getfixturevalue, ("server", "client"))
    yield Place(server.url, client, 1 + (request.param == "two"))


@pytest.fixture
def no_thread_left() -> Iterator[None]:
    """Check that the threads of tasks have ended."""
    yield
    gc.collect()
    until(lambda: not threads())
