"""Reshards and failovers at random moments: acknowledged commands are stored once, in order.

Each primary has one replica: with two, the one that didn't confirm WAIT may take over.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import redis
from cluster_events import Events
from local_cluster import LocalCluster
from server_programs import WHEEL_SERVERS, located, need

import fastresp

ITEMS = 100
PUSH = "RPUSH list:{0} {1}"


def rows(keys: int) -> Iterator[tuple[int, int]]:
    """Yield rows that append 1, 2, 3, ... to each key, spread over the load."""
    for item in range(1, ITEMS + 1):
        for key in range(keys):
            yield key, item


def check(cluster: LocalCluster, report: fastresp.Report, keys: int) -> None:
    """Check that each list is in order without duplicates, and that missing items are in doubt."""
    count = keys * ITEMS
    assert (report.rows, report.commands, report.failed, report.unsent) == (count, count, 0, 0)
    assert report.in_doubt == len(report.rows_in_doubt)
    doubtful: dict[int, set[int]] = {}
    for row in report.rows_in_doubt:
        doubtful.setdefault(row % keys, set()).add(row // keys + 1)
    with redis.RedisCluster("127.0.0.1", cluster.ports[0]) as client:
        for key in range(keys):
            stored = [int(item) for item in client.lrange(f"list:{key}", 0, -1)]
            assert stored == sorted(set(stored)), key
            missing = set(range(1, ITEMS + 1)).difference(stored)
            assert missing <= doubtful.get(key, set()), key


def load(
    cluster: LocalCluster, seed: int, keys: int, kinds: list[str], rate: int, **options: object
) -> fastresp.Report:
    client = cluster.clients[0]
    slots = [client.execute_command("CLUSTER", "KEYSLOT", f"list:{key}") for key in range(keys)]
    events = Events(cluster, seed, slots)
    events.random.shuffle(kinds)
    try:
        report = fastresp.mass_insert(
            events.between(rows(keys), keys * ITEMS, kinds), PUSH, server=cluster.url,
            on_error="collect", durable=1, rate_limit=rate,
            timeout=120,  # a busy machine may take long to elect a primary
            **options,
        )  # fmt: skip
    finally:
        events.join()
        if events.failed:
            raise events.failed[0]
    assert sorted(events.done) == sorted(kinds)
    return report


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_random_events(seed: int) -> None:
    need("server")
    kinds = ["move", "reshard", ("forget", "fail_over")[seed % 2], "kill", "freeze"]
    program = located("valkey-9.1", WHEEL_SERVERS) if seed % 2 else None
    with LocalCluster(3, 1, program=program) as cluster:
        options = {"connections": 1 + seed % 2, "mode": ("commands", "merge")[seed // 2 % 2]}
        check(cluster, load(cluster, seed, 1_000, kinds, 7_000, **options), 1_000)


@pytest.mark.parametrize(
    "seed",
    [
        pytest.param(100, marks=pytest.mark.slow),
        *(pytest.param(seed, marks=pytest.mark.long) for seed in range(101, 106)),
    ],
)
def test_many_random_events(seed: int) -> None:
    """20 slots move, and 10 primaries fail over, while 1,000,000 rows are loaded."""
    kinds = ["move"] * 16 + ["reshard"] * 4 + ["fail_over"] * 4 + ["kill"] * 4 + ["freeze"] * 2
    with LocalCluster(3, 1) as cluster:
        check(cluster, load(cluster, seed, 10_000, kinds, 20_000), 10_000)
