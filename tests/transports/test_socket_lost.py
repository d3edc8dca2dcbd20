"""Lost, frozen and corrupted connections: every command is accounted for."""

from __future__ import annotations

import os
import random
import re
import signal
import time
from collections.abc import Callable
from typing import Any

import pytest
import redis
from loads import (
    VALUE,
    Insert,
    commands,
    in_the_background,
    insert_asyncio,
    insert_redis_cli,
    insert_sync,
    lost,
)
from waiting import until_loaded

import fastresp
from fastresp.server.local_server import LocalServer
from fastresp.server.options import Options
from fastresp.testing import Connection, Misbehaving
from fastresp.transports.lanes import Lanes
from fastresp.transports.socket import SocketTransport
from fastresp.transports.window import Window


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(20))
def test_killed_server_sync(start_server: Callable[..., LocalServer], seed: int) -> None:
    kill_at_random(insert_sync, start_server, seed)


@pytest.mark.few(1)
@pytest.mark.parametrize("seed", range(100, 106))
def test_killed_server_asyncio(start_server: Callable[..., LocalServer], seed: int) -> None:
    kill_at_random(insert_asyncio, start_server, seed)


def test_killed_server_redis_cli(start_server: Callable[..., LocalServer]) -> None:
    kill_at_random(insert_redis_cli, start_server, 200)


def kill_at_random(insert: Insert, start_server: Callable[..., LocalServer], seed: int) -> None:
    """Check acknowledged <= stored <= acknowledged + in_doubt, and that the first are stored.

    The server writes its append-only file before it replies, and the file survives the process.
    """
    chance = random.Random(seed)
    server = start_server("--appendonly", "yes", "--appendfsync", "no")
    kill = in_the_background(server.process.kill, chance.random() * 0.01)
    # Endless: a fast machine must not finish before the server is killed.
    error = lost(insert, server.url, commands(10**9, chance.randrange(900_000), kill))
    report = error.report
    assert report is not None
    assert report.acknowledged == report.replies
    assert report.commands == report.acknowledged + report.in_doubt
    server.stop()
    server.start()
    client = redis.Redis.from_url(server.url)
    until_loaded(client)
    stored = client.dbsize()
    assert report.acknowledged <= stored <= report.acknowledged + report.in_doubt
    for start in range(0, stored, 50_000):
        keys = [f"key:{i}" for i in range(start, min(start + 50_000, stored))]
        assert client.exists(*keys) == len(keys)
    assert "lost the connection" in str(error)


def test_killed_connection(insert_any: Insert, server: LocalServer, client: redis.Redis) -> None:
    def kill_the_other() -> None:
        mine = str(client.client_id())
        for other in client.client_list():
            if other["id"] != mine:
                client.client_kill_filter(_id=other["id"])

    error = lost(insert_any, server.url, commands(400_000, 200_000, kill_the_other))
    assert "CLIENT KILL" in str(error)
    assert "a new connection works" in str(error)
    report = error.report
    assert report is not None
    assert report.acknowledged > 0 or report.transport == "redis-cli"
    assert report.acknowledged <= client.dbsize() <= report.acknowledged + report.in_doubt


@pytest.mark.few(1)
@pytest.mark.parametrize("count", [10, 500_000], ids=["in-the-buffers", "buffers-full"])
def test_frozen_server(
    insert_any: Insert, start_server: Callable[..., LocalServer], count: int
) -> None:
    server = start_server()
    pid = server.process.pid
    data = commands(count, count // 2, lambda: os.kill(pid, signal.SIGSTOP))
    started = time.monotonic()
    error = lost(insert_any, server.url, data, timeout=1.0)
    assert time.monotonic() - started < 20
    assert isinstance(error, fastresp.TransportTimeout)
    assert "no progress for 1 s" in str(error)
    report = error.report
    assert report is not None
    os.kill(pid, signal.SIGCONT)
    client = redis.Redis.from_url(server.url)
    assert report.acknowledged <= client.dbsize() <= report.acknowledged + report.in_doubt
    assert report.in_doubt > 0 or (report.unsent > 0 and report.transport == "socket")
    assert set(client.mget("key:0", *client.keys()[:100])) <= {VALUE.encode(), None}


@pytest.mark.few(1)
def test_slow_source_is_not_a_timeout(insert_any: Insert, server: LocalServer) -> None:
    data = commands(100_000, 50_000, lambda: time.sleep(1.5))
    assert insert_any(data, server=server.url, timeout=1.0).replies == 100_000


# By the server's clock, since the time of a loop depends on the machine.
TENTH_OF_A_SECOND = """
local function now() local t = redis.call("TIME") return t[1] + t[2] / 1000000 end
local start = now()
while now() < start + 0.1 do end
"""


@pytest.mark.slow
def test_slow_server_is_not_a_timeout(insert: Insert, server: LocalServer) -> None:
    """Commands of 0.1 s each, all in the server's buffers from the start.

    They are large, since a server replies only after it has run a whole read of 16 KB.
    """
    slow = [("EVAL", TENTH_OF_A_SECOND, 0, "x" * 20_000)] * 40
    started = time.monotonic()
    report = insert(slow, server=server.url, timeout=2.0)
    assert (report.replies, report.failed) == (40, 0)
    assert time.monotonic() - started > 4


def test_query_buffer_limit(insert: Insert, server: LocalServer, client: redis.Redis) -> None:
    client.config_set("client-query-buffer-limit", 1 << 20)
    data = [("SET", "a", 1), ("SET", "b", "x" * (4 << 20)), ("SET", "c", 1)]
    try:
        error = lost(insert, server.url, data)
    finally:
        client.config_set("client-query-buffer-limit", 1 << 30)
    assert "query buffer limit" in str(error)
    assert error.report is not None
    assert error.report.acknowledged == 1
    assert client.keys("*") == [b"a"]


def test_command_that_the_server_cannot_read(server: LocalServer) -> None:
    """The last error reply is reported. (Our own encoder would not send this.)"""
    data = fastresp.pack("SET", "a", 1) + b"*2\r\n$3\r\nGET\r\n$4000000000\r\n" + b"x" * 100
    with SocketTransport(Options(server=server.url)) as transport:
        core = transport.lanes.lanes[0]
        writer = fastresp.Writer(fastresp.Template("{0} {1}"))
        (chunk,) = writer.chunks([("GET", "x" * 4000)])
        transport.write(chunk)
        assert core.stream is not None
        while core.window.acknowledged < 1:
            core.step()
        core.stream._socket.sendall(data)
        with pytest.raises(fastresp.TransportError, match="invalid bulk length"):
            while True:
                transport.write(chunk)


def test_interruption_while_a_chunk_is_added(
    server: LocalServer, client: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Wherever it happens, the chunk is sent once, and the load does not hang."""
    add = Window.add
    for before in (True, False):
        client.flushall()

        def interrupted(window: Window, *chunks: Any, before: bool = before) -> None:
            monkeypatch.setattr(Window, "add", add)
            if not before:
                add(window, *chunks)
            raise KeyboardInterrupt

        monkeypatch.setattr(Window, "add", interrupted)
        with pytest.raises(KeyboardInterrupt) as caught:
            insert_sync(commands(1000), server=server.url, timeout=2)
        assert caught.value.report.replies == 1000  # type: ignore[attr-defined]
        assert client.dbsize() == 1000


@pytest.mark.few(2)
@pytest.mark.parametrize(
    ("bad", "words"),
    [
        (b"?what\r\n", r"no reply starts like this: b'.*\?what"),
        (b"+OK\r\n" * 3_000_000, "more replies than commands"),
    ],
    ids=["garbage", "too-many"],
)
def test_invalid_replies(
    insert_singly: Insert, server: LocalServer, bad: bytes, words: str
) -> None:
    def spoil(connection: Connection, command: list[bytes], honest: bytes) -> bytes:
        return honest + bad

    with Misbehaving(spoil, server.url, after=1100) as proxy:
        error = lost(insert_singly, proxy.url, commands(300_000))
    assert re.search(words, str(error))
    assert "sent invalid replies" in str(error)
    assert error.report is not None
    assert error.report.acknowledged >= 1000 or "garbage" not in words


def test_interruption_while_a_lost_connection_is_replaced(
    start_server: Callable[..., LocalServer], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A signal handler raises an exception; the commands of the lost connection are resent."""
    retire, interruption = Lanes.retire, RuntimeError("raised by a signal handler")

    def interrupted(lanes: Lanes, numbers: range) -> None:
        monkeypatch.setattr(Lanes, "retire", retire)
        raise interruption

    monkeypatch.setattr(Lanes, "retire", interrupted)
    server = start_server()
    with redis.Redis.from_url(server.url) as client:

        def cut() -> None:
            client.client_kill_filter(_type="normal", skipme=True)

        source = (command[1:] for command in commands(21_000, 14_000, cut))
        with pytest.raises(RuntimeError) as caught:
            insert_sync(source, "SET {0} {1}", server=server.url, retry="idempotent", timeout=2)
        assert caught.value is interruption
        report: fastresp.Report = interruption.report  # type: ignore[attr-defined]
        assert report.commands == report.replies == client.dbsize()
        assert report.in_doubt == report.unsent == 0
