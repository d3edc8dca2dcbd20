"""redis-py with our packer: every kind of client."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import redis
import redis.asyncio
from local_cluster import free_port
from redis.backoff import ConstantBackoff, NoBackoff
from redis.cache import CacheConfig
from redis.connection import CacheProxyConnection
from redis.retry import Retry

from fastresp.redis_py import CommandPacker, fast, speed_up
from fastresp.server.local_server import LocalServer, find_program


def use(client: Any) -> None:
    """Run commands, pipelines and scripts; check that all values round-trip."""
    assert client.set("a", "é") is True
    assert client.get("a") in ("é".encode(), "é")
    assert client.config_get("maxmemory")
    for transaction in (False, True):
        with client.pipeline(transaction=transaction) as pipeline:
            for i in range(1000):
                pipeline.set(f"{{k}}{i}", i)
            pipeline.lpush("{k}a", 1).llen("{k}a").hset("{k}h", mapping={"f": 1.5, "g": b"g"})
            pipeline.delete("{k}a", "{k}h")
            assert pipeline.execute()[-4:] == [1, 1, 2, 2]
        assert client.get("{k}999") in (b"999", "999")
    assert client.register_script("return ARGV[1]")(keys=["a"], args=["x"]) in (b"x", "x")


def test_standalone_clients(start_server: Callable[..., LocalServer], port: int) -> None:
    server = start_server("--port", str(port))
    for client in (
        redis.Redis("127.0.0.1", port),
        redis.Redis.from_url(f"redis://127.0.0.1:{port}/3", decode_responses=True),
        redis.Redis(unix_socket_path=str(server.socket), protocol=3),
        redis.Redis.from_url(server.url, single_connection_client=True),
    ):
        with client:
            assert speed_up(client) is client
            use(client)
            assert is_fast(client.connection or client.connection_pool.make_connection())


def test_command_packer_and_pool(server: LocalServer) -> None:
    with redis.Redis.from_url(server.url, command_packer=CommandPacker()) as client:
        use(client)
    pool = redis.ConnectionPool.from_url(server.url)
    pool.connection_class = fast(pool.connection_class)
    assert fast(pool.connection_class) is pool.connection_class
    with redis.Redis(connection_pool=pool) as client:
        use(client)


def is_fast(connection: Any) -> bool:
    """Return whether it packs a value that redis-py itself refuses."""
    packed = b"".join(connection.pack_command("SET", "a", np.int64(5)))
    return packed == b"*3\r\n$3\r\nSET\r\n$1\r\na\r\n$1\r\n5\r\n"


def connections_of(server: LocalServer) -> set[int]:
    with redis.Redis.from_url(server.url, client_name="observer") as observer:
        found = observer.client_list()
    return {entry["id"] for entry in found if entry["name"] != "observer"}


@pytest.mark.parametrize("kind", [redis.ConnectionPool, redis.BlockingConnectionPool])
def test_client_that_was_used_before(server: LocalServer, kind: Any) -> None:
    pool = kind.from_url(server.url)
    client = redis.Redis(connection_pool=pool)
    held, idle = pool.get_connection(), pool.get_connection()
    pool.release(idle)
    before = connections_of(server)
    assert speed_up(pool) is pool
    assert is_fast(held) and is_fast(idle)
    use(client)
    held.send_command("SET", "a", np.int64(5))
    assert held.read_response() == b"OK"
    pool.release(held)
    assert client.get("a") == b"5"
    # No connection was closed or opened.
    assert connections_of(server) == before
    pool.disconnect()


def test_client_with_a_cache(port: int) -> None:
    # No server is needed: a cache needs Redis 7.4, but the wrapper exists before it connects.
    client = redis.Redis(
        "127.0.0.1", port, protocol=3, cache_config=CacheConfig(), retry=Retry(NoBackoff(), 0)
    )
    with pytest.raises(redis.ConnectionError):
        client.ping()
    pool = client.connection_pool
    (idle,) = pool._available_connections
    assert type(idle) is CacheProxyConnection
    speed_up(client)
    assert is_fast(idle) and is_fast(pool.make_connection())


@pytest.fixture
def sentinel(start_server: Callable[..., LocalServer], tmp_path: Path) -> Iterator[int]:
    """Start a Sentinel that watches a server named 'mymaster'; return its port."""
    watched, port = free_port(), free_port()
    start_server("--port", str(watched))
    config = tmp_path / "sentinel.conf"
    config.write_text(
        f"bind 127.0.0.1\nport {port}\nsentinel monitor mymaster 127.0.0.1 {watched} 1\n"
    )
    program = find_program("server")
    assert program is not None
    process = subprocess.Popen([program, str(config), "--sentinel"], stdout=subprocess.DEVNULL)
    try:
        client = redis.Redis("127.0.0.1", port, retry=Retry(ConstantBackoff(0.05), 100))
        client.ping()
        client.close()
        yield port
    finally:
        process.terminate()
        process.wait(10)


def test_sentinel(sentinel: int) -> None:
    master = redis.Sentinel([("127.0.0.1", sentinel)]).master_for("mymaster")
    with speed_up(master) as client:
        use(client)
        assert is_fast(client.connection_pool.get_connection())

    async def main() -> None:
        watcher = redis.asyncio.Sentinel([("127.0.0.1", sentinel)])
        async with speed_up(watcher.master_for("mymaster")) as client:
            await use_async(client)
            assert is_fast(await client.connection_pool.get_connection())
        for node in watcher.sentinels:
            await node.aclose()

    asyncio.run(main())


@pytest.mark.parametrize("with_hiredis", [True, False])
def test_latin_1_client(
    server: LocalServer, monkeypatch: pytest.MonkeyPatch, with_hiredis: bool
) -> None:
    """The bytes are the same as before; hiredis sends UTF-8 whatever the encoding is."""
    monkeypatch.setattr("redis.connection.HIREDIS_AVAILABLE", with_hiredis)
    expected = "é".encode("utf-8" if with_hiredis else "latin-1")
    used = redis.Redis.from_url(server.url, encoding="latin-1")
    used.set("é", "é")  # so there is a connection already
    for client in (used, redis.Redis.from_url(server.url, encoding="latin-1")):
        with speed_up(client):
            assert client.get("é") == expected
            client.set("a", "é")
            with client.pipeline() as pipeline:
                assert pipeline.set("b", "é").get("a").execute()[1] == expected
            assert client.get("b") == expected


def test_publish_and_subscribe(server: LocalServer) -> None:
    with speed_up(redis.Redis.from_url(server.url)) as client, client.pubsub() as pubsub:
        pubsub.subscribe("channel")
        assert pubsub.get_message(timeout=5)["type"] == "subscribe"  # type: ignore[index]
        client.publish("channel", "héllo")
        assert pubsub.get_message(timeout=5)["data"] == "héllo".encode()  # type: ignore[index]


def test_tls(tls: Callable[..., str]) -> None:
    with speed_up(redis.Redis.from_url(tls())) as client:
        use(client)


async def use_async(client: Any) -> None:
    assert await client.set("a", "é")
    assert await client.get("a") == "é".encode()
    for transaction in (False, True):
        async with client.pipeline(transaction=transaction) as pipeline:
            for i in range(1000):
                pipeline.set(f"{{k}}{i}", i)
            assert await pipeline.execute() == [True] * 1000
    assert await client.get("{k}999") == b"999"
    with pytest.raises(redis.DataError):
        await client.set("a", None)


def test_asyncio_clients(start_server: Callable[..., LocalServer], port: int) -> None:
    server = start_server("--port", str(port))

    async def main() -> None:
        for client in (
            redis.asyncio.Redis(host="127.0.0.1", port=port),
            redis.asyncio.Redis.from_url(server.url),
            redis.asyncio.Redis.from_url(f"redis://127.0.0.1:{port}", protocol=3),
        ):
            async with speed_up(client):
                await use_async(client)
                assert type(client.connection_pool.make_connection()).__name__.startswith("Fast")

    asyncio.run(main())


def test_asyncio_client_that_was_used_before(server: LocalServer) -> None:
    async def main() -> None:
        client = redis.asyncio.Redis.from_url(server.url)
        async with client, client.pubsub() as pubsub:
            await pubsub.subscribe("channel")
            await client.set("a", 1)
            before = connections_of(server)
            speed_up(client)
            assert is_fast(pubsub.connection)
            await pubsub.subscribe("another")
            await use_async(client)
            assert connections_of(server) == before

    asyncio.run(main())


def test_asyncio_tls(tls: Callable[..., str]) -> None:
    async def main() -> None:
        async with speed_up(redis.asyncio.Redis.from_url(tls())) as client:
            await use_async(client)

    asyncio.run(main())


def test_not_a_client() -> None:
    with pytest.raises(TypeError, match="not a str"):
        speed_up("redis://")
