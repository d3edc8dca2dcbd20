"""redis-py with our packer: the same bytes as its own, on every kind of client."""

from __future__ import annotations

import asyncio
import enum
import socket
import subprocess
import threading
from array import array
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import redis
import redis.asyncio
from hypothesis import given, settings
from hypothesis import strategies as st
from redis.backoff import ConstantBackoff, NoBackoff
from redis.cache import CacheConfig
from redis.connection import (
    CacheProxyConnection,
    Connection,
    HiredisRespSerializer,
    PythonRespSerializer,
)
from redis.retry import Retry

from fastresp.redis_py import CommandPacker, fast, speed_up
from fastresp.server.local_server import LocalServer
from fastresp.server.programs import find_program

PLAIN = Connection()
SERIALIZER = PythonRespSerializer(6000, PLAIN.encoder.encode)


def theirs(*args: Any) -> bytes:
    """What redis-py's own packer makes."""
    return b"".join(map(bytes, SERIALIZER.pack(*args)))


def ours(*args: Any) -> bytes:
    return b"".join(CommandPacker().pack(*args))


names = st.one_of(
    st.sampled_from(
        ["SET", "CONFIG GET", b"CONFIG GET", b"GET", " a  b ", "a\tb", b"a\tb", "", b""]
    ),
    st.text(max_size=8),
    st.binary(max_size=8),
)
values = st.one_of(
    st.text(max_size=50), st.binary(max_size=50), st.integers(), st.floats(),
    st.binary(max_size=20).map(bytearray), st.binary(max_size=20).map(memoryview),
)  # fmt: skip


@settings(max_examples=1000)
@given(name=names, args=st.lists(values, max_size=6))
def test_same_bytes(name: Any, args: list[Any]) -> None:
    assert ours(name, *args) == theirs(name, *args)


@settings(max_examples=300)
@given(name=names, args=st.lists(values, max_size=6))
def test_same_bytes_as_with_hiredis(name: Any, args: list[Any]) -> None:
    assert ours(name, *args) == b"".join(HiredisRespSerializer().pack(name, *args))


@settings(max_examples=200)
@given(commands=st.lists(st.tuples(names, values, values), max_size=50))
def test_same_bytes_in_a_pipeline(commands: list[tuple[Any, ...]]) -> None:
    packed = fast(Connection)().pack_commands(commands)
    assert b"".join(packed) == b"".join(theirs(*command) for command in commands)


@pytest.mark.parametrize(
    "value",
    [True, None, object(), [1], (1,), {}, 1j, array("d", [1.0]), np.array([1.0]), np.bool_(1)],
)
def test_refused_as_redis_py_does(value: Any) -> None:
    with pytest.raises(redis.DataError) as theirs_error:
        theirs("SET", "a", value)
    with pytest.raises(redis.DataError) as ours_error:
        ours("SET", "a", value)
    assert str(theirs_error.value).split(".")[0] in str(ours_error.value)


class Level(enum.IntEnum):
    HIGH = 7


class Text(str):
    pass


@pytest.mark.parametrize(
    ("value", "sent"),
    [
        (np.float64(1.5), b"1.5"),
        (memoryview(array("b", [-1, 2])), b"\xff\x02"),
        (memoryview(b"abcdef")[::2], b"ace"),
        (bytearray(b"a\r\n"), b"a\r\n"),
        (Level.HIGH, b"7"),
        (np.int64(7), b"7"),
        (np.uint8(7), b"7"),
        (10**5000, b"1" + b"0" * 5000),
        (Text("é"), "é".encode()),
    ],
    ids=lambda value: str(type(value).__name__),
)
def test_traps(value: Any, sent: bytes) -> None:
    assert ours("SET", "a", value) == b"*3\r\n$3\r\nSET\r\n$1\r\na\r\n$%d\r\n%s\r\n" % (
        len(sent),
        sent,
    )


@pytest.mark.parametrize(
    "value",
    [
        np.array([1.5]),
        np.zeros((2, 2), "u1"),
        array("d", [1.0]),
        memoryview(array("d", [1.0])),
        memoryview(bytes(6)).cast("B", (2, 3)),
    ],
)
def test_array_that_is_not_plain_bytes(value: Any) -> None:
    words = r"Invalid input of type: .*!f32.*\.tobytes\(\)"
    with pytest.raises(redis.DataError, match=words):
        ours("SET", "a", value)
    for kind in (Connection, redis.asyncio.Connection):
        with pytest.raises(redis.DataError, match=words):
            fast(kind)().pack_commands([("SET", "a", value)])


def test_lone_surrogate_and_no_arguments() -> None:
    with pytest.raises(UnicodeEncodeError):
        ours("SET", "a", "\ud800")
    with pytest.raises(IndexError):
        ours()
    with pytest.raises(TypeError):
        ours(5, "a")


def test_encoding_of_the_client() -> None:
    packer = CommandPacker("latin-1")
    assert (
        b"".join(packer.pack("SET", "é", "é")) == b"*3\r\n$3\r\nSET\r\n$1\r\n\xe9\r\n$1\r\n\xe9\r\n"
    )
    with pytest.raises(UnicodeEncodeError):
        packer.pack("SET", "€")
    assert b"?" in b"".join(CommandPacker("ascii", "replace").pack("SET", "€"))


def test_after_an_error_nothing_is_left_over() -> None:
    with pytest.raises(redis.DataError):
        fast(Connection)().pack_commands([("SET", "a", 1), ("SET", "a", None)])
    assert ours("GET", "a") == theirs("GET", "a")


def test_large_pipelines_come_in_pieces() -> None:
    commands = [("SET", f"k{i}", "x" * 1000) for i in range(5000)]
    pieces = fast(Connection)().pack_commands(commands)
    assert [1 << 20 <= len(piece) < (1 << 20) + 2000 for piece in pieces[:-1]] == [True] * 4
    assert b"".join(pieces) == b"".join(theirs(*command) for command in commands)


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview, bytes.decode])
def test_large_arguments(kind: Callable[[bytes], Any]) -> None:
    values = [kind(b"x" * size) for size in (65535, 65536, 3 << 20)]
    commands = [("MSET", "a", value, "b", value, "c", 1) for value in values] * 2
    pieces = fast(Connection)().pack_commands(commands)
    assert b"".join(pieces) == b"".join(theirs(*command) for command in commands)
    assert all(pieces)


def test_large_bytes_are_not_copied() -> None:
    value = b"x" * 100_000
    pieces = CommandPacker().pack("SET", "a", value)
    assert [piece is value for piece in pieces] == [False, True, False]


def test_any_iterables() -> None:
    commands = ([str(i), i] for i in range(3))
    assert b"".join(fast(Connection)().pack_commands(commands)) == b"".join(
        theirs(str(i), i) for i in range(3)
    )


def test_several_threads() -> None:
    connection = fast(Connection)()
    failures = []

    def pack(letter: str) -> None:
        commands = [("SET", letter, letter * 100)] * 2000
        expected = theirs("SET", letter, letter * 100) * 2000
        failures.extend(
            1 for _ in range(20) if b"".join(connection.pack_commands(commands)) != expected
        )

    threads = [threading.Thread(target=pack, args=(letter,)) for letter in "abcd"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []


def use(client: Any) -> None:
    """Commands, pipelines, scripts: everything comes back as it went."""
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
            connection = client.connection or client.connection_pool.make_connection()
            assert type(connection).__name__.startswith("Fast")


def test_command_packer_and_pool(server: LocalServer) -> None:
    with redis.Redis.from_url(server.url, command_packer=CommandPacker()) as client:
        use(client)
    pool = redis.ConnectionPool.from_url(server.url)
    pool.connection_class = fast(pool.connection_class)
    assert fast(pool.connection_class) is pool.connection_class
    with redis.Redis(connection_pool=pool) as client:
        use(client)


def is_fast(connection: Any) -> bool:
    """Whether it takes what redis-py itself refuses."""
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
    # None was closed, none was opened.
    assert connections_of(server) == before
    pool.disconnect()


def test_single_connection(server: LocalServer) -> None:
    with redis.Redis.from_url(server.url, single_connection_client=True) as client:
        speed_up(client)
        assert is_fast(client.connection)
        use(client)


def test_client_with_a_cache(port: int) -> None:
    # Nobody listens: a cache needs a server of 7.4, and what wraps the connection is there before.
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
    """The port of a Sentinel that watches a server named 'mymaster'."""
    ports = []
    for _ in range(2):
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            ports.append(probe.getsockname()[1])
    start_server("--port", str(ports[0]))
    config = tmp_path / "sentinel.conf"
    config.write_text(
        f"bind 127.0.0.1\nport {ports[1]}\nsentinel monitor mymaster 127.0.0.1 {ports[0]} 1\n"
    )
    program = find_program("server", "FASTRESP_SERVER")
    assert program is not None
    process = subprocess.Popen([program, str(config), "--sentinel"], stdout=subprocess.DEVNULL)
    try:
        client = redis.Redis("127.0.0.1", ports[1], retry=Retry(ConstantBackoff(0.05), 100))
        client.ping()
        client.close()
        yield ports[1]
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


def test_latin_1_client(server: LocalServer) -> None:
    with speed_up(redis.Redis.from_url(server.url, encoding="latin-1")) as client:
        client.set("a", "é")
        with client.pipeline() as pipeline:
            assert pipeline.set("b", "é").get("a").execute()[1] == b"\xe9"
        assert client.get("b") == b"\xe9"


def test_publish_and_subscribe(server: LocalServer) -> None:
    with speed_up(redis.Redis.from_url(server.url)) as client, client.pubsub() as pubsub:
        pubsub.subscribe("channel")
        assert pubsub.get_message(timeout=5)["type"] == "subscribe"  # type: ignore[index]
        client.publish("channel", "héllo")
        assert pubsub.get_message(timeout=5)["data"] == "héllo".encode()  # type: ignore[index]


def test_tls(tls: Callable[..., str]) -> None:
    with speed_up(redis.Redis.from_url(tls())) as client:
        use(client)


@pytest.fixture
def cluster(start_server: Callable[..., LocalServer], port: int) -> int:
    """The port of a cluster of one node."""
    port = port % 50000 + 1024
    server = start_server("--port", str(port), "--cluster-enabled", "yes")
    admin = redis.Redis.from_url(server.url)
    admin.execute_command("CLUSTER", "ADDSLOTSRANGE", 0, 16383)
    while b"cluster_state:ok" not in admin.execute_command("CLUSTER", "INFO"):
        pass
    return port


@pytest.mark.parametrize("by_url", [False, True])
def test_cluster(cluster: int, by_url: bool) -> None:
    if by_url:
        client = redis.RedisCluster.from_url(f"redis://127.0.0.1:{cluster}")
    else:
        client = redis.RedisCluster("127.0.0.1", cluster)
    with speed_up(client):
        for _ in range(2):
            with client.pipeline() as pipeline:
                for i in range(1000):
                    pipeline.set(f"k{i}", i)
                assert pipeline.execute() == [True] * 1000
            assert client.get("k999") == b"999"
            (node,) = client.get_nodes()
            pool = node.redis_connection.connection_pool
            assert pool.connection_class.__name__.startswith("Fast")
            # Nodes that are found later are fast, too.
            client.nodes_manager.initialize()


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


def test_asyncio_cluster(cluster: int) -> None:
    async def main() -> None:
        async with speed_up(redis.asyncio.RedisCluster(host="127.0.0.1", port=cluster)) as client:
            await use_async(client)
            (node,) = client.get_nodes()
            assert node.connection_class.__name__ == "FastConnection"

    asyncio.run(main())


def test_not_a_client() -> None:
    with pytest.raises(TypeError, match="not a str"):
        speed_up("redis://")
