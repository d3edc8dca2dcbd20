"""redis-cli --pipe killed, frozen, cut off and interrupted: no hang, no wrong report."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from functools import partial

import psutil
import pytest
import redis
from loads import VALUE, commands, interrupted, lost, running_load, whole_prefix

import fastresp
from fastresp.server.local_server import LocalServer

insert = partial(fastresp.mass_insert, transport="redis-cli")


def test_server_killed(start_server: Callable[..., LocalServer]) -> None:
    server = start_server()
    error = lost(insert, server.url, commands(400_000, 200_000, server.process.kill))
    report = error.report
    assert report is not None
    assert 0 < report.commands <= 400_000
    assert report.in_doubt == report.commands
    assert "redis-cli lost the connection" in str(error)
    assert "a new connection failed: can't use the server" in str(error)
    assert f"{report.in_doubt:,} commands in doubt" in str(error)


def test_killed_server_holds_a_prefix(start_server: Callable[..., LocalServer]) -> None:
    """After a restart from its append-only file, the server has the first n commands, n <= sent."""
    server = start_server("--appendonly", "yes", "--appendfsync", "always")
    error = lost(insert, server.url, commands(200_000, 100_000, server.process.kill))
    server.stop()
    server.start()
    client = redis.Redis.from_url(server.url, retry=redis.retry.Retry(redis.backoff.NoBackoff(), 0))
    while True:
        try:
            stored = client.dbsize()
            break
        except redis.BusyLoadingError:
            time.sleep(0.05)
    assert error.report is not None
    assert error.report.replies <= stored <= error.report.commands
    assert client.exists(*[f"key:{i}" for i in range(stored)]) == stored


def test_connection_killed(server: LocalServer, client: redis.Redis) -> None:
    def kill_the_other() -> None:
        mine = str(client.client_id())
        for other in client.client_list():
            if other["id"] != mine:
                client.client_kill_filter(_id=other["id"])

    error = lost(insert, server.url, commands(400_000, 200_000, kill_the_other))
    assert "CLIENT KILL" in str(error)
    assert "a new connection works" in str(error)
    assert error.report is not None
    assert client.dbsize() <= error.report.commands


def test_redis_cli_killed(server: LocalServer, client: redis.Redis) -> None:
    with (
        pytest.raises(fastresp.TransportError, match="signal 9") as caught,
        fastresp.RedisCli(server.url) as cli,
    ):
        cli.write(fastresp.pack("SET", "a", 1))
        assert cli._process is not None
        cli._process.kill()
        for _ in range(100):
            cli.write(fastresp.pack("SET", "b", VALUE * 10_000))
    assert caught.value.report is not None


@pytest.mark.slow
@pytest.mark.parametrize("count", [10, 500_000], ids=["in-the-pipe", "pipe-full"])
def test_frozen_server(start_server: Callable[..., LocalServer], count: int) -> None:
    server = start_server()
    pid = server.process.pid
    data = commands(count, count // 2, lambda: os.kill(pid, signal.SIGSTOP))
    started = time.monotonic()
    error = lost(insert, server.url, data, timeout=1.0)
    assert time.monotonic() - started < 20
    assert isinstance(error, fastresp.TransportTimeout)
    assert "no progress for 1 s" in str(error)
    assert error.report is not None
    assert error.report.in_doubt > 0
    os.kill(pid, signal.SIGCONT)
    client = redis.Redis.from_url(server.url)
    assert client.dbsize() <= error.report.commands
    assert set(client.mget(client.keys("*")[:100])) <= {VALUE.encode()}


def test_frozen_redis_cli(server: LocalServer) -> None:
    with (
        pytest.raises(fastresp.TransportTimeout),
        fastresp.RedisCli(server.url, timeout=0.5) as cli,
    ):
        assert cli._process is not None
        os.kill(cli._process.pid, signal.SIGSTOP)
        for _ in range(100):
            cli.write(fastresp.pack("SET", "b", VALUE * 1000))


def test_slow_source_is_not_a_timeout(server: LocalServer, client: redis.Redis) -> None:
    data = commands(100_000, 50_000, lambda: time.sleep(1.5))
    report = insert(data, server=server.url, timeout=1.0)
    assert report.replies == 100_000


def test_slow_server_is_not_a_timeout(server: LocalServer) -> None:
    slow = [("EVAL", "local s = 0; for i = 1, 5e5 do s = s + i end", 0)] * 50
    report = insert(slow, server=server.url, timeout=30)
    assert (report.replies, report.failed) == (50, 0)


def test_value_larger_than_the_server_accepts(server: LocalServer, client: redis.Redis) -> None:
    client.config_set("proto-max-bulk-len", 1 << 20)
    data = [("SET", "a", 1), ("SET", "b", "x" * (2 << 20)), ("SET", "c", 1)]
    try:
        with pytest.raises(fastresp.EncodeError, match=r"row 1, .*proto-max-bulk-len") as caught:
            insert(data, "{0} {1} {2}", server=server.url)
        raw = fastresp.pack_many(data)
        with (
            pytest.raises(fastresp.TransportError, match="proto-max-bulk-len"),
            fastresp.RedisCli(server.url) as cli,
        ):
            cli.write(raw)
    finally:
        client.config_set("proto-max-bulk-len", 512 << 20)
    assert (caught.value.row, caught.value.argument) == (1, 2)
    assert client.get("a") == b"1"
    assert client.get("b") is None
    assert client.get("c") is None


def test_out_of_memory(start_server: Callable[..., LocalServer]) -> None:
    server = start_server("--maxmemory", "10mb", "--maxmemory-policy", "noeviction")
    report = insert(commands(200_000), server=server.url, on_error="collect")
    assert report.replies == 200_000
    assert 0 < report.failed < 200_000
    assert report.errors[0].code == "OOM"
    assert redis.Redis.from_url(server.url).dbsize() == 200_000 - report.failed


def test_errors_keep_the_servers_words(server: LocalServer) -> None:
    report = insert(
        [("SET", "a"), ("NOSUCH", "x"), ("EVAL", "return redis.error_reply('MINE own words')", 0)],
        server=server.url,
        on_error="collect",
    )
    assert [error.code for error in report.errors] == ["ERR", "ERR", "MINE"]
    assert "wrong number of arguments" in report.errors[0].text
    assert report.errors[2].text == "MINE own words"


class SourceFailure(Exception):
    """An exception of the user's own."""


@pytest.mark.parametrize("failure", [SourceFailure("mine"), KeyboardInterrupt(), MemoryError()])
def test_source_raises(server: LocalServer, client: redis.Redis, failure: BaseException) -> None:
    def fail() -> None:
        raise failure

    with pytest.raises(type(failure)) as caught:
        insert(commands(60_000, 50_001, fail), server=server.url)
    assert caught.value is failure
    assert "50,001 commands" in caught.value.__notes__[0]
    assert "50,001 replies" in caught.value.__notes__[0]
    assert client.dbsize() == 50_001


def test_source_that_lost_another_server(server: LocalServer, client: redis.Redis) -> None:
    """The source may read from or load into it; the rows before the error are still loaded."""
    lost = fastresp.TransportError("lost the other server", fastresp.Report("socket", commands=7))

    def fail() -> None:
        raise lost

    with pytest.raises(fastresp.TransportError) as caught:
        insert(commands(6_000, 5_001, fail), server=server.url)
    assert caught.value is lost
    assert lost.report is not None
    assert lost.report.replies == lost.report.commands == 5_001
    assert client.dbsize() == 5_001


def test_value_that_cannot_be_sent(server: LocalServer, client: redis.Redis) -> None:
    rows = [{"id": i, "name": "x" if i != 1234 else object()} for i in range(2000)]
    with pytest.raises(fastresp.EncodeError, match="row 1,234") as caught:
        insert(rows, "HSET user:{id} name {name}", server=server.url)
    assert (caught.value.row, caught.value.argument) == (1234, 3)
    assert "1,234 replies" in caught.value.__notes__[0]
    assert client.dbsize() == 1234


def test_source_raises_after_the_server_is_lost(start_server: Callable[..., LocalServer]) -> None:
    server = start_server()

    def fail() -> None:
        server.stop()
        raise SourceFailure

    with pytest.raises(SourceFailure) as caught:
        insert(commands(400_000, 300_000, fail), server=server.url)
    assert "lost the connection" in "".join(caught.value.__notes__)


def wait_until_gone(children: list[psutil.Process]) -> None:
    _, alive = psutil.wait_procs(children, timeout=20)
    assert not alive


@pytest.mark.few(2)
@pytest.mark.parametrize("attempt", range(10))
def test_ctrl_c(server: LocalServer, client: redis.Redis, attempt: int) -> None:
    """SIGINT to the whole process group, as a terminal sends it."""
    child = running_load(server.url, "redis-cli", 10_000 + 7919 * attempt)
    started = psutil.Process(child.pid).children()
    os.killpg(child.pid, signal.SIGINT)
    acknowledged, doubt = interrupted(child)
    wait_until_gone(started)
    assert (whole_prefix(client), doubt) == (acknowledged, 0)


@pytest.mark.slow
def test_second_ctrl_c_does_not_wait(start_server: Callable[..., LocalServer]) -> None:
    """The first waits for a frozen server, the second ends the load immediately."""
    server = start_server()
    child = running_load(server.url, "redis-cli", 10_000)
    started = psutil.Process(child.pid).children()
    os.kill(server.process.pid, signal.SIGSTOP)
    time.sleep(0.5)
    child.send_signal(signal.SIGINT)
    time.sleep(0.5)
    assert child.poll() is None
    child.send_signal(signal.SIGINT)
    child.communicate(timeout=10)
    wait_until_gone(started)


@pytest.mark.slow
@pytest.mark.parametrize("attempt", range(10))
def test_killed_without_warning(server: LocalServer, client: redis.Redis, attempt: int) -> None:
    """kill -9 of the loading process: the server got whole commands only, and redis-cli ends."""
    child = running_load(server.url, "redis-cli", 10_000 + 7919 * attempt)
    started = psutil.Process(child.pid).children()
    child.kill()
    child.communicate(timeout=30)
    wait_until_gone(started)
    assert whole_prefix(client) > 10_000


def test_raw_resp_in_pieces(server: LocalServer, client: redis.Redis) -> None:
    data = fastresp.pack_many(commands(5000))
    with fastresp.RedisCli(server.url) as cli:
        for start in range(0, len(data), 777):
            cli.write(data[start : start + 777])
    assert (cli.report.commands, cli.report.replies) == (5000, 5000)
    assert cli.report.bytes_sent == len(data)
    assert whole_prefix(client) == 5000


def test_raw_resp_cut_off(server: LocalServer, client: redis.Redis) -> None:
    data = fastresp.pack_many(commands(5000))
    with (
        pytest.raises(fastresp.ProtocolError, match="cut off"),
        fastresp.RedisCli(server.url) as cli,
    ):
        cli.write(data[:-10])
    assert whole_prefix(client) == 4999 == cli.report.replies


@pytest.mark.parametrize(
    ("data", "error"),
    [
        (b"SET a 1\r\n", fastresp.ProtocolError),
        (b"*1\r\n$7\r\nMONITOR\r\n", fastresp.EncodeError),
        (b"*2\r\n$3\r\nGET\r\n$1\r\nab\r\n", fastresp.ProtocolError),
    ],
)
def test_raw_bytes_that_are_not_commands(
    server: LocalServer, client: redis.Redis, data: bytes, error: type[Exception]
) -> None:
    with pytest.raises(error) as caught, fastresp.RedisCli(server.url) as cli:
        cli.write(fastresp.pack("SET", "before", 1))
        cli.write(data)
    assert "1 reply," in caught.value.__notes__[0]
    assert client.keys("*") == [b"before"]


def test_writing_outside_the_with_block(server: LocalServer) -> None:
    cli = fastresp.RedisCli(server.url)
    with pytest.raises(fastresp.TransportError, match="'with' statement"):
        cli.write(fastresp.pack("PING"))
