"""A resumed load waits until the rows of earlier loads are durable."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import redis
from local_cluster import free_port
from resumed_loads import NAME

import fastresp
from fastresp.server.local_server import LocalServer
from fastresp.server.options import grouped

ROWS = [(number % 10, number) for number in range(5_000)]


@pytest.mark.few(2)
@pytest.mark.parametrize("connections", [1, 2])
@pytest.mark.parametrize("template", ["RPUSH list:{0} {1}", "SADD set:{0} {1}"])
def test_rows_without_a_replica(
    start_server: Callable[..., LocalServer], template: str, connections: int
) -> None:
    """Their marker is set with them, so nothing remains to be sent."""
    server = start_server()
    options: dict[str, Any] = {
        "server": server.url, "checkpoint": NAME, "resume": True, "durable": 1, "timeout": 1,
        "connections": connections,
    }  # fmt: skip
    for _ in range(2):
        with pytest.raises(fastresp.TransportTimeout, match="replica"):
            fastresp.mass_insert(ROWS, template, **grouped(options))
    with redis.Redis.from_url(server.url) as client:
        assert not client.hget(f"fastresp:{{{NAME}}}", "ended")
    report = fastresp.mass_insert(ROWS, template, **grouped(options | {"durable": "acknowledged"}))
    # One marker may be at the last row, and the other at an earlier row.
    assert report.resumed_at + report.rows in range(
        len(ROWS) - 100 * (connections - 1), 1 + len(ROWS)
    )
    with redis.Redis.from_url(server.url) as client:
        assert client.hget(f"fastresp:{{{NAME}}}", "ended")
        if template.startswith("RPUSH"):
            found = [item for key in range(10) for item in client.lrange(f"list:{key}", 0, -1)]
        else:
            found = [item for key in range(10) for item in client.smembers(f"set:{key}")]
    assert sorted(map(int, found)) == [number for _, number in ROWS]


@pytest.mark.few(1)
@pytest.mark.parametrize("connections", [1, 2])
def test_late_replica(start_server: Callable[..., LocalServer], connections: int) -> None:
    port = free_port()
    server = start_server("--port", str(port), "--repl-diskless-sync-delay", "0")
    options: dict[str, Any] = {
        "server": server.url, "checkpoint": NAME, "resume": True, "durable": 1,
        "connections": connections,
    }  # fmt: skip
    with pytest.raises(fastresp.TransportTimeout, match="replica"):
        fastresp.mass_insert(ROWS, "RPUSH list:{0} {1}", timeout=1, **grouped(options))
    start_server("--port", str(free_port()), "--replicaof", f"127.0.0.1 {port}")
    report = fastresp.mass_insert(ROWS, "RPUSH list:{0} {1}", timeout=30, **grouped(options))
    assert report.resumed_at + report.rows <= len(ROWS)
    with redis.Redis.from_url(server.url) as client:
        assert client.hget(f"fastresp:{{{NAME}}}", "ended")
        assert sum(client.llen(f"list:{key}") for key in range(10)) == len(ROWS)
