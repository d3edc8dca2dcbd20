"""The socket transports, sync and asyncio: replies, rates, memory, threads and forks."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable

import pytest
import redis
from loads import VALUE, Insert, commands
from peak import PEAK

import fastresp
import fastresp.aio
from fastresp.server.local_server import LocalServer
from fastresp.server.options import Options
from fastresp.transports.socket import SocketTransport

# Replies


def test_load(insert_singly: Insert, server: LocalServer, client: redis.Redis) -> None:
    report = insert_singly(commands(100_000), server=server.url)
    assert (report.rows, report.commands, report.replies, report.failed) == (100_000,) * 3 + (0,)
    assert (report.in_doubt, report.unsent, report.stopped, report.errors) == (0, 0, "", [])
    assert report.bytes_sent == len(fastresp.pack_many(commands(100_000)))
    assert report.transport == "socket"
    assert report.commands_per_second == report.commands / report.seconds
    assert client.dbsize() == 100_000
    assert set(client.mget([f"key:{i}" for i in range(0, 100_000, 7)])) == {VALUE.encode()}


def test_nothing(insert: Insert, server: LocalServer) -> None:
    report = insert([], server=server.url)
    assert (report.commands, report.replies, report.rows) == (0, 0, 0)
    assert "0 commands" in str(report)


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


@pytest.mark.few(1)
def test_more_replies_than_the_buffers_hold(insert: Insert, server: LocalServer) -> None:
    """500 MB of replies, for which writing without reading would block both sides."""
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
    """Their pools are not used; the load opens its own connection."""
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
    """Sentinel finds the master by its name."""
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


# Rates and memory


@pytest.mark.few(1)
def test_rate_limit(insert: Insert, server: LocalServer) -> None:
    """It is never exceeded, and is reached unless other processes use the CPU."""
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


@pytest.mark.slow
def test_no_burst_after_a_pause(insert: Insert, server: LocalServer) -> None:
    """After a pause of the source, the rate is unchanged."""
    resumed = 0.0

    def pause() -> None:
        nonlocal resumed
        time.sleep(1)
        resumed = time.monotonic()

    report = insert(commands(2000, 1000, pause), server=server.url, rate_limit=1000)
    assert report.replies == 2000
    # About 1,000 at this rate, plus commands that a slow machine had not sent yet.
    assert time.monotonic() - resumed > 0.85


@pytest.mark.few(1)
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


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["sync", "asyncio"])
@pytest.mark.parametrize("what", ["many", "large"])
def test_memory(server: LocalServer, client: redis.Redis, kind: str, what: str) -> None:
    """At most 32 MiB above the start, not counting a value of 512 MiB itself."""
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


def test_fork_during_a_load(insert: Insert, server: LocalServer, client: redis.Redis) -> None:
    """The parent continues, and the child runs its own load."""

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
