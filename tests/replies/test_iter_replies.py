"""iter_replies and execute: replies in order, lazily, full duplex; sync and asyncio."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import aclosing
from typing import Any

import pytest
import redis
from peak import PEAK
from reading import Execute, execute_asyncio, execute_one, execute_one_asyncio
from waiting import only_we_are_connected

import fastresp
import fastresp.aio
from fastresp.replies.reply_core import FIRST_IN_FLIGHT
from fastresp.server.local_server import LocalServer


def test_same_replies_as_redis_py(
    execute: Execute, server: LocalServer, client: redis.Redis
) -> None:
    commands = [
        ("SET", "a", "v"), ("GET", "a"), ("GET", "none"), ("INCR", "n"), ("RPUSH", "l", 1, 2, 3),
        ("LRANGE", "l", 0, -1), ("HSET", "h", "f", b"\xff\r\n"), ("HGETALL", "h"),
        ("MULTI",), ("GET", "a"), ("LLEN", "l"), ("EXEC",), ("ECHO", ""), ("LRANGE", "x", 0, -1),
        ("EVAL", "return {1, {2, {'x'}}, false}", 0),
    ]  # fmt: skip
    assert execute(commands, server=server.url) == [
        b"OK", b"v", None, 1, 3, [b"1", b"2", b"3"], 1, [b"f", b"\xff\r\n"],
        b"OK", b"QUEUED", b"QUEUED", [b"v", 3], b"", [], [1, [2, [b"x"]], None],
    ]  # fmt: skip


@pytest.mark.few(1)
def test_many(execute: Execute, server: LocalServer) -> None:
    fastresp.mass_insert(((i, i) for i in range(200_000)), "SET k{0} {1}", server=server.url)
    got = execute(range(200_000), "GET k{0}", server=server.url)
    assert got == [b"%d" % i for i in range(200_000)]


def test_hashes(execute: Execute, server: LocalServer) -> None:
    rows = [{"id": i, "name": f"näme {i}"} for i in range(5000)]
    fastresp.mass_insert(rows, "HSET user:{id} name {name}", server=server.url)
    got = execute(range(5000), "HGETALL user:{0}", server=server.url, decode=True)
    assert got == [["name", f"näme {i}"] for i in range(5000)]


@pytest.mark.parametrize(("decode", "reply"), [(None, b"\xe9"), (False, b"\xe9"), ("latin-1", "é")])
def test_decoding(execute: Execute, server: LocalServer, decode: Any, reply: Any) -> None:
    commands = [("SET", "a", b"\xe9"), ("GET", "a")]
    assert execute(commands, server=server.url, decode=decode)[1] == reply
    with pytest.raises(fastresp.DecodeError, match=r"the reply to command \d is not utf-8: byte"):
        execute(commands, server=server.url, decode=True)
    with pytest.raises(LookupError):
        execute(commands, server=server.url, decode="no-such-encoding")


def test_errors_in_their_place(execute: Execute, server: LocalServer) -> None:
    rows = [("a", 1), ("b", 2), ("a", 3)]
    got = execute(rows, "SET {0} x; LPUSH {0} {1}; GET {0}", server=server.url, on_error="collect")
    assert [type(reply) for reply in got] == [bytes, fastresp.CommandError, bytes] * 3
    assert [(e.row, e.index, e.code, e.arguments) for e in got[1::3]] == [
        (0, 1, "WRONGTYPE", (b"LPUSH", b"a", b"1")),
        (1, 4, "WRONGTYPE", (b"LPUSH", b"b", b"2")),
        (2, 7, "WRONGTYPE", (b"LPUSH", b"a", b"3")),
    ]


def test_errors_raised_in_their_place(server: LocalServer) -> None:
    replies = fastresp.iter_replies(
        [("SET", "a", 1), ("LPUSH", "a", 1), ("GET", "a")], server=server.url
    )
    assert next(replies) == b"OK"
    with pytest.raises(fastresp.CommandError, match="row 1, command 1: WRONGTYPE") as caught:
        next(replies)
    assert caught.value.arguments == (b"LPUSH", b"a", b"1")
    assert list(replies) == []


def test_replies_before_the_data_fails(server: LocalServer) -> None:
    """They are yielded before the exception of the source or the encoder."""

    def source() -> Iterator[tuple[str, Any]]:
        for i in range(50_000):
            yield "ECHO", i
        raise ZeroDivisionError("mine")

    got: list[bytes] = []
    with pytest.raises(ZeroDivisionError) as caught:
        for reply in fastresp.iter_replies(source(), server=server.url):
            got.append(reply)
    assert got == [b"%d" % i for i in range(50_000)]
    assert caught.value.report.replies == 50_000  # type: ignore[attr-defined]
    got = []
    with pytest.raises(fastresp.EncodeError, match="command 3"):
        for reply in fastresp.iter_replies([("ECHO", 1)] * 3 + [("ECHO", None)], server=server.url):
            got.append(reply)
    assert got == [b"1"] * 3


def test_replies_arrive_while_the_source_is_read(server: LocalServer) -> None:
    """The source is ahead of the replies by at most a chunk and the commands in flight."""
    ahead: list[int] = []
    made = taken = 0

    def source() -> Iterator[tuple[str, str]]:
        nonlocal made
        for _ in range(100_000):
            made += 1
            yield "ECHO", "x" * 100

    for _ in fastresp.iter_replies(source(), server=server.url):
        taken += 1
        ahead.append(made - taken)
    assert taken == 100_000
    assert max(ahead) < 70_000
    assert min(ahead[:50_000]) >= 0


def test_a_reader_that_stops_stops_the_sender(server: LocalServer, client: redis.Redis) -> None:
    """Unread replies fill neither the client's memory nor the server's."""
    client.set("large", "x" * 100_000)
    made = 0

    def source() -> Iterator[tuple[str, str]]:
        nonlocal made
        while True:
            made += 1
            yield "GET", "large"

    replies = fastresp.iter_replies(source(), server=server.url)
    for _ in range(1000):
        assert len(next(replies)) == 100_000
    time.sleep(0.3)
    used = client.info("memory")["mem_clients_normal"]
    assert used < 20 << 20
    replies.close()
    only_we_are_connected(client)


def test_first_replies_may_be_large(server: LocalServer, client: redis.Redis) -> None:
    """Their size is unknown before the first one arrives."""
    client.set("large", "x" * 1_000_000)
    client.config_resetstat()
    replies = fastresp.iter_replies([("GET", "large")] * 500, server=server.url)
    next(replies)
    time.sleep(0.2)
    assert client.info("commandstats")["cmdstat_get"]["calls"] <= FIRST_IN_FLIGHT
    assert sum(map(len, replies)) == 499 * 1_000_000


@pytest.mark.slow
def test_large_replies_after_small_ones(server: LocalServer, client: redis.Redis) -> None:
    """The number of commands in flight is limited, which bounds the server's memory."""
    client.set("large", "x" * 100_000)
    commands = [("GET", "none")] * 100_000 + [("GET", "large")] * 5000
    replies = fastresp.iter_replies(commands, server=server.url)
    for _ in range(99_000):
        next(replies)
    used = []
    for index, _ in enumerate(replies):
        if index % 500 == 0:
            used.append(client.info("memory")["mem_clients_normal"])
    assert max(used) < 150 << 20


def test_error_about_a_part_of_a_command(server: LocalServer, client: redis.Redis) -> None:
    """A limit is lowered during the load: the error has the server's words and correct counts."""

    def source() -> Iterator[tuple[str, ...]]:
        yield "ECHO", "a"
        client.config_set("proto-max-bulk-len", 1 << 20)
        yield "ECHO", "x" * (64 << 20)

    try:
        for on_error in ("collect", "raise"):
            with pytest.raises(fastresp.TransportError, match="invalid bulk length") as caught:
                list(fastresp.iter_replies(source(), server=server.url, on_error=on_error))
            report = caught.value.report
            assert report is not None
            assert (report.replies, report.commands, report.in_doubt) == (1, 1, 0)
            client.config_set("proto-max-bulk-len", 512 << 20)
    finally:
        client.config_set("proto-max-bulk-len", 512 << 20)


def test_no_commands(execute: Execute, server: LocalServer) -> None:
    assert execute([], server=server.url) == []


def test_lazy(port: int) -> None:
    """No connection is opened before the first reply is requested."""
    replies = fastresp.iter_replies([("PING",)], server=f"redis://127.0.0.1:{port}")
    with pytest.raises(fastresp.TransportError, match="refused"):
        next(replies)


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        ({"data": b"GET a"}, TypeError, "not one bytes"),
        ({"data": [], "on_error": "stop"}, ValueError, "'raise' or 'collect'"),
        ({"data": [], "timeout": 0}, ValueError, "above 0"),
        ({"data": [], "template": ""}, fastresp.TemplateError, "empty"),
        ({"data": [], "server": 5}, TypeError, "a URL or"),
    ],
)
def test_bad_arguments(arguments: dict[str, Any], error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        fastresp.iter_replies(**arguments)


def test_server_killed(execute: Execute, start_server: Callable[..., LocalServer]) -> None:
    server = start_server()

    def source() -> Iterator[tuple[str, int]]:
        for i in range(300_000):
            if i == 100_000:
                server.process.kill()
            yield "ECHO", i

    with pytest.raises(fastresp.TransportError, match="lost the connection") as caught:
        execute(source(), server=server.url)
    report = caught.value.report
    assert report is not None
    assert 0 < report.replies <= report.commands < 300_000


@pytest.mark.few(1)
def test_server_frozen(execute: Execute, start_server: Callable[..., LocalServer]) -> None:
    server = start_server()
    os.kill(server.process.pid, signal.SIGCONT)

    def source() -> Iterator[tuple[str, int]]:
        for i in range(300_000):
            if i == 100_000:
                os.kill(server.process.pid, signal.SIGSTOP)
            yield "ECHO", i

    with pytest.raises(fastresp.TransportTimeout):
        execute(source(), server=server.url, timeout=1.0)


def test_slow_consumer_is_not_a_timeout(server: LocalServer) -> None:
    for i, reply in enumerate(
        fastresp.iter_replies(range(200), "ECHO {0}", server=server.url, timeout=1.0)
    ):
        assert reply == b"%d" % i
        if i == 50:
            time.sleep(1.5)


def test_asyncio_stopped_early(server: LocalServer, client: redis.Redis) -> None:
    async def take() -> list[Any]:
        got = []
        async with aclosing(
            fastresp.aio.iter_replies(range(10**9), "ECHO {0}", server=server.url)
        ) as them:
            async for reply in them:
                got.append(reply)
                if len(got) == 1000:
                    break
        return got

    assert asyncio.run(take()) == [b"%d" % i for i in range(1000)]
    only_we_are_connected(client)


def test_asyncio_source(server: LocalServer) -> None:
    async def source() -> Any:
        for i in range(5000):
            if i % 1000 == 999:
                await asyncio.sleep(0.03)
            yield i

    assert execute_asyncio(source(), "ECHO {0}", server=server.url) == [
        b"%d" % i for i in range(5000)
    ]


MEMORY_CODE = (
    PEAK
    + """
import sys, fastresp
from fastresp import *
replies = fastresp.iter_replies(range(1000), "ECHO {0}", server=sys.argv[1])
assert sum(1 for _ in replies) == 1000
before = peak()
count = 0
for reply in fastresp.iter_replies(range(2_000_000), "GET a", server=sys.argv[1]):
    count += 1
assert count == 2_000_000
for reply in fastresp.iter_replies(range(200), "GET large", server=sys.argv[1]):
    assert len(reply) == 2_000_000
print(peak() - before)
"""
)


@pytest.mark.slow
def test_memory(server: LocalServer, client: redis.Redis) -> None:
    client.set("a", "x" * 100)
    client.set("large", "x" * 2_000_000)
    done = subprocess.run(
        [sys.executable, "-c", MEMORY_CODE, server.url], capture_output=True, text=True, check=True
    )
    assert int(done.stdout) * 1024 <= 32 << 20


@pytest.mark.parametrize("run", [execute_one, execute_one_asyncio], ids=["sync", "asyncio"])
def test_one_command(run: Callable[..., Any], server: LocalServer) -> None:
    """It runs immediately, like redis-py's execute_command."""
    assert run("SET", "k", "värde", server=server.url) == b"OK"
    assert run(b"GET", "k", server=server.url, decode=True) == "värde"
    assert run("GET", "none", server=server.url) is None
    assert run("LRANGE", "none", 0, -1, server=server.url) == []
    with pytest.raises(redis.ResponseError, match=r"^WRONGTYPE") as caught:
        run("LPUSH", "k", "x", server=server.url)
    assert caught.value.arguments == (b"LPUSH", b"k", b"x")
    for wrong in ((), ([("SET", "a", "b")],), (["SET", "a", "b"],)):
        with pytest.raises(TypeError, match="iter_replies"):
            run(*wrong, server=server.url)
    with pytest.raises(fastresp.EncodeError):
        run("SET", "k", None, server=server.url)
    with pytest.raises(redis.ConnectionError):
        run("PING", server="redis://127.0.0.1:1")


def test_source_that_loses_its_own_server(server: LocalServer) -> None:
    """Its exception is raised after the replies to earlier commands."""
    lost = fastresp.TransportError("another server")

    def source() -> Iterator[tuple[str, ...]]:
        yield "SET", "a", "1"
        yield "GET", "a"
        raise lost

    replies: list[Any] = []
    with pytest.raises(fastresp.TransportError) as caught:
        for reply in fastresp.iter_replies(source(), server=server.url):
            replies.append(reply)
    assert caught.value is lost
    assert replies == [b"OK", b"1"]
