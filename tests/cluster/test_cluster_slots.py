"""fetch_hashes of a range of slots: each key once, from the slots' owners."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from local_cluster import SLOTS, LocalCluster
from moving_lists import half_moved, slot_of
from reading import Fetch
from redis.crc import key_slot
from server_programs import need
from test_cluster_fetch import FIELDS, USERS, by_id, loaded

import fastresp

# One node owns the first two ranges, two nodes own the third.
SHARES = [range(4000), range(4000, 5461), range(5461, 12_000), range(12_000, SLOTS)]


@pytest.fixture
def cluster(cluster: LocalCluster) -> Iterator[LocalCluster]:
    """Return the cluster; slots are moved back after each test."""
    yield cluster
    for number in range(3):
        home = range(number * SLOTS // 3, (number + 1) * SLOTS // 3)
        for first, last, (_, port, *_), *_ in cluster._slots(number):
            for slot in range(first, last + 1):
                if slot in home and port != cluster.ports[number]:
                    cluster.move_slot(slot, number)


def scans(cluster: LocalCluster) -> list[bool]:
    """Return for each node whether it was scanned since the last call."""
    found = ["cmdstat_scan" in client.info("commandstats") for client in cluster.clients]
    for client in cluster.clients:
        client.config_resetstat()
    return found


def test_ranges_of_slots_have_each_key_once(fetch: Fetch, cluster: LocalCluster) -> None:
    users = loaded(cluster)
    scans(cluster)
    found, searched = [], []
    for share in SHARES:
        rows = fetch("user:{id}", FIELDS, server=cluster.url, slots=share)
        assert all(key_slot(b"user:%b" % row["id"].encode()) in share for row in rows)
        found += rows
        searched.append([number for number, was in enumerate(scans(cluster)) if was])
    assert by_id(found) == users
    assert searched == [[0], [0], [1, 2], [2]]
    assert fetch("user:{id}", FIELDS, server=cluster.url, slots=range(0)) == []
    assert scans(cluster) == [False] * 3


def test_slots_that_move_between_readers(fetch: Fetch, cluster: LocalCluster) -> None:
    """A share is a range of slots, whoever owns them: each key is in one share."""
    users = loaded(cluster)
    found = []
    for number, share in enumerate(SHARES):
        found += fetch("user:{id}", FIELDS, server=cluster.url, slots=share)
        for slot in {key_slot(b"user:%d" % i) for i in range(number * 100, number * 100 + 20)}:
            cluster.move_slot(slot, number % 3)
    assert by_id(found) == users


@pytest.mark.parametrize("allowed", [True, False])
@pytest.mark.parametrize("arrived", [True, False])
def test_slot_that_is_moving(
    fetch: Fetch, cluster: LocalCluster, arrived: bool, allowed: bool
) -> None:
    """Its keys are found on both nodes, even if a node may not report its importing slots."""
    keys = [f"{{q}}:{i}" for i in range(50)]
    fastresp.mass_insert(keys, "HSET {0} name {0}", server=cluster.url)
    slot = slot_of(cluster)
    server = cluster.url
    if not allowed:
        for client in cluster.clients:
            client.acl_setuser("reader", enabled=True, nopass=True, keys=["*"],
                               commands=["+@all", "-cluster|nodes"])  # fmt: skip
        server = cluster.url.replace("redis://", "redis://reader:x@")
    with half_moved(cluster, arrived=arrived):
        # New keys were added meanwhile: some on the next node, the rest on this one.
        rows = fetch("{{q}}:*", ["name"], server=server, slots=range(slot, slot + 1))
        # A key that has arrived while its slot still moves may be returned twice.
        assert {row["name"] for row in rows} == set(keys)
        others = [range(slot), range(slot + 1, SLOTS)]
        for share in others:
            assert fetch("{{q}}:*", ["name"], server=server, slots=share) == []


@pytest.mark.slow
def test_node_that_dies() -> None:
    """Keys of its requested slots are scanned again on its promoted replica."""
    need("server")
    with LocalCluster(3, 1) as cluster:
        users = range(12_000)
        fastresp.mass_insert(users, "HSET user:{0} name {0}", server=cluster.url, durable=1)
        share = range(4000, 9000)  # two nodes own it
        found = []
        options: dict[str, Any] = {"server": cluster.url, "batch_rows": 100, "slots": share}
        for row in fastresp.fetch_hashes("user:{id}", ["name"], **options):
            found.append(int(row["id"]))
            if len(found) == 500:
                cluster.nodes[1].process.kill()
        assert set(found) == {i for i in users if key_slot(b"user:%d" % i) in share}


@pytest.mark.slow
def test_stream_to_a_table(cluster: LocalCluster) -> None:
    loaded(cluster)
    halves = [range(SLOTS // 2), range(SLOTS // 2, SLOTS)]
    tables = [
        pa.table(fastresp.fetch_hashes("user:{id}", FIELDS, server=cluster.url, slots=half))
        for half in halves
    ]
    assert sorted(pa.concat_tables(tables)["id"].to_pylist(), key=int) == [
        str(i) for i in range(USERS)
    ]


@pytest.mark.slow
def test_only_lost_slots_are_searched_again(cluster: LocalCluster) -> None:
    """A node that has some of the lost slots returns keys of its own slots once."""
    count = 40_000
    # Long keys, as more than a megabyte of commands for found keys is sent ahead.
    end = "x" * 1000
    fastresp.mass_insert(range(count), f"HSET user:{{0}}:{end} name {{0}}", server=cluster.url)
    share = range(5000, 9000)
    slots = {i: key_slot(b"user:%d:%b" % (i, end.encode())) for i in range(count)}
    wanted = {i for i, slot in slots.items() if slot in share}
    first = {i for i in wanted if slots[i] < SLOTS // 3}
    found = []
    options: dict[str, Any] = {"server": cluster.url, "batch_rows": 100, "slots": share}
    for row in fastresp.fetch_hashes(f"user:{{id}}:{end}", ["name"], **options):
        found.append(int(row["id"]))
        if len(found) == 100:
            cluster.move_slot(SLOTS // 2, 0)
            cluster.clients[1].client_kill_filter(_type="normal", skipme=True)
    assert set(found) == wanted
    assert len(found) > len(wanted), "no search began again"
    assert len(first) == sum(each in first for each in found)
