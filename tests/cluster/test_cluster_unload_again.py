"""load, unload, load in a cluster: the same keys of every type, with their times to live."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from every_type import TEMPLATES, rows_of, stored
from local_cluster import LocalCluster

import fastresp


def stored_in(cluster: LocalCluster) -> dict[bytes, Any]:
    found: dict[bytes, Any] = {}
    for client in cluster.clients:
        found |= stored(client)
    return found


@pytest.mark.few(3)
@pytest.mark.parametrize("kind", [kind for kind in TEMPLATES if kind != "json"])
def test_round_trip(kind: str, cluster: LocalCluster) -> None:
    options: dict[str, Any] = {"server": cluster.url, "nulls": "skip"}
    assert not fastresp.mass_insert(rows_of(kind), TEMPLATES[kind], **options).failed
    before = stored_in(cluster)
    assert min(cluster.sizes()) > 0
    table = pa.table(fastresp.unload("k:{id}", type=kind, ttl=True, server=cluster.url))
    cluster.empty()
    assert not fastresp.mass_insert(table, TEMPLATES[kind], **options).failed
    assert stored_in(cluster) == before
