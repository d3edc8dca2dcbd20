"""copy(verify=True): copies are compared with their source."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import redis
from every_encoding import FAR_MS, fill
from local_cluster import LocalCluster
from server_programs import WHEEL_SERVERS, located
from test_from_replica import SERVERS, two_servers

import fastresp
import fastresp.aio
from fastresp.load.copying import verification
from fastresp.server.local_server import LocalServer

TARGET = "redis-server"


def prepare(client: redis.Redis) -> None:
    client.execute_command("VADD", "vectors", "VALUES", 2, 1, 2, "a")
    client.save()


@pytest.fixture
def source(source: redis.Redis) -> Iterator[redis.Redis]:
    """A client of a server to which tests may add keys "new:..."."""
    yield source
    for key in source.keys("new:*"):
        source.delete(key)


def verified(source: Any, target: Any, **options: Any) -> fastresp.CopyVerifyReport:
    report = fastresp.copy(source, target, verify=True, **options)
    return report.verification


@pytest.fixture
def changing(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], object]], None]:
    """Return a function that sets what is called between the copy and its verification."""

    def changing(change: Callable[[], object]) -> None:
        init = verification.Verification.__init__

        def changed(*arguments: Any) -> None:
            change()
            init(*arguments)

        monkeypatch.setattr(verification.Verification, "__init__", changed)

    return changing


@pytest.mark.slow
@pytest.mark.parametrize("of_target", SERVERS)
@pytest.mark.parametrize("of_source", SERVERS)
def test_every_pair_of_servers(of_source: str, of_target: str) -> None:
    with two_servers(of_source, of_target) as (source, target):
        fill(source)
        target.config_set("rdbcompression", "no")  # so that forms differ
        found = verified(source, target, field_ttl="drop", rename="s* -> new:s*")
        assert (found.same, found.differing, found.changed_since) == (True, 0, 0), str(found)
        assert found.rows == found.rows_compared == source.dbsize()


def test_same(source: redis.Redis, target: redis.Redis) -> None:
    found = verified(source, target, match="[^v]*", field_ttl="drop")
    assert found.same, str(found)
    assert found.rows_compared == source.dbsize() - 1
    assert str(found).endswith("nothing differs")


def test_module(source: redis.Redis) -> None:
    with LocalServer(program=located("redis-8.2", WHEEL_SERVERS)) as server:
        assert verified(source, server.url).same


def differ(client: redis.Redis) -> None:
    client.hset("new:hash", "b", "other")
    client.sadd("new:set", "more")
    client.lset("new:list", 1, "other")
    client.zadd("new:zset", {"a": 2})
    client.xdel("new:stream", "1-1")
    client.xack("new:stream2", "group", "1-1")
    client.delete("new:string")
    client.delete("new:type")
    client.hset("new:type", "a", 1)
    client.pexpireat("new:ttl", FAR_MS + 2)
    client.pexpireat("new:ttl2", FAR_MS + 1)


def test_differences(source: redis.Redis, target: redis.Redis, changing: Any) -> None:
    source.hset("new:hash", mapping={"a": 1, "b": 2})
    source.sadd("new:set", "a")
    source.rpush("new:list", "a", "b", "c")
    source.zadd("new:zset", {"a": 1})
    for key in ("new:stream", "new:stream2"):
        source.xadd(key, {"a": 1}, id="1-1")
        source.xgroup_create(key, "group", "0")
    source.xreadgroup("group", "consumer", {"new:stream2": ">"})
    source.mset({"new:string": 1, "new:type": 1, "new:ttl": 1, "new:ttl2": 1})
    source.pexpireat("new:ttl", FAR_MS)
    source.pexpireat("new:ttl2", FAR_MS)
    changing(lambda: differ(target))
    found = verified(source, target, match="new:*")
    assert not found.same
    assert {each.key[4:]: (each.kind, each.field) for each in found.differences} == {
        b"hash": ("value", b"b"),
        b"set": ("extra", b"more"),
        b"list": ("value", 1),
        b"zset": ("value", b"a"),
        b"stream": ("value", None),
        b"stream2": ("value", None),
        b"string": ("missing", None),
        b"type": ("type", None),
        b"ttl": ("ttl", None),
    }
    assert (found.differing, found.rows_differing, found.changed_since) == (9, 9, 0)
    [of_hash] = [each for each in found.differences if each.key == b"new:hash"]
    assert (of_hash.wanted, of_hash.found) == (b"2", b"other")
    assert '1 x missing, first: "new:string"' in str(found)
    assert json.dumps(found.as_json())


def test_differences_are_written(source: redis.Redis, target: redis.Redis, tmp_path: Path) -> None:
    """More than the report keeps; the file is checked before the copy."""
    names = [f"new:{number}" for number in range(120)]
    source.mset(dict.fromkeys(names, "a"))
    target.mset(dict.fromkeys(names, "b"))
    path = tmp_path / "differences"
    options: dict[str, Any] = {"match": "new:*", "exists": "skip", "differences": path}
    assert verified(source, target, **options).differing == 120
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert sorted(line["key"] for line in lines) == sorted(names)
    assert {(line["kind"], line["wanted"], line["found"]) for line in lines} == {
        ("value", "a", "b")
    }
    target.flushall()
    with pytest.raises(FileExistsError, match="the differences of an earlier comparison"):
        verified(source, target, **options)
    assert target.dbsize() == 0
    with pytest.raises(ValueError, match="differences needs verify=True"):
        fastresp.copy(source, target, differences=path)


def test_changed_in_the_source(source: redis.Redis, target: redis.Redis, changing: Any) -> None:
    """Keys that the source changes after the copy are no differences, but named."""
    source.mset({"new:changed": 1, "new:expires": 1, "new:same": 1, "new:lost": 1})

    def change() -> None:
        source.set("new:changed", 2)
        source.set("new:created", 1)
        source.pexpireat("new:expires", FAR_MS)
        target.delete("new:lost")

    changing(change)
    found = verified(source, target, match="new:*")
    assert {*found.changed_keys} == {'"new:changed"', '"new:created"', '"new:expires"'}
    assert (found.changed_since, found.differing) == (3, 1)
    assert "3 keys changed in the source after the copy, first: " in str(found)


def test_written_meanwhile(
    source: redis.Redis, target: redis.Redis, changing: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    source.set("new:late", 1)
    changing(lambda: target.delete("new:late"))
    monkeypatch.setattr(verification.time, "sleep", lambda seconds: target.set("new:late", 1))
    found = verified(source, target, match="new:*")
    assert (found.same, found.written_meanwhile) == (True, 1)


@pytest.mark.parametrize("name", ["dump", "pexpiretime"])
def test_refused_command(
    name: str, source: redis.Redis, target: redis.Redis, shared_target: LocalServer
) -> None:
    """The error names the first key that can't be read."""
    target.execute_command("ACL", "SETUSER", "writer", "on", "nopass", "~*", "+@all", f"-{name}")
    url = f"unix://writer:x@{shared_target.socket}"
    with pytest.raises(fastresp.CommandError) as raised:
        fastresp.copy(source, url, match="string:random", verify=True)
    error, number = raised.value, int(name == "dump")
    assert (error.code, error.row, error.row_key) == ("NOPERM", 0, "key 'string:random'")
    assert str(error).startswith(f"row 0 (key 'string:random'), command {number}: NOPERM ")


def test_sample(source: redis.Redis, target: redis.Redis, server: LocalServer) -> None:
    fastresp.mass_insert(range(20_000), "SET a:{0} {0}", server.url)
    found = verified(server.url, target, sample="10%", rename="a:* -> b:*")
    assert found.rows == 20_000
    assert found.rows_compared == pytest.approx(2_000, rel=0.1)
    assert found.at_most == pytest.approx(0.0015, rel=0.1)
    assert found.same
    with pytest.raises(ValueError, match="sample needs verify=True"):
        fastresp.copy(source, target, sample="1%")


def test_snapshot(source: redis.Redis, target: redis.Redis, changing: Any) -> None:
    """An RDB file is read again."""
    folder, name = (source.config_get(each)[each] for each in ("dir", "dbfilename"))
    path = Path(folder) / name
    found = verified(path, target, match="[hl]*", field_ttl="drop")
    assert (found.same, found.rows) == (True, 11)
    target.flushall()
    changing(lambda: target.delete("list"))
    found = verified(path, target, match="[hl]*", field_ttl="drop")
    assert (found.differing, found.rows) == (1, 11)


@pytest.mark.slow
def test_replica(source: redis.Redis, target: redis.Redis) -> None:
    """A server's snapshot is compared with the server."""
    found = verified(source, target, match="[hl]*", field_ttl="drop", from_replica=True)
    assert (found.same, found.rows) == (True, 11)


def test_changed(source: redis.Redis, target: redis.Redis, changing: Any) -> None:
    """Also keys that were equal are known."""
    fastresp.copy(source, target, match="list*")
    changing(lambda: target.delete("list"))
    found = verified(source, target, match="list*", exists="replace", changed=True)
    assert (found.rows, found.differing, found.changed_since) == (4, 1, 0)


def test_no_keys(source: redis.Redis, target: redis.Redis) -> None:
    assert verified(source, target, match="none:*").same


def test_asyncio(source: redis.Redis, target: redis.Redis) -> None:
    report = asyncio.run(fastresp.aio.copy(source, target, match="list*", verify=True))
    assert (report.verification.same, report.verification.rows_compared) == (True, 4)


@pytest.mark.slow
def test_clusters(source: redis.Redis) -> None:
    with LocalCluster() as cluster, LocalCluster(2) as other:
        found = verified(source, cluster.url, match="[^v]*", field_ttl="drop")
        assert (found.same, found.rows) == (True, source.dbsize() - 1)
        found = verified(cluster.url, other.url)
        assert (found.same, found.rows) == (True, source.dbsize() - 1)


def test_command_line(source: redis.Redis, target: redis.Redis) -> None:
    urls = [f"unix://{each.connection_pool.connection_kwargs['path']}" for each in (source, target)]
    target.rpush("list", "other")
    command = [sys.executable, "-m", "fastresp", "copy", *urls, "--match", "list", "--verify"]
    ended = subprocess.run([*command, "--exists", "skip", "--json"], capture_output=True, text=True)
    fields = json.loads(ended.stdout)
    assert (ended.returncode, fields["existing"], fields["verification"]["differing"]) == (1, 1, 1)
    ended = subprocess.run([*command, "--exists", "replace"], capture_output=True, text=True)
    assert (ended.returncode, ended.stdout) == (0, "")
    assert "keys/s): nothing differs" in ended.stderr
    target.rpush("list", "other")
    command += ["--exists", "skip", "--differences", "-"]
    ended = subprocess.run(command, capture_output=True, text=True)
    assert ended.returncode == 1
    found = json.loads(ended.stdout)
    assert (found["key"], found["kind"], found["found"]) == ("list", "extra", "other")
