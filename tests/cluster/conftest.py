"""A cluster of three primaries for the tests of a module."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
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
