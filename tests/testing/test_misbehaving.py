"""A server that misbehaves, for tests of any client."""

from __future__ import annotations

import re
import socket
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import redis

from fastresp.server.local_server import LocalServer
from fastresp.testing import HANDSHAKE, Connection, HangUp, Misbehaving, Misbehaviour
from fastresp.testing.misbehaviours import CATEGORY_TEXTS, MISBEHAVIOURS

# What a real client gets, so that only the misbehaviour decides.
TIMEOUT_S = 1.0


@pytest.fixture
def filled(server: LocalServer, client: redis.Redis) -> LocalServer:
    client.set("name", "Ann")
    return server


def through(server: Misbehaving, **options: Any) -> redis.Redis:
    """Return a client of redis-py."""
    return redis.Redis.from_url(server.url, socket_timeout=TIMEOUT_S, **options)


def complaint(case: Misbehaviour, filled: LocalServer, protocol: int) -> str:
    """Return what is wrong with the end of a call of redis-py; "" if nothing is."""
    began, error = time.monotonic(), None
    with Misbehaving(case.name, filled.url, honest=HANDSHAKE, flood_bytes=1 << 20) as server:
        try:
            value = through(server, protocol=protocol).get("name")
        except Exception as raised:
            error = raised
    seconds = time.monotonic() - began
    if seconds > 10:
        return f"{case.name}: it ended after {seconds:.1f} s"
    if error is not None:
        return f"{case.name}: {error!r}" if case.expect == "reply" else ""
    return "" if value == b"Ann" or case.expect == "any" else f"{case.name}: {value!r:.100}"


@pytest.mark.parametrize("protocol", [2, 3])
def test_another_client_ends_in_time(filled: LocalServer, protocol: int) -> None:
    """Each call of redis-py raises, or returns what it may; and no thread remains."""
    before = {*threading.enumerate()}
    with ThreadPoolExecutor(16) as pool:
        found = [*pool.map(lambda case: complaint(case, filled, protocol), Misbehaving.all())]
    assert not [*filter(None, found)]
    assert len(found) > 140
    left = [each.name for each in threading.enumerate() if each not in before]
    assert not left


@pytest.mark.parametrize(
    "case", [each for each in Misbehaving.all() if each.category == "Clusters"]
)
def test_cluster_client_refuses_to_connect(filled: LocalServer, case: Misbehaviour) -> None:
    error = None
    with Misbehaving(case.name, filled.url) as server:
        try:
            redis.RedisCluster.from_url(server.url, socket_timeout=TIMEOUT_S)
        except Exception as raised:
            error = raised
    assert error is not None


def exchange(server: Misbehaving, sent: bytes = b"*2\r\n$3\r\nGET\r\n$4\r\nname\r\n") -> bytes:
    """Send bytes; return what comes back until the end of the connection, or for a while."""
    with socket.create_connection(("127.0.0.1", int(server.url.rpartition(":")[2]))) as link:
        link.settimeout(0.3)
        received = b""
        try:
            link.sendall(sent)
            while data := link.recv(1 << 20):
                received += data
        except OSError:
            pass
        return received


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("honest", b"$3\r\nAnn\r\n"),
        ("one byte at a time", b"$3\r\nAnn\r\n"),
        ("closes at once", b""),
        ("closes after 3 bytes", b"$3\r"),
        ("reply cut in half", b"$3\r\n"),
        ("half a reply", b"$3\r\n"),
        ("ends its replies", b""),
        ("never reads", b""),
        ("replies twice", b"$3\r\nAnn\r\n" * 2),
        ("bulk string too short", b"$4\r\nAnn\r\n"),
        ("push message", b">2\r\n+a\r\n+b\r\n$3\r\nAnn\r\n"),
        ("map", b"%1\r\n+a\r\n:1\r\n"),
        ("bulk error", b"!3\r\nERR\r\n"),
        ("HTTP", b"HTTP/1.1 400 Bad Request\r\n\r\n"),
        ("endless number", b":" + b"1" * 131_072),
        ("deep", b"*1\r\n" * 100_000),
        ("OOM", b"-OOM command not allowed when used memory > 'maxmemory'.\r\n"),
        ("null instead", b"$-1\r\n"),
        ("wrong ECHO", b"$3\r\nAnn\r\n"),
    ],
)
def test_bytes(filled: LocalServer, name: str, expected: bytes) -> None:
    with Misbehaving(name, filled.url, flood_bytes=100_000) as server:
        assert exchange(server) == expected


def test_redirect_to_itself(filled: LocalServer) -> None:
    with Misbehaving("MOVED to itself", filled.url) as server:
        port = server.url.rpartition(":")[2]
        assert exchange(server) == f"-MOVED 1 127.0.0.1:{port}\r\n".encode()


PING, ECHO = b"*1\r\n$4\r\nPING\r\n", b"*2\r\n$4\r\nECHO\r\n$1\r\nx\r\n"


def test_order_and_number_of_replies(filled: LocalServer) -> None:
    with Misbehaving("swapped replies", filled.url) as server:
        assert exchange(server, PING + ECHO) == b"$1\r\nx\r\n+PONG\r\n"
    with Misbehaving("fewer replies", filled.url) as server:
        assert exchange(server, ECHO + PING + PING + ECHO) == b"$1\r\nx\r\n+PONG\r\n$1\r\nx\r\n"


def test_reads_nothing_until_a_new_byte_comes(filled: LocalServer) -> None:
    with Misbehaving("reads nothing until a new byte comes", filled.url) as server:
        assert exchange(server) == b""
        with socket.create_connection(("127.0.0.1", int(server.url.rpartition(":")[2]))) as link:
            link.sendall(ECHO)
            link.settimeout(0.2)
            with pytest.raises(TimeoutError):
                link.recv(100)
            link.settimeout(10)
            link.sendall(PING)
            received = b""
            while len(received) < 14:
                received += link.recv(100)
            assert received == b"$1\r\nx\r\n+PONG\r\n"


def test_never_reads(filled: LocalServer) -> None:
    """The buffers fill up, so that sending blocks."""
    with Misbehaving("never reads", filled.url) as server:
        client = through(server)
        with pytest.raises(redis.TimeoutError):
            client.set("large", b"x" * (64 << 20))
    assert not redis.Redis.from_url(filled.url).exists("large")


def test_commands_of_any_client(filled: LocalServer) -> None:
    """Empty lines, inline commands, and HELLO; commands that are cut are not executed."""
    with Misbehaving("honest", filled.url) as server:
        assert exchange(server, b"\r\nECHO x\r\n\r\n" + ECHO) == b"$1\r\nx\r\n" * 2
        assert exchange(server, b"*2\r\n$5\r\nHELLO\r\n$1\r\n3\r\n").startswith(b"%")
        assert exchange(server, b"*3\r\n$3\r\nSET\r\n$3\r\ncut\r\n$9\r\nabc") == b""
        assert exchange(server, b"*1\r\n$x\r\n") == b""
        assert exchange(server, b"*0\r\n*-1\r\n" + ECHO) == b"$1\r\nx\r\n"
    assert not redis.Redis.from_url(filled.url).exists("cut")


def test_replies_of_resp3(filled: LocalServer) -> None:
    with Misbehaving("honest", filled.url) as server:
        client: Any = through(server, protocol=3)
        client.zadd("scores", {"a": 1.5})
        assert client.zscore("scores", "a") == 1.5
        assert client.config_get("maxmemory-policy") == {"maxmemory-policy": "noeviction"}
        assert len(client.command()) > 200
        assert client.get("missing") is None


@pytest.mark.parametrize("protocol", [2, 3])
@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("words in INFO", rb"redis_mode:nonsense\r\n"),
        ("numbers in INFO", rb"redis_mode:-1e999\r\n"),
        ("INFO of bytes", rb"\xff{5}_\xff{4}:\xff+\r\n"),
        ("bulk string too short", rb"redis_mode:standalone\r\n"),
    ],
)
def test_strings_of_both_protocols(
    filled: LocalServer, name: str, expected: bytes, protocol: int
) -> None:
    """INFO is a bulk string, or a verbatim string, whose format is kept."""
    with Misbehaving(name, filled.url, only="INFO") as server:
        reply = exchange(server, b"HELLO %d\r\nINFO server\r\n" % protocol)
    start = reply.index(b"txt:" if protocol == 3 else b"# ")
    length = int(re.split(rb"[$=]", reply[:start])[-1])
    assert len(reply) - start - 2 == length - (name == "bulk string too short")
    assert re.search(expected, reply)


def test_only(filled: LocalServer) -> None:
    with Misbehaving("integer instead", filled.url, only="config get") as server:
        assert through(server).get("name") == b"Ann"
        assert exchange(server, b"config GET save\r\n") == b":7\r\n"
    with Misbehaving("integer instead", filled.url, only="GET") as server:
        assert through(server).getrange("name", 0, 0) == b"A"
        assert through(server).get("name") == 7


def test_honest(filled: LocalServer) -> None:
    with Misbehaving("integer instead", filled.url, honest={"echo", *HANDSHAKE}) as server:
        client: Any = through(server)
        assert (client.echo("x"), client.get("name")) == (b"x", 7)

    def long(connection: Connection, command: list[bytes]) -> bool:
        return len(command[-1]) > 3

    with Misbehaving("integer instead", filled.url, honest=long) as server:
        assert exchange(server) == b"$3\r\nAnn\r\n"
        assert exchange(server, PING + ECHO) == b"+PONG\r\n:7\r\n"


def test_after(filled: LocalServer) -> None:
    """It counts the commands of each connection."""
    with Misbehaving("null instead", filled.url, after=2) as server:
        for _ in range(2):
            assert exchange(server, PING * 3) == b"+PONG\r\n+PONG\r\n$-1\r\n"
    with Misbehaving("closes at once", filled.url, after=1) as server:
        assert exchange(server, PING * 3) == b"+PONG\r\n"


def test_own_function(filled: LocalServer) -> None:
    def reply(connection: Connection, command: list[bytes], honest: bytes) -> bytes:
        if connection.count == 2:
            raise HangUp
        return connection.honest([b"STRLEN", command[1]]) + honest

    with Misbehaving(reply, filled.url) as server:
        get = b"*2\r\n$3\r\nGET\r\n$4\r\nname\r\n"
        assert exchange(server, get * 3) == b":3\r\n$3\r\nAnn\r\n"


def test_end_with_many_clients(filled: LocalServer) -> None:
    """Some wait for replies, some read no flood, and some have sent nothing."""
    before = {*threading.enumerate()}
    links = []
    for name in ("never replies", "endless status", "honest", "never reads"):
        with Misbehaving(name, filled.url, flood_bytes=1 << 40) as server:
            address = "127.0.0.1", int(server.url.rpartition(":")[2])
            for number in range(20):
                links.append(socket.create_connection(address))
                links[-1].sendall(PING * (number % 2))
    left = [each.name for each in threading.enumerate() if each not in before]
    for link in links:
        link.close()
    assert not left


@pytest.mark.parametrize("size", [1, 65_537, 200_000])
def test_flood_of_blocks(filled: LocalServer, size: int) -> None:
    def reply(connection: Connection, command: list[bytes], honest: bytes) -> bytes:
        connection.flood(b"x" * size)
        return b""

    with Misbehaving(reply, filled.url, flood_bytes=1) as server:
        assert exchange(server) == b"x" * max(size, 65_536)


def test_addresses(filled: LocalServer, tmp_path: Path) -> None:
    path = tmp_path / "a socket"
    with Misbehaving("honest", filled.url, listen=path) as server:
        assert server.url == f"unix://{str(path).replace(' ', '%20')}"
        assert through(server).get("name") == b"Ann"
    assert not path.exists()
    with Misbehaving("honest", f"{filled.url}?db=3") as server:
        through(server).set("third", 1)
    assert redis.Redis.from_url(f"{filled.url}?db=3").get("third") == b"1"


def test_password(start_server: Callable[..., LocalServer]) -> None:
    real = start_server()
    admin: Any = redis.Redis.from_url(real.url)
    admin.acl_setuser("loader", enabled=True, passwords=["+p@ss:/"], keys="*", commands=["+@all"])
    url = real.url.replace("unix://", "unix://loader:p%40ss%3A%2F@")
    with Misbehaving("honest", url) as server:
        assert through(server).execute_command("ACL", "WHOAMI") == b"loader"
        assert "p@ss" not in repr(server) and "p%40" not in repr(server)


@pytest.mark.parametrize(
    ("name", "url", "message"),
    [
        ("reply cut in halves", "redis://x", r"did you mean 'reply cut in half'\?"),
        ("???", "redis://x", r"Misbehaving\.all\(\) returns them"),
        ("honest", "rediss://x", "without TLS"),
        ("honest", "valkeys://x", "without TLS"),
        ("honest", "localhost", "redis://"),
    ],
)
def test_errors(name: str, url: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Misbehaving(name, url)


def test_no_real_server(tmp_path: Path) -> None:
    server = Misbehaving("honest", f"unix://{tmp_path}/nothing", listen=tmp_path / "socket")
    with pytest.raises(FileNotFoundError), server:
        pass
    assert not (tmp_path / "socket").exists()


def test_real_server_that_ends(start_server: Callable[..., LocalServer]) -> None:
    """A client must not wait for it."""
    real = start_server()
    with Misbehaving("honest", real.url) as server:
        client = through(server)
        assert client.get("name") is None
        real.stop()
        for _ in range(2):
            with pytest.raises(redis.ConnectionError):
                client.get("name")


def test_table() -> None:
    """Each has a name of plain words, and two sentences."""
    assert [each.name for each in Misbehaving.all()] == [*MISBEHAVIOURS]
    assert {each.category for each in Misbehaving.all()} == {*CATEGORY_TEXTS}
    for each in Misbehaving.all():
        assert each.does.endswith(".") and each.client_should.endswith("."), each.name
        assert each.expect in ("reply", "error", "any")
    assert len({each.does for each in Misbehaving.all()}) == len(MISBEHAVIOURS)
