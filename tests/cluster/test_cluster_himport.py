"""HIMPORT in a cluster: redirections, moved slots and failovers while hashes are replaced."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import redis
from cluster_events import Events
from himport_cluster import HimportCluster
from local_cluster import LocalCluster
from server_programs import need

import fastresp
from fastresp.server.options import Merge

TEMPLATE = "HSET h:{id} {**-id}"
KEYS = 600
REPLACE = Merge(exists="replace")


def rows(count: int, seed: int) -> Iterator[dict[str, Any]]:
    """Yield rows of KEYS hashes again and again, with several patterns of fields."""
    draw = random.Random(seed)
    for number in range(count):
        names = draw.sample("abcdefg", draw.choice((1, 3, 7)))
        yield {"id": number % KEYS, "row": number, **dict.fromkeys(names, number)}


def expected(count: int, seed: int) -> dict[bytes, dict[bytes, bytes]]:
    return {
        b"h:%d" % row.pop("id"): {name.encode(): b"%d" % row[name] for name in row}
        for row in rows(count, seed)
    }


def stored(cluster: HimportCluster) -> dict[bytes, Any]:
    with redis.RedisCluster.from_url(cluster.url) as client:
        return {key: client.hgetall(key) for key in client.scan_iter("h:*", count=1000)}


def load(cluster: LocalCluster, data: Any, **options: Any) -> fastresp.Report:
    return fastresp.mass_insert(data, TEMPLATE, server=cluster.url, mode=REPLACE, **options)


@pytest.fixture(scope="module")
def himport_cluster() -> Iterator[HimportCluster]:
    need("server")
    with HimportCluster() as cluster:
        yield cluster


def test_load(himport_cluster: HimportCluster, tmp_path: Path) -> None:
    """Errors keep their rows, and their rejects are HSETs."""
    cluster = himport_cluster
    cluster.client_of("h:7").set("h:7", "a string")
    rejects = tmp_path / "rejects.jsonl"
    with pytest.raises(fastresp.LoadErrors):
        load(cluster, rows(1200, 1), on_error="raise")
    report = load(cluster, rows(1200, 1), on_error="collect", rejects=rejects)
    assert (report.replies, report.failed, report.in_doubt) == (1200, 2, 0)
    assert [error.row for error in report.errors] == [7, 607]
    rejected = [json.loads(line)["arguments"] for line in rejects.read_text().splitlines()]
    assert [arguments[:4] for arguments in rejected] == [
        ["HSET", "h:7", "row", "7"], ["HSET", "h:7", "row", "607"],
    ]  # fmt: skip
    wanted = expected(1200, 1)
    del wanted[b"h:7"]
    cluster.client_of("h:7").delete("h:7")
    assert stored(cluster) == wanted
    assert cluster.total("replaced") > 600 and cluster.total("missing") == 0


@pytest.mark.parametrize("connections", [1, 3])
def test_moved_slots(himport_cluster: HimportCluster, connections: int) -> None:
    """Field sets are prepared where a command is resent, before it, and before its ASKING."""
    cluster = himport_cluster
    cluster.empty()
    before = cluster.total("redirected")
    slots = {
        cluster.clients[0].execute_command("CLUSTER", "KEYSLOT", f"h:{key}") for key in range(30)
    }
    count = 12_000

    def data() -> Iterator[dict[str, Any]]:
        moves = iter(sorted(slots))
        for number, row in enumerate(rows(count, connections)):
            if number % (count // 20) == 0:
                slot = next(moves)
                source = next(each for each in range(3) if cluster.serves(each, slot))
                cluster.move_slot(slot, (source + 1) % 3)
            yield row

    report = load(cluster, data(), connections=connections)
    assert (report.replies, report.failed, report.in_doubt) == (count, 0, 0)
    assert stored(cluster) == expected(count, connections)
    assert cluster.total("redirected") > before
    assert cluster.total("missing") == 0


def test_half_moved_slot(himport_cluster: HimportCluster) -> None:
    """Every command of the slot is answered with ASK."""
    cluster = himport_cluster
    cluster.empty()
    slot = cluster.clients[0].execute_command("CLUSTER", "KEYSLOT", "h:1")
    source = next(each for each in range(3) if cluster.serves(each, slot))
    target = (source + 1) % 3
    ids = [client.execute_command("CLUSTER", "MYID").decode() for client in cluster.clients]
    cluster.clients[target].execute_command("CLUSTER", "SETSLOT", slot, "IMPORTING", ids[source])
    cluster.clients[source].execute_command("CLUSTER", "SETSLOT", slot, "MIGRATING", ids[target])
    try:
        report = load(cluster, [{"id": 1, "a": 1}, {"id": 1, "b": 2}, {"id": 1, "a": 3, "c": 4}])
        assert (report.replies, report.failed) == (3, 0)
        client = cluster.clients[target]
        with client.pipeline(transaction=False) as pipeline:
            pipeline.execute_command("ASKING")
            pipeline.execute_command("HGETALL", "h:1")
            assert pipeline.execute()[1] in ([b"a", b"3", b"c", b"4"], {b"a": b"3", b"c": b"4"})
    finally:
        for client in cluster.clients:
            client.execute_command("CLUSTER", "SETSLOT", slot, "NODE", ids[target])
    assert cluster.total("missing") == 0


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_random_events(seed: int) -> None:
    need("server")
    kinds = ["move", "move", "kill", "freeze", "fail_over", "move"]
    count = 60_000
    with HimportCluster(3, 1) as cluster:
        first = cluster.clients[0]
        slots = [first.execute_command("CLUSTER", "KEYSLOT", f"h:{key}") for key in range(KEYS)]
        events = Events(cluster, seed, slots)
        events.random.shuffle(kinds)
        data = events.between(rows(count, seed), count, kinds)
        try:
            report = load(
                cluster, data, connections=1 + seed % 2, retry="idempotent", durable=1,
                rate_limit=4_000, timeout=120,
            )  # fmt: skip
        finally:
            events.join()
            if events.failed:
                raise events.failed[0]
        assert sorted(events.done) == sorted(kinds)
        assert (report.replies, report.failed, report.in_doubt) == (count, 0, 0)
        assert stored(cluster) == expected(count, seed)
        assert cluster.total("missing") == 0


def test_script_in_a_moving_slot() -> None:
    """Without HIMPORT, a script replaces the hashes that have not moved yet."""
    need("server")
    with LocalCluster(2) as cluster:
        slot = cluster.clients[0].execute_command("CLUSTER", "KEYSLOT", "h:1")
        source = next(each for each in range(2) if cluster.serves(each, slot))
        ids = [client.execute_command("CLUSTER", "MYID").decode() for client in cluster.clients]
        client = cluster.clients[source]
        client.hset("h:1", mapping={"old": 1, "a": 1})
        client.expire("h:1", 1000)
        cluster.clients[1 - source].execute_command(
            "CLUSTER", "SETSLOT", slot, "IMPORTING", ids[source]
        )
        client.execute_command("CLUSTER", "SETSLOT", slot, "MIGRATING", ids[1 - source])
        report = load(cluster, [{"id": 1, "a": 2, "b": 3}])
        assert (report.replies, report.failed) == (1, 0)
        assert client.hgetall("h:1") == {b"a": b"2", b"b": b"3"}
        assert client.ttl("h:1") == -1
