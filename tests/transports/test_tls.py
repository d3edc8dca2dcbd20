"""TLS on the socket transports: both directions in one thread, killed servers, Ctrl-C."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator

import pytest
import redis
import redis.asyncio
import valkey
import valkey.asyncio
from loads import VALUE, Insert, commands, interrupted, running_load

import fastresp
import fastresp.aio
from fastresp.server.local_server import LocalServer


@pytest.mark.few(1)
def test_load(insert_singly: Insert, tls: Callable[..., str]) -> None:
    report = insert_singly(commands(200_000), server=tls())
    assert (report.commands, report.replies, report.failed) == (200_000, 200_000, 0)
    with redis.Redis.from_url(tls()) as client:
        assert client.dbsize() == 200_000
        assert set(client.mget([f"key:{i}" for i in range(0, 200_000, 7)])) == {VALUE.encode()}


def test_clients_of_both_kinds(insert_singly: Insert, tls: Callable) -> None:
    with redis.Redis.from_url(tls()) as client:
        assert insert_singly(commands(1000), server=client).replies == 1000
        assert client.dbsize() == 1000
    assert insert_singly(commands(1000), server=redis.asyncio.Redis.from_url(tls())).replies == 1000
    for client in (valkey.Valkey, valkey.asyncio.Valkey):
        url = tls().replace("rediss://", "valkeys://")
        assert insert_singly(commands(1000), server=client.from_url(url)).replies == 1000
        assert insert_singly(commands(1000), server=url).replies == 1000


@pytest.mark.few(1)
def test_replies_and_commands_at_once(insert_singly: Insert, tls: Callable[..., str]) -> None:
    """200 MB of replies to 20 MB of commands: a writer that does not read would block."""
    data = [("SET", "a", "x" * 200_000), *[("GET", "a"), ("SET", "b", "y" * 20_000)] * 1000]
    assert insert_singly(data, server=tls()).replies == 2001


def test_large_value(insert_singly: Insert, tls: Callable[..., str]) -> None:
    value = os.urandom(1 << 20) * 30
    assert insert_singly([("SET", "a", value), ("SET", "b", 1)], server=tls()).replies == 2
    with redis.Redis.from_url(tls()) as client:
        assert client.get("a") == value


def test_execute(tls: Callable[..., str]) -> None:
    rows = [(f"k{i}", f"v{i}" * 1000) for i in range(3000)]
    fastresp.mass_insert(rows, "SET {0} {1}", server=tls(), transport="socket")
    got = list(fastresp.iter_replies(rows, "GET {0}", server=tls(), decode=True))
    assert got == [value for _, value in rows]
    # A reader with pauses still gets the input that OpenSSL holds.
    slow = []
    for i, reply in enumerate(fastresp.iter_replies(rows[:200], "GET {0}", server=tls())):
        slow.append(reply.decode())
        if i % 50 == 0:
            time.sleep(0.05)
    assert slow == got[:200]


def test_errors_have_their_rows(insert_singly: Insert, tls: Callable[..., str]) -> None:
    data = [
        ("LPUSH", "key:0", i) if i % 1000 == 999 else ("SET", f"key:{i}", i) for i in range(50_000)
    ]
    report = insert_singly(data, server=tls(), on_error="collect")
    assert [error.row for error in report.errors] == list(range(999, 50_000, 1000))


@pytest.mark.few(4)
@pytest.mark.parametrize("at", [30_000, 90_000, 170_000])
def test_server_killed(
    insert_singly: Insert, tls_server: LocalServer, tls: Callable[..., str], at: int
) -> None:
    def data() -> Iterator[tuple[str, str, str]]:
        for i, command in enumerate(commands(300_000)):
            if i == at:
                tls_server.process.kill()
            yield command

    with pytest.raises(fastresp.TransportError, match="lost the connection") as caught:
        insert_singly(data(), server=tls())
    report = caught.value.report
    assert report is not None
    assert 0 < report.acknowledged <= report.commands < 300_000


@pytest.mark.few(1)
@pytest.mark.parametrize("attempt", range(5))
def test_ctrl_c(tls: Callable[..., str], attempt: int) -> None:
    """Even during a TLS call, nothing is resent, and the report is correct."""
    child = running_load(tls(), "socket", 10_000 + 7919 * attempt)
    child.send_signal(signal.SIGINT)
    answered, doubt = interrupted(child)
    with redis.Redis.from_url(tls()) as client:
        assert answered <= client.dbsize() <= answered + doubt
