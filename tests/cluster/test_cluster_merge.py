"""Merged loads into a cluster: a merged command has keys of one slot only."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from typing import Any

import pytest
import redis
from loads import Insert
from local_cluster import LocalCluster
from server_programs import WHEEL_SERVERS, located

import fastresp
from fastresp.server.options import Merge

KEYS, TAGS = 10_000, 50


def pairs() -> Iterator[tuple[str, int]]:
    """Yield keys and values. Adjacent keys have the same tag, except every hundredth key."""
    for number in range(KEYS):
        tag = f"{{{number * TAGS // KEYS}}}" if number % 100 else ""
        yield f"{tag}key:{number}", number


def check(report: fastresp.Report, count: int = KEYS) -> None:
    assert (report.rows, report.commands, report.replies, report.failed) == (count,) * 3 + (0,)
    assert (report.in_doubt, report.unsent) == (0, 0)


def calls(cluster: LocalCluster, name: str) -> int:
    stats: list[Any] = [client.info("commandstats") for client in cluster.clients]
    return sum(each.get(f"cmdstat_{name}", {"calls": 0})["calls"] for each in stats)


@pytest.mark.few(0)
@pytest.mark.parametrize("connections", [1, 3])
def test_adjacent_commands_of_one_slot_are_merged(
    insert: Insert, cluster: LocalCluster, cluster_client: redis.RedisCluster, connections: int
) -> None:
    for client in cluster.clients:
        client.config_resetstat()
    options = {"server": cluster.url, "mode": "merge", "connections": connections}
    check(insert(pairs(), "SET {0} {1}", **options))
    assert sum(cluster.sizes()) == KEYS
    for key, number in pairs():
        assert cluster_client.get(key) == b"%d" % number
    # A key without a tag ends a merged command of its lane, at most.
    assert 0 < calls(cluster, "mset") <= TAGS + 2 * KEYS // 100
    assert calls(cluster, "set") <= KEYS // 100 + TAGS

    check(insert(pairs(), "DEL {0}", **options))
    assert sum(cluster.sizes()) == 0
    assert TAGS <= calls(cluster, "del") <= TAGS + 3 * KEYS // 100


def test_values_that_expire() -> None:
    """They use MSETEX where servers have it."""
    with LocalCluster(program=located("valkey-9.1", WHEEL_SERVERS)) as cluster:
        check(
            fastresp.mass_insert(pairs(), "SET {0} {1} EX 1000", server=cluster.url, mode="merge")
        )
        assert sum(cluster.sizes()) == KEYS
        assert 0 < calls(cluster, "msetex") <= TAGS + 2 * KEYS // 100
        for key in ("key:0", "{0}key:1", "{49}key:9999"):
            assert 900 < cluster.client_of(key).ttl(key) <= 1000


def test_user_with_permission_for_some_keys(insert: Insert, cluster: LocalCluster) -> None:
    """SETs of other keys fail one by one."""
    for client in cluster.clients:
        client.execute_command("ACL", "SETUSER", "some", "on", ">secret", "+@all", "~{1}*", "~{}*")
        client.config_resetstat()
    try:
        report = insert(
            [("SET", key, 1) for key in ("{1}a", "{1}b", "x{1}", "{1}c")],
            server=cluster.url + "?username=some&password=secret", mode="merge", on_error="collect",
        )  # fmt: skip
    finally:
        for client in cluster.clients:
            client.execute_command("ACL", "DELUSER", "some")
    assert (report.replies, report.failed, report.errors_by_code) == (4, 1, {"NOPERM": 1})
    assert [error.row for error in report.errors] == [2]
    assert calls(cluster, "mset") == 0
    assert sum(cluster.sizes()) == 3


@pytest.mark.parametrize("name", ["SET", "DEL"])
def test_keys_at_both_nodes(
    insert: Insert, cluster: LocalCluster, moving: tuple[int, int], name: str
) -> None:
    """Some keys of a moving slot are at its old node, some at the new one, some don't exist.

    Each node refuses a merged command with keys of both nodes, with TRYAGAIN.
    """
    source, target = moving
    value = () if name == "DEL" else ("new",)
    commands = [(name, f"{{list:7}}{number}", *value) for number in range(1_000)]
    check(insert(commands, server=cluster.url, mode="merge", timeout=5), 1_000)
    held = [cluster.clients[node].dbsize() for node in (source, target)]
    # Keys that existed at the old node stay there; new keys are created at the other node.
    assert held == ([0, 0] if name == "DEL" else [500, 500])
    keys: Any = [key for node in (source, target) for key in cluster.clients[node].scan_iter()]
    assert sorted(keys) == sorted(f"{{list:7}}{n}".encode() for n in range(1_000) if name == "SET")


def test_repeated_keys(insert: Insert, cluster: LocalCluster, moving: tuple[int, int]) -> None:
    """A command that was refused with others is dropped if a later one replaced its key."""
    source, target = moving
    commands = [
        ("SET", "{list:7}0", "a"), ("SET", "{list:7}1", "b"), ("DEL", "{list:7}0"),
        ("SET", "{list:7}0", "c"), ("DEL", "{list:7}2"), ("SET", "{list:7}2", "d"),
    ]  # fmt: skip
    check(insert(commands, server=cluster.url, mode="merge", timeout=5), len(commands))
    # A key that is not at the old node, or no longer, is created at the new one.
    stored: dict[bytes, Any] = {}
    for node in (source, target):
        for number in range(3):
            pipeline = cluster.clients[node].pipeline(transaction=False)
            pipeline.execute_command("ASKING")
            pipeline.get(f"{{list:7}}{number}")
            _, value = pipeline.execute(raise_on_error=False)
            if isinstance(value, bytes):
                stored[b"%d" % number] = value
    assert stored == {b"0": b"c", b"1": b"b", b"2": b"d"}


@pytest.mark.parametrize("seed", range(3))
def test_random_commands_while_slots_move(
    cluster: LocalCluster, cluster_client: redis.RedisCluster, seed: int
) -> None:
    """With SETs and DELs of repeated keys, and RPUSH, the result is as if run in order."""
    randoms = random.Random(seed)
    tags = [f"t{number}" for number in range(4)]
    expected: dict[str, Any] = {}
    commands = []
    for number in range(40_000):
        key = f"{{{randoms.choice(tags)}}}{randoms.randrange(60)}"
        name = randoms.choices(["SET", "DEL", "UNLINK", "RPUSH"], [12, 3, 2, 3])[0]
        if name == "SET":
            expected[key] = str(number)
        elif name == "RPUSH":
            key += "list"
            expected.setdefault(key, []).append(str(number))
        else:
            expected.pop(key, None)
        commands.append((name, key, number) if name in ("SET", "RPUSH") else (name, key))

    def source() -> Iterator[tuple[Any, ...]]:
        for number, command in enumerate(commands):
            if number % 10_000 == 5_000:
                mover = threading.Thread(target=move, args=(randoms.choice(tags),))
                mover.start()
                movers.append(mover)
            yield command

    def move(tag: str) -> None:
        slot = cluster.clients[0].execute_command("CLUSTER", "KEYSLOT", tag)
        with moving_lock:
            cluster.move_slot(slot, randoms.randrange(3), keys_at_once=3, pause=0.002)

    movers: list[threading.Thread] = []
    moving_lock = threading.Lock()
    report = fastresp.mass_insert(
        source(), server=cluster.url, mode=Merge(items=20), rate_limit=100_000
    )
    for mover in movers:
        mover.join()
    check(report, len(commands))
    assert sum(cluster.sizes()) == len(expected)
    for key, value in expected.items():
        if isinstance(value, list):
            stored: Any = cluster_client.lrange(key, 0, -1)
            assert stored == [item.encode() for item in value]
        else:
            assert cluster_client.get(key) == value.encode()


@pytest.fixture
def moving(cluster: LocalCluster) -> Iterator[tuple[int, int]]:
    """Start moving a slot with 500 keys at its old node; return the two nodes."""
    slot = cluster.clients[0].execute_command("CLUSTER", "KEYSLOT", "{list:7}")
    source = next(number for number in range(3) if cluster.serves(number, slot))
    target = (source + 1) % 3
    ids = [client.execute_command("CLUSTER", "MYID") for client in cluster.clients]
    here, there = cluster.clients[source], cluster.clients[target]
    here.mset({f"{{list:7}}{number}": "old" for number in range(0, 1_000, 2)})
    there.execute_command("CLUSTER", "SETSLOT", slot, "IMPORTING", ids[source])
    here.execute_command("CLUSTER", "SETSLOT", slot, "MIGRATING", ids[target])
    yield source, target
    for number in (source, target):
        cluster.clients[number].execute_command("CLUSTER", "SETSLOT", slot, "STABLE")
    there.flushall()
