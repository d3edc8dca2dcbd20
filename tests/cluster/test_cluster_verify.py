"""verify in a cluster: all nodes are read, moving slots are followed, lost nodes are named."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import redis
from local_cluster import LocalCluster
from moving_lists import moving_slots

import fastresp
import fastresp.aio

Verify = Callable[..., fastresp.VerifyReport]
COUNT = 3000
ROWS = [
    {"id": i, "name": f"name {i}", "group": i // 10, "score": i / 3, "all": 1} for i in range(COUNT)
]
TEMPLATES = {
    "SET k:{id} {name}": 1,
    "SET k:{id} {name} EX 1000": 2,
    "MSET {{k}}:{id} {name} {{k}}x:{id} {name}": 2,
    "HSET k:{id} {**}": 4,
    "SADD k:{group} {name}": 1,
    "SADD k:{all} {name}": 1,
    "ZADD k:{group} {score} {name}": 1,
    "RPUSH k:{group} {name}": 1,
    "LPUSH k:{group} {name} {id}": 2,
    ("DEL k:{id}", "HSET k:{id} {**}", "EXPIRE k:{id} 1000"): 5,
    ("MULTI", "HSET k:{id} a {name}", "SADD {{k:{id}}}:more {id}", "EXEC"): 2,
}


def verify_asyncio(data: Any, template: Any = None, **options: Any) -> fastresp.VerifyReport:
    return asyncio.run(fastresp.aio.verify(data, template, **options))


@pytest.fixture(params=[fastresp.verify, verify_asyncio], ids=["sync", "asyncio"])
def verify(request: pytest.FixtureRequest) -> Verify:
    return request.param


@pytest.mark.parametrize("exact", [False, True])
@pytest.mark.parametrize("templates", TEMPLATES)
def test_every_command(templates: Any, exact: bool, cluster: LocalCluster, verify: Verify) -> None:
    template = [templates] if isinstance(templates, str) else list(templates)
    if template[0] == "MULTI":
        template = ["MULTI", "HSET {{k:{id}}} a {name}", template[2], "EXEC"]
    fastresp.mass_insert(ROWS, template, server=cluster.url)
    report = verify(ROWS, template, server=cluster.url, exact=exact)
    assert report.same, report
    assert (report.rows_compared, report.values) == (COUNT, TEMPLATES[templates] * COUNT)
    assert report.written_meanwhile == 0


@pytest.mark.parametrize("change", ["missing", "value", "type", "extra"])
def test_planted(
    change: str, cluster: LocalCluster, cluster_client: redis.RedisCluster, verify: Verify
) -> None:
    template = "HSET k:{id} {**}"
    fastresp.mass_insert(ROWS, template, server=cluster.url)
    rows = sorted(random.sample(range(COUNT), 100))
    for row in rows:
        key = f"k:{row}"
        if change == "extra":
            cluster_client.hset(key, "more", 1)
        elif change == "value":
            cluster_client.hset(key, "name", "?")
        else:
            cluster_client.delete(key)
        if change == "type":
            cluster_client.set(key, 1)
    found: list[fastresp.Difference] = []
    options: dict[str, Any] = {"server": cluster.url, "exact": change == "extra"}
    report = verify(ROWS, template, differences=found.append, **options)
    each = 4 if change in ("missing", "type") else 1
    assert [difference.row for difference in found] == [row for row in rows for _ in range(each)]
    assert report.by_kind == {change: 100 * each}
    report = verify(ROWS, template, repair=True, **options)
    assert report.repaired == (0 if change in ("type", "extra") else 100 * each)
    assert verify(ROWS, template, **options).same == (report.repaired > 0)


@pytest.mark.parametrize("seed", range(2))
def test_slots_that_move_meanwhile(cluster: LocalCluster, verify: Verify, seed: int) -> None:
    """Nothing is reported as missing while keys are migrated one by one."""
    keys = 200
    rows = [(i, f"v{i}") for i in range(keys)]
    fastresp.mass_insert(rows, "HSET k:{0} a {1}", server=cluster.url)
    moved = random.Random(seed).sample(range(keys), keys)
    with moving_slots(cluster, [f"k:{key}" for key in moved]):
        report = verify(rows * 500, "HSET k:{0} a {1}", server=cluster.url)
    assert report.same and report.values == 500 * keys, report


def test_keys_of_several_slots(cluster: LocalCluster, verify: Verify) -> None:
    """One command can't write them, but they are read one by one."""
    rows = [("SET", "a", 1), ("SET", "b", 2), ("SET", "c", 3)]
    fastresp.mass_insert(rows, server=cluster.url)
    assert verify([("MSET", "a", 1, "b", 2, "c", 3)], server=cluster.url).same
    report = verify([("MSET", "a", 1, "b", 3), ("DEL", "b", "c", "d")], server=cluster.url)
    assert [(each.key, each.kind) for each in report.differences] == [
        (b"b", "extra"),
        (b"c", "extra"),
    ]


def test_large_values(cluster: LocalCluster, verify: Verify) -> None:
    rows = [(i, bytes([65 + i % 26]) * 300_000) for i in range(100)]
    fastresp.mass_insert(rows, "SET k:{0} {1}", server=cluster.url)
    assert verify(rows, "SET k:{0} {1}", server=cluster.url).same
    rows[77] = (77, rows[77][1] + b"?")
    report = verify(rows, "SET k:{0} {1}", server=cluster.url)
    assert [each.row for each in report.differences] == [77]


@pytest.mark.slow
def test_node_that_dies(verify: Verify) -> None:
    with LocalCluster() as cluster:

        def rows() -> Iterator[tuple[int, str]]:
            for i in range(200_000):
                if i == 30_000:
                    cluster.nodes[1].process.kill()
                yield i, f"v{i}"

        with pytest.raises(fastresp.TransportError, match=f":{cluster.ports[1]}") as caught:
            verify(rows(), "SET k:{0} {1}", server=cluster.url, timeout=5)
        assert isinstance(caught.value.report, fastresp.VerifyReport)
