"""fetch_hashes in asyncio: same results as the sync form, and no connection left open."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing
from typing import Any

import pyarrow as pa
import pytest
import redis
import redis.asyncio
from reading import fetch_asyncio
from stored_users import FIELDS, by_id, loaded
from waiting import only_we_are_connected

from fastresp import CommandError, DecodeError, SourceError, TransportError, TransportTimeout, aio
from fastresp.server.local_server import LocalServer


async def async_keys(count: int) -> AsyncIterator[str]:
    for number in range(count):
        if number % 100 == 0:
            await asyncio.sleep(0.001)
        yield f"user:{number}"


def test_every_kind_of_keys(server: LocalServer) -> None:
    users = loaded(server, 5000)
    wanted = [{name: user[name] for name in FIELDS} for user in users]
    keys = [f"user:{number}" for number in range(5000)]
    for given in (keys, iter(keys), pa.array(keys), async_keys(5000)):
        assert fetch_asyncio(given, FIELDS, server=server.url, batch_rows=700) == wanted
    client = redis.asyncio.Redis.from_url(server.url)
    assert by_id(fetch_asyncio("user:{id}", FIELDS, server=client)) == users


def test_batches(server: LocalServer) -> None:
    users = loaded(server, 3000)

    async def collect() -> tuple[pa.Table, aio.Hashes]:
        hashes = aio.fetch_hashes("user:{id}", FIELDS, server=server.url, batch_rows=1000)
        batches = [pa.record_batch(batch) async for batch in hashes.batches()]
        assert [len(batch) for batch in batches] == [1000] * 3
        return pa.Table.from_batches(batches), hashes

    table, hashes = asyncio.run(collect())
    assert by_id(table.to_pylist()) == users
    assert (hashes.rows, hashes.names) == (3000, ["id", *FIELDS])
    assert hashes.nbytes > 30_000


def test_the_loop_is_free(start_server: Callable[..., LocalServer]) -> None:
    """Other tasks run during a wait for a slow server; a cancelled reading ends immediately."""
    server = start_server()
    loaded(server, 10)
    client = redis.Redis.from_url(server.url)

    async def read(keys: Any) -> None:
        os.kill(server.process.pid, signal.SIGSTOP)
        reading = asyncio.ensure_future(collect(keys))
        for _ in range(20):
            await asyncio.sleep(0.01)
        reading.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asyncio.wait_for(reading, 30)
        os.kill(server.process.pid, signal.SIGCONT)

    async def collect(keys: Any) -> None:
        async for _ in aio.fetch_hashes(keys, FIELDS, server=server.url):
            pass

    for keys in (["user:1"], "user:*", async_keys(5)):
        asyncio.run(asyncio.wait_for(read(keys), 100))
        only_we_are_connected(client)


def test_cancelled_in_a_scan(start_server: Callable[..., LocalServer]) -> None:
    """The thread that waits for SCAN ends as soon as its connection is closed."""
    server = start_server()
    loaded(server, 30_000)

    async def read() -> None:
        hashes = aio.fetch_hashes("user:*", FIELDS, server=server.url, batch_rows=100)
        async with aclosing(hashes.batches()) as batches:
            await anext(batches)
            os.kill(server.process.pid, signal.SIGSTOP)
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.5):
                    async for _ in batches:
                        pass

    try:
        asyncio.run(asyncio.wait_for(read(), 20))
    finally:
        os.kill(server.process.pid, signal.SIGCONT)
    only_we_are_connected(redis.Redis.from_url(server.url))


@pytest.mark.parametrize("keys", ["user:*", ["user:1"] * 200_000])
def test_stopped_early(keys: Any, server: LocalServer, client: redis.Redis) -> None:
    loaded(server, 2000)

    async def read() -> None:
        hashes = aio.fetch_hashes(keys, FIELDS, server=server.url, batch_rows=10)
        async with aclosing(hashes.batches()) as batches:
            await anext(batches)
        await asyncio.to_thread(only_we_are_connected, client)  # before the loop ends

    gc.disable()  # it would close the connections at some point
    try:
        asyncio.run(read())
    finally:
        gc.enable()


def test_errors(server: LocalServer, client: redis.Redis) -> None:
    loaded(server)
    client.set("text", 1)
    client.hset("bytes", "name", b"\xff")
    with pytest.raises(CommandError, match="key 'text'"):
        fetch_asyncio(["text"], FIELDS, server=server.url)
    with pytest.raises(DecodeError, match="field 'name' of key 'bytes'"):
        fetch_asyncio(["bytes"], FIELDS, server=server.url)
    assert fetch_asyncio(["bytes"], ["name"], server=server.url, binary=True) == [{"name": b"\xff"}]
    with pytest.raises(SourceError, match="one column"):
        fetch_asyncio(pa.table({"a": ["x"], "b": ["y"]}), FIELDS, server=server.url)
    with pytest.raises(TransportError, match="refused"):
        fetch_asyncio(["a"], FIELDS, server="redis://127.0.0.1:1")
    with pytest.raises(TypeError, match="an iterable of keys"):
        aio.fetch_hashes(5, FIELDS)
    only_we_are_connected(client)


def test_lost(start_server: Callable[..., LocalServer]) -> None:
    server = start_server()
    loaded(server)

    async def read(act: Callable[[], None]) -> None:
        async def keys() -> AsyncIterator[str]:
            yield "user:1"
            act()
            yield "user:2"

        async for _ in aio.fetch_hashes(keys(), FIELDS, server=server.url, timeout=1.0):
            pass

    pid = server.process.pid
    with pytest.raises(TransportTimeout):
        asyncio.run(read(lambda: os.kill(pid, signal.SIGSTOP)))
    os.kill(pid, signal.SIGCONT)
    with pytest.raises(TransportError, match="lost"):
        asyncio.run(read(server.stop))
