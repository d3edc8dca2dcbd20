"""Reading from a server that evicts keys: replies waiting in it must not evict any."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import redis
from local_cluster import LocalCluster
from reading import Execute, execute_asyncio

import fastresp
import fastresp.aio
from fastresp.resp.slots import size_queries
from fastresp.resp.split import CommandSplitter
from fastresp.server.local_server import LocalServer

SMALL, LARGE, SIZE = 3000, 30, 1_000_000
# Read twice, the large values need more than the free memory.
CACHE = ("--maxmemory", "60mb", "--maxmemory-policy", "allkeys-lru")
KEYS = [f"s:{i}" for i in range(SMALL)] + [f"b:{i}" for i in range(LARGE)] * 3
VALUES = [b"v"] * SMALL + [b"x" * SIZE] * LARGE * 3


def fill(client: Any, hashes: bool = False) -> None:
    pipeline = client.pipeline(transaction=False)
    for key, value in zip(KEYS[: SMALL + LARGE], VALUES, strict=False):
        if hashes:
            pipeline.hset(key, "f", value)
        else:
            pipeline.set(key, value)
    pipeline.execute()


def all_there(client: redis.Redis) -> bool:
    return client.info("stats")["evicted_keys"] == 0 and client.dbsize() == SMALL + LARGE


@pytest.fixture
def cache(start_server: Callable[..., LocalServer]) -> LocalServer:
    return start_server(*CACHE)


@pytest.fixture
def cached(cache: LocalServer) -> Iterator[redis.Redis]:
    with redis.Redis.from_url(cache.url) as client:
        yield client


def test_replies(execute: Execute, cache: LocalServer, cached: redis.Redis) -> None:
    fill(cached)
    assert execute(KEYS, "GET {0}", server=cache.url) == VALUES
    assert execute(KEYS, "TYPE {0}; MGET s:1 {0}", server=cache.url)[1::2] == [
        [b"v", value] for value in VALUES
    ]
    assert fastresp.execute("STRLEN", "b:1", server=cache.url) == SIZE
    assert all_there(cached)


def test_hashes(cache: LocalServer, cached: redis.Redis) -> None:
    fill(cached, hashes=True)

    async def fetch() -> int:
        rows = fastresp.aio.fetch_hashes(KEYS, ["f"], server=cache.url)
        return len([row async for row in rows])

    rows = fastresp.fetch_hashes(KEYS, ["f"], server=cache.url, batch_rows=500)
    assert [row["f"].encode() for row in rows] == VALUES
    assert sum(map(len, VALUES)) < rows.nbytes < sum(map(len, VALUES)) + 30 * len(VALUES)
    assert asyncio.run(fetch()) == len(KEYS)
    assert execute_asyncio(KEYS, "HGET {0} f", server=cache.url) == VALUES
    assert all_there(cached)


def test_unload(cache: LocalServer, cached: redis.Redis) -> None:
    fill(cached)
    rows = [*fastresp.unload("*", type="string", server=cache.url)]
    assert len(rows) >= SMALL + LARGE
    assert all_there(cached)


def test_verify_where_much_larger_values_are_stored(
    cache: LocalServer, cached: redis.Redis
) -> None:
    fill(cached)
    rows = [(key, "v") for key in KEYS]
    report = fastresp.verify(rows, "SET {0} {1}", server=cache.url)
    assert report.differing
    assert all_there(cached)


def test_in_a_cluster() -> None:
    with LocalCluster(2, options=lambda port: CACHE) as cluster:
        rows = [*zip(KEYS[: SMALL + LARGE], VALUES, strict=False)]
        fastresp.mass_insert(rows, "SET {0} {1}", server=cluster.url)
        assert [*fastresp.iter_replies(KEYS, "GET {0}", server=cluster.url)] == VALUES
        for client in cluster.clients:
            assert client.info("stats")["evicted_keys"] == 0


def test_values_written_by_earlier_commands_count(cache: LocalServer, cached: redis.Redis) -> None:
    fill(cached)
    rows = [("SET", "b:1", b"y" * SIZE), *[("GET", "b:1")] * 60, ("GET", "s:1")]
    replies = [*fastresp.iter_replies(rows, server=cache.url)]
    assert replies == [b"OK", *[b"y" * SIZE] * 60, b"v"]
    assert all_there(cached)


@pytest.mark.parametrize("rights", ["-memory", "-memory|usage"])
def test_few_in_flight_if_sizes_are_refused(
    rights: str, cache: LocalServer, cached: redis.Redis
) -> None:
    fill(cached)
    cached.acl_setuser("reader", enabled=True, nopass=True, keys="*", commands=["+@all", rights])
    limited = redis.Redis(
        unix_socket_path=cached.get_connection_kwargs()["path"], username="reader"
    )
    assert [*fastresp.iter_replies(KEYS, "GET {0}", server=limited)] == VALUES
    assert all_there(cached)
    assert cached.acl_log()[0]["count"] <= 64


def test_nothing_is_asked_within_transactions(
    execute: Execute, cache: LocalServer, cached: redis.Redis
) -> None:
    cached.set("a", 1)
    rows = [("GET", "a")] * 100 + [("MULTI",), ("GET", "a"), ("GET", "a"), ("EXEC",)] * 50
    replies = execute(rows, server=cache.url)
    assert replies[100:104] == [b"OK", b"QUEUED", b"QUEUED", [b"1", b"1"]]
    assert replies[-1] == [b"1", b"1"]


def test_nothing_is_asked_after_a_separate_multi(cache: LocalServer, cached: redis.Redis) -> None:
    cached.set("a", 1)

    async def commands() -> Any:
        for some in ([("MULTI",)], [("GET", "a"), ("GET", "a")], [("EXEC",)]):
            for each in some:
                yield each
            await asyncio.sleep(0.3)

    assert execute_asyncio(commands(), server=cache.url)[-1] == [b"1", b"1"]


@pytest.mark.parametrize("policy", ["noeviction", "allkeys-lru", "volatile-ttl"])
@pytest.mark.parametrize("maxmemory", [0, 1 << 30])
def test_only_servers_that_evict_are_asked(
    policy: str, maxmemory: int, server: LocalServer, client: redis.Redis
) -> None:
    client.config_set("maxmemory-policy", policy)
    client.config_set("maxmemory", maxmemory)
    client.config_resetstat()
    try:
        assert len([*fastresp.iter_replies(range(500), "GET {0}", server=server.url)]) == 500
        asked = client.info("commandstats").get("cmdstat_memory|usage", {}).get("calls", 0)
        assert asked == (500 if maxmemory and policy != "noeviction" else 0)
    finally:
        client.config_set("maxmemory", 0)
        client.config_set("maxmemory-policy", "noeviction")


USAGE = b"*3\r\n$6\r\nMEMORY\r\n$5\r\nUSAGE\r\n"


@pytest.mark.parametrize(
    ("command", "count", "question"),
    [
        (("get", "a"), 1, USAGE + b"$1\r\na\r\n"),
        (("MGET", "a", "bc"), 2, USAGE + b"$1\r\na\r\n" + USAGE + b"$2\r\nbc\r\n"),
        (("HGET", "a", "b"), 1, b"*3\r\n$7\r\nHSTRLEN\r\n$1\r\na\r\n$1\r\nb\r\n"),
        (("EVALSHA", "0", 1, "a"), 1, USAGE + b"$1\r\na\r\n"),
        (("JSON.GET", "a", "$"), 1, USAGE + b"$1\r\na\r\n"),
        (("SET", "a", 1, "GET"), 1, USAGE + b"$1\r\na\r\n"),
        (("INCR", "a"), 0, b""),
        (("EVAL", "return 1", 0), -1, b""),
        (("FT.SEARCH", "index", "*"), -1, b""),
        (("KEYS", "*"), -1, b""),
    ],
)
def test_questions(command: tuple[Any, ...], count: int, question: bytes) -> None:
    chunk = CommandSplitter().feed(fastresp.pack("PING") + fastresp.pack(*command))
    assert chunk is not None
    found = size_queries(chunk, 1, 2)
    assert found is not None
    assert found[1:] == ([count], [0])
    assert bytes(found[0] or b"") == question


@pytest.mark.parametrize("name", ["MULTI", "EXEC", "SELECT", "WATCH", "asking"])
def test_no_questions_about_connection_commands(name: str) -> None:
    chunk = CommandSplitter().feed(fastresp.pack("GET", "a") + fastresp.pack(name))
    assert chunk is not None
    assert size_queries(chunk, 0, 2) is None
