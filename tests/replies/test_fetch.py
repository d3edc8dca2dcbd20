"""fetch_hashes: hashes as columns, by keys and by patterns, and no connection left open."""

from __future__ import annotations

import gc
import itertools
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import redis
from peak import PEAK
from server_programs import need
from stored_users import FIELDS, by_id, loaded
from waiting import only_we_are_connected

import fastresp
from fastresp import CommandError, DecodeError, TransportError, TransportTimeout, fetch_hashes
from fastresp.encode.columns import arrow_out
from fastresp.encode.key_columns import as_pattern
from fastresp.server.local_server import LocalServer


def rows_of(source: Any) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = pa.table(source).to_pylist()
    return rows


def test_keys_in_their_order(server: LocalServer) -> None:
    users = loaded(server)
    keys = ["user:5", "none", b"user:1", "user:5"]
    got = rows_of(fetch_hashes(keys, ["city", "name", "other"], server=server.url))
    found = [users[5], None, users[1], users[5]]
    assert got == [
        {"city": user and user["city"], "name": user and user["name"], "other": None}
        for user in found
    ]


@pytest.mark.parametrize(
    "column",
    [kind(["user:1", "user:2"]) for kind in (pa.array, pl.Series, pd.Series)],
    ids=["pyarrow", "polars", "pandas"],
)  # fmt: skip
def test_columns_of_keys(column: Any, server: LocalServer) -> None:
    users = loaded(server)
    rows = fetch_hashes(column, ["name"], server=server.url)
    for _ in range(2):
        assert rows_of(rows) == [{"name": users[1]["name"]}, {"name": users[2]["name"]}]


def test_read_back(server: LocalServer, client: redis.Redis) -> None:
    """A pattern finds hashes stored through a template, and only hashes."""
    users = loaded(server, 5000)
    client.set("user:x", 1)
    client.hset("userX1", "name", "x")
    got = rows_of(fetch_hashes("user:{id}", FIELDS, server=server.url, batch_rows=700))
    assert by_id(got) == users
    keyed = rows_of(fetch_hashes("user:*", ["name"], server=server.url))
    assert {row["key"]: row["name"] for row in keyed} == {
        f"user:{user['id']}": user["name"] for user in users
    }


def test_libraries(server: LocalServer) -> None:
    users = loaded(server, 3000)
    hashes = fetch_hashes("user:{id}", FIELDS, server=server.url, batch_rows=1000)
    assert by_id(pl.DataFrame(hashes).to_dicts()) == users
    assert by_id(pd.DataFrame.from_arrow(hashes).astype(object).to_dict("records"))[1] == users[1]
    assert duckdb.sql("SELECT count(*), count(city) FROM hashes").fetchall() == [(3000, 2000)]
    assert pa.schema(hashes) == pa.schema([(name, pa.string()) for name in ("id", *FIELDS)])
    assert hashes.rows == 3000
    assert hashes.nbytes > 30_000
    with pa.RecordBatchReader.from_stream(hashes) as reader:
        assert [len(batch) for batch in reader] == [1000] * 3
    assert [len(batch) for batch in hashes.batches()] == [1000] * 3
    assert by_id(list(hashes)) == users
    frame = pd.DataFrame(hashes)
    assert frame.columns.tolist() == ["id", *FIELDS]
    pd.testing.assert_frame_equal(frame, pd.DataFrame.from_arrow(hashes), check_dtype=False)
    assert pl.from_arrow(hashes).struct.unnest().equals(pl.DataFrame(hashes))


NO_PYARROW = """
import sys
sys.modules["pyarrow"] = None
import fastresp
batches = list(fastresp.fetch_hashes(["a"], ["f"], server=sys.argv[1]).batches())
assert len(batches) == 1 and batches[0].names == ("f",)
"""


def test_without_pyarrow(server: LocalServer) -> None:
    subprocess.run([sys.executable, "-c", NO_PYARROW, server.url], check=True)


@pytest.mark.parametrize("key", ["a*b?c[d]e\\f^g:1:é}{", "x", "*", "\\"])
def test_other_characters_of_a_pattern_are_literal(
    key: str, server: LocalServer, client: redis.Redis
) -> None:
    client.hset(f"{key}1{key}", "f", "yes")
    client.hset(f"{key}1{key}z", "f", "no")
    client.hset("axbxcdexfxg:1:é}{1axbxcdexfxg:1:é}{", "f", "no")
    text = key.replace("{", "{{").replace("}", "}}")
    got = rows_of(fetch_hashes(f"{text}{{n}}{text}", ["f"], server=server.url))
    assert got == [{"n": "1", "f": "yes"}]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("user:*", ("user:*", "key", 0, 0)),
        ("user:[ab]?", ("user:[ab]?", "key", 0, 0)),
        ("{{t}}:*", ("{t}:*", "key", 0, 0)),
        ("user:{id}", ("user:*", "id", 5, 0)),
        ("{{{t}}}:*", (r"{*}:\*", "t", 1, 3)),
        ("ü{the id}é", ("ü*é", "the id", 2, 2)),
    ],
)
def test_patterns(text: str, expected: tuple[Any, ...]) -> None:
    pattern = as_pattern(text)
    assert (pattern.glob, pattern.column, pattern.head, pattern.tail) == expected


@pytest.mark.parametrize("text", ["user:1", "", "{a}{b}", "{}", "{**}", "{a!json}", "a{b", "b}*"])
def test_invalid_patterns(text: str) -> None:
    with pytest.raises(ValueError, match=r"pattern|brace"):
        fetch_hashes(text, FIELDS)


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        ({"fields": []}, ValueError, "fields is empty"),
        ({"fields": "name"}, TypeError, "a list of names, not one str"),
        ({"fields": ["a", "a"]}, ValueError, "two columns are named 'a'"),
        ({"keys": "u:{a}", "fields": ["a"]}, ValueError, "two columns are named 'a'"),
        ({"keys": b"user:1"}, TypeError, "not one key"),
        ({"binary": ["other"]}, ValueError, "binary names 'other'"),
        ({"fields": None}, TypeError, "a list of names, not one NoneType"),
        ({"fields": [b"x"]}, TypeError, "must be a str, not b'x'"),
        ({"fields": [1]}, TypeError, "must be a str, not 1"),
        ({"fields": ["a\0b"]}, ValueError, "no NUL in names"),
        ({"keys": 5}, TypeError, r"a pattern \(str\), not int"),
        ({"keys": None}, TypeError, r"a pattern \(str\), not NoneType"),
        ({"keys": {"k": 1}}, TypeError, r"a pattern \(str\), not dict"),
        ({"keys": memoryview(b"k")}, TypeError, "not one key"),
        ({"batch_rows": 0}, ValueError, "above 0"),
        ({"batch_rows": 1.5}, TypeError, "a whole number, not 1.5"),
        ({"timeout": 0}, ValueError, "above 0"),
        ({"server": 5}, TypeError, "a URL or"),
    ],
)
def test_bad_arguments(arguments: dict[str, Any], error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        fetch_hashes(**({"keys": ["k"], "fields": FIELDS} | arguments))


@pytest.mark.parametrize("field", ['a "b"', "{x}", "\\", "a;b\n", "ä", "", "**"])
def test_names_of_fields(field: str, server: LocalServer, client: redis.Redis) -> None:
    client.hset("k", field, "v")
    assert rows_of(fetch_hashes(["k"], [field], server=server.url)) == [{field: "v"}]


def test_binary(server: LocalServer, client: redis.Redis) -> None:
    client.hset("user:\xff".encode("latin-1"), mapping={"photo": b"\xff\0", "name": "ä"})
    client.hset("user:1", mapping={"photo": b"", "name": "b"})

    def fetched(pattern: str, binary: Any) -> list[dict[str, Any]]:
        hashes = fetch_hashes(pattern, ["photo", "name"], server=server.url, binary=binary)
        return sorted(rows_of(hashes), key=lambda row: len(row["photo"]))

    assert fetched("user:{id}", ["photo", "id"]) == [
        {"id": b"1", "photo": b"", "name": "b"}, {"id": b"\xff", "photo": b"\xff\0", "name": "ä"},
    ]  # fmt: skip
    assert fetched("user:*", True)[0] == {"key": b"user:1", "photo": b"", "name": b"b"}
    with pytest.raises(DecodeError, match=r"field 'photo' of key b'user:.xff' is not UTF-8") as one:
        list(fetch_hashes([b"user:\xff"], ["photo"], server=server.url))
    assert (one.value.key, one.value.column) == (b"user:\xff", "photo")
    with pytest.raises(DecodeError, match=r"key b'user:.xff' is not UTF-8; name 'id' in binary="):
        list(fetch_hashes("user:{id}", ["name"], server=server.url))
    only_we_are_connected(client)


def test_key_of_another_type(server: LocalServer, client: redis.Redis) -> None:
    loaded(server, 2000)
    client.rpush("list", 1)
    keys = [f"user:{i}" for i in range(2000)]
    keys[1500] = "list"
    hashes = fetch_hashes(keys, FIELDS, server=server.url)
    with pytest.raises(CommandError, match=r"command 1,500: WRONGTYPE .*\(key 'list'\)") as caught:
        list(hashes)
    assert caught.value.code == "WRONGTYPE"
    assert hashes.error is caught.value
    with pytest.raises(OSError, match="WRONGTYPE"):
        pa.table(hashes)
    assert isinstance(hashes.error, CommandError)
    only_we_are_connected(client)


def test_keys_that_fail(server: LocalServer, client: redis.Redis) -> None:
    def keys() -> Iterator[Any]:
        yield from ("a", "b")
        raise ZeroDivisionError("mine")

    with pytest.raises(ZeroDivisionError):
        list(fetch_hashes(keys(), FIELDS, server=server.url))
    with pytest.raises(fastresp.EncodeError, match="row 1"):
        list(fetch_hashes(["a", None], FIELDS, server=server.url))
    once = fetch_hashes(iter(["a"]), FIELDS, server=server.url)
    assert len(rows_of(once)) == 1
    with pytest.raises(fastresp.SourceError, match="used up; pass a list"):
        list(once)
    only_we_are_connected(client)


def test_keys_that_are_rows(server: LocalServer) -> None:
    """A row of several values is refused; a cursor yields tuples of one, which are accepted."""
    users = loaded(server)
    with pytest.raises(TypeError, match=r"a key must be one value, not 2: \('a', 'zz'\)"):
        list(fetch_hashes([("a", "zz")], FIELDS, server=server.url))
    cursor = fetch_hashes([("user:1",)], FIELDS, server=server.url)
    assert rows_of(cursor)[0]["name"] == users[1]["name"]
    frame = pd.DataFrame({"key": ["user:1"], "other": ["x"]}, index=[7])
    for keys in (frame, pl.from_pandas(frame), pa.table(frame[["key", "other"]])):
        with pytest.raises(fastresp.SourceError, match=r"not 2 \(key, other\); .* keys\['key'\]"):
            list(fetch_hashes(keys, FIELDS, server=server.url))
    one = fetch_hashes(frame[["key"]], FIELDS, server=server.url)
    assert rows_of(one)[0]["name"] == users[1]["name"]


@pytest.mark.parametrize("key", [None, True, object(), pd.NaT])
def test_advice_is_for_keys(key: Any, server: LocalServer) -> None:
    hashes = fetch_hashes(["a", key], FIELDS, server=server.url)
    with pytest.raises(fastresp.EncodeError, match=r"row 1.*cannot send .*; keys must") as caught:
        list(hashes)
    assert "nulls=" not in str(caught.value)
    assert "default=" not in str(caught.value)
    with pytest.raises(fastresp.EncodeError, match=r"row 1.*cannot send a null.*; keys must be"):
        list(fetch_hashes(pa.array(["a", None]), FIELDS, server=server.url))


def test_key_that_becomes_another_type(server: LocalServer, client: redis.Redis) -> None:
    """It changes after SCAN has found it: a row of nulls, as for a deleted key."""
    loaded(server, 3000)
    batches = fetch_hashes("user:{id}", ["name"], server=server.url, batch_rows=1).batches()
    rows = rows_of(next(batches))
    for i in range(3000):
        client.delete(f"user:{i}")
        client.rpush(f"user:{i}", 1)
    rows += [row for batch in batches for row in rows_of(batch)]
    assert len(rows) >= 1000
    assert rows[0]["name"] is not None
    assert rows[-1]["name"] is None


@pytest.mark.slow
def test_stopped_early(server: LocalServer, client: redis.Redis) -> None:
    """However a reading is stopped, its connections are closed and its memory is freed."""
    loaded(server, 20_000)
    gc.collect()  # cycles left by earlier tests
    held = arrow_out.live_columns()

    def left(how: str) -> None:
        hashes = fetch_hashes("user:*", FIELDS, server=server.url, batch_rows=1000)
        if how == "reader":
            reader = pa.RecordBatchReader.from_stream(hashes)
            reader.read_next_batch()
            assert len(client.client_list()) == 3
            reader.close()
        elif how == "iterator":
            next(iter(hashes))
        elif how == "batches":
            next(hashes.batches())
        else:
            with hashes:
                batches = hashes.batches()
                next(batches)
            assert list(batches) == []

    for how in ("reader", "iterator", "batches", "with"):
        left(how)
        gc.collect()
        only_we_are_connected(client)
        assert arrow_out.live_columns() == held


def test_interrupted(server: LocalServer, client: redis.Redis) -> None:
    """A library raises its own error for a Ctrl-C."""
    hashes = fetch_hashes(itertools.repeat("none"), ["f"], server=server.url)

    @contextmanager
    def interrupt() -> Iterator[None]:
        """Press Ctrl-C, repeatedly if needed: Python drops one during a __del__."""
        over = threading.Event()

        def press() -> None:
            wait = 0.1
            while not over.wait(wait):
                os.kill(os.getpid(), signal.SIGINT)
                wait = 10

        with ThreadPoolExecutor() as pool:
            pool.submit(press)
            try:
                yield
            finally:
                over.set()

    with interrupt(), pytest.raises(KeyboardInterrupt):
        list(hashes.batches())
    assert isinstance(hashes.error, KeyboardInterrupt)
    only_we_are_connected(client)
    with interrupt(), pytest.raises(KeyboardInterrupt):
        list(fetch_hashes(itertools.repeat("none"), ["f"], server=server.url))
    only_we_are_connected(client)
    hashes = fetch_hashes(itertools.repeat("none"), ["f"], server=server.url)
    with interrupt(), pytest.raises(OSError, match="KeyboardInterrupt"):
        pa.table(hashes)
    assert isinstance(hashes.error, KeyboardInterrupt)
    only_we_are_connected(client)


@pytest.mark.parametrize("pattern", [True, False])
def test_server_killed(pattern: bool, start_server: Callable[..., LocalServer]) -> None:
    server = start_server()
    loaded(server, 50_000)
    keys: Any = "user:*" if pattern else [f"user:{i}" for i in range(50_000)]
    batches = fetch_hashes(keys, FIELDS, server=server.url, batch_rows=1000).batches()
    next(batches)
    server.process.kill()
    with pytest.raises(TransportError, match=r"lost the connection|can't use the server"):
        list(batches)


@pytest.mark.few(1)
@pytest.mark.parametrize("pattern", [True, False])
def test_server_frozen(pattern: bool, start_server: Callable[..., LocalServer]) -> None:
    server = start_server()
    loaded(server, 50_000)
    keys: Any = "user:*" if pattern else [f"user:{i}" for i in range(50_000)]
    hashes = fetch_hashes(keys, FIELDS, server=server.url, batch_rows=1000, timeout=1.0)
    batches = hashes.batches()
    next(batches)
    os.kill(server.process.pid, signal.SIGSTOP)
    with pytest.raises(TransportTimeout):
        list(batches)
    os.kill(server.process.pid, signal.SIGCONT)


@pytest.mark.slow
def test_slow_consumer_is_not_a_timeout(server: LocalServer) -> None:
    loaded(server, 5000)
    rows = 0
    hashes = fetch_hashes("user:*", FIELDS, server=server.url, batch_rows=2000, timeout=1.0)
    for batch in hashes.batches():
        rows += len(batch)
        if rows < 5000:
            time.sleep(1.3)
    assert rows == 5000


def test_no_server(port: int) -> None:
    hashes = fetch_hashes("user:*", FIELDS, server=f"redis://127.0.0.1:{port}")
    with pytest.raises(TransportError, match="refused"):
        list(hashes)


def test_scan_is_refused(start_server: Callable[..., LocalServer]) -> None:
    server = start_server()
    with redis.Redis.from_url(server.url) as client:
        client.execute_command("ACL", "SETUSER", "r", "on", ">p", "~*", "+hmget", "+ping")
    url = server.url.replace("unix://", "unix://r:p@")
    with pytest.raises(CommandError, match=r"SCAN: .*permission"):
        list(fetch_hashes("user:*", FIELDS, server=url))
    assert rows_of(fetch_hashes(["a"], ["f"], server=url)) == [{"f": None}]


def test_from_a_replica(start_server: Callable[..., LocalServer], port: int) -> None:
    # Without the 5 s for which a master waits for more replicas.
    master = start_server("--port", str(port), "--repl-diskless-sync-delay", "0")
    loaded(master)
    replica = start_server("--replicaof", "127.0.0.1", str(port))
    deadline = time.monotonic() + 20
    with redis.Redis.from_url(replica.url) as client:
        while client.info("replication")["master_link_status"] != "up":
            assert time.monotonic() < deadline
            time.sleep(0.05)
    assert len(rows_of(fetch_hashes("user:*", FIELDS, server=replica.url))) == 10


def test_tls(tls_server: LocalServer, tls: Callable[..., str]) -> None:
    url = tls()
    rows = [{"id": str(i), "name": "x" * (i % 3000)} for i in range(3000)]
    fastresp.mass_insert(rows, "HSET user:{id} {**}", server=url)
    assert by_id(rows_of(fetch_hashes("user:{id}", ["name"], server=url))) == rows


def test_large_and_small_values(server: LocalServer, client: redis.Redis) -> None:
    chance = random.Random(4)
    values = [chance.randbytes(chance.choice([0, 10, 70_000, 3_000_000])) for _ in range(60)]
    for index, value in enumerate(values):
        client.hset(f"k{index}", "f", value)
    keys = [f"k{index}" for index in range(60)]
    rows = rows_of(fetch_hashes(keys, ["f"], server=server.url, binary=True))
    assert [row["f"] for row in rows] == values


MEMORY_CODE = (
    PEAK
    + """
import sys, fastresp
def fetch(count):
    keys = (f"user:{i % 1000}" for i in range(count))
    rows = 0
    for batch in fastresp.fetch_hashes(keys, ["name", "large"], server=sys.argv[1]).batches():
        rows += len(batch)
    assert rows == count
fetch(20_000)
before = peak()
fetch(400_000)
print(peak() - before)
"""
)


@pytest.mark.slow
def test_memory(server: LocalServer, client: redis.Redis) -> None:
    need("server")
    rows = ({"id": i, "name": f"n{i}", "large": "x" * 1000} for i in range(1000))
    fastresp.mass_insert(rows, "HSET user:{id} {**}", server=server.url)
    done = subprocess.run(
        [sys.executable, "-c", MEMORY_CODE, server.url], capture_output=True, text=True, check=True
    )
    assert int(done.stdout) * 1024 <= 100 << 20
