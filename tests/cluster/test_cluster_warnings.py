"""Warnings of a load into a cluster: each primary is asked, and named."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from local_cluster import LocalCluster

import fastresp
from fastresp.server import known_faults
from fastresp.server.known_faults import PIPELINE_BYTES, Fault, Versions

ROWS = [{"id": number} for number in range(3000)]
# Every version has it, unless appendfsync is "always".
UNSYNCED = Fault(
    "test#1", "Redis", (Versions("0.0.0", "", "99.0.0"),), "it forgets", "https://x/1",
    setting="appendfsync", harmless=("always",), pipeline_bytes=PIPELINE_BYTES,
)  # fmt: skip


@pytest.fixture
def nodes(cluster: LocalCluster) -> Iterator[list[str]]:
    """Make the second node the only one with a harmless setting and paused saves."""
    before = {name: cluster.clients[1].config_get(name)[name] for name in ("save", "appendfsync")}
    cluster.clients[1].config_set("appendfsync", "always")
    cluster.clients[1].config_set("save", "100000003600 1")
    yield [f"127.0.0.1:{port}" for port in cluster.ports]
    for name, value in before.items():
        cluster.clients[1].config_set(name, value)


def load(cluster: LocalCluster, **options: Any) -> fastresp.Report:
    return fastresp.mass_insert(ROWS, "SET {id} 1", cluster.url, **options)


def test_nodes_are_named_once(
    cluster: LocalCluster, nodes: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(known_faults, "FAULTS", (UNSYNCED,))
    report = load(cluster, connections=2)
    fault, paused = report.warnings
    named, _, rest = fault.partition(": ")
    assert set(named.split(", ")) == {*nodes} - {nodes[1]}
    assert rest.startswith("Redis ") and "it forgets" in rest
    assert paused.startswith(f"{nodes[1]}: the saves of the server are paused by a load")
    assert report.replies == len(ROWS)


def test_a_fault_of_all_nodes(
    cluster: LocalCluster, nodes: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(known_faults, "FAULTS", (UNSYNCED,))
    cluster.clients[1].config_set("appendfsync", "everysec")
    assert load(cluster).warnings[0].startswith("Redis ")


def test_saves_that_are_paused_now_are_no_warning(cluster: LocalCluster, nodes: list[str]) -> None:
    assert load(cluster, pause_saves=True).warnings == []
    assert cluster.clients[1].config_get("save")["save"] == "3600 1"
    assert load(cluster).warnings == []
