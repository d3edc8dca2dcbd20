"""copy(): every type of value between servers of other versions, and its options."""

from __future__ import annotations

import asyncio
import random
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import redis
from every_encoding import FAR_MS, contents, differences, fill, knows_field_expiry
from test_from_replica import SERVERS, two_servers
from waiting import until, until_loaded

import fastresp
import fastresp.aio
from fastresp.cli.demo.methods import debug_options
from fastresp.encode.payload.restorer import Restorer
from fastresp.load.copying.changed_entries import ChangedEntries
from fastresp.load.copying.options import CopyOptions
from fastresp.load.copying.server_entries import DumpReader
from fastresp.server.local_server import LocalServer
from fastresp.server.preflight import Requirements
from fastresp.server.settings import Server
from fastresp.sources.source import Entries

TARGET = "valkey-8.1"
# Hashes whose fields expire: the target knows no such type.
EXPIRING = ("hash:expiring", "hash:expiring table")
Copy = Callable[..., fastresp.Report]
StartServer = Callable[..., LocalServer]


def copy_asyncio(*arguments: Any, **options: Any) -> fastresp.Report:
    return asyncio.run(fastresp.aio.copy(*arguments, **options))


@pytest.fixture(params=[fastresp.copy, copy_asyncio], ids=["sync", "asyncio"])
def copy(request: pytest.FixtureRequest) -> Copy:
    return request.param


def prepare(client: redis.Redis) -> None:
    client.delete(*EXPIRING)


def test_every_type(copy: Copy, source: redis.Redis, target: redis.Redis) -> None:
    report = copy(source, target)
    assert differences(contents(source), contents(target)) == []
    assert report.rows == report.replies == source.dbsize()
    assert (report.failed, report.gone) == (0, 0)


@pytest.mark.slow
@pytest.mark.parametrize("of_target", SERVERS)
@pytest.mark.parametrize("of_source", SERVERS)
def test_every_pair_of_servers(of_source: str, of_target: str) -> None:
    with two_servers(of_source, of_target) as (source, target):
        fill(source)
        report = fastresp.copy(source, target, field_ttl="drop")
        expected = contents(source)
        for name in EXPIRING:
            key = name.encode()
            if key in expected and not knows_field_expiry(target):
                kind, at, fields = expected[key]
                expected[key] = kind, at, {name: (value, -1) for name, (value, _) in fields.items()}
        assert differences(expected, contents(target)) == []
        assert report.rows == len(expected)


def test_fields_with_times_to_live(copy: Copy, source: redis.Redis, target: redis.Redis) -> None:
    """The target does not support them: an error that names the key, unless they are dropped."""
    source.hset("timed", mapping={"a": 1, "b": 2, "c": 3})
    source.hpexpireat("timed", FAR_MS, "a", "b")
    try:
        words = r"key b'timed': fields of the hash have a time to live.* field_ttl='drop'"
        with pytest.raises(fastresp.SourceError, match=words):
            copy(source, target, match="timed")
        report = copy(source, target, match="timed", field_ttl="drop")
    finally:
        source.delete("timed")
    assert target.hgetall("timed") == {b"a": b"1", b"b": b"2", b"c": b"3"}
    assert (report.converted, report.expiries_dropped) == (1, 2)
    assert "2 times to live of fields dropped (field_ttl='drop')" in str(report)


def test_existing_keys(source: redis.Redis, target: redis.Redis, tmp_path: Path) -> None:
    """They are errors, unless they are skipped or replaced."""
    target.set("string", "other")
    with pytest.raises(fastresp.LoadErrors) as raised:
        fastresp.copy(source, target, rejects=tmp_path / "rejects")
    [error] = raised.value.report.errors
    assert (error.code, error.row_key) == ("BUSYKEY", "key 'string'")
    assert target.get("string") == b"other"
    [rejected] = fastresp.read_rejects(tmp_path / "rejects")
    assert rejected[:2] == ["RESTORE", "string"]
    target.delete("list")
    report = fastresp.copy(source, target, exists="skip")
    assert (report.existing, report.failed) == (source.dbsize() - 1, 0)
    assert target.get("string") == b"other"
    fastresp.copy(source, target, exists="replace")
    assert differences(contents(source), contents(target)) == []


def test_chosen_keys(source: redis.Redis, target: redis.Redis) -> None:
    fastresp.copy(source, target, match="*:table", type="zset")
    assert target.keys() == [b"zset:table"]


def test_another_prefix(source: redis.Redis, target: redis.Redis) -> None:
    report = fastresp.copy(source, target, match="*set:table", rename="z* -> old:*")
    assert sorted(target.keys()) == [b"old:set:table", b"set:table"]
    assert report.rows == 2


def test_keys_that_have_the_new_prefix(
    copy: Copy, source: redis.Redis, target: redis.Redis
) -> None:
    """Such a key and a renamed one may have the same name in the target."""
    words = r"key b'zset[^']*' begins with the new prefix, .* with match='set:\*'"
    with pytest.raises(fastresp.SourceError, match=words):
        copy(source, target, rename="set:* -> zset:*", exists="replace")
    assert target.type("zset:table") in (b"none", b"set")
    copy(source, target, match="set:*", rename="set:* -> zset:*", exists="replace")
    assert target.type("zset:table") == b"set"


@pytest.mark.parametrize("rename", ["old:*", "old -> new", "a*b* -> c*", "a* -> b"])
def test_a_wrong_prefix(source: redis.Redis, rename: str) -> None:
    with pytest.raises(ValueError, match="rename must be two prefixes, such as 'old:"):
        fastresp.copy(source, rename=rename)


def test_a_wrong_type(source: redis.Redis) -> None:
    with pytest.raises(ValueError, match=r"type must be one of hash, string, .* not 'hsah'"):
        fastresp.copy(source, type="hsah")


def test_the_same_database(copy: Copy, target: redis.Redis) -> None:
    target.mset({"a:1": 1, "b:1": 2})
    with pytest.raises(ValueError, match=r"the same database; pass another target, or rename="):
        copy(target, target, exists="replace")
    with pytest.raises(ValueError, match=r"the same database; rename would rename keys that"):
        copy(target, target, rename="a:* -> a:b:*")
    copy(target, target, match="a:*", rename="a:* -> c:*")
    assert target.get("c:1") == b"1"
    with redis.Redis(
        connection_pool=redis.ConnectionPool(
            connection_class=redis.UnixDomainSocketConnection,
            path=target.connection_pool.connection_kwargs["path"],
            db=1,
        )
    ) as other:
        assert copy(target, other).rows == 3


def test_the_same_database_whose_info_is_refused(start_server: StartServer, port: int) -> None:
    """The ID of the server is unknown, so addresses are compared; DBSIZE isn't needed."""
    server = start_server("--port", str(port))
    with redis.Redis.from_url(server.url) as client:
        rules = "on", "nopass", "~*", "+@all", "-info", "-dbsize"
        client.execute_command("ACL", "SETUSER", "reader", *rules)
    for source, target in [
        (f"unix://reader:x@{server.socket}", server.url),
        (f"redis://reader:x@localhost:{port}", f"redis://127.0.0.1:{port}/0"),
        (f"redis://localhost:{port}", f"redis://reader:x@127.0.0.1:{port}"),
    ]:
        for options in ({}, {"from_replica": True}):
            with pytest.raises(ValueError, match="the same database; pass another target"):
                fastresp.copy(source, target, exists="replace", **options)
        plan = fastresp.copy(source, target, dry_run=True).plan
        assert plan is not None
        assert "the same database" in plan.problems[0]
    fastresp.copy(f"redis://reader:x@localhost:{port}", f"redis://localhost:{port}/1")


def test_source_that_is_lost(start_server: StartServer, target: redis.Redis) -> None:
    """The error names the source, and earlier keys are in the target."""
    server = start_server()
    with redis.Redis.from_url(server.url) as client:
        client.mset({f"key:{number}": number for number in range(20_000)})
        progress: list[int] = []

        def stop(report: fastresp.Report) -> None:
            if report.rows and not progress:
                progress.append(report.rows)
                server.stop()

        with pytest.raises(fastresp.SourceError, match="can't read the source at /") as raised:
            fastresp.copy(client, target, progress=stop)
    assert target.dbsize() == raised.value.report.replies > 0


def test_source_that_is_down(target: redis.Redis, port: int) -> None:
    with pytest.raises(fastresp.SourceError, match=r"can't read the source at .* refused"):
        fastresp.copy(f"redis://127.0.0.1:{port}", target)


def test_missing_keys_are_counted(start_server: StartServer, target: redis.Redis) -> None:
    """Keys that are deleted between SCAN and DUMP are no errors."""
    server = start_server()
    with redis.Redis.from_url(server.url) as client:
        client.mset({f"key:{number}": number for number in range(30_000)})

        def empty(report: fastresp.Report) -> None:
            client.flushall()

        report = fastresp.copy(client, target, progress=empty, rate_limit="5MB")
    assert report.gone > 0
    assert report.rows == target.dbsize() > 0
    assert "deleted or expired before reading" in str(report)


def test_source_works_while_its_values_are_handled(start_server: StartServer) -> None:
    """The next values are requested before the first values are returned."""
    server = start_server()
    with redis.Redis.from_url(server.url) as client:
        keys = [b"key:%d" % number for number in range(1000)]
        client.mset(dict.fromkeys(keys, 1))
        requested = Server(server.url, Requirements(reading=True))
        with closing(DumpReader(requested, timeout=9).lists(iter(keys))) as values:
            taken = len(next(values)) // 2
            until(lambda: client.info("commandstats")["cmdstat_dump"]["calls"] > taken, 9)
            assert taken + sum(len(each) for each in values) // 2 == len(keys)


# Reads a key's expiry, before another client replaces the key.
REPLACED = (
    "EVAL \"local at = redis.call('PEXPIRETIME', KEYS[1]); redis.call('SET', KEYS[1], 'new'); "
    'return at" 1 {0}'
)


def test_key_that_is_replaced_between_its_reads(
    source: redis.Redis, target: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its new value is copied: the old one without an expiry would stay forever."""
    command = "fastresp.load.copying.server_entries.expiry_command"
    monkeypatch.setattr(command, lambda server, timeout: REPLACED)
    source.set("replaced", "old", px=1_000_000)
    try:
        fastresp.copy(source, target, match="replaced")
    finally:
        source.delete("replaced")
    assert target.get("replaced") == b"new"


def test_checkpoint(
    copy: Copy, source: redis.Redis, target: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A copy that is stopped resumes after its last checkpoint."""
    monkeypatch.setattr("fastresp.load.copying.stored_copy.SAVE_S", 0)
    keys = {f"key:{number}": number for number in range(30_000)}
    source.mset(keys)
    options: dict[str, Any] = {"match": "key:*", "exists": "replace", "rate_limit": "1MB"}

    def stop(report: fastresp.Report) -> None:
        if report.rows > 20_000:
            raise ZeroDivisionError

    try:
        with pytest.raises(ZeroDivisionError):
            copy(source, target, checkpoint="moved", progress=stop, **options)
        first = target.dbsize()
        with pytest.raises(fastresp.CheckpointError, match="the checkpoint moved exists; resume"):
            copy(source, target, checkpoint="moved", **options)
        again = fastresp.Checkpoint("moved", resume=True)
        with pytest.raises(fastresp.CheckpointError, match="of a copy with another match"):
            copy(source, target, checkpoint=again, **(options | {"match": "*"}))
        with pytest.raises(fastresp.CheckpointError, match="of a copy with another db"):
            copy(source, target, checkpoint=again, db=1, **options)
        options["rate_limit"] = None
        report = copy(source, target, checkpoint=again, **options)
        assert target.exists(*keys) == len(keys)
        assert 0 < report.rows < len(keys) - report.resumed_at + 3000
        assert report.resumed_at <= first
        report = copy(source, target, checkpoint=again, **options)
        assert report.commands == 0
        assert report.resumed_at >= len(keys)
        assert report.ended_before
    finally:
        source.delete(*keys)


def test_checkpoint_of_a_source_that_was_restarted(
    start_server: StartServer,
    target: redis.Redis,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The cursor of another process is worthless: all keys are scanned again."""
    monkeypatch.setattr("fastresp.load.copying.stored_copy.SAVE_S", 0)
    server = start_server("--appendonly", "yes")
    options: dict[str, Any] = {"exists": "skip", "rate_limit": "1MB"}

    def stop(report: fastresp.Report) -> None:
        if report.rows > 20_000:
            raise ZeroDivisionError

    with redis.Redis.from_url(server.url) as client:
        client.mset({f"key:{number}": number for number in range(30_000)})
        with pytest.raises(ZeroDivisionError):
            fastresp.copy(client, target, checkpoint="moved", progress=stop, **options)
    server.stop()
    server.start()
    with redis.Redis.from_url(server.url) as client:
        until_loaded(client)
    again = fastresp.Checkpoint("moved", resume=True)
    report = fastresp.copy(server.url, target, checkpoint=again, exists="skip")
    assert report.rows == 30_000
    assert target.dbsize() == 30_001


def test_checkpoints_that_make_no_sense(source: redis.Redis, target: redis.Redis) -> None:
    with pytest.raises(ValueError, match="pass exists='skip' or exists='replace'"):
        fastresp.copy(source, target, checkpoint="a")
    with pytest.raises(ValueError, match="can't be resumed; leave out checkpoint"):
        fastresp.copy(source, target, checkpoint="a", exists="skip", from_replica=True)
    target.set("fastresp:{a}:copy", '{"left": [["x", null, "a"]], "rows": 1, "ended": ""}')
    with pytest.raises(fastresp.CheckpointError, match="the checkpoint a is damaged"):
        fastresp.copy(
            source, target, exists="skip", checkpoint=fastresp.Checkpoint("a", resume=True)
        )


# Copies as a process, which the test kills.
KILLED = """\
import sys, fastresp
import fastresp.load.copying.stored_copy as stored
stored.SAVE_S = 0.02
source, target, exists, *limits = sys.argv[1:]
checkpoint = fastresp.Checkpoint("moved", resume=True)
rate = limits[0] if limits else None
fastresp.copy(source, target, checkpoint=checkpoint, exists=exists, rate_limit=rate)
"""
KILLS = 5


@pytest.mark.few(0)
@pytest.mark.parametrize("seed", range(40))
def test_killed_copies(start_server: StartServer, seed: int) -> None:
    """Copies that SIGKILL ends at any time: the data is the same in the end."""
    source, target = start_server(*debug_options()), start_server(*debug_options())
    made = random.Random(seed)
    with redis.Redis.from_url(source.url) as one, redis.Redis.from_url(target.url) as other:
        fill(one)
        one.mset({f"key:{number}": made.randbytes(9) for number in range(100_000)})
        command = [sys.executable, "-c", KILLED, source.url, target.url]
        command.append(made.choice(["skip", "replace"]))
        for _ in range(KILLS):
            process = subprocess.Popen([*command, "1MB"])
            with pytest.raises(subprocess.TimeoutExpired):
                process.wait(0.3 + made.random())
            process.kill()
            process.wait()
        subprocess.run(command, check=True, timeout=60)
        other.delete("fastresp:{moved}:copy")
        assert other.execute_command("DEBUG", "DIGEST") == one.execute_command("DEBUG", "DIGEST")


def test_changed_keys(copy: Copy, source: redis.Redis, target: redis.Redis) -> None:
    """Keys with another value, or another time to live, are copied, and no others."""
    copy(source, target)
    target.set("string", "other")
    target.delete("list")
    target.persist("zset")
    target.pexpire("set", 100_000)
    tables = {b"set:table", b"hash:table", b"hash:long"}  # in another order on each server
    report = copy(source, target, exists="replace", changed=True)
    assert 4 <= report.rows <= 4 + len(tables)
    assert report.unchanged == source.dbsize() - report.rows
    assert f"{report.unchanged} keys unchanged" in str(report)
    assert differences(contents(source), contents(target)) == []
    renamed = {"match": "string:*", "rename": "string:* -> text:*"}
    copied = copy(source, target, **renamed).rows
    report = copy(source, target, exists="replace", changed=True, **renamed)
    assert (report.rows, report.unchanged) == (0, copied)


class Large(Entries):
    """Keys with large values, and an error after them."""

    read = 0

    def _read(self) -> Iterator[list[tuple[bytes, int, bytes]]]:
        self.restorer = Restorer(10, valkey=False, source_valkey=False)
        for self.read in range(1, 33):
            yield [(b"%d" % self.read, 0, bytes(1 << 20))]
        raise fastresp.SourceError("lost")


def test_changed_keys_are_read_in_parts(target: redis.Redis) -> None:
    """Not more than 8 MiB of values wait for the target; an error comes after all rows."""
    large = Large()
    changed = ChangedEntries(large, CopyOptions(server=target))
    changed.open()
    changed.restorer = Restorer(10, valkey=False, source_valkey=False)
    found = []
    with pytest.raises(fastresp.SourceError, match="lost"):
        for row in changed:
            found.append(row[0])
            assert large.read - len(found) < 8
    assert len(found) == 32


def test_changed_needs_replace(source: redis.Redis, target: redis.Redis) -> None:
    with pytest.raises(ValueError, match="changed=True needs exists='replace'"):
        fastresp.copy(source, target, changed=True)
    with pytest.raises(ValueError, match="dry_run can't be combined with changed"):
        fastresp.copy(source, target, changed=True, exists="replace", dry_run=True)
    with pytest.raises(ValueError, match="leave out checkpoint"):
        fastresp.copy(source, target, changed=True, exists="replace", checkpoint="a")


def test_delete(copy: Copy, source: redis.Redis, target: redis.Redis) -> None:
    """Matching keys that the source lacks are deleted; all others and checkpoints stay."""
    target.mset({"string:gone": 1, "other": 1, "fastresp:{a}:copy": 1})
    report = copy(source, target, match="string:*", exists="replace", delete=True)
    assert report.deleted == 1
    assert "1 key deleted: not in the source" in str(report)
    assert target.exists("other", "fastresp:{a}:copy") == 2
    target.set("string:gone", 1)
    asked: list[int] = []
    report = copy(
        source, target, exists="replace", changed=True, delete=lambda count: asked.append(count)
    )
    assert (report.deleted, asked) == (0, [2])
    assert copy(source, target, exists="skip", delete=lambda count: count == 2).deleted == 2
    assert target.dbsize() == source.dbsize() + 1


def test_no_delete_for_a_wrong_source(source: redis.Redis, target: redis.Redis) -> None:
    target.mset({"nothing:1": 1, "nothing:2": 2})
    with pytest.raises(fastresp.SourceError, match="has no keys that match, and the target has 2;"):
        fastresp.copy(source, target, match="nothing:*", delete=True)
    assert target.dbsize() == 2
    with pytest.raises(ValueError, match="rename can't be combined with delete"):
        fastresp.copy(source, target, delete=True, rename="a:* -> b:*")
    with pytest.raises(ValueError, match="delete=True needs a server as the source"):
        fastresp.copy(source, target, delete=True, from_replica=True)
