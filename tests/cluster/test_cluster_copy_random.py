"""copy() between clusters with other numbers of nodes, while slots move and nodes fail over."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any

import pytest
import redis
from cluster_events import Events
from every_encoding import contents, differences, fill
from local_cluster import SLOTS, LocalCluster
from server_programs import need
from several_clusters import started

import fastresp
from fastresp.server.local_server import LocalServer

# Enough bytes that the source is read during the whole copy.
KEYS, VALUE_BYTES, BYTES_PER_S = 8000, 2000, 3_000_000
# MIGRATE sends the rest of a time to live, so keys of a moved slot expire later by the time that
# this takes, without a copy as well.
MOVED_MS = 5000


@pytest.fixture(scope="module")
def clusters() -> Iterator[dict[str, LocalCluster]]:
    need("server")
    source, target = LocalCluster(3, replicas=1), LocalCluster(4, replicas=1)
    with started(source=source, target=target) as both:
        yield both


def contents_of(cluster: LocalCluster) -> dict[bytes, Any]:
    """Return the contents of all primaries."""
    found: dict[bytes, Any] = {}
    for number in Events(cluster, 0, []).masters():
        of_node = contents(cluster.clients[number])
        assert found.keys().isdisjoint(of_node)
        found |= of_node
    return found


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_random_events_on_both_sides(clusters: dict[str, LocalCluster], seed: int) -> None:
    """All keys arrive, with their times to live, and the pending entries of streams."""
    made = random.Random(seed)
    source, target = clusters["source"], clusters["target"]
    for cluster in (source, target):
        for number in Events(cluster, 0, []).masters():
            cluster.clients[number].flushall()
    with LocalServer() as server, redis.Redis.from_url(server.url) as client:
        fill(client)
        for number in range(KEYS):
            expiry = 4_000_000_000_000 + number if number % 3 else None
            client.set(f"key:{number}", made.randbytes(VALUE_BYTES), pxat=expiry)
        fastresp.copy(client, source.url)
        expected = contents(client)
    assert differences(expected, contents_of(source)) == []
    with ExitStack() as stack:
        pool = stack.enter_context(ThreadPoolExecutor(2))
        events = [Events(each, made.randrange(99), [*range(SLOTS)]) for each in (source, target)]
        kinds = ["fail_over", "move", "reshard", "fail_over"]
        happening = [
            pool.submit(deque, each.between(iter(()), 2 * len(kinds), [*kinds]), 0)
            for each in events
        ]

        def wait_for_events(report: fastresp.Report) -> None:
            if report.rows > KEYS * 3 // 4:
                for each in happening:
                    each.result()

        report = fastresp.copy(
            source.url, target.url, exists="replace", retry="idempotent", timeout=120,
            rate_limit=f"{BYTES_PER_S}B", progress=wait_for_events,
        )  # fmt: skip
        assert all(each.done() for each in happening)
    assert [each.failed for each in events] == [[], []]
    assert [each.done for each in events] == [kinds, kinds]
    assert report.failed == 0
    found = contents_of(target)
    assert differences(expected, found, MOVED_MS) == []
    late = [key for key, (_, at, _) in expected.items() if abs(found[key][1] - at) > 1]
    assert len(late) < KEYS // 10
