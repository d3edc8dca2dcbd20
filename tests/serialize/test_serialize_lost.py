"""Lost, killed and frozen servers during serialised loads: acknowledged <= stored <= + in doubt."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

import pytest
import redis
from loads import Insert, in_the_background, insert_asyncio, insert_sync, lost
from proxy import FAITHFUL, UP, Fault, Proxy
from waiting import only_we_are_connected, until_loaded

import fastresp
from fastresp.server.local_server import LocalServer
from fastresp.server.options import grouped

VALUE = "x" * 100
# A multiple of the rows of each key.
ROWS = 7 * 900


class Load(NamedTuple):
    template: str
    rows: int  # rows of each key
    size: str  # the command that returns the number of stored rows of a key
    most: int | None = None  # max_payload_bytes


# Keys are far smaller than the bytes in flight, except for the last ones.
LOADS = {
    "hashes": Load("HSET key:{0} {1} {2}", 1, "HLEN"),
    "sets of 7": Load("SADD key:{0} {1}:{2}", 7, "SCARD"),
    "lists of 900": Load("RPUSH key:{0} {1}:{2}", 900, "LLEN"),
    "one list": Load("RPUSH key:{0} {1}:{2}", 10**9, "LLEN", 100_000),
}
INSERTS = {"sync": insert_sync, "asyncio": insert_asyncio}
every_load = pytest.mark.parametrize("load", LOADS.values(), ids=LOADS)


@pytest.fixture(params=INSERTS.values(), ids=INSERTS)
def insert(request: pytest.FixtureRequest) -> Insert:
    """mass_insert with serialised values, over a socket and in an event loop."""
    return partial(request.param, mode="serialize")


def rows(
    load: Load, count: int, at: int | None = None, happening: Callable[[], object] | None = None
) -> Iterator[tuple[int, int, str]]:
    """Yield the rows of keys; call ``happening`` before number ``at``."""
    for number in range(count):
        if number == at and happening is not None:
            happening()
        yield number // load.rows, number % load.rows, VALUE


def stored(client: redis.Redis, load: Load) -> int:
    """Return how many rows are stored; check that they are the first rows, with whole keys."""
    count = client.dbsize()
    with client.pipeline(transaction=False) as pipeline:
        for key in range(count):
            pipeline.execute_command(load.size, f"key:{key}")
        sizes = pipeline.execute()
    if load.most is None:
        assert set(sizes) <= {load.rows}
    else:
        items = client.lrange("key:0", 0, -1)
        assert all(item == b"%d:%s" % (at, VALUE.encode()) for at, item in enumerate(items))
    return sum(sizes)


def check(error: fastresp.TransportError, load: Load, client: redis.Redis) -> fastresp.Report:
    report = error.report
    assert report is not None
    assert report.commands == report.acknowledged + report.in_doubt
    found = stored(client, load)
    assert report.acknowledged <= found <= report.acknowledged + report.in_doubt
    if load.most is None:
        assert report.acknowledged % load.rows == report.in_doubt % load.rows == 0
    return report


def lose(insert: Insert, server: str, load: Load, *more: Any, **options: Any) -> Any:
    data = rows(load, *more)
    return lost(
        insert,
        server,
        data,
        command=load.template,
        **grouped({"mode": "serialize", "max_payload_bytes": load.most} | options),
    )


@pytest.mark.few(1)
@every_load
@pytest.mark.parametrize("seed", range(5))
def test_killed_server(
    insert: Insert, start_server: Callable[..., LocalServer], load: Load, seed: int
) -> None:
    """The server writes its append-only file before it replies, and the file survives the kill."""
    chance = random.Random(seed)
    server = start_server("--appendonly", "yes", "--appendfsync", "no")
    kill = in_the_background(server.process.kill, chance.random() * 0.01)
    error = lose(insert, server.url, load, 10**9, chance.randrange(100_000), kill)
    server.stop()
    server.start()
    with redis.Redis.from_url(server.url) as client:
        until_loaded(client)
        check(error, load, client)


@pytest.mark.few(1)
@every_load
def test_killed_connection(
    insert: Insert, server: LocalServer, client: redis.Redis, load: Load
) -> None:
    def kill_the_other() -> None:
        client.client_kill_filter(_type="normal", skipme=True)

    error = lose(insert, server.url, load, 100_000, 50_000, kill_the_other)
    assert "CLIENT KILL" in str(error)
    assert check(error, load, client).acknowledged > 0


@pytest.mark.slow
@every_load
@pytest.mark.parametrize("count", [ROWS, 50 * ROWS], ids=["in-the-buffers", "buffers-full"])
def test_frozen_server(
    insert: Insert, start_server: Callable[..., LocalServer], load: Load, count: int
) -> None:
    server = start_server()
    pid = server.process.pid

    def freeze() -> None:
        os.kill(pid, signal.SIGSTOP)

    started = time.monotonic()
    error = lose(insert, server.url, load, count, count // 2, freeze, timeout=0.5)
    assert time.monotonic() - started < 20
    assert isinstance(error, fastresp.TransportTimeout)
    os.kill(pid, signal.SIGCONT)
    with redis.Redis.from_url(server.url) as client:
        # it still runs the commands in its buffers
        only_we_are_connected(client)
        report = check(error, load, client)
    assert report.in_doubt + report.unsent > 0


@pytest.mark.slow
@every_load
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("kind", FAITHFUL)
def test_fault_of_the_network(
    insert: Insert, server: LocalServer, client: redis.Redis, load: Load, kind: str, seed: int
) -> None:
    chance = random.Random(f"{kind} {seed}")
    way = chance.choice([UP, "down"])
    most = 800_000 if way == UP else 12_000
    options = {
        "mode": "serialize", "max_payload_bytes": load.most and 5000, "timeout": 0.4
    }  # fmt: skip
    with Proxy(str(server.socket), Fault(kind, way, chance.randrange(most), seed)) as proxy:
        try:
            data = rows(load, ROWS)
            report = insert(data, load.template, server=proxy.url, **grouped(options))
        except fastresp.TransportError as error:
            # error.report is None if the connection was lost before the load.
            report = error.report or fastresp.Report("socket")
    only_we_are_connected(client)
    found = stored(client, load)
    assert report.acknowledged <= found <= report.acknowledged + report.in_doubt
    if kind in ("none", "fragment"):
        assert report.acknowledged == ROWS
