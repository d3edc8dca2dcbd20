"""Proxies that forward only data commands, and close the connection at others or refuse them.

Examples are twemproxy and older versions of Envoy.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import redis
from loads import Insert

import fastresp
from fastresp.server.local_server import LocalServer
from fastresp.testing import Connection, HangUp, Misbehaving

OTHERS = {b"CLIENT", b"INFO", b"CONFIG", b"MULTI", b"COMMAND", b"HELLO", b"ECHO"}
ROWS = [(f"k:{i}", i) for i in range(300)]


def close(connection: Connection, command: list[bytes], honest: bytes) -> bytes:
    if command[0].upper() in OTHERS:
        raise HangUp
    return honest


def refuse(connection: Connection, command: list[bytes], honest: bytes) -> bytes:
    if command[0].upper() not in OTHERS:
        return honest
    if command[0].upper() == b"MULTI":
        connection.honest([b"DISCARD"])  # the server behind has begun one
    return b"-ERR unknown command\r\n"


@pytest.fixture(params=[close, refuse])
def proxy(
    request: pytest.FixtureRequest, server: LocalServer, tmp_path: Path
) -> Iterator[Misbehaving]:
    with Misbehaving(request.param, server.url, listen=tmp_path / "proxy") as proxy:
        yield proxy


@pytest.fixture
def told(caplog: pytest.LogCaptureFixture) -> Callable[[], int]:
    """Return how many times the log says that the role is unknown."""
    caplog.set_level(logging.WARNING, logger="fastresp")
    return lambda: sum("role and free memory are unknown" in text for text in caplog.messages)


@pytest.mark.parametrize(
    "options", [{}, {"connections": 3}, {"retry": "idempotent"}, {"on_error": "collect"}]
)
def test_load(
    options: dict[str, Any],
    insert: Insert,
    proxy: Misbehaving,
    client: redis.Redis,
    told: Callable[[], int],
) -> None:
    report = insert(ROWS, "SET {0} {1}", server=proxy.url, **options)
    assert report.acknowledged == report.commands
    assert client.dbsize() == len(ROWS)
    assert told() == 1


def test_load_of_commands(proxy: Misbehaving, client: redis.Redis, told: Callable[[], int]) -> None:
    report = fastresp.mass_insert([("SET", *row) for row in ROWS], server=proxy.url)
    assert report.transport == "socket"
    assert client.get("k:299") == b"299"
    assert told() == 1


def test_reading(proxy: Misbehaving, client: redis.Redis, told: Callable[[], int]) -> None:
    fastresp.mass_insert(ROWS, "SET {0} {1}; HSET h:{0} f {1}", server=proxy.url)
    assert fastresp.execute("GET", "k:1", server=proxy.url) == b"1"
    keys = [key for key, _ in ROWS]
    replies = [*fastresp.iter_replies(keys, "GET {0}", server=proxy.url)]
    assert replies == [b"%d" % i for i in range(300)]
    rows = fastresp.fetch_hashes([f"h:{key}" for key in keys], ["f"], server=proxy.url)
    assert [row["f"] for row in rows] == [str(i) for i in range(300)]
    assert fastresp.verify(ROWS, "SET {0} {1}", server=proxy.url).same
    assert told() == 5  # once for each call


def test_lists(proxy: Misbehaving, client: redis.Redis) -> None:
    with fastresp.ListBuffer("q", server=proxy.url) as buffer:
        buffer.push(range(1000))
        assert len(buffer.pop(1000)) == 1000


def test_a_missing_permission_is_not_mistaken_for_a_proxy(
    start_server: Callable[..., LocalServer], told: Callable[[], int]
) -> None:
    server = start_server()
    with redis.Redis.from_url(server.url) as admin:
        admin.acl_setuser("loader", enabled=True, nopass=True, keys="*", commands=["+set", "+ping"])
        path = admin.get_connection_kwargs()["path"]
    limited = redis.Redis(unix_socket_path=path, username="loader")
    assert fastresp.mass_insert(ROWS, "SET {0} {1}", server=limited).replies == len(ROWS)
    assert told() == 0
