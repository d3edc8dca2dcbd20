"""Serialised loads into a cluster: whole keys, each on its node."""

from __future__ import annotations

import random
from collections.abc import Collection, Iterator
from typing import Any

import pytest
import redis
from loads import Insert, insert_sync
from local_cluster import LocalCluster

import fastresp
from fastresp.server.options import Serialize

KEYS = 3_000


def rows(keys: int = KEYS, each: int = 5) -> Iterator[dict[str, Any]]:
    """Yield rows; adjacent rows form one hash."""
    for key in range(keys):
        for field in range(1 + (key * 7) % each):
            yield {"id": key, "field": f"field{field}", "value": key * field}


COUNT = sum(1 for _ in rows())
TEMPLATE = "HSET user:{id} {field} {value}"


def check(cluster: LocalCluster, keys: int = KEYS, doubtful: Collection[int] = ()) -> None:
    assert min(cluster.sizes()) > 0
    expected: dict[int, dict[bytes, bytes]] = {}
    in_doubt = set()
    for number, row in enumerate(rows(keys)):
        if number in doubtful:
            in_doubt.add(row["id"])
        fields = expected.setdefault(row["id"], {})
        fields[row["field"].encode()] = b"%d" % row["value"]
    with redis.RedisCluster("127.0.0.1", cluster.ports[0]) as client:
        for key, fields in expected.items():
            assert key in in_doubt or client.hgetall(f"user:{key}") == fields, key


@pytest.mark.parametrize("connections", [1, 3])
def test_every_key_on_its_node(insert: Insert, cluster: LocalCluster, connections: int) -> None:
    report = insert(rows(), TEMPLATE, server=cluster.url, mode="serialize", connections=connections)
    assert (report.rows, report.commands, report.replies, report.failed) == (COUNT,) * 3 + (0,)
    assert (report.in_doubt, report.unsent) == (0, 0)
    check(cluster)


def test_errors_have_their_rows(insert: Insert, cluster: LocalCluster) -> None:
    """All rows of an existing key fail, and are in the rejects, on any node."""
    wrong = [*range(0, KEYS, 13)]
    with redis.RedisCluster("127.0.0.1", cluster.ports[0]) as client:
        for key in wrong:
            client.set(f"user:{key}", "text")
    failed: list[fastresp.CommandError] = []
    report = insert(
        rows(), TEMPLATE, server=cluster.url, mode="serialize", on_error="collect",
        rejects=failed.append,
    )  # fmt: skip
    expected = [number for number, row in enumerate(rows()) if row["id"] % 13 == 0]
    assert sorted(error.row for error in failed if error.row is not None) == expected
    assert report.failed == len(expected)
    every = list(rows())
    for error in failed:
        assert error.row is not None
        assert error.arguments is not None
        assert error.arguments[1] == b"user:%d" % every[error.row]["id"]


def test_large_keys(insert: Insert, cluster: LocalCluster) -> None:
    """They are created with RESTORE, and continued after its reply."""
    items = [{"id": i // 2_000, "field": f"f{i % 2_000}", "value": "x" * 50} for i in range(20_000)]
    report = insert(items, TEMPLATE, server=cluster.url, mode=Serialize(max_bytes=20_000))
    assert (report.rows, report.replies, report.failed) == (20_000, 20_000, 0)
    with redis.RedisCluster("127.0.0.1", cluster.ports[0]) as client:
        assert [client.hlen(f"user:{key}") for key in range(10)] == [2_000] * 10


@pytest.mark.parametrize("exists", ["error", "replace"])
def test_slots_that_move(insert: Insert, cluster: LocalCluster, exists: str) -> None:
    randoms = random.Random(3)
    moments = set(randoms.sample(range(COUNT), 10))

    def moving() -> Iterator[dict[str, Any]]:
        for number, row in enumerate(rows()):
            if number in moments:
                key = f"user:{min(row['id'] + randoms.randrange(50), KEYS - 1)}"
                slot = cluster.clients[0].execute_command("CLUSTER", "KEYSLOT", key)
                cluster.move_slot(slot, randoms.randrange(3))
            yield row

    report = insert(moving(), TEMPLATE, server=cluster.url, mode=Serialize(exists=exists))
    assert (report.rows, report.commands, report.replies, report.failed) == (COUNT,) * 3 + (0,)
    check(cluster)


def test_large_key_of_a_moving_slot(cluster: LocalCluster) -> None:
    """Its first part is resent, then the rest."""
    slot = cluster.clients[0].execute_command("CLUSTER", "KEYSLOT", "user:7")

    def moving() -> Iterator[dict[str, Any]]:
        for i in range(50_000):
            if i in (20_000, 40_000):
                for number in range(3):
                    if not cluster.serves(number, slot):
                        cluster.move_slot(slot, number)
                        break
            yield {"id": 7, "field": f"f{i}", "value": "x" * 50}

    report = insert_sync(moving(), TEMPLATE, server=cluster.url, mode=Serialize(max_bytes=200_000))
    assert (report.rows, report.replies, report.failed) == (50_000, 50_000, 0)
    with redis.RedisCluster("127.0.0.1", cluster.ports[0]) as client:
        assert client.hlen("user:7") == 50_000


@pytest.mark.few(0)
@pytest.mark.parametrize("exists", ["error", "replace"])
def test_connections_that_are_closed(cluster: LocalCluster, exists: str) -> None:
    """RESTORE may be resent only with REPLACE."""

    def closing() -> Iterator[dict[str, Any]]:
        for number, row in enumerate(rows(30_000)):
            if number in (20_000, 40_000):
                cluster.clients[1].client_kill_filter(_type="normal", skipme=True)
            yield row

    report = insert_sync(
        closing(), TEMPLATE, server=cluster.url, mode=Serialize(exists=exists),
        on_error="collect",
    )  # fmt: skip
    assert report.failed == 0
    assert report.in_doubt == len(report.rows_in_doubt)
    assert exists == "error" or report.in_doubt == 0
    check(cluster, 30_000, set(report.rows_in_doubt))
