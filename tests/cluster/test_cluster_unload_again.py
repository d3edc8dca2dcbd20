"""load, unload, load in a cluster: the same keys of every type, with their times to live."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from every_type import TEMPLATES, rows_of, stored
from local_cluster import LocalCluster
from module_server import module_options
from server_programs import WHEEL_SERVERS, located

import fastresp


def stored_in(cluster: LocalCluster) -> dict[bytes, Any]:
    found: dict[bytes, Any] = {}
    for client in cluster.clients:
        found |= stored(client)
    return found


@pytest.mark.few(3)
@pytest.mark.parametrize("kind", [kind for kind in TEMPLATES if kind != "json"])
def test_round_trip(kind: str, cluster: LocalCluster) -> None:
    check_again(cluster, kind)


@pytest.mark.slow
def test_round_trip_without_pexpiretime() -> None:
    """Each node adds its own clock to what is left."""
    with LocalCluster(program=located("redis-6.2", WHEEL_SERVERS)) as cluster:
        check_again(cluster, "hash", exact_ms=20)


@pytest.mark.slow
def test_round_trip_of_json_documents(tmp_path: Path) -> None:
    modules = module_options(tmp_path, "json")
    with LocalCluster(options=lambda port: modules) as cluster:
        check_again(cluster, "json")


def check_again(cluster: LocalCluster, kind: str, exact_ms: int = 0) -> None:
    options: dict[str, Any] = {"server": cluster.url, "nulls": "skip"}
    assert not fastresp.mass_insert(rows_of(kind), TEMPLATES[kind], **options).failed
    before = stored_in(cluster)
    assert sum(size > 0 for size in cluster.sizes()) > 1
    table = pa.table(fastresp.unload("k:{id}", type=kind, ttl=True, server=cluster.url))
    cluster.empty()
    assert not fastresp.mass_insert(table, TEMPLATES[kind], **options).failed
    after = stored_in(cluster)
    assert {key: value for key, (value, _) in after.items()} == {
        key: value for key, (value, _) in before.items()
    }
    for key, (_, time) in before.items():
        assert abs(after[key][1] - time) <= exact_ms, key
