"""A cluster of three primaries for the tests of a module; its replies, sync and asyncio."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from cluster_reading import Execute, execute_asyncio, execute_sync
from local_cluster import LocalCluster
from server_programs import need


@pytest.fixture(scope="module")
def shared_cluster() -> Iterator[LocalCluster]:
    need("server")
    with LocalCluster() as cluster:
        yield cluster


@pytest.fixture
def cluster(shared_cluster: LocalCluster) -> LocalCluster:
    shared_cluster.empty()
    return shared_cluster


@pytest.fixture(params=[execute_sync, execute_asyncio], ids=["sync", "asyncio"])
def execute(request: pytest.FixtureRequest) -> Execute:
    """Return all replies as a list."""
    return request.param
