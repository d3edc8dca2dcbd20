"""fetch_hashes of a range of slots: readers that share a pattern's keys read each key once."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
import redis
from reading import Fetch, fetch_sync
from redis.crc import key_slot
from server_programs import WHEEL_SERVERS, located
from stored_users import FIELDS, by_id, loaded
from waiting import only_we_are_connected

import fastresp
from fastresp import aio, fetch_hashes
from fastresp.server.local_server import LocalServer

SHARES = [range(5000), range(5000, 5001), range(5001, 16384)]


def test_ranges_of_slots_have_each_key_once(
    fetch: Fetch, server: LocalServer, client: redis.Redis
) -> None:
    users = loaded(server, 5000)
    client.set("user:x", 1)
    found = []
    for share in SHARES:
        rows = fetch("user:{id}", FIELDS, server=server.url, slots=share, batch_rows=300)
        assert all(key_slot(b"user:%b" % row["id"].encode()) in share for row in rows)
        found += rows
    assert by_id(found) == users
    only_we_are_connected(client)


def test_no_slots(fetch: Fetch, server: LocalServer, client: redis.Redis) -> None:
    """No server is scanned."""
    loaded(server)
    client.config_resetstat()
    for share in (range(0), range(16384, 16384), range(9, 3)):
        assert fetch("user:{id}", FIELDS, server=server.url, slots=share) == []
    assert "cmdstat_scan" not in client.info("commandstats")


def test_hash_tags(fetch: Fetch, server: LocalServer) -> None:
    """Keys of a tag are in the share of the tag's slot, as in a cluster."""
    rows = [(tag, i) for tag in range(20) for i in range(5)]
    fastresp.mass_insert(rows, "HSET {{{0}}}:{1} f {1}", server=server.url)
    for tag in range(20):
        slot = key_slot(b"%d" % tag)
        found = fetch("{{*", ["f"], server=server.url, slots=range(slot, slot + 1))
        assert sorted(row["key"] for row in found) == [f"{{{tag}}}:{i}" for i in range(5)]


@pytest.mark.parametrize("server_name", ["redis-server", *WHEEL_SERVERS])
def test_servers(server_name: str) -> None:
    with LocalServer(program=located(server_name, WHEEL_SERVERS)) as server:
        users = loaded(server, 2000)
        found = []
        for share in SHARES:
            found += fetch_sync("user:{id}", FIELDS, server=server.url, slots=share)
        assert by_id(found) == users


def test_read_twice(server: LocalServer) -> None:
    """Each use of the result reads the same share."""
    loaded(server, 500)
    rows = fetch_hashes("user:*", FIELDS, server=server.url, slots=range(8192))
    assert [len(pa.table(rows)) for _ in range(2)] == [rows.rows] * 2
    assert 200 < rows.rows < 300


@pytest.mark.parametrize(
    ("keys", "slots", "error", "words"),
    [
        ("user:*", range(16385), ValueError, r"within 0 to 16384.*not range\(0, 16385\)"),
        ("user:*", range(-1, 5), ValueError, "within 0 to 16384"),
        ("user:*", range(5, -1), ValueError, "within 0 to 16384"),
        ("user:*", range(20_000, 20_000), ValueError, "within 0 to 16384"),
        ("user:*", range(0, 10, 2), ValueError, "without a step"),
        ("user:*", range(10, 0, -1), ValueError, "without a step"),
        ("user:*", 5, TypeError, "must be a range, such as .*, not 5"),
        ("user:*", [1, 2], TypeError, r"must be a range, such as .*, not \[1, 2\]"),
        (["user:1"], range(5), ValueError, "only for a pattern"),
        (pa.array(["user:1"]), range(5), ValueError, "only for a pattern"),
    ],
)
def test_bad_slots(keys: Any, slots: Any, error: type[Exception], words: str) -> None:
    for function in (fetch_hashes, aio.fetch_hashes):
        with pytest.raises(error, match=words):
            function(keys, FIELDS, slots=slots)


def test_async_keys_have_no_slots() -> None:
    async def keys() -> Any:
        yield "user:1"

    with pytest.raises(ValueError, match="only for a pattern"):
        aio.fetch_hashes(keys(), FIELDS, slots=range(5))
