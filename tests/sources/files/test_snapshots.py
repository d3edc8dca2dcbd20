"""RDB files as columns: read() compared with unload() of the server that saved the file."""

from __future__ import annotations

import gzip
import io
import logging
import random
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import redis
from rdb_files import RDB_VERSIONS, finished, saved, text

import fastresp
from fastresp.outcome.errors import DecodeError, SourceError
from fastresp.server.local_server import LocalServer


def columns(source: Any) -> pa.Table:
    """Return all columns; raise the original exception, not its text as an error of Arrow."""
    try:
        return pa.table(source)
    except pa.ArrowException:
        raise source.error from None


def rows(source: Any) -> list[dict[str, Any]]:
    """Return the rows sorted, with scores as numbers, since their texts differ."""
    found = columns(source).to_pylist()
    for row in found:
        if "score" in row:
            row["score"] = float(row["score"])
    return sorted(found, key=lambda row: repr(sorted(row.items(), key=str)))


@pytest.mark.few(2)
@pytest.mark.parametrize("kind", ["hash", "string", "list", "set", "zset", "stream"])
@pytest.mark.parametrize("name", RDB_VERSIONS)
def test_same_rows_as_from_the_server(name: str, kind: str) -> None:
    options: dict[str, Any] = {"type": kind, "ttl": True, "binary": True}
    with saved(name) as (client, path):
        wanted = fastresp.unload("*", server=client, **options)
        found = fastresp.read(path, **options)
        assert rows(found) == rows(wanted)
        found, wanted = columns(found).schema, columns(wanted).schema
        assert found.names[0] == "key"
        assert set(found) == set(wanted)
        assert fastresp.read(path, type=kind, binary=True).rows is None


@pytest.fixture(scope="module")
def dump(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return an RDB file with users, other types, and another database."""
    path = tmp_path_factory.mktemp("rdb") / "dump.rdb"
    with LocalServer() as server:
        client = redis.Redis.from_url(server.url)
        client.hset("user:1", mapping={"name": "Ann", "age": 41})
        client.hset("user:2", mapping={"name": "Zoë", "city": "Köln", "binary": b"\xff"})
        client.pexpireat("user:1", 4_102_444_800_123)
        client.hset("other:1", mapping={"name": "no user"})
        client.rpush("user:list", "a", "b")
        client.rpush("long", *range(200_000))
        client.execute_command("SELECT", 3)
        client.set("elsewhere", "x")
        client.save()
        path.write_bytes((server.folder / "dump.rdb").read_bytes())
    return path


ANN = {"id": "1", "name": "Ann", "age": "41"}


def test_parts_of_keys_fields_and_times(dump: Path) -> None:
    table = fastresp.read(dump, match="user:{id}", fields=["name", "age"], ttl="until")
    found = pa.table(table)
    assert found.schema.field("until").type == pa.timestamp("ms", "UTC")
    found = found.cast(pa.schema([*list(found.schema)[:3], ("until", pa.int64())]))
    assert rows(found) == [
        {**ANN, "until": 4_102_444_800_123},
        {"id": "2", "name": "Zoë", "age": None, "until": None},
    ]


def test_all_fields_are_found_first(dump: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "fastresp"):
        names = columns(fastresp.read(dump, match="user:*", binary="binary")).column_names
    assert sorted(names) == ["age", "binary", "city", "key", "name"]
    assert (
        "skipped 1 key of user:* (other types than hash), such as 'user:list', a list"
        in caplog.text
    )
    assert "skipped 1 key of databases other than 0" in caplog.text
    caplog.clear()
    columns(fastresp.read(dump, match="user:*", type="hash", binary=True, db=0))
    assert not caplog.text


def test_batches_end_inside_of_a_large_list(dump: Path) -> None:
    reader = pa.RecordBatchReader.from_stream(fastresp.read(dump, match="long", type="list"))
    sizes, items = [], []
    for batch in reader:
        sizes.append(batch.num_rows)
        items += batch["item"].to_pylist()
    assert len(sizes) > 2
    assert items == list(map(str, range(200_000)))


@pytest.mark.parametrize("kind", ["gz", "file", "pipe"])
def test_other_sources(dump: Path, tmp_path: Path, kind: str) -> None:
    data = dump.read_bytes()
    source: Any = tmp_path / "dump.rdb.gz"
    source.write_bytes(gzip.compress(data))
    options: dict[str, Any] = {"match": "user:{id}"}
    if kind != "gz":
        source = io.BytesIO(data) if kind == "file" else OnlyRead(data)
        with pytest.raises(SourceError, match=r"can be read only once.*fields="):
            columns(fastresp.read(source, **options))
        source = io.BytesIO(data) if kind == "file" else OnlyRead(data)
        options["fields"] = ["name", "age"]
    found = rows(fastresp.read(source, binary="binary" if kind == "gz" else False, **options))
    assert {name: found[0][name] for name in ANN} == ANN


class OnlyRead:
    """A file object with nothing but read()."""

    def __init__(self, data: bytes) -> None:
        self.read = io.BytesIO(data).read


def test_load_of_a_snapshot(dump: Path, server: LocalServer) -> None:
    """The template names the fields, and values need not be UTF-8."""
    client = redis.Redis.from_url(server.url)
    client.flushall()
    table = fastresp.read(dump, match="user:{id}", ttl=True, type="hash")
    template = "HSET copy:{id} name {name} binary {binary}"
    fastresp.mass_insert(table, template, server=client, nulls="empty")
    assert client.hgetall("copy:2") == {b"name": "Zoë".encode(), b"binary": b"\xff"}
    fastresp.mass_insert(table, "HSET all:{id} {**-expires_at}", server=client, nulls="skip")
    assert client.hgetall("all:1") == {b"name": b"Ann", b"age": b"41"}


def test_limit_and_sorting(dump: Path) -> None:
    assert rows(fastresp.read(dump, match="long", type="list", limit=3))[0]["item"] == "0"
    table = fastresp.read(dump, match="user:{id}", fields=["name"], sort_by="name")
    assert pa.table(table)["id"].to_pylist() == ["1", "2"]


def test_value_that_is_not_text(dump: Path) -> None:
    with pytest.raises(DecodeError, match="'binary' of the key with id b'2' is not UTF-8"):
        columns(fastresp.read(dump, match="user:{id}"))


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"match": "no:*"}, r"no hash of database 0 matches no:\*, so the columns are unknown"),
        ({"match": "user:l*"}, "but 'user:list' does, which is a list; use type='list'"),
        ({"db": 5}, "no hash of database 5 matches"),
        ({"match": "user:{name}", "binary": True}, "which is also the name of the key's column"),
        ({"match": "user:*", "ttl": "age", "fields": ["age"]}, "two columns are named 'age'"),
        ({"match": "user:*", "binary": "none"}, "names 'none', but the columns are"),
    ],
)
def test_errors(dump: Path, options: dict[str, Any], problem: str) -> None:
    with pytest.raises((SourceError, ValueError), match=problem):
        columns(fastresp.read(dump, **options))


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"type": "json"}, "type must be one of"),
        ({"type": "set", "fields": ["a"]}, "a set has no fields; omit fields"),
        ({"match": "{a}{b}"}, "is not a pattern"),
        ({"delimiter": ";"}, "is for CSV and lines, but this is RDB"),
    ],
)
def test_wrong_options(dump: Path, options: dict[str, Any], problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        fastresp.read(dump, **options)
    with pytest.raises(ValueError, match="match= is for RDB, but this is CSV"):
        fastresp.read(io.BytesIO(b"a\n1\n"), format="csv", match="*")


def test_rows_before_the_damage_are_loaded(dump: Path, tmp_path: Path, server: LocalServer) -> None:
    client = redis.Redis.from_url(server.url)
    client.flushall()
    path = tmp_path / "dump.rdb"
    path.write_bytes(dump.read_bytes()[:-9])
    with pytest.raises(SourceError, match=r"dump.rdb: truncated: it ends at byte"):
        fastresp.mass_insert(fastresp.read(path), "HSET {key} name {name}", server=client)
    assert client.dbsize() == 3


def test_damaged_values(tmp_path: Path) -> None:
    """A compact form is damaged inside: its key was read, but not the value."""
    listpack = b"\x0b\x00\x00\x00\x02\x00\x81a\x02\x85\xff"
    path = tmp_path / "dump.rdb"
    path.write_bytes(finished(b"\xfe\x00\x10" + text(b"key") + text(listpack)))
    with pytest.raises(SourceError, match=r"dump.rdb: damaged at byte .*: a damaged hash: .*'key'"):
        columns(fastresp.read(path))


@pytest.mark.slow
def test_random_damage(tmp_path: Path) -> None:
    path = tmp_path / "dump.rdb"
    with saved("redis-8.2") as (_, saved_path):
        data = saved_path.read_bytes()[:-8] + bytes(8)
    source = random.Random(6)
    for _ in range(500):
        damaged = bytearray(data)
        for _ in range(source.choice((1, 5, 50))):
            damaged[source.randrange(9, len(data))] = source.choice((0, 255, source.randrange(256)))
        path.write_bytes(damaged)
        kind = source.choice(["hash", "string", "list", "set", "zset", "stream"])
        with suppress(ValueError, OSError):
            columns(fastresp.read(path, type=kind, binary=True, ttl=True))
