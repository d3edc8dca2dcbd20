"""Copies of RDB files into servers."""

from __future__ import annotations

import asyncio
import gzip
import logging
from pathlib import Path

import pytest
import redis
from command_line import invoke
from every_encoding import contents, differences
from rdb_files import RDB_VERSIONS, every_opcode, finished, saved

import fastresp
from fastresp.cli.exit_codes import Exit
from fastresp.outcome.errors import SourceError
from fastresp.server.local_server import LocalServer


@pytest.fixture
def target(server: LocalServer) -> redis.Redis:
    client = redis.Redis.from_url(server.url)
    client.flushall()
    return client


@pytest.mark.few(2)
@pytest.mark.parametrize("name", RDB_VERSIONS)
def test_every_encoding(target: redis.Redis, name: str) -> None:
    with saved(name) as (client, path):
        report = fastresp.copy(path, target, field_ttl="drop")
        assert report.commands == report.rows == client.dbsize()
        found = differences(contents(client), contents(target))
        assert [text for text in found if "'hash:expiring" not in text] == []


def test_patterns_types_and_skipped_parts(
    target: redis.Redis, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "dump.rdb.gz"
    path.write_bytes(gzip.compress(finished(every_opcode())))
    with caplog.at_level(logging.WARNING, "fastresp"):
        report = asyncio.run(fastresp.aio.copy(path, target, match="?s", rename="m* -> new:*"))
    assert (report.rows, target.keys()) == (1, [b"new:s"])
    assert target.pexpiretime("new:s") == 4_102_444_800_123
    assert "skipped 1 key of databases other than 0" in caplog.text
    assert "1 function library not copied" in caplog.text
    assert "pass db=N (--db N)" in caplog.text
    fastresp.copy(str(path), target, type="list")
    assert target.lrange("12345", 0, -1) == [b"a", b"7"]


@pytest.mark.parametrize("from_replica", [False, True])
def test_databases(target: redis.Redis, from_replica: bool) -> None:
    """One option chooses the database of a server, its snapshot, or a file."""
    with LocalServer("--repl-diskless-sync-delay", "0") as server:
        for number in (0, 3):
            with redis.Redis.from_url(f"{server.url}?db={number}") as client:
                client.set(f"key:{number}", number)
                client.save()
        for source in (server.url, f"{server.url}?db=0"):
            options = {"from_replica": from_replica, "exists": "replace"}
            fastresp.copy(source, target, db=3, verify=True, **options)
            assert target.keys() == [b"key:3"]
            assert fastresp.copy(source, target, db=3, dry_run=True, **options).plan.keys == 1
        target.flushdb()
        fastresp.copy(server.folder / "dump.rdb", target, db=3)
        assert target.keys() == [b"key:3"]
        same = fastresp.copy(server.url, f"{server.url}?db=3", db=0, from_replica=from_replica)
        assert same.rows == 1
        with pytest.raises(ValueError, match="the same database"):
            fastresp.copy(server.url, f"{server.url}?db=3", db=3)
        with pytest.raises(fastresp.SourceError, match="DB index is out of range"):
            fastresp.copy(server.url, target, db=99, from_replica=from_replica)
    with pytest.raises(ValueError, match="db must be the number of a database"):
        fastresp.copy(server.url, target, db=-1)


def test_any_name(target: redis.Redis, tmp_path: Path) -> None:
    """A path that exists is a file, whatever its name; it is never taken for a URL."""
    path = tmp_path / "backup"
    path.write_bytes(finished(b"\xfe\x00" + b"\x00\x01a\x01v"))
    assert fastresp.copy(str(path), target).rows == 1
    path.write_bytes(b"no snapshot")
    with pytest.raises(SourceError, match="not an RDB file"):
        fastresp.copy(str(path), target)
    with pytest.raises(IsADirectoryError):
        fastresp.copy(str(tmp_path), target)


def test_expired_keys(target: redis.Redis, tmp_path: Path) -> None:
    """A key of the target stays, although the file has an expired key of that name."""
    path = tmp_path / "dump.rdb"
    path.write_bytes(finished(b"\xfe\x00\xfc" + bytes(8) + b"\x00\x01a\x01v" + b"\x00\x01b\x01v"))
    target.set("a", "new")
    report = fastresp.copy(path, target, exists="replace")
    assert (report.rows, report.gone) == (1, 1)
    assert target.mget("a", "b") == [b"new", b"v"]


def test_files_of_several_nodes(target: redis.Redis, tmp_path: Path) -> None:
    for number in range(3):
        body = b"\xfe\x00\x00\x02k%d\x01v" % number
        (tmp_path / f"node{number}.rdb").write_bytes(finished(body))
    fastresp.copy(tmp_path / "node*.rdb", target)
    assert sorted(target.keys()) == [b"k0", b"k1", b"k2"]
    target.flushall()
    (tmp_path / "node1.rdb").write_bytes(finished(b"", b"VALKEY080"))
    with pytest.raises(SourceError, match=r"node1.rdb is a file of Valkey, but .* one by one"):
        fastresp.copy(tmp_path / "node*.rdb", target)


def test_damaged_file(target: redis.Redis, tmp_path: Path) -> None:
    """The keys before the damage are copied."""
    path = tmp_path / "dump.rdb"
    path.write_bytes(finished(every_opcode())[:-20])
    with pytest.raises(SourceError, match=r"dump.rdb: truncated: it ends at byte"):
        fastresp.copy(path, target)
    assert target.dbsize() == 5
    path.write_bytes(b"no snapshot")
    with pytest.raises(SourceError, match="not an RDB file"):
        fastresp.copy(path, target, exists="replace")


def test_command_line(target: redis.Redis, server: LocalServer, tmp_path: Path) -> None:
    path = tmp_path / "dump.rdb"
    path.write_bytes(finished(every_opcode()))
    assert invoke("copy", path, server.url).exit_code == Exit.OK
    assert target.dbsize() == 5
    result = invoke("copy", path, server.url, "--from-replica")
    assert result.exit_code == Exit.USAGE
    assert "a file is a snapshot already; omit --from-replica" in result.stderr
    assert invoke("copy", tmp_path / "none.rdb", server.url).exit_code == Exit.USAGE
