"""The receipt of a load into a cluster."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from local_cluster import LocalCluster

import fastresp

ROWS = [{"id": i, "name": f"name {i}"} for i in range(1000)]


def test_same_digest(cluster: LocalCluster, tmp_path: Path) -> None:
    """The digest is the same, whatever nodes and connections the commands are routed to."""
    path = tmp_path / "receipt.json"
    found: list[dict[str, Any]] = []
    for connections in (1, 2):
        fastresp.mass_insert(
            ROWS, "HSET user:{id} {**}", cluster.url, receipt=path, connections=connections
        )
        found.append(json.loads(path.read_text()))
    first, second = (each["source"]["digest"]["sha256"] for each in found)
    assert first == second and found[0]["server"]["mode"] == "cluster"
    assert fastresp.verify(ROWS, receipt=path).same
