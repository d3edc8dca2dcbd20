"""Metrics of a load into a cluster: unanswered commands of each node."""

from __future__ import annotations

from collections.abc import Iterator

from local_cluster import LocalCluster
from prometheus_client.openmetrics.parser import text_string_to_metric_families

import fastresp


def test_nodes(cluster: LocalCluster) -> None:
    """Only the silent node has commands in flight, until it answers."""
    texts: list[str] = []
    silent = cluster.client_of("1")

    def source() -> Iterator[tuple[int, int]]:
        silent.client_pause(2500, all=False)
        yield from ((i, i) for i in range(1000))

    report = fastresp.mass_insert(source(), "SET {0} {1}", server=cluster.url, metrics=texts.append)
    assert report.replies == 1000
    first, last = texts[0], texts[-1]
    assert len(in_flight(first)) == 3
    [node] = [node for node, count in in_flight(first).items() if count]
    assert node.endswith(f":{silent.connection_pool.connection_kwargs['port']}")
    assert set(in_flight(last).values()) == {0}


def in_flight(text: str) -> dict[str, float]:
    found = {family.name: family for family in text_string_to_metric_families(text)}
    samples = found["fastresp_node_in_flight_commands"].samples
    return {sample.labels["node"]: sample.value for sample in samples}
