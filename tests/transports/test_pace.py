"""Limits in bytes per second: never exceeded, over any transport, and no burst after a Ctrl-C."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable

import pytest
import redis
from loads import Insert

import fastresp
from fastresp.server.local_server import LocalServer
from fastresp.server.options import Checkpoint

SET = "SET {0} {1}"
TRANSPORTS = pytest.mark.parametrize("transport", ["redis-cli", "socket"])


def loaded(server: LocalServer, count: int, size: int, **options: object) -> fastresp.Report:
    """Load values; check that all exist, and that it took as long as the limit requires."""
    began = time.monotonic()
    report = fastresp.mass_insert(
        ((i, "x" * size) for i in range(count)), SET, server=server.url, **options
    )
    assert time.monotonic() - began > 0.9 * (report.bytes_sent / 1_000_000)
    assert report.replies == count
    assert redis.Redis.from_url(server.url).dbsize() == count
    return report


@TRANSPORTS
@pytest.mark.parametrize(("count", "size"), [(5000, 100), (10, 50_000)])
def test_bytes(server: LocalServer, transport: str, count: int, size: int) -> None:
    report = loaded(server, count, size, rate_limit="1MB", transport=transport)
    assert report.transport == transport


def test_all_connections_together(server: LocalServer) -> None:
    loaded(server, 5000, 100, rate_limit="1MB", connections=4)


def test_asyncio(insert_singly: Insert, server: LocalServer) -> None:
    began = time.monotonic()
    report = insert_singly([(1, "x" * 500_000)], SET, server=server.url, rate_limit="1MB")
    assert report.replies == 1
    # A large value is sent in parts.
    assert time.monotonic() - began > 0.45


@TRANSPORTS
@pytest.mark.parametrize("mode", ["commands", "merge"])
def test_commands(server: LocalServer, transport: str, mode: str) -> None:
    """redis-cli also has a limit in commands, and each merged command counts."""
    began = time.monotonic()
    report = fastresp.mass_insert(
        ((i, i) for i in range(500)), SET, server=server.url, rate_limit=1000,
        transport=transport, mode=mode,
    )  # fmt: skip
    assert time.monotonic() - began > 0.45
    assert (report.replies, report.transport) == (500, transport)


@TRANSPORTS
@pytest.mark.parametrize("limit", ["100KB", 1000])
def test_interrupted(
    server: LocalServer, client: redis.Redis, transport: str, limit: str | int
) -> None:
    """After a Ctrl-C, unsent commands are dropped, since sending could take forever."""

    def source() -> object:
        for i in range(10**9):
            if i == 300:
                threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT)).start()
            yield i, "x" * 100

    with pytest.raises(KeyboardInterrupt) as caught:
        fastresp.mass_insert(
            source(), SET, server=server.url, rate_limit=limit, transport=transport
        )
    report: fastresp.Report = caught.value.report  # type: ignore[attr-defined]
    assert report.replies == report.commands == client.dbsize()
    assert report.commands + report.unsent < 5000


@pytest.mark.parametrize("limit", ["1KB", "20B"])
def test_slow_is_not_a_timeout(
    start_server: Callable[..., LocalServer], insert_singly: Insert, limit: str
) -> None:
    server = start_server()
    count = 20 if limit == "1KB" else 1
    rows = [(i, "") for i in range(count)]
    report = insert_singly(rows, "GET {0}", server=server.url, rate_limit=limit, timeout=0.2)
    assert report.replies == count


def test_tls(tls: Callable[..., str]) -> None:
    began = time.monotonic()
    report = fastresp.mass_insert(
        ((i, "x" * 50_000) for i in range(10)), SET, server=tls(), rate_limit="1MB"
    )
    assert report.replies == 10
    assert time.monotonic() - began > 0.45


@pytest.mark.parametrize("template", [SET, "APPEND {0} {1}"])
def test_checkpoint(server: LocalServer, client: redis.Redis, template: str) -> None:
    began = time.monotonic()
    rows = [(i, "x" * 100) for i in range(5000)]
    report = fastresp.mass_insert(
        rows,
        template,
        server=server.url,
        rate_limit="1MB",
        checkpoint=Checkpoint("jobs", resume=True),
    )
    assert report.replies == 5000
    assert time.monotonic() - began > 0.9 * report.bytes_sent / 1_000_000
    assert client.strlen("4999") == 100
