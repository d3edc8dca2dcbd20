"""``fetch_hashes`` and ``unload`` of a whole cluster: every key once, from its own node."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import redis
from cluster_reading import clients, connected, keys_of
from command_line import invoke
from local_cluster import LocalCluster
from moving_lists import move, moving_slots
from reading import Fetch, fetch_asyncio, fetch_sync
from waiting import until

import fastresp
import fastresp.aio
from fastresp.cli.exit_codes import Exit
from fastresp.encode.key_columns import as_target
from fastresp.replies.unload import FIRST_ENTRIES, Entries
from fastresp.server.preflight import Requirements
from fastresp.server.settings import Server

USERS = 6000
FIELDS = ["name", "city"]


def loaded(cluster: LocalCluster, count: int = USERS) -> list[dict[str, Any]]:
    """Store users, every third without a city; return them."""
    users = [
        {"id": str(i), "name": f"näme {i}", "city": None if i % 3 == 0 else "Ulm" * (i % 5)}
        for i in range(count)
    ]
    fastresp.mass_insert(users, "HSET user:{id} {**}", server=cluster.url, nulls="skip")
    assert min(cluster.sizes()) > count // 4
    return users


def by_id(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(rows, key=lambda row: int(row["id"]))


async def async_keys(keys: list[str]) -> AsyncIterator[str]:
    for number, key in enumerate(keys):
        if number % 1000 == 500:
            await asyncio.sleep(0.01)
        yield key


@pytest.mark.parametrize("at", range(3))
def test_keys_in_their_order(fetch: Fetch, cluster: LocalCluster, at: int) -> None:
    users = loaded(cluster)
    server = f"redis://127.0.0.1:{cluster.ports[at]}"
    keys = [f"user:{i * 7 % (USERS + 100)}" for i in range(2 * USERS)]
    stored = {f"user:{user['id']}": {name: user[name] for name in FIELDS} for user in users}
    wanted = [stored.get(key, {"name": None, "city": None}) for key in keys]
    assert fetch(keys, FIELDS, server=server, batch_rows=700) == wanted
    assert fetch(pa.array(keys), FIELDS, server=server) == wanted
    assert fetch([], FIELDS, server=server) == []
    if fetch is fetch_asyncio:
        assert fetch(async_keys(keys), FIELDS, server=server) == wanted


@pytest.mark.few(1)
@pytest.mark.parametrize("at", range(3))
def test_pattern(fetch: Fetch, cluster: LocalCluster, at: int) -> None:
    users = loaded(cluster)
    for i in range(300):
        fastresp.execute("SET", f"user:x{i}", 1, server=cluster.url)
    server = f"redis://127.0.0.1:{cluster.ports[at]}"
    assert by_id(fetch("user:{id}", FIELDS, server=server, batch_rows=700)) == users
    keyed = fetch("user:*", ["name"], server=server)
    assert sorted(row["key"] for row in keyed) == sorted(f"user:{user['id']}" for user in users)
    assert fetch("none:*", ["name"], server=server) == []


def test_batches(cluster: LocalCluster) -> None:
    loaded(cluster)
    hashes = fastresp.fetch_hashes("user:{id}", FIELDS, server=cluster.url, batch_rows=1000)
    assert [len(batch) for batch in hashes.batches()] == [1000] * 6
    assert hashes.rows == USERS
    assert hashes.nbytes > 30 * USERS
    table = pa.table(hashes)
    assert table.schema == pa.schema([(name, pa.string()) for name in ("id", *FIELDS)])
    assert table["city"].null_count == USERS // 3
    values = [(f"big:{i}", "x" * 3_000_000) for i in range(20)]
    fastresp.mass_insert(values, "HSET {0} f {1}", server=cluster.url)
    sizes = [len(b) for b in fastresp.fetch_hashes("big:*", ["f"], server=cluster.url).batches()]
    assert sum(sizes) == 20
    assert max(sizes) < 20


@pytest.mark.parametrize("kind", ["redis", "valkey", "redis asyncio", "valkey asyncio"])
def test_clients_of_a_cluster(cluster: LocalCluster, kind: str) -> None:
    users = loaded(cluster, 300)

    async def run() -> None:
        client = clients(cluster, kind)
        hashes = fastresp.aio.fetch_hashes("user:{id}", FIELDS, server=client)
        assert by_id([row async for row in hashes]) == users
        assert by_id(fetch_sync("user:{id}", FIELDS, server=client)) == users
        if kind.endswith("asyncio"):
            await client.aclose()
        else:
            client.close()

    asyncio.run(run())


def test_bytes(fetch: Fetch, cluster: LocalCluster) -> None:
    loaded(cluster, 300)
    fastresp.execute("HSET", "user:77", "city", b"\xff", server=cluster.url)
    keys = [f"user:{i}" for i in range(300)]
    for given in (keys, "user:*"):
        with pytest.raises(fastresp.DecodeError, match="field 'city' of key 'user:77'") as caught:
            fetch(given, FIELDS, server=cluster.url)
        assert (caught.value.key, caught.value.column) == (b"user:77", "city")
    rows = fetch(keys, FIELDS, server=cluster.url, binary=["city"])
    assert (rows[77]["city"], rows[78]["name"]) == (b"\xff", "näme 78")
    rows = fetch(keys, FIELDS, server=cluster.url, binary=True)
    assert (rows[77]["city"], rows[78]["name"]) == (b"\xff", "näme 78".encode())
    # Each half is invalid UTF-8; together they are one character.
    fastresp.execute("HSET", "user:77", "name", b"\xc3", "city", b"\xa9", server=cluster.url)
    with pytest.raises(fastresp.DecodeError, match="field 'name' of key 'user:77'"):
        fetch(["user:77"], FIELDS, server=cluster.url)


def test_key_of_another_type(fetch: Fetch, cluster: LocalCluster) -> None:
    loaded(cluster, 300)
    fastresp.execute("SET", "user:77", 1, server=cluster.url)
    keys = [f"user:{i}" for i in range(300)]
    with pytest.raises(fastresp.CommandError, match=r"command 77: WRONGTYPE .*\(key 'user:77'\)"):
        fetch(keys, FIELDS, server=cluster.url)
    assert len(fetch("user:*", FIELDS, server=cluster.url)) == 299


def test_key_that_becomes_another_type(cluster: LocalCluster) -> None:
    """It changes after SCAN found it: a row of nulls."""
    loaded(cluster)
    batches = fastresp.fetch_hashes(
        "user:{id}", FIELDS, server=cluster.url, batch_rows=1000
    ).batches()
    rows = pa.record_batch(next(batches)).to_pylist()
    seen = {row["id"] for row in rows}
    with redis.RedisCluster("127.0.0.1", cluster.ports[0]) as client:
        for i in range(USERS):
            if str(i) not in seen:
                client.set(f"user:{i}", 1)
    for batch in batches:
        rows += pa.record_batch(batch).to_pylist()
    assert 1000 < len(rows) <= USERS
    assert all(row["name"] in (None, f"näme {row['id']}") for row in rows)


@pytest.mark.parametrize("key", [None, True])
def test_keys_that_fail(fetch: Fetch, cluster: LocalCluster, key: Any) -> None:
    with pytest.raises(fastresp.EncodeError, match=r"row 500.*keys must be str"):
        fetch([*(f"user:{i}" for i in range(500)), key], FIELDS, server=cluster.url)


def test_stopped_early(cluster: LocalCluster) -> None:
    loaded(cluster)
    before = connected(cluster)
    for keys in ("user:{id}", [f"user:{i}" for i in range(USERS)]):
        hashes = fastresp.fetch_hashes(keys, FIELDS, server=cluster.url, batch_rows=100)
        reading = hashes.batches()
        assert len(next(reading)) == 100
        assert min(connected(cluster)) > min(before)
        hashes.close()
        until(lambda: connected(cluster) == before)

        async def take(keys: Any) -> None:
            hashes = fastresp.aio.fetch_hashes(keys, FIELDS, server=cluster.url, batch_rows=100)
            async with aclosing(hashes.batches()) as batches:
                async for _ in batches:
                    break

        asyncio.run(take(keys))
        until(lambda: connected(cluster) == before)


@pytest.mark.parametrize("pattern", [True, False])
def test_failing_node(fetch: Fetch, pattern: bool) -> None:
    with LocalCluster() as cluster:
        loaded(cluster)

        def keys() -> Iterator[str]:
            for i in range(300_000):
                if i == 20_000:
                    cluster.nodes[1].process.kill()
                yield f"user:{i % USERS}"

        if pattern:
            cluster.nodes[1].process.kill()
        with pytest.raises(fastresp.TransportError, match=f"127.0.0.1:{cluster.ports[1]}"):
            fetch("user:*" if pattern else keys(), FIELDS, server=cluster.url, timeout=2.0)


def test_slots_that_move(fetch: Fetch, cluster: LocalCluster) -> None:
    users = loaded(cluster)
    keys = [f"user:{i}" for i in range(USERS)] * 10
    wanted = [{name: user[name] for name in FIELDS} for user in users] * 10
    with moving_slots(cluster, keys):
        assert fetch(keys, FIELDS, server=cluster.url) == wanted


def test_keys_that_move_after_the_scan(cluster: LocalCluster) -> None:
    """They are read from their new node."""
    users = loaded(cluster)
    hashes = fastresp.fetch_hashes("user:{id}", FIELDS, server=cluster.url, batch_rows=1)
    reading = hashes.batches()
    rows = pa.record_batch(next(reading)).to_pylist()
    for i in range(0, USERS, 400):
        move(cluster, f"user:{i}")
    for batch in reading:
        rows += pa.record_batch(batch).to_pylist()
    found = {row["id"]: row for row in rows}
    # SCAN may miss a key that moves, or return it twice.
    assert len(found) >= USERS - 100
    assert all(row == users[int(id_)] for id_, row in found.items())


LOADS = {
    "hash": "HSET k:{id} {**}",
    "string": "SET k:{id} {value}",
    "set": "SADD k:{id} {member}",
    "zset": "ZADD k:{id} {score} {member}",
    "list": "RPUSH k:{id} {item}",
}
MANY = 3 * FIRST_ENTRIES + 7


def fill(cluster: LocalCluster, kind: str) -> None:
    """Store small keys and, on each node, large ones."""
    large = [key.replace("key", "k") for key in ("key:a", "key:b", "key:c", "key:d", "key:e")]
    small = [f"k:{i}" for i in range(200)]
    with redis.RedisCluster("127.0.0.1", cluster.ports[0]) as client:
        for number, key in enumerate(large + small):
            count = MANY if key in large else 3
            values = [f"{number} {i}" for i in range(count)]
            if kind == "hash":
                client.hset(key, mapping={f"f{i}": value for i, value in enumerate(values[:3])})
            elif kind == "string":
                client.set(key, values[-1])
            elif kind == "set":
                client.sadd(key, *values)
            elif kind == "zset":
                client.zadd(key, {value: i for i, value in enumerate(values)})
            else:
                client.rpush(key, *values, *values)
    assert min(cluster.sizes()) > 10


def stored(cluster: LocalCluster) -> dict[bytes, Any]:
    found: dict[bytes, Any] = {}
    for client in cluster.clients:
        read: dict[bytes, Callable[[bytes], Any]] = {
            b"string": client.get,
            b"set": client.smembers,
            b"zset": lambda key, client=client: client.zrange(key, 0, -1, withscores=True),
            b"list": lambda key, client=client: client.lrange(key, 0, -1),
            b"hash": client.hgetall,
        }
        for key in client.scan_iter("k:*"):
            assert key not in found
            found[key] = read[client.type(key)](key)
    return found


@pytest.mark.parametrize("kind", LOADS)
def test_unload_and_back(kind: str, cluster: LocalCluster, tmp_path: Path) -> None:
    """The command line unloads all keys of all nodes, and large ones in parts."""
    fill(cluster, kind)
    before = stored(cluster)
    for i in range(20):
        fastresp.execute("XADD", f"k:stream{i}", "*", "f", 1, server=cluster.url)
    path = tmp_path / "x.parquet"
    done = invoke("unload", "k:{id}", "--type", kind, "-o", path, "--server", cluster.url)
    assert done.exit_code == Exit.OK, done.stderr
    if kind == "string":
        assert "205 rows written" in done.stderr
    cluster.empty()
    done = invoke("load", path, LOADS[kind], "--yes", "--server", cluster.url)
    assert done.exit_code == Exit.OK, done.stderr
    assert stored(cluster) == before


@pytest.mark.parametrize("kind", LOADS)
def test_single_keys(kind: str, cluster: LocalCluster, tmp_path: Path) -> None:
    """Single keys on all nodes; their type is detected."""
    fill(cluster, kind)
    before = stored(cluster)
    path = tmp_path / "x.csv"
    for key in ("k:a", "k:b", "k:c", "k:1", "k:2", "k:3", "k:4"):
        done = invoke("unload", key, "-o", path, "--server", cluster.url)
        assert done.exit_code == Exit.OK, done.stderr
        with redis.RedisCluster("127.0.0.1", cluster.ports[0]) as client:
            client.delete(key)
        command = LOADS[kind].replace("k:{id}", "{key}")
        done = invoke("load", path, command, "--yes", "--server", cluster.url)
        assert done.exit_code == Exit.OK, done.stderr
    assert stored(cluster) == before


def test_nothing_to_unload(cluster: LocalCluster) -> None:
    [key] = keys_of(cluster, 2, 1)
    fastresp.execute("SADD", key, 1, server=cluster.url)
    for pattern, words in (
        ("key:*", f"no hash matches, but '{key}' does, which is a set; use --type set"),
        ("none:*", "no hash matches none:*"),
        ("none", "there is no key none"),
    ):
        done = invoke("unload", pattern, "--server", cluster.url)
        assert done.exit_code == Exit.ERRORS
        assert words in " ".join(done.stderr.split())


@pytest.mark.few(0)
@pytest.mark.parametrize("kind", ["set", "zset", "list", "stream"])
def test_large_keys_that_move(cluster: LocalCluster, kind: str) -> None:
    """They move between two parts: nothing is lost, and set entries may be returned twice."""
    values = [f"{i:06}" + "x" * 500 for i in range(40_000)]
    keys = ["k:a", "k:b", "k:c"]
    rows = [(key, i, value) for key in keys for i, value in enumerate(values)]
    command = {
        "set": "SADD {0} {2}", "zset": "ZADD {0} {1} {2}", "list": "RPUSH {0} {2}",
        "stream": "XADD {0} {1}-1 a {2}",
    }[kind]  # fmt: skip
    fields = ["a"] if kind == "stream" else None
    fastresp.mass_insert(rows, command, server=cluster.url)
    server = Server(cluster.url, Requirements(reading=True, nodes=True))
    for key in keys:  # a pattern would search for them while they move, and might miss one
        found: list[str] = []
        entries = Entries(as_target(key), kind, fields, server=server)
        for number, batch in enumerate(entries.batches()):
            at = 2 if kind == "stream" else 1
            found += (row[at] for row in zip(*batch.columns, strict=True))
            if number < 2:
                move(cluster, key)
        assert number >= 2
        same = found == values if kind in ("list", "stream") else set(found) == set(values)
        assert same, f"{len(found):,} entries"
