"""Replies of scripts: in order and each once, however often SCRIPT FLUSH removes the script."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import redis
from reading import Execute
from scripts import KEYS, ROWS, data, expected, flushing, sums

import fastresp
from fastresp import Script
from fastresp.server.local_server import LocalServer


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("rows", "pause"), [pytest.param(ROWS, 0.01, marks=pytest.mark.slow), (2 * KEYS, 0)]
)
def test_replies_in_order(
    execute: Execute, server: LocalServer, client: redis.Redis, rows: int,
    pause: float,
) -> None:  # fmt: skip
    """Each reply is in its place, and each script runs once."""
    script = Script("return {ARGV[1], redis.call('HINCRBY', KEYS[1], 'n', ARGV[1])}")
    template = ["ECHO {id}", script.command("u:{id}", "{n}")]
    with flushing(server, pause) as count:
        replies = execute(data(rows), template, server=server.url, decode=True)
    assert count[0] >= 5
    assert replies[::2] == [str(row["id"]) for row in data(rows)]
    assert [reply[0] for reply in replies[1::2]] == [str(row["n"]) for row in data(rows)]
    assert sums(client) == expected(rows)


@pytest.mark.few(1)
def test_errors_in_their_place(execute: Execute, server: LocalServer) -> None:
    script = Script("""
        if redis.call('INCR', KEYS[1]) % 10 == 0 then return redis.error_reply('TEN of them') end
        return ARGV[1]
    """)
    with flushing(server):
        replies = execute(
            range(20_000), script.command("k{0}", "{0}"), server=server.url, on_error="collect"
        )  # fmt: skip
        assert replies == [b"%d" % i for i in range(20_000)]
        replies = execute(
            range(20_000), script.command("all", "{0}"), server=server.url, on_error="collect"
        )
    errors = [(i, reply) for i, reply in enumerate(replies) if type(reply) is not bytes]
    assert len(errors) == 2000
    for i, error in errors:
        assert (error.text, error.index, error.row) == ("TEN of them", i, i)
        assert error.arguments == (b"EVALSHA", script.sha1.encode(), b"1", b"all", b"%d" % i)
    assert all(reply == b"%d" % i for i, reply in enumerate(replies) if type(reply) is bytes)


def test_error_raised_in_its_place(server: LocalServer, client: redis.Redis) -> None:
    client.set("k500", "text")
    script = Script("redis.call('LPUSH', KEYS[1], 1) return ARGV[1]")
    source = fastresp.iter_replies(range(100_000), script.command("k{0}", "{0}"), server=server.url)
    got = [next(source)]
    client.script_flush()
    with pytest.raises(fastresp.CommandError, match=r"row 500 \(\{0\}=500\), command 500: WRONG"):
        got.extend(source)
    assert got == [b"%d" % i for i in range(500)]


@pytest.mark.slow
def test_replies_over_tls(
    execute: Execute, tls: Callable[..., str], tls_server: LocalServer
) -> None:
    script = Script("return {ARGV[1], redis.call('HINCRBY', KEYS[1], 'n', ARGV[1])}")
    with flushing(tls_server), redis.Redis.from_url(tls_server.url) as client:
        replies = execute(data(2 * KEYS), script.command("u:{id}", "{n}"), server=tls())
        assert sums(client) == expected(2 * KEYS)
    assert [int(reply[0]) for reply in replies] == [row["n"] for row in data(2 * KEYS)]


def test_script_returns_noscript(execute: Execute, server: LocalServer) -> None:
    script = Script("return redis.error_reply('NOSCRIPT No matching script.')")
    template = ["ECHO {0}", script.command("k{0}")]
    replies = execute(range(3), template, server=server.url, on_error="collect")
    assert replies[::2] == [b"0", b"1", b"2"]
    assert [(error.row, error.index) for error in replies[1::2]] == [(0, 1), (1, 3), (2, 5)]


@pytest.mark.slow
def test_large_replies(execute: Execute, server: LocalServer) -> None:
    script = Script("return string.rep('x', 100000) .. ARGV[1]")
    with flushing(server, 0.005):
        replies = execute(range(2000), script.command("", "{0}"), server=server.url)
    assert [reply[100_000:] for reply in replies] == [b"%d" % i for i in range(2000)]


def test_syntax_error_in_execute(execute: Execute, server: LocalServer) -> None:
    with pytest.raises(fastresp.CommandError, match="ERR Error compiling script"):
        execute([1], Script("local = 1").command("k{0}"), server=server.url)
