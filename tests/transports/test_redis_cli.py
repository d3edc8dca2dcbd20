"""redis-cli --pipe killed, frozen, cut off and interrupted: no hang, no wrong report."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable

import pytest
import redis
from loads import VALUE, commands, insert_redis_cli, lost, whole_prefix

import fastresp
from fastresp.server.local_server import LocalServer


def test_server_killed(start_server: Callable[..., LocalServer]) -> None:
    server = start_server()
    error = lost(insert_redis_cli, server.url, commands(400_000, 200_000, server.process.kill))
    report = error.report
    assert report is not None
    assert 0 < report.commands <= 400_000
    assert report.in_doubt == report.commands
    assert "redis-cli lost the connection" in str(error)
    assert "a new connection failed: can't use the server" in str(error)
    assert f"{report.in_doubt:,} commands in doubt" in str(error)


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


def test_frozen_redis_cli(server: LocalServer) -> None:
    with (
        pytest.raises(fastresp.TransportTimeout),
        fastresp.RedisCli(server.url, timeout=0.5) as cli,
    ):
        assert cli._process is not None
        os.kill(cli._process.pid, signal.SIGSTOP)
        for _ in range(100):
            cli.write(fastresp.pack("SET", "b", VALUE * 1000))


def test_slow_server_is_not_a_timeout(server: LocalServer) -> None:
    slow = [("EVAL", "local s = 0; for i = 1, 5e5 do s = s + i end", 0)] * 50
    report = insert_redis_cli(slow, server=server.url, timeout=30)
    assert (report.replies, report.failed) == (50, 0)


def test_raw_value_larger_than_the_server_accepts(server: LocalServer, client: redis.Redis) -> None:
    client.config_set("proto-max-bulk-len", 1 << 20)
    data = [("SET", "a", 1), ("SET", "b", "x" * (2 << 20)), ("SET", "c", 1)]
    try:
        with (
            pytest.raises(fastresp.TransportError, match="proto-max-bulk-len"),
            fastresp.RedisCli(server.url) as cli,
        ):
            cli.write(fastresp.pack_many(data))
    finally:
        client.config_set("proto-max-bulk-len", 512 << 20)
    assert client.get("a") == b"1"
    assert client.get("b") is None
    assert client.get("c") is None


def test_out_of_memory(start_server: Callable[..., LocalServer]) -> None:
    server = start_server("--maxmemory", "10mb", "--maxmemory-policy", "noeviction")
    report = insert_redis_cli(commands(200_000), server=server.url, on_error="collect")
    assert report.replies == 200_000
    assert 0 < report.failed < 200_000
    assert report.errors[0].code == "OOM"
    assert redis.Redis.from_url(server.url).dbsize() == 200_000 - report.failed


def test_errors_keep_the_servers_words(server: LocalServer) -> None:
    report = insert_redis_cli(
        [("SET", "a"), ("NOSUCH", "x"), ("EVAL", "return redis.error_reply('MINE own words')", 0)],
        server=server.url,
        on_error="collect",
    )
    assert [error.code for error in report.errors] == ["ERR", "ERR", "MINE"]
    assert "wrong number of arguments" in report.errors[0].text
    assert report.errors[2].text == "MINE own words"


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
