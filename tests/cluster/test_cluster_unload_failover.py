"""fetch_hashes with a pattern, and unload, while a node dies and its replica takes over."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator
from typing import Any

import pyarrow as pa
import pytest
from local_cluster import SLOTS, LocalCluster
from server_programs import need

import fastresp
import fastresp.aio
from fastresp.encode.key_columns import as_target
from fastresp.replies.unload import Entries
from fastresp.server.preflight import Requirements
from fastresp.server.settings import Server

USERS = 12_000
LARGE = 20_000


@pytest.fixture
def replicated() -> Iterator[LocalCluster]:
    need("server")
    with LocalCluster(3, 1) as cluster:
        yield cluster


def kill(cluster: LocalCluster, number: int) -> None:
    cluster.nodes[number].process.kill()
    cluster.nodes[number].process.wait()


@pytest.mark.parametrize("form", ["sync", "asyncio"])
def test_pattern(replicated: LocalCluster, form: str) -> None:
    """All rows are returned; rows of the killed node may be returned twice."""
    rows = [(i, f"name {i}") for i in range(USERS)]
    fastresp.mass_insert(rows, "HSET user:{0} name {1}", server=replicated.url, durable=1)
    options: Any = {"server": replicated.url, "batch_rows": 100}
    found = []

    def take(row: dict[str, Any]) -> None:
        found.append((int(row["id"]), row["name"]))
        if len(found) == 2_000:
            kill(replicated, 2)

    async def collect() -> None:
        async for row in fastresp.aio.fetch_hashes("user:{id}", ["name"], **options):
            take(row)

    if form == "asyncio":
        asyncio.run(collect())
    else:
        for row in fastresp.fetch_hashes("user:{id}", ["name"], **options):
            take(row)
    assert set(found) == set(rows)
    sizes = [client.dbsize() for client in replicated.clients[:2]]
    assert len(found) <= 2 * USERS - sum(sizes)


def test_only_lost_slots_are_searched_again(cluster: LocalCluster) -> None:
    """A node that has some of the lost slots returns keys of its own slots once."""
    count = 5 * USERS
    fastresp.mass_insert(range(count), "HSET user:{0} name {0}", server=cluster.url)
    others = {int(key[5:]) for number in (0, 2) for key in cluster.clients[number].keys("user:*")}
    found = []
    for row in fastresp.fetch_hashes("user:{id}", ["name"], server=cluster.url, batch_rows=100):
        found.append(int(row["id"]))
        if len(found) == 100:
            cluster.move_slot(SLOTS // 2, 0)
            cluster.clients[1].client_kill_filter(_type="normal", skipme=True)
    assert set(found) == set(range(count))
    assert len(found) > count, "no search began again"
    assert len(others) == sum(each in others for each in found)


@pytest.mark.parametrize("kind", ["string", "set", "zset", "list", "stream"])
def test_unload(replicated: LocalCluster, kind: str) -> None:
    """Small keys, and a large one that is being read in parts on the killed node."""
    large = f"k:{keys_of(replicated, 1)}"
    small = [(f"k:{i}", i, f"v{i}") for i in range(3_000)]
    rows = small if kind == "string" else [(large, i, f"{i:06}" * 50) for i in range(LARGE)] + small
    command = {
        "string": "SET {0} {2}", "set": "SADD {0} {2}", "zset": "ZADD {0} {1} {2}",
        "list": "RPUSH {0} {2}", "stream": "XADD {0} {1}-1 a {2}",
    }[kind]  # fmt: skip
    fastresp.mass_insert(rows, command, server=replicated.url, durable=1)
    entries = Entries(
        as_target("k:*"),
        kind,
        ["a"] if kind == "stream" else None,
        server=Server(replicated.url, Requirements(reading=True, nodes=True)),
    )
    found: dict[str, list[str]] = {}
    killed = False
    for batch in entries.batches():
        for key, *values in zip(*batch.columns, strict=True):
            found.setdefault(key, []).append(values[kind == "stream"])
        if not killed:
            kill(replicated, 1)
            killed = True
    wanted: dict[str, list[str]] = {}
    for key, _, value in rows:
        wanted.setdefault(key, []).append(value)
    if kind in ("list", "stream"):
        assert found == wanted
    else:
        assert {key: set(values) for key, values in found.items()} == {
            key: set(values) for key, values in wanted.items()
        }


def keys_of(cluster: LocalCluster, number: int) -> str:
    """Return the remaining entries of a key of a node."""
    client = cluster.clients[number]
    return next(f"l{i}" for i in range(1_000) if cluster.client_of(f"k:l{i}") is client)


@pytest.mark.parametrize("form", ["keys", "pattern", "replies"])
def test_node_restarted_without_data(form: str) -> None:
    """Its data is missing; no reading ends as if it had never existed."""
    with LocalCluster() as cluster:
        count = 20_000
        fastresp.mass_insert(range(count), "HSET user:{0} name {0}", server=cluster.url)
        keys = (f"user:{i}" for i in range(count))
        found = 0
        with pytest.raises(fastresp.TransportError, match=r"restarted or replaced, and is empty"):
            reading: Iterable[Any] = (
                fastresp.iter_replies(keys, "HGET {0} name", server=cluster.url)
                if form == "replies"
                else fastresp.fetch_hashes(
                    keys if form == "keys" else "user:{id}", ["name"], server=cluster.url,
                    batch_rows=100,
                )
            )  # fmt: skip
            for _ in reading:
                found += 1
                if found == 500:
                    kill(cluster, 1)
                    cluster.nodes[1].start()
        assert found < count


@pytest.mark.slow
def test_no_replica_takes_over() -> None:
    with LocalCluster() as cluster:
        rows = [(i, f"name {i}") for i in range(USERS)]
        fastresp.mass_insert(rows, "HSET user:{0} name {1}", server=cluster.url)
        words = rf"127.0.0.1:{cluster.ports[1]}.*no node serves slots 5,461-10,921 after 1 s"
        hashes = fastresp.fetch_hashes(
            "user:{id}", ["name"], server=cluster.url, batch_rows=100, timeout=1
        )
        with pytest.raises(fastresp.TransportError, match=f"{words}|slots .* after 1 s"):
            for number, batch in enumerate(hashes.batches()):
                assert pa.record_batch(batch).num_rows > 0
                if number == 5:
                    kill(cluster, 1)
