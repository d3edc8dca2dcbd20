"""The socket transports under stress, sync and asyncio alike: every command is accounted for."""

from __future__ import annotations

import asyncio
import json
import os
import random
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import redis
from loads import (
    VALUE,
    Insert,
    insert_asyncio,
    insert_sync,
    interrupted,
    running_load,
    whole_prefix,
)
from peak import PEAK, forget_peak, peak

import fastresp
import fastresp.aio
from fastresp.server.local_server import LocalServer
from fastresp.server.options import Options
from fastresp.transports.socket import SocketTransport
from fastresp.transports.window import Window


def commands(
    count: int, at: int | None = None, happening: Callable[[], object] | None = None
) -> Iterator[tuple[str, str, str]]:
    """SETs of distinct keys; something happens before one of them is made."""
    for i in range(count):
        if i == at and happening is not None:
            happening()
        yield "SET", f"key:{i}", VALUE


def lost(insert: Insert, server: str, data: object, **options: Any) -> fastresp.TransportError:
    """The error of a load that is lost on the way."""
    with pytest.raises(fastresp.TransportError) as caught:
        insert(data, server=server, **options)
    assert caught.value.report is not None
    return caught.value


def in_the_background(action: Callable[[], object], delay_s: float = 0.0) -> Callable[[], None]:
    """Something that happens a while after it is called, in a thread."""

    def start() -> None:
        threading.Timer(delay_s, action).start()

    return start


# What comes in


def test_load(insert: Insert, server: LocalServer, client: redis.Redis) -> None:
    report = insert(commands(100_000), server=server.url)
    assert (report.rows, report.commands, report.replies, report.failed) == (100_000,) * 3 + (0,)
    assert (report.in_doubt, report.unsent, report.stopped, report.errors) == (0, 0, "", [])
    assert report.bytes_sent == len(fastresp.pack_many(commands(100_000)))
    assert report.transport == "socket"
    assert client.dbsize() == 100_000
    assert set(client.mget([f"key:{i}" for i in range(0, 100_000, 7)])) == {VALUE.encode()}


def test_nothing(insert: Insert, server: LocalServer) -> None:
    report = insert([], server=server.url)
    assert (report.commands, report.replies) == (0, 0)


def test_all_kinds_of_replies(insert: Insert, server: LocalServer) -> None:
    data = [
        ("SET", "a", "x" * 1000), ("GET", "a"), ("GET", "none"), ("INCR", "n"),
        ("LPUSH", "l", 1, 2), ("LRANGE", "l", 0, -1), ("MULTI",), ("GET", "a"), ("LLEN", "l"),
        ("EXEC",),
        ("EVAL", "return {1, {2, {3, 'x'}}, false}", 0), ("BLPOP", "l", 1), ("KEYS", "*"),
        ("HGETALL", "none"), ("DEL", "a"),
    ] * 500  # fmt: skip
    report = insert(data, server=server.url)
    assert (report.replies, report.failed) == (len(data), 0)


def test_more_replies_than_the_buffers_hold(insert: Insert, server: LocalServer) -> None:
    """Writing without reading would stall both sides here: 500 MB of replies."""
    data = [("SET", "a", "x" * 500_000)] + [("GET", "a")] * 1000 + list(commands(20_000))
    report = insert(data, server=server.url)
    assert report.replies == len(data)


def test_over_tcp(insert: Insert, start_server: Callable[..., LocalServer], port: int) -> None:
    server = start_server("--port", str(port))
    report = insert(commands(200_000), server=f"redis://127.0.0.1:{port}/3")
    assert report.replies == 200_000
    with redis.Redis.from_url(server.url, db=3) as client:
        assert client.dbsize() == 200_000


def test_nodelay_is_on(start_server: Callable[..., LocalServer], port: int) -> None:
    start_server("--port", str(port))
    with SocketTransport(Options(server=f"redis://127.0.0.1:{port}")) as transport:
        stream = transport.lanes.lanes[0].stream
        assert stream is not None
        assert stream._socket.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


def test_clients_as_servers(insert: Insert, server: LocalServer, client: redis.Redis) -> None:
    """Their pools are not touched; the connection is one of our own."""
    before = client.info("stats")["total_connections_received"]
    assert insert([("SET", "a", 1)], server=client).replies == 1
    five = redis.asyncio.Redis.from_url(f"{server.url}?db=5")
    assert insert([("SET", "a", 5)], server=five).replies == 1
    with redis.Redis.from_url(server.url, db=5) as other:
        assert other.get("a") == b"5"
    assert client.get("a") == b"1"
    assert client.info("stats")["total_connections_received"] == before + 3


def test_raw_resp(server: LocalServer, client: redis.Redis) -> None:
    data = fastresp.pack_many(commands(5000))
    with SocketTransport(Options(server=server.url)) as transport:
        for start in range(0, len(data), 777):
            transport.write(data[start : start + 777])
        transport.write(next(fastresp.Writer().chunks([("LPUSH", "key:1", 1)])))
    report = transport.report
    assert (report.commands, report.replies, report.failed) == (5001, 5001, 1)
    assert (report.errors[0].index, report.errors[0].row) == (5000, 5000)
    assert client.dbsize() == 5000


def test_sentinel(insert: Insert, start_server: Callable[..., LocalServer], port: int) -> None:
    """The master is found by its name."""
    master = start_server("--port", str(port))
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        sentinel_port = probe.getsockname()[1]
    config = master.folder / "sentinel.conf"
    config.write_text(f"port {sentinel_port}\nsentinel monitor mine 127.0.0.1 {port} 1\n")
    with subprocess.Popen(
        [master.program, str(config), "--sentinel"],
        cwd=master.folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    ) as process:  # fmt: skip
        try:
            sentinel = redis.Sentinel([("127.0.0.1", sentinel_port)])
            deadline = time.monotonic() + 10
            while True:
                try:
                    sentinel.discover_master("mine")
                    break
                except redis.ConnectionError:
                    assert time.monotonic() < deadline
                    time.sleep(0.05)
            assert insert(commands(1000), server=sentinel.master_for("mine")).replies == 1000
            with pytest.raises(fastresp.TransportError, match="other"):
                insert(commands(1), server=sentinel.master_for("other"))
        finally:
            process.kill()
    assert redis.Redis.from_url(master.url).dbsize() == 1000


# Error replies


def mixed(count: int, every: int) -> Iterator[tuple[str, str, int]]:
    """SETs, with a command that fails each so often."""
    for i in range(count):
        yield ("LPUSH", "text", i) if i % every == every - 1 else ("SET", f"key:{i}", i)


@pytest.fixture
def text(client: redis.Redis) -> None:
    """A key that is not a list."""
    client.set("text", "x")


@pytest.mark.usefixtures("text")
def test_each_error_has_its_command(insert: Insert, server: LocalServer) -> None:
    with pytest.raises(fastresp.LoadErrors) as caught:
        insert(mixed(100_000, 1000), server=server.url)
    report = caught.value.report
    assert (report.commands, report.replies, report.failed) == (100_000, 100_000, 100)
    assert [error.index for error in report.errors] == list(range(999, 100_000, 1000))
    for error in report.errors:
        assert error.row == error.index
        assert error.arguments == (b"LPUSH", b"text", b"%d" % error.index)
        assert (error.code, error.nested) == ("WRONGTYPE", False)
    assert "first for row 999" in str(caught.value)


@pytest.mark.usefixtures("text")
def test_rows_and_commands_are_told_apart(insert: Insert, server: LocalServer) -> None:
    rows = ({"id": i, "key": "text" if i == 7777 else f"list:{i}"} for i in range(20_000))
    report = insert(rows, "SET id:{id} 1; LPUSH {key} {id}", server=server.url, on_error="collect")
    (error,) = report.errors
    assert (error.row, error.index) == (7777, 7777 * 2 + 1)
    assert error.arguments == (b"LPUSH", b"text", b"7777")
    assert str(error).startswith("row 7,777, command 15,555: WRONGTYPE")


@pytest.mark.usefixtures("text")
def test_errors_within_a_reply(insert: Insert, server: LocalServer) -> None:
    rows = [{"k": "a"}, {"k": "text"}]
    report = insert(
        rows, "MULTI; LPUSH {k} 1; LPUSH {k} 2; EXEC", server=server.url, on_error="collect"
    )
    assert (report.replies, report.failed) == (8, 1)
    assert [(e.index, e.row, e.nested, e.code) for e in report.errors] == [
        (7, 1, True, "WRONGTYPE")
    ] * 2


@pytest.mark.usefixtures("text")
def test_stop_at_the_first_error(insert: Insert, server: LocalServer, client: redis.Redis) -> None:
    with pytest.raises(fastresp.LoadErrors) as caught:
        insert(mixed(1_000_000, 5000), server=server.url, on_error="stop")
    report = caught.value.report
    assert report.stopped.startswith("stopped at the first error reply")
    assert report.errors[0].index == 4999
    assert report.commands == report.replies < 1_000_000
    assert report.in_doubt == 0
    assert client.dbsize() == 1 + report.commands - report.failed


@pytest.mark.usefixtures("text")
@pytest.mark.parametrize(
    ("most", "words"),
    [(100, "more than 100 error"), ("100", "more than 100 error"), ("2%", "more than 2% of")],
)
def test_max_errors(insert: Insert, server: LocalServer, most: int | str, words: str) -> None:
    """A tenth of the commands fail: both limits are passed soon."""
    options: dict[str, Any] = {"server": server.url, "max_errors": most}
    report = insert(mixed(1_000_000, 10), on_error="collect", **options)
    assert words in report.stopped
    assert report.failed > 100 if most != "2%" else report.failed >= 10
    assert report.commands == report.replies < 1_000_000
    with pytest.raises(fastresp.LoadErrors, match="stopped"):
        insert(mixed(1_000_000, 10), **options)


@pytest.mark.usefixtures("text")
@pytest.mark.parametrize("most", [10, "11%"])
def test_fewer_errors_than_allowed(insert: Insert, server: LocalServer, most: int | str) -> None:
    report = insert(mixed(100, 10), server=server.url, max_errors=most, on_error="collect")
    assert (report.failed, report.stopped, report.replies) == (10, "", 100)


@pytest.mark.parametrize("most", [-1, 1.5, "x", "1.5", "100%", "-1%", True, "nan%", float("inf")])
def test_bad_max_errors(insert: Insert, most: Any) -> None:
    with pytest.raises(ValueError, match="a percentage such as '1%'"):
        insert([], max_errors=most)


def test_max_errors_and_stop(insert: Insert) -> None:
    with pytest.raises(ValueError, match="leave out max_errors"):
        insert([], max_errors=5, on_error="stop")


@pytest.mark.usefixtures("text")
def test_rejects_to_a_file(insert: Insert, server: LocalServer, tmp_path: Path) -> None:
    odd = b"\xff\x00\r\n\xc3\xa9"
    rows = [(f"k{i}", i) for i in range(999)] + [("text", odd)] * 3000
    path = tmp_path / "rejects.jsonl"
    report = insert(rows, "LPUSH {0} {1}", server=server.url, rejects=path, on_error="collect")
    assert report.failed == 3000
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert [line["row"] for line in lines] == list(range(999, 3999))
    assert [line["command"] for line in lines] == list(range(999, 3999))
    assert {line["code"] for line in lines} == {"WRONGTYPE"}
    assert {line["error"] for line in lines} == {report.errors[0].text}
    assert list(fastresp.read_rejects(path)) == [["LPUSH", "text", odd]] * 3000
    with pytest.raises(FileExistsError, match="earlier load"):
        insert(rows, "LPUSH {0} {1}", server=server.url, rejects=path)


@pytest.mark.usefixtures("text")
def test_rejects_are_written_as_they_happen(
    insert: Insert, server: LocalServer, tmp_path: Path
) -> None:
    path = tmp_path / "rejects.jsonl"
    seen = []

    def rows() -> Iterator[tuple[str, str, int]]:
        yield "LPUSH", "text", 1
        for i in range(300_000):
            yield "SET", f"key:{i}", i
        seen.append(path.read_text().count("\n"))

    insert(rows(), server=server.url, rejects=path, on_error="collect")
    assert seen == [1]


@pytest.mark.usefixtures("text")
def test_rejects_to_a_function(insert: Insert, server: LocalServer) -> None:
    taken: list[fastresp.CommandError] = []
    report = insert(mixed(50_000, 100), server=server.url, rejects=taken.append, on_error="collect")
    assert len(taken) == report.failed == 500
    assert [error.index for error in taken] == list(range(99, 50_000, 100))
    assert len(report.errors) == 100


@pytest.mark.usefixtures("text")
def test_rejects_that_cannot_be_written(
    insert: Insert, server: LocalServer, client: redis.Redis, tmp_path: Path
) -> None:
    with pytest.raises(FileNotFoundError):
        insert([("SET", "a", 1)], server=server.url, rejects=tmp_path / "no" / "folder")
    assert client.get("a") is None
    with pytest.raises(OSError, match="No space left") as caught:
        insert(mixed(1000, 10), server=server.url, rejects="/dev/full")
    assert caught.value.report.replies == 1000

    def refuse(error: fastresp.CommandError) -> None:
        raise ZeroDivisionError(error.index)

    with pytest.raises(ZeroDivisionError, match="9") as raised:
        insert(mixed(1000, 10), server=server.url, rejects=refuse)
    assert "fastresp: " in raised.value.__notes__[0]


def test_errors_do_not_fill_the_memory(insert: Insert, server: LocalServer) -> None:
    """Error replies to large commands: their arguments are kept within bounds."""
    client = redis.Redis.from_url(server.url)
    client.set("text", 1)
    data = [("LPUSH", "text", "x" * 1_000_000)] * 50
    report = insert(data, server=server.url, on_error="collect")
    assert report.failed == len(report.errors) == 50
    kept = [error.arguments for error in report.errors if error.arguments]
    assert 1 <= len(kept) <= 8
    assert report.errors[-1].index == 49


def test_large_command_that_fails(server: LocalServer, client: redis.Redis) -> None:
    """No copy of it is made for an error that does not keep it."""
    client.set("text", 1)
    value = "x" * (100 << 20)
    forget_peak()
    before = peak()
    report = insert_sync([("LPUSH", "text", value)], server=server.url, on_error="collect")
    assert report.errors[0].arguments is None
    assert peak() - before < 32 << 10


@pytest.mark.usefixtures("text")
def test_storm_of_errors(insert: Insert, server: LocalServer) -> None:
    storm = (("LPUSH", "text", i) for i in range(300_000))
    report = insert(storm, server=server.url, on_error="collect")
    assert (report.replies, report.failed, len(report.errors)) == (300_000, 300_000, 100)


def test_out_of_memory(insert: Insert, start_server: Callable[..., LocalServer]) -> None:
    server = start_server("--maxmemory", "10mb", "--maxmemory-policy", "noeviction")
    report = insert(commands(200_000), server=server.url, on_error="collect")
    assert report.replies == 200_000
    assert {error.code for error in report.errors} == {"OOM"}
    assert redis.Redis.from_url(server.url).dbsize() == 200_000 - report.failed


def test_master_becomes_a_replica(
    insert: Insert, start_server: Callable[..., LocalServer], port: int
) -> None:
    server = start_server()
    admin = redis.Redis.from_url(server.url)
    data = commands(300_000, 200_000, lambda: admin.replicaof("127.0.0.1", port))
    report = insert(data, server=server.url, on_error="collect")
    assert report.replies == 300_000
    assert {error.code for error in report.errors} == {"READONLY"}
    assert admin.dbsize() == 300_000 - report.failed


def test_rights_are_taken_away(insert: Insert, server: LocalServer, client: redis.Redis) -> None:
    client.execute_command("ACL", "SETUSER", "loader", "reset", "on", ">p", "~*", "+@all")

    def take() -> None:
        client.execute_command("ACL", "SETUSER", "loader", "-set")

    try:
        report = insert(
            commands(300_000, 200_000, take),
            server=f"{server.url}?username=loader&password=p",
            on_error="collect",
        )
    finally:
        client.execute_command("ACL", "DELUSER", "loader")
    assert report.replies == 300_000
    assert {error.code for error in report.errors} == {"NOPERM"}
    assert client.dbsize() == 300_000 - report.failed


def test_moved(insert: Insert, start_server: Callable[..., LocalServer], port: int) -> None:
    port = port % 50000 + 1024
    server = start_server("--port", str(port), "--cluster-enabled", "yes")
    redis.Redis.from_url(server.url).execute_command("CLUSTER", "ADDSLOTSRANGE", 0, 8191)
    time.sleep(0.5)
    url = f"redis://127.0.0.1:{port}"
    report = insert(commands(1000), server=url, on_error="collect")
    assert report.replies == 1000
    assert {error.code for error in report.errors} == {"CLUSTERDOWN"}
    with pytest.raises(fastresp.TransportError, match="part of a cluster"):
        fastresp.mass_insert(commands(1), server=url)
    with pytest.raises(fastresp.TransportError, match="part of a cluster"):
        asyncio.run(fastresp.aio.mass_insert(commands(1), server=url))


# Lost connections


@pytest.mark.parametrize("seed", range(20))
def test_killed_server_sync(start_server: Callable[..., LocalServer], seed: int) -> None:
    kill_at_random(insert_sync, start_server, seed)


@pytest.mark.parametrize("seed", range(100, 106))
def test_killed_server_asyncio(start_server: Callable[..., LocalServer], seed: int) -> None:
    kill_at_random(insert_asyncio, start_server, seed)


def kill_at_random(insert: Insert, start_server: Callable[..., LocalServer], seed: int) -> None:
    """acknowledged <= stored <= acknowledged + in_doubt, and what is stored are the first ones.

    The append-only file is written before the replies are, and outlives the process.
    """
    chance = random.Random(seed)
    server = start_server("--appendonly", "yes", "--appendfsync", "no")
    kill = in_the_background(server.process.kill, chance.random() * 0.01)
    # Without an end: a fast machine must not be through before the server is killed.
    error = lost(insert, server.url, commands(10**9, chance.randrange(900_000), kill))
    report = error.report
    assert report is not None
    assert report.acknowledged == report.replies
    assert report.commands == report.acknowledged + report.in_doubt
    server.stop()
    server.start()
    client = redis.Redis.from_url(server.url, retry=redis.retry.Retry(redis.backoff.NoBackoff(), 0))
    while True:
        try:
            stored = client.dbsize()
            break
        except redis.BusyLoadingError:
            time.sleep(0.02)
    assert report.acknowledged <= stored <= report.acknowledged + report.in_doubt
    for start in range(0, stored, 50_000):
        keys = [f"key:{i}" for i in range(start, min(start + 50_000, stored))]
        assert client.exists(*keys) == len(keys)
    assert "lost the server" in str(error)


def test_killed_connection(insert: Insert, server: LocalServer, client: redis.Redis) -> None:
    def kill_the_other() -> None:
        mine = str(client.client_id())
        for other in client.client_list():
            if other["id"] != mine:
                client.client_kill_filter(_id=other["id"])

    error = lost(insert, server.url, commands(400_000, 200_000, kill_the_other))
    assert "CLIENT KILL" in str(error)
    assert "a new connection to it works" in str(error)
    report = error.report
    assert report is not None
    assert 0 < report.acknowledged <= client.dbsize() <= report.acknowledged + report.in_doubt


@pytest.mark.parametrize("count", [10, 500_000], ids=["in-the-buffers", "buffers-full"])
def test_frozen_server(
    insert: Insert, start_server: Callable[..., LocalServer], count: int
) -> None:
    server = start_server()
    pid = server.process.pid
    data = commands(count, count // 2, lambda: os.kill(pid, signal.SIGSTOP))
    started = time.monotonic()
    error = lost(insert, server.url, data, timeout=1.0)
    assert time.monotonic() - started < 20
    assert isinstance(error, fastresp.TransportTimeout)
    assert "nothing moved for 1 s" in str(error)
    report = error.report
    assert report is not None
    os.kill(pid, signal.SIGCONT)
    stored = redis.Redis.from_url(server.url).dbsize()
    assert report.acknowledged <= stored <= report.acknowledged + report.in_doubt
    assert report.in_doubt + report.unsent > 0


def test_slow_source_is_not_a_timeout(insert: Insert, server: LocalServer) -> None:
    data = commands(100_000, 50_000, lambda: time.sleep(1.5))
    assert insert(data, server=server.url, timeout=1.0).replies == 100_000


# By the server's clock: how long a number of loops takes is a matter of the machine.
TENTH_OF_A_SECOND = """
local function now() local t = redis.call("TIME") return t[1] + t[2] / 1000000 end
local start = now()
while now() < start + 0.1 do end
"""


def test_slow_server_is_not_a_timeout(insert: Insert, server: LocalServer) -> None:
    """Commands of a tenth of a second, all in the server's buffers from the start.

    Large ones: a server answers what it reads at once, 16 KB of commands, when it is through.
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
    """Its last words are told. (Our own encoder would not send this.)"""
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


def test_interruption_while_a_chunk_is_handed_over(
    server: LocalServer, client: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Wherever it comes: the chunk is sent once, and nothing is waited for in vain."""
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


class Proxy:
    """Between a load and a real server, and not to be trusted with the replies."""

    def __init__(self, server: LocalServer, spoil: Callable[[bytes], bytes]) -> None:
        self.spoil = spoil
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"redis://127.0.0.1:{self.listener.getsockname()[1]}"
        self.server = server
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                ours, _ = self.listener.accept()
            except OSError:
                return
            theirs = socket.socket(socket.AF_UNIX)
            theirs.connect(str(self.server.socket))
            threading.Thread(target=self._copy, args=(ours, theirs, bytes), daemon=True).start()
            threading.Thread(
                target=self._copy, args=(theirs, ours, self.spoil), daemon=True
            ).start()

    @staticmethod
    def _copy(source: socket.socket, sink: socket.socket, change: Callable[[bytes], bytes]) -> None:
        try:
            while data := source.recv(65536):
                sink.sendall(change(data))
        except OSError:
            pass
        finally:
            for end in (sink, source):
                with suppress(OSError):
                    end.shutdown(socket.SHUT_RDWR)
                end.close()

    def close(self) -> None:
        self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()


@pytest.mark.parametrize(
    ("bad", "words"),
    [
        (b"?what\r\n", r"no reply begins like this: b'.*\?what"),
        (b"+OK\r\n" * 3_000_000, "replies more than commands"),
    ],
    ids=["garbage", "too-many"],
)
def test_replies_that_make_no_sense(
    insert: Insert, server: LocalServer, bad: bytes, words: str
) -> None:
    count = 0

    def spoil(data: bytes) -> bytes:
        nonlocal count
        count += data.count(b"+OK")
        # Between two replies, not in the midst of one.
        return data + bad if count > 1000 and data.endswith(b"\n") else data

    proxy = Proxy(server, spoil)
    try:
        error = lost(insert, proxy.url, commands(300_000))
    finally:
        proxy.close()
    assert re.search(words, str(error))
    assert "what can't be understood" in str(error)
    assert error.report is not None
    assert error.report.acknowledged >= 1000 or "garbage" not in words


# Sources that fail, interruptions


class SourceFailure(Exception):
    """An exception of the user's own."""


@pytest.mark.parametrize("failure", [SourceFailure("mine"), MemoryError()])
def test_source_raises(
    insert: Insert, server: LocalServer, client: redis.Redis, failure: Exception
) -> None:
    def fail() -> None:
        raise failure

    with pytest.raises(type(failure)) as caught:
        insert(commands(60_000, 50_001, fail), server=server.url)
    assert caught.value is failure
    assert failure.report.replies == failure.report.commands == 50_001  # type: ignore[attr-defined]
    assert "50,001 replies" in failure.__notes__[0]
    assert client.dbsize() == 50_001


def test_value_that_cannot_be_sent(
    insert: Insert, server: LocalServer, client: redis.Redis
) -> None:
    rows = [{"id": i, "name": "x" if i != 1234 else object()} for i in range(2000)]
    with pytest.raises(fastresp.EncodeError, match=r"row 1,234") as caught:
        insert(rows, "HSET user:{id} name {name}", server=server.url)
    assert (caught.value.row, caught.value.argument) == (1234, 3)
    assert caught.value.report.replies == 1234
    assert client.dbsize() == 1234


def test_value_larger_than_the_server_takes(
    insert: Insert, server: LocalServer, client: redis.Redis
) -> None:
    client.config_set("proto-max-bulk-len", 1 << 20)
    rows = [("a", 1), ("b", "x" * (1 << 20)), ("c", "x" * ((1 << 20) + 1)), ("d", 1)]
    try:
        for kind in (str, str.encode, lambda s: bytearray(s.encode()), lambda s: s + "é"):
            data = [(k, kind(v) if k == "c" else v) for k, v in rows]
            with pytest.raises(
                fastresp.EncodeError, match=r"row 2, .*proto-max-bulk-len"
            ) as caught:
                insert(data, "SET {0} {1}", server=server.url)
            assert (caught.value.row, caught.value.argument) == (2, 2)
            assert client.strlen("b") == 1 << 20
            assert sorted(client.keys("*")) == [b"a", b"b"]
        with pytest.raises(fastresp.EncodeError, match=r"row 1, .*argument 2"):
            insert(rows, "SET {0} -{1}", server=server.url)
    finally:
        client.config_set("proto-max-bulk-len", 512 << 20)


def test_source_raises_when_the_server_is_gone_too(
    insert: Insert, start_server: Callable[..., LocalServer]
) -> None:
    server = start_server()

    def fail() -> None:
        server.stop()
        raise SourceFailure

    with pytest.raises(SourceFailure) as caught:
        insert(commands(400_000, 300_000, fail), server=server.url)
    assert "lost the server" in "".join(caught.value.__notes__)


@pytest.mark.parametrize("attempt", range(10))
def test_ctrl_c(server: LocalServer, client: redis.Redis, attempt: int) -> None:
    child = running_load(server.url, "socket", 10_000 + 7919 * attempt)
    os.killpg(child.pid, signal.SIGINT)
    acknowledged, doubt = interrupted(child)
    assert (whole_prefix(client), doubt) == (acknowledged, 0)


def test_second_ctrl_c_does_not_wait(start_server: Callable[..., LocalServer]) -> None:
    server = start_server()
    child = running_load(server.url, "socket", 10_000)
    os.kill(server.process.pid, signal.SIGSTOP)
    time.sleep(0.5)
    child.send_signal(signal.SIGINT)
    time.sleep(0.5)
    assert child.poll() is None
    child.send_signal(signal.SIGINT)
    child.communicate(timeout=10)


@pytest.mark.parametrize("attempt", range(5))
def test_killed_without_warning(server: LocalServer, client: redis.Redis, attempt: int) -> None:
    before = client.info("clients")["connected_clients"]
    child = running_load(server.url, "socket", 10_000 + 7919 * attempt)
    child.kill()
    child.communicate(timeout=30)
    deadline = time.monotonic() + 10
    while client.info("clients")["connected_clients"] > before:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert whole_prefix(client) > 0


# Rates and memory


def test_rate_limit(insert: Insert, server: LocalServer) -> None:
    """It is never exceeded; and it is reached, but where others take the processor away."""
    best = 0.0
    for _ in range(8):
        started = time.monotonic()
        report = insert(commands(3000), server=server.url, rate_limit=3000)
        assert report.replies == 3000
        assert time.monotonic() - started > 0.9
        assert report.commands_per_second < 3300
        best = max(best, report.commands_per_second)
        if best > 2000:
            break
    assert best > 2000


def test_rate_limit_is_not_made_up_for(insert: Insert, server: LocalServer) -> None:
    """After a pause of the source the rate is what it was, not a storm."""
    resumed = 0.0

    def pause() -> None:
        nonlocal resumed
        time.sleep(1)
        resumed = time.monotonic()

    report = insert(commands(2000, 1000, pause), server=server.url, rate_limit=1000)
    assert report.replies == 2000
    # A thousand at this rate, but for what a slow machine may have kept from before.
    assert time.monotonic() - resumed > 0.85


def test_slow_rate_is_not_a_timeout(insert: Insert, server: LocalServer) -> None:
    assert insert(commands(3), server=server.url, rate_limit=2, timeout=0.3).replies == 3


@pytest.mark.parametrize("rate", [0, -1, float("inf"), float("nan")])
def test_bad_rate(insert: Insert, rate: float) -> None:
    with pytest.raises(ValueError, match="rate_limit"):
        insert([], rate_limit=rate)


MEMORY_CODE = (
    PEAK
    + """
import asyncio, sys, fastresp, fastresp.aio
url, kind, what = sys.argv[1:]
def load(rows):
    if kind == "sync":
        return fastresp.mass_insert(rows, server=url, transport="socket")
    return asyncio.run(fastresp.aio.mass_insert(rows, server=url))
load(("SET", "a", "x" * 129) for i in range(1000))
if what == "many":
    rows = (("SET", f"key:{i % 1000}", "x" * 129) for i in range(3_000_000))
else:
    value = "x" * (512 << 20)
    rows = [("SET", "large", value)]
before = peak()
report = load(rows)
assert report.in_doubt == 0 and report.failed == 0
print(peak() - before)
"""
)


@pytest.mark.parametrize("kind", ["sync", "asyncio"])
@pytest.mark.parametrize("what", ["many", "large"])
def test_memory(server: LocalServer, client: redis.Redis, kind: str, what: str) -> None:
    """At most 32 MiB: beyond the start, and beyond a value of 512 MiB itself."""
    done = subprocess.run(
        [sys.executable, "-c", MEMORY_CODE, server.url, kind, what],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert int(done.stdout) * 1024 <= 32 << 20
    if what == "large":
        assert client.strlen("large") == 512 << 20
        assert client.getrange("large", -3, -1) == b"xxx"


# Threads and processes


def test_several_threads_at_once(insert: Insert, server: LocalServer, client: redis.Redis) -> None:
    reports: list[fastresp.Report] = []

    def load(name: int) -> None:
        data = ((f"{name}:{i}", i) for i in range(20_000))
        reports.append(insert(data, "SET {0} {1}", server=client))

    threads = [threading.Thread(target=load, args=(name,)) for name in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [report.replies for report in reports] == [20_000] * 4
    assert client.dbsize() == 80_000


def test_fork_in_the_midst_of_a_load(
    insert: Insert, server: LocalServer, client: redis.Redis
) -> None:
    """The parent goes on; the child has a load of its own."""

    def fork() -> None:
        pid = os.fork()
        if pid == 0:
            done = fastresp.mass_insert(
                [("SET", "child", 1)], server=server.url, transport="socket"
            )
            os._exit(0 if done.replies == 1 else 1)
        assert os.waitpid(pid, 0)[1] == 0

    report = insert(commands(100_000, 50_000, fork), server=server.url)
    assert (report.replies, report.failed) == (100_000, 0)
    assert client.dbsize() == 100_001


def test_importing_opens_nothing() -> None:
    code = """
import os
before = set(os.listdir("/proc/self/fd"))
import fastresp, fastresp.aio, fastresp.redis_py, threading
assert set(os.listdir("/proc/self/fd")) == before
assert threading.active_count() == 1
"""
    subprocess.run([sys.executable, "-c", code], check=True)
