"""``fastresp unload`` of RDB files."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest
import redis
from command_line import invoke

from fastresp.cli.exit_codes import Exit
from fastresp.server.local_server import LocalServer


@pytest.fixture
def dump(server: LocalServer, tmp_path: Path) -> Path:
    client = redis.Redis.from_url(server.url)
    client.flushall()
    client.hset("user:1", mapping={"name": "Ann", "age": 41})
    client.hset("user:2", mapping={"name": "Zoë"})
    client.rpush("list", "a", "b")
    client.save()
    path = tmp_path / "dump.rdb"
    folder = client.config_get("dir")["dir"], client.config_get("dbfilename")["dbfilename"]
    path.write_bytes(Path(*folder).read_bytes())
    return path


def test_hashes_to_parquet(dump: Path, tmp_path: Path) -> None:
    output = tmp_path / "users.parquet"
    result = invoke("unload", dump, output, "--match", "user:{id}", "--ttl")
    assert result.exit_code == Exit.OK
    assert result.stderr.startswith(f"2 rows written to {output}: ")
    rows = sorted(pq.read_table(output).to_pylist(), key=lambda row: row["id"])
    assert rows == [
        {"id": "1", "name": "Ann", "age": "41", "expires_at": None},
        {"id": "2", "name": "Zoë", "age": None, "expires_at": None},
    ]


def test_list_to_csv_from_a_compressed_file(dump: Path, tmp_path: Path) -> None:
    packed = tmp_path / "dump.rdb.gz"
    packed.write_bytes(gzip.compress(dump.read_bytes()))
    result = invoke("unload", packed, "--type", "list", "--db", "0", "--json")
    assert result.stdout.splitlines() == ['"key","item"', '"list","a"', '"list","b"']
    summary = json.loads(result.stderr)
    assert (summary["rows"], summary["output"], summary["exit_code"]) == (2, None, 0)


def test_truncated_file(dump: Path, tmp_path: Path) -> None:
    dump.write_bytes(dump.read_bytes()[:-9])
    result = invoke("unload", dump, "--type", "list", "-o", tmp_path / "list.csv")
    assert result.exit_code == Exit.ERRORS
    assert "dump.rdb: truncated: it ends at byte" in result.stderr
    assert not (tmp_path / "list.csv").exists()


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (["dump.rdb"], "dump.rdb: No such file or directory; check the path"),
        (["dump.rdb", "--server", "redis://x"], "needs no server; leave out --server"),
        (["user:*", "--db", "1"], "--db is for RDB files; name a server's database in its URL"),
    ],
)
def test_wrong_usage(options: list[str], problem: str) -> None:
    result = invoke("unload", *options)
    assert result.exit_code == Exit.USAGE
    assert problem in result.stderr
