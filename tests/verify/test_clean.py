"""Loaded data verifies clean: all commands, sources and ways to load."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
import redis

import fastresp
import fastresp.aio
from fastresp.server.local_server import LocalServer
from fastresp.server.settings import Server

Verify = Callable[..., fastresp.VerifyReport]
Load = Callable[..., fastresp.Report]
COUNT = 3000
ROWS = [
    {
        "id": i,
        "name": f"name {i}",
        "text": f"{i}\r\n$3\r\n" * (i % 7),
        "score": (i - 1500) / 7,
        "group": i // 10,
    }
    for i in range(COUNT)
]
TABLE = pa.Table.from_pylist(ROWS)
# With the number of values of each row.
TEMPLATES = {
    "SET k:{id} {text}": 1,
    "SET k:{id} {text} EX 1000": 2,
    "SETEX k:{id} 1000 {text}": 2,
    "PSETEX k:{id} 1000000 {text}": 2,
    "SET k:{id} {text} PXAT 4000000000000 GET": 2,
    "MSET a:{id} {text} b:{id} {name}": 2,
    "HSET k:{id} {**}": 4,
    "HMSET k:{group} {id} {text} {name} {score}": 2,
    "SADD k {name} x{id}": 2,
    "SADD k:{group} {name} {id}": 2,
    "ZADD k {score} {name}": 1,
    "ZADD k:{group} CH {score} {name} {id} {text}{id}": 2,
    "RPUSH k {text} {id}": 2,
    "RPUSH k:{group} {text}": 1,
    "LPUSH k:{group} {text} {id}": 2,
    "LPUSH k {id}": 1,
    "DEL k:{id}": 1,
    "UNLINK a:{id} b:{id}": 2,
    "hset k:{id} a {name}": 1,
    ("DEL k:{id}", "RPUSH k:{id} {name} {text}"): 2,
    ("HSET k:{id} {**}", "EXPIRE k:{id} 1000"): 5,
    ("HSET k:{id} {**}", "PEXPIREAT k:{id} 4000000000000"): 5,
    ("SET k:{id} {name} EX 5", "PERSIST k:{id}"): 3,
    ("SET k:{id} {name} EX 50", "SET k:{id} {text} KEEPTTL"): 3,
    ("MULTI", "HSET k:{id} a {name}", "SADD all {id}", "EXEC"): 2,
    ("HSET k:{id} a {name} b {text}", "HDEL k:{id} b c"): 4,
    ("SADD k:{id} a b", "SREM k:{id} b c"): 4,
    ("ZADD k:{id} 1 a 2 b", "ZREM k:{id} b c"): 4,
}


def as_list(templates: str | tuple[str, ...]) -> list[str]:
    return [templates] if isinstance(templates, str) else list(templates)


@pytest.mark.parametrize("exact", [False, True])
@pytest.mark.parametrize("columns", [False, True])
@pytest.mark.parametrize("templates", TEMPLATES)
def test_every_command(
    templates: str | tuple[str, ...],
    columns: bool,
    exact: bool,
    load: Load,
    verify: Verify,
    client: redis.Redis,
) -> None:
    source, template = TABLE if columns else ROWS, as_list(templates)
    load(source, template)
    keys = client.dbsize()
    report = verify(source, template, exact=exact)
    assert report.same, report
    assert (report.rows, report.rows_compared) == (COUNT, COUNT)
    # DEL has no read if the next command writes the key again.
    assert report.values == TEMPLATES[templates] * COUNT
    assert report.written_meanwhile == 0
    assert client.dbsize() == keys
    assert "nothing differs" in str(report)


@pytest.mark.parametrize("template", ["{0} {1} {2}", ["{0} {1} {2}", "EXPIRE {1} 100"]])
def test_commands_named_in_the_source(
    template: str | list[str], load: Load, verify: Verify, client: redis.Redis
) -> None:
    rows = [("SET", "a", 1), ("SADD", "b", 2)]
    load(rows, template)
    assert verify(rows, template).same
    client.srem("b", 2)
    assert [each.row for each in verify(rows, template).differences] == [1]


@pytest.mark.parametrize("mode", ["merge", "serialize"])
@pytest.mark.parametrize(
    "template",
    [
        "HSET k:{group} {id} {text}",
        "RPUSH k:{group} {text}",
        "LPUSH k:{group} {text}",
        "SADD k:{group} {name}",
        "ZADD k:{group} {score} {name}",
        ["HSET k:{id} {**}", "EXPIRE k:{id} 1000"],
    ],
)
def test_merged_and_serialised_loads(template: Any, mode: str, load: Load, verify: Verify) -> None:
    load(TABLE, template, mode=mode)
    report = verify(TABLE, template, exact=True)
    assert report.same and report.values >= COUNT, report


@pytest.mark.parametrize("kind", ["csv", "parquet", "jsonl", "arrow", "resp", "query", "generator"])
def test_every_source(
    kind: str, load: Load, verify: Verify, client: redis.Redis, tmp_path: Path
) -> None:
    table = TABLE.drop_columns(["text"])
    template: Any = "HSET k:{id} name {name} score {score}"
    path = tmp_path / f"x.{kind}"
    pq.write_table(table, tmp_path / "x.parquet")
    source: Callable[[], Any] = lambda: path  # noqa: E731
    if kind == "csv":
        pa.csv.write_csv(table, path)
    elif kind == "jsonl":
        path.write_text("".join(f"{row}\n".replace("'", '"') for row in table.to_pylist()))
    elif kind == "arrow":
        with pa.ipc.new_file(path, table.schema) as writer:
            writer.write_table(table)
    elif kind == "resp":
        fastresp.dump(table, template, path)
        template = None
    elif kind == "query":
        source = lambda: f"SELECT * FROM '{tmp_path}/x.parquet' WHERE id < 2000"  # noqa: E731
    elif kind == "generator":
        source = lambda: (row for row in ROWS)  # noqa: E731
    load(source(), template)
    report = verify(source(), template)
    count = 2000 if kind == "query" else COUNT
    assert report.same and report.values == 2 * count, report
    client.hset("k:1234", "name", "other")
    report = verify(source(), template)
    [found] = report.differences
    assert (found.row, found.key, found.field) == (1234, b"k:1234", b"name")
    assert (found.kind, found.wanted, found.found) == ("value", b"name 1234", b"other")


def test_several_files(load: Load, verify: Verify, client: redis.Redis, tmp_path: Path) -> None:
    """Differences name the file and its row."""
    for number in range(3):
        part = TABLE.slice(number * 100, 100).select(["id", "name"])
        pq.write_table(part, tmp_path / f"part-{number}.parquet")
    pattern = f"{tmp_path}/part-*.parquet"
    load(pattern, "SET k:{id} {name}")
    client.delete("k:123")
    report = verify(pattern, "SET k:{id} {name}")
    [found] = report.differences
    assert found.file is not None and found.file.endswith("part-1.parquet")
    assert (found.row, found.row_in_file) == (123, 23)
    assert "row 23 of " in str(report)


def test_async_source(load: Load, server: LocalServer) -> None:
    async def rows() -> AsyncIterator[dict[str, Any]]:
        for number, row in enumerate(ROWS):
            if number % 1000 == 0:
                await asyncio.sleep(0.01)
            yield row

    load(ROWS, "SET k:{id} {name}")
    report = asyncio.run(fastresp.aio.verify(rows(), "SET k:{id} {name}", server=server.url))
    assert report.same and report.values == COUNT


@pytest.mark.parametrize("sample", [None, "50%"])
def test_empty_source(verify: Verify, sample: str | None) -> None:
    """An empty file must not pass for a load whose data was compared."""
    for empty in ([], iter(()), TABLE.slice(0, 0)):
        report = verify(empty, "SET k:{id} {name}", sample=sample)
        assert not report.same and (report.rows, report.values) == (0, 0)
        assert "0 rows compared" in str(report)
        assert "there was nothing to compare" in str(report)


def test_nulls(load: Load, verify: Verify) -> None:
    rows = [{"id": i, "a": None if i % 2 else "x", "b": "y"} for i in range(1000)]
    for nulls, values in (("skip", 1500), ("empty", 2000)):
        load(rows, "HSET k:{id} {**}", nulls=nulls)
        assert verify(rows, "HSET k:{id} {**}", nulls=nulls).values == values
        assert verify(rows, "HSET k:{id} {**}", nulls=nulls).same
    with pytest.raises(fastresp.EncodeError, match="row 1"):
        verify(rows, "HSET k:{id} {**}", nulls="error")


def binary_rows() -> Iterator[tuple[bytes, bytes, bytes]]:
    for i in range(256):
        text = bytes([i, 255 - i, 13, 10]) * (i % 5)
        yield b"key \r\n" + text, bytes([i]) + text, text


@pytest.mark.parametrize(
    "template",
    [
        "SET {0}{1} {2}",
        "HSET h{0} {1} {2}",
        "SADD s{0} {1}",
        "ZADD z{0} 1 {1}",
        "RPUSH l{0} {1} {2}",
    ],
)
def test_binary_keys_and_values(template: str, load: Load, verify: Verify) -> None:
    load(binary_rows(), template)
    assert verify(binary_rows(), template, exact=True).same


@pytest.mark.parametrize(
    "template", ["SET k:{0} {1}", "HSET k:{0} f {1}", "RPUSH k {1}", "RPUSH k:{0} {1} {1}"]
)
def test_large_values(template: str, load: Load, verify: Verify, client: redis.Redis) -> None:
    """They arrive in parts, and the encoder does not copy them."""
    rows = [
        (i, bytes([65 + i]) * size) for i, size in enumerate([0, 1, 70_000, 600_000, 3_000_000])
    ]
    load(rows, template)
    assert verify(rows, template).same
    rows[3] = (3, rows[3][1][:300_000] + b"?" + rows[3][1][300_001:])
    rows[4] = (4, rows[4][1] + b"?")
    report = verify(rows, template)
    assert {each.row for each in report.differences} == {3, 4}
    first = report.differences[0]
    assert (first.kind, first.found_bytes) == ("value", 600_000)
    assert first.found == b"D" * 65_536
    assert first.wanted == rows[3][1]
    line = first.as_json()
    assert (line["wanted_bytes"], line["found_bytes"]) == (600_000, 600_000)
    assert len(line["wanted"]) == len(line["found"]) == 4096


def test_keys_given_as_large_arguments(load: Load, verify: Verify) -> None:
    rows = [("k" * 600_000 + str(i), "v" * 600_000, i) for i in range(4)]
    for template in ("SET {0} {1}", "HSET h{0} {1} {2}", "HSET g{2} {0} {1}", "SADD s{0} {1}"):
        load(rows, template)
        assert verify(rows, template).same, template


def test_replicas_and_users_with_read_permission(
    verify: Verify, start_server: Callable[..., LocalServer]
) -> None:
    """A replica and read permission suffice; without MGET, keys are read one by one."""
    replica = start_server()
    fastresp.mass_insert(ROWS, "SET k:{id} {name}", server=replica.url)
    with redis.Redis.from_url(replica.url) as client:
        client.acl_setuser(
            "reader", enabled=True, nopass=True, keys=["*"],
            commands=["+get", "+ping", "+echo", "+info", "+multi", "+discard"],
        )  # fmt: skip
        client.replicaof("127.0.0.1", "1")
        assert verify(ROWS, "SET k:{id} {name}", server=replica.url).same
        url = replica.url.replace("unix://", "unix://reader:x@")
        assert Server(url).credentials[0] == "reader"
        assert verify(ROWS, "SET k:{id} {name}", server=url).same
        with pytest.raises(fastresp.CommandError, match="NOPERM"):
            verify(ROWS, "HSET k:{id} {**}", server=url)
