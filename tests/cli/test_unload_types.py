"""``fastresp unload`` of all fields, of types other than hashes, and of single keys."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import redis
from command_line import invoke
from peak import PEAK

import fastresp
from fastresp.cli.exit_codes import Exit
from fastresp.encode.key_columns import as_target
from fastresp.replies import unload
from fastresp.replies.unload import FIRST_ENTRIES, Entries
from fastresp.server.local_server import LocalServer
from fastresp.server.settings import Server

pytestmark = pytest.mark.usefixtures("server", "url_in_environment")

TEXTS = [
    "Ann",
    "",
    'say "hi"',
    "a,b",
    "line\nline\r\n",
    "Zoë 😀",
    "null",
    "00123",
    "\0",
    "x" * 10_000,
]
LOADS = {
    "string": "SET {key} {value}",
    "set": "SADD {key} {member}",
    "zset": "ZADD {key} {score} {member}",
    "list": "RPUSH {key} {item}",
}
MANY = 3 * FIRST_ENTRIES + 7


def fill(client: redis.Redis, kind: str) -> None:
    """Return keys of a type: short, empty where possible, large, and others with the same names."""
    if kind == "string":
        client.mset({f"k:{i}": text for i, text in enumerate(TEXTS)})
    elif kind == "set":
        client.sadd("k:texts", *TEXTS)
        client.sadd("k:numbers", *range(10))
        client.sadd("k:many", *(f"member {i}" for i in range(MANY)))
        client.sadd("k:large", *(f"{i}" + "x" * 50_000 for i in range(200)))
    elif kind == "zset":
        client.zadd("k:texts", {text: i / 3 for i, text in enumerate(TEXTS)})
        client.zadd("k:ends", {"a": float("inf"), "b": float("-inf"), "c": 1e300, "d": -0.1})
        client.zadd("k:many", {f"member {i}": i for i in range(MANY)})
    else:
        client.rpush("k:texts", *TEXTS, *TEXTS)
        client.rpush("k:exact", *range(FIRST_ENTRIES))
        client.rpush("k:many", *(i % 100 for i in range(MANY)))
        client.rpush("k:large", *(f"{i}" + "x" * 20_000 for i in range(FIRST_ENTRIES + 100)))


def stored(client: redis.Redis) -> dict[bytes, Any]:
    read: dict[bytes, Callable[[bytes], Any]] = {
        b"string": client.get,
        b"set": client.smembers,
        b"zset": lambda key: client.zrange(key, 0, -1, withscores=True),
        b"list": lambda key: client.lrange(key, 0, -1),
        b"hash": client.hgetall,
    }
    return {key: read[client.type(key)](key) for key in client.scan_iter("k:*")}


@pytest.mark.few(2)
@pytest.mark.parametrize("suffix", ["csv", "jsonl", "parquet"])
@pytest.mark.parametrize("kind", LOADS)
def test_round_trip(kind: str, suffix: str, client: redis.Redis, tmp_path: Path) -> None:
    fill(client, kind)
    before = stored(client)
    client.hset("k:other", "a", "b")
    path = tmp_path / f"x.{suffix}"
    done = invoke("unload", "k:{id}", "--type", kind, "-o", path)
    assert done.exit_code == Exit.OK, done.stderr
    client.flushall()
    done = invoke("load", path, LOADS[kind].replace("{key}", "k:{id}"), "--yes")
    assert done.exit_code == Exit.OK, done.stderr
    assert stored(client) == before
    # With the whole key as a column.
    done = invoke("unload", "k:*", "--type", kind, "-o", path)
    client.flushall()
    assert invoke("load", path, LOADS[kind], "--yes").exit_code == Exit.OK
    assert stored(client) == before


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_any_bytes(suffix: str, client: redis.Redis, tmp_path: Path) -> None:
    values = [b"\xff\0\r\n\"'", b"", b"\xed\xa0\x80", b"a"]
    client.sadd(b"k:\xff", *values)
    client.hset("k:h", mapping={"a": values[0], "b": values[2]})
    before = stored(client)
    path = tmp_path / f"x.{suffix}"
    done = invoke("unload", "k:*", "--type", "set", "-o", path)
    assert done.exit_code == Exit.ERRORS
    assert "after --binary" in done.stderr
    assert not path.exists()
    done = invoke("unload", "k:*", "--type", "set", "-o", path, "--binary", "*")
    assert done.exit_code == Exit.OK, done.stderr
    hashes = tmp_path / f"h.{suffix}"
    assert invoke("unload", "k:*", "-o", hashes, "--binary", "a,b").exit_code == Exit.OK
    client.flushall()
    assert invoke("load", path, LOADS["set"]).exit_code == Exit.OK
    assert invoke("load", hashes, "HSET {key} {**}").exit_code == Exit.OK
    assert stored(client) == before


def test_all_fields(client: redis.Redis, tmp_path: Path) -> None:
    """Rare fields are included, for every way to request all fields."""
    for i in range(500):
        client.hset(f"k:{i}", mapping={"name": f"n{i}", f"extra{i % 7}": i})
    client.hset("k:0", "%s", 1)
    client.set("k:text", 1)
    before = stored(client)
    before.pop(b"k:text")
    path = tmp_path / "x.jsonl"
    for all_of_them in ([], ["--fields", "*"]):
        done = invoke("unload", "k:{id}", *all_of_them, "-o", path)
        assert done.exit_code == Exit.OK, done.stderr
        assert "500 rows written" in done.stderr
        client.flushall()
        assert invoke("load", path, "HSET k:{id} {**}", "--nulls", "skip").exit_code == Exit.OK
        assert stored(client) == before
    row = json.loads(path.read_text().splitlines()[0])
    assert set(row) == {"id", "name", "%s", *(f"extra{i}" for i in range(7))}


@pytest.mark.parametrize(
    ("field", "words"),
    [("id", "'user:{key_id}'"), (b"\xff", "whose name is not UTF-8"), ("a\0b", "allows no NUL")],
)
def test_fields_that_cannot_be_columns(field: Any, words: str, client: redis.Redis) -> None:
    client.hset("k:1", field, "x")
    done = invoke("unload", "k:{id}")
    assert done.exit_code in (Exit.ERRORS, Exit.USAGE)
    assert words in " ".join(done.stderr.split())
    assert done.stdout == ""


def test_too_many_fields(client: redis.Redis) -> None:
    for start in (0, 6000):
        client.hset(f"k:{start}", mapping={f"f{start + i}": 1 for i in range(6000)})
    done = invoke("unload", "k:{id}")
    assert done.exit_code == Exit.ERRORS
    assert "more than 10,000 different field names" in done.stderr


@pytest.mark.parametrize("kind", [*LOADS, "hash"])
def test_single_key(kind: str, client: redis.Redis, tmp_path: Path) -> None:
    """Its type is found without --type."""
    if kind == "hash":
        client.hset("k:texts", mapping={"a": "b", "c": "d"})
    else:
        fill(client, kind)
    key = "k:0" if kind == "string" else "k:texts"
    before = stored(client)[key.encode()]
    path = tmp_path / "x.csv"
    for options in ([], ["--type", kind]):
        done = invoke("unload", key, *options, "-o", path)
        assert done.exit_code == Exit.OK, done.stderr
    assert pa.table(fastresp.read(path)).column("key").unique().to_pylist() == [key]
    client.flushall()
    assert invoke("load", path, LOADS.get(kind, "HSET {key} {**}"), "--yes").exit_code == Exit.OK
    assert stored(client) == {key.encode(): before}


@pytest.mark.parametrize(
    ("command", "code", "words"),
    [
        ("k:1 --type list", Exit.ERRORS, "k:1 is a set; use --type set"),
        ("k:1 --fields a", Exit.USAGE, "a set has no fields; omit --fields"),
        ("k:* --type zset --fields a", Exit.USAGE, "a zset has no fields"),
        ("k:2", Exit.ERRORS, "there is no key k:2"),
        ("k:*", Exit.ERRORS, "no hash matches, but 'k:1' does, which is a set; use --type set"),
        ("k:* --fields a", Exit.ERRORS, "no hash matches, but 'k:1' does"),
        ("k:* --type list", Exit.ERRORS, "no list matches, but 'k:1' does"),
        ("none:*", Exit.ERRORS, "no hash matches none:*, so the columns are unknown"),
        ("none:* --type set", Exit.OK, "0 rows written"),
        (
            "k:{member} --type set",
            Exit.USAGE,
            "'member' is also the name of another column of a set",
        ),
        ("k:* --type set --binary x --format csv", Exit.USAGE, "--binary names 'x'"),
        ("k:* --type set --binary member --format jsonl", Exit.USAGE, "JSON Lines can't contain"),
    ],
)
def test_failures(
    command: str, code: Exit, words: str, client: redis.Redis, tmp_path: Path
) -> None:
    client.sadd("k:1", "a")
    path = tmp_path / "x.csv"
    done = invoke("unload", *command.split(), "-o", path)
    assert (done.exit_code, path.exists()) == (code, code == Exit.OK)
    assert words in " ".join(done.stderr.split())


def test_in_python(client: redis.Redis, server: LocalServer) -> None:
    """unload() has the command line's rows: as dicts, as columns, and on each reading."""
    client.zadd("top:week", {"Ann": 2.5})
    client.hset("user:1", mapping={"name": "Ann"})
    scores = fastresp.unload("top:{id}", type="zset", server=server.url)
    wanted = [{"id": "week", "member": "Ann", "score": "2.5"}]
    assert list(scores) == pa.table(scores).to_pylist() == wanted
    assert (scores.rows, scores.error) == (1, None)
    assert list(fastresp.unload("user:{id}", server=server.url)) == [{"id": "1", "name": "Ann"}]
    assert list(fastresp.unload("top:week", server=server.url, binary=["member"])) == [
        {"key": "top:week", "member": b"Ann", "score": "2.5"}
    ]
    for call, error, words in [
        ({"type": "list"}, fastresp.SourceError, "top:week is a zset; use type='zset'"),
        ({"type": "lists"}, ValueError, "type must be one of hash, string, json"),
        ({"fields": ["a"]}, ValueError, "a zset has no fields; omit fields"),
    ]:
        with pytest.raises(error, match=words):
            fastresp.unload("top:week", server=server.url, **call)


def test_keys_that_change_meanwhile(client: redis.Redis, server: LocalServer) -> None:
    """A deleted key, or one of another type, has no rows."""
    client.mset({f"k:{i}": "x" * 500_000 for i in range(60)})
    entries = Entries(as_target("k:*"), "string", server=Server(server.url))
    batches = entries.batches()
    rows = len(next(batches))
    for i in range(60):
        client.delete(f"k:{i}")
        if i % 2:
            client.rpush(f"k:{i}", 1)
    rows += sum(map(len, batches))
    assert 0 < rows < 60
    assert (entries.rows, entries.changed) == (rows, 60 - rows)


@pytest.mark.parametrize("becomes", ["gone", "a string"])
@pytest.mark.parametrize("kind", ["hash", "list"])
def test_all_keys_change_before_they_are_read(
    client: redis.Redis, monkeypatch: pytest.MonkeyPatch, becomes: str, kind: str
) -> None:
    """The message doesn't claim that no key matches."""
    keys_of = unload.keys_of

    def changing(*arguments: Any) -> Iterator[bytes]:
        for key in keys_of(*arguments):
            client.delete(key)
            if becomes == "a string":
                client.set(key, "x")
            yield key

    monkeypatch.setattr(unload, "keys_of", changing)
    if kind == "list":
        client.rpush("k:1", "a")
        done = invoke("unload", "k:*", "--type", "list")
        assert done.exit_code == Exit.OK
        assert "1 key without rows: deleted or changed in type before reading" in done.stderr
    else:
        client.hset("k:1", "a", 1)
        done = invoke("unload", "k:*")
        assert done.exit_code == Exit.ERRORS
        words = "have changed while" if becomes == "gone" else "'k:1' does, which is a string"
        assert words in " ".join(done.stderr.split())


def test_keys_of_other_types_are_counted(
    client: redis.Redis, server: LocalServer, caplog: pytest.LogCaptureFixture
) -> None:
    """Unless the user requests hashes."""
    client.hset("user:1", "a", 1)
    client.mset({"user:2": "x", "other": "x"})
    client.config_resetstat()
    rows = fastresp.unload("user:*", server=server.url)
    assert list(rows) == [{"key": "user:1", "a": "1"}]
    assert client.info("commandstats")["cmdstat_hkeys"]["calls"] == 1
    assert "errorstat_WRONGTYPE" not in client.info("errorstats")
    [record] = caplog.records
    assert record.getMessage() == (
        "skipped 1 key of user:* (not hashes), such as 'user:2', a string; "
        "unload each type separately"
    )
    client.rpush("user:3", "x")
    done = invoke("unload", "user:*")
    assert (done.exit_code, done.stdout) == (Exit.OK, '"key","a"\n"user:1","1"\n')
    assert "skipped 2 keys of user:*" in caplog.text
    caplog.clear()
    for options in ({"type": "hash"}, {"fields": ["a"]}):
        assert len(list(fastresp.unload("user:*", server=server.url, **options))) == 1
    assert not caplog.records


def test_replica(client: redis.Redis, start_server: Callable[..., LocalServer]) -> None:
    """unload writes nothing, so it can read from a replica."""
    replica = start_server()
    with redis.Redis.from_url(replica.url) as other:
        other.rpush("k:1", *range(1000))
        other.hset("k:2", "a", "b")
        other.replicaof("127.0.0.1", "1")
        for command in (["k:1"], ["k:*", "--type", "list"], ["k:*"]):
            done = invoke("unload", *command, "--server", replica.url)
            assert done.exit_code == Exit.OK, done.stderr


@pytest.mark.slow
def test_large_list_in_little_memory(client: redis.Redis, tmp_path: Path) -> None:
    fastresp.mass_insert((b"%d" % i + b"x" * 1000 for i in range(100_000)), "RPUSH k:1 {0}")
    code = f"{PEAK}\nimport sys\nfrom fastresp.cli.app import app\ntry:\n    app()\n"
    code += "finally:\n    print(peak(), file=sys.stderr)"
    path = tmp_path / "x.jsonl"
    done = subprocess.run(
        [sys.executable, "-c", code, "unload", "k:1", "-o", str(path)],
        capture_output=True, text=True, timeout=200,
    )  # fmt: skip
    assert done.returncode == Exit.OK, done.stderr
    assert path.stat().st_size > 100_000_000
    assert int(done.stderr.split()[-1]) < 200_000


@pytest.mark.parametrize("suffix", ["csv", "jsonl", "parquet"])
def test_json_documents(suffix: str, json_server: LocalServer, tmp_path: Path) -> None:
    documents = ['{"a":[1,1.5,null,true],"b":{"c":"\\"ü\\n"}}', "[]", '"text"', "12345678901", "{}"]
    url = json_server.url
    rows = list(enumerate(documents))
    assert not fastresp.mass_insert(rows, "JSON.SET k:{0} $ {1}", server=url).failed
    path = tmp_path / f"x.{suffix}"
    with redis.Redis.from_url(url) as client:
        client.set("k:text", 1)
        before = {f"k:{i}": client.execute_command("JSON.GET", f"k:{i}") for i, _ in rows}
        assert before["k:0"] == documents[0].encode()
        done = invoke("unload", "k:{id}", "--type", "json", "-o", path, "--server", url)
        assert done.exit_code == Exit.OK, done.stderr
        assert invoke("unload", "k:1", "--server", url).exit_code == Exit.OK
        client.flushall()
        done = invoke("load", path, "JSON.SET k:{id} $ {value}", "--server", url)
        assert done.exit_code == Exit.OK, done.stderr
        after = {f"k:{i}": client.execute_command("JSON.GET", f"k:{i}") for i, _ in rows}
    assert after == before
