"""Loads as import sources (Valkey 8.1 and later): expired keys are visible."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import redis
from command_line import run
from loads import Insert
from local_cluster import LocalCluster
from server_programs import WHEEL_SERVERS, located

import fastresp
from fastresp.cli.exit_codes import Exit
from fastresp.server.local_server import LocalServer

INCR = "INCRBY {0} {1}"
IMPORT_MODE = ("--import-mode", "yes")
REFUSED = ("--user", "default", "on", "nopass", "~*", "+@all", "-client|import-source")


def expiring(client: redis.Redis) -> Iterator[tuple[str, int]]:
    """Yield a row for an expired key, which the source's server counted before."""
    client.set("count", 40)
    client.pexpire("count", 1)
    while client.exists("count"):
        pass
    yield "count", 2


@pytest.mark.parametrize("imported", [True, False])
@pytest.mark.parametrize("server_name", ["valkey-8.1", "valkey-9.1"])
def test_expired_keys_are_visible(insert_singly: Insert, server_name: str, imported: bool) -> None:
    program = located(server_name, WHEEL_SERVERS)
    with LocalServer(*IMPORT_MODE, program=program) as server:
        client = redis.Redis.from_url(server.url)
        report = insert_singly(
            expiring(client), [INCR, "PERSIST {0}"], server=server.url, import_source=imported
        )
        assert report.replies == 2
        assert client.get("count") == (b"42" if imported else b"2")


def flags(client: redis.Redis) -> list[str]:
    """Return the flags of the other connections; I marks an import source."""
    own = client.client_id()
    return [each["flags"] for each in client.client_list() if int(each["id"]) != own]


def test_every_connection() -> None:
    found: list[str] = []
    with LocalServer(*IMPORT_MODE, program=located("valkey-8.1", WHEEL_SERVERS)) as server:
        client = redis.Redis.from_url(server.url)

        def source() -> Iterator[tuple[int, int]]:
            found.extend(flags(client))
            yield from ((i, i) for i in range(100))

        report = fastresp.mass_insert(
            source(), INCR, server=server.url, connections=3, import_source=True
        )
    assert report.replies == 100
    assert len(found) == 3
    assert all("I" in each for each in found)


def test_after_a_lost_connection() -> None:
    """Its replacement is also marked."""
    found: list[str] = []
    with LocalServer(*IMPORT_MODE, program=located("valkey-8.1", WHEEL_SERVERS)) as server:
        client = redis.Redis.from_url(server.url)

        def source() -> Iterator[tuple[int, int]]:
            for i in range(30_000):
                if i == 15_000:
                    client.client_kill_filter(_type="normal", skipme=True)
                if i == 29_999:
                    found.extend(flags(client))
                yield i, "x" * 100

        report = fastresp.mass_insert(
            source(), "SET {0} {1}", server=server.url, retry="idempotent", import_source=True
        )
    assert (report.replies, report.in_doubt) == (30_000, 0)
    assert len(found) == 1
    assert "I" in found[0]


def test_cluster() -> None:
    found: list[str] = []
    options = {"program": located("valkey-8.1", WHEEL_SERVERS), "options": lambda port: IMPORT_MODE}
    with LocalCluster(3, **options) as cluster:

        def source() -> Iterator[tuple[int, int]]:
            for client in cluster.clients:
                found.extend(each for each in flags(client) if "I" in each)
            yield from ((i, i) for i in range(100))

        report = fastresp.mass_insert(source(), INCR, server=cluster.url, import_source=True)
    assert report.replies == 100
    assert len(found) == 3


@pytest.mark.parametrize(
    ("server_name", "options", "words"),
    [
        ("redis-server", (), "needs Valkey 8.1 or later, or leave out import_source"),
        ("redis-8.2", (), "needs Valkey 8.1 or later"),
        ("valkey-8.1", (), "not in import mode .*; run CONFIG SET import-mode yes"),
        ("valkey-8.1", (*IMPORT_MODE, *REFUSED), r"ACL SETUSER ... \+client\|import-source"),
    ],
)  # fmt: skip
def test_refused(insert_singly: Insert, server_name: str, options: Any, words: str) -> None:
    with LocalServer(*options, program=located(server_name, WHEEL_SERVERS)) as server:
        with pytest.raises(fastresp.TransportError, match=words) as caught:
            insert_singly([(1, 1)], INCR, server=server.url, import_source=True)
        assert "nothing was sent" in str(caught.value)
        assert redis.Redis.from_url(server.url).dbsize() == 0


def test_redis_cli(server: LocalServer) -> None:
    with pytest.raises(ValueError, match="an import source; use transport='socket'"):
        fastresp.mass_insert(
            [(1, 1)], INCR, server=server.url, transport="redis-cli", import_source=True
        )


def test_command_line(server: LocalServer, tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    path.write_text("id\n1\n")
    command = ("load", path, "INCR {id}", "--import-source")
    with LocalServer(*IMPORT_MODE, program=located("valkey-8.1", WHEEL_SERVERS)) as valkey:
        assert run(*command, REDIS_URL=valkey.url).returncode == 0
    done = run(*command, REDIS_URL=server.url)
    assert done.returncode == Exit.LOST
    assert "this needs Valkey 8.1 or later, or leave out --import-source)" in done.stderr
