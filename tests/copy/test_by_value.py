"""copy() without DUMP, and of large values in parts: both read values by their types' commands."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import redis
from every_encoding import contents, differences, fill, knows_field_expiry
from local_cluster import LocalCluster
from module_server import module_options
from other_servers import Noida
from peak import PEAK
from proxy import Fault, Proxy
from server_programs import WHEEL_SERVERS, located
from test_copy_dry_run import path_of
from test_from_replica import SERVERS, two_servers

import fastresp
import fastresp.aio
from fastresp.encode.payload.restorer import Restorer
from fastresp.load.copying import server_entries
from fastresp.load.copying.in_parts import temporary
from fastresp.load.copying.options import CopyOptions
from fastresp.server.local_server import LocalServer
from fastresp.testing import Connection, Misbehaving
from fastresp.testing.connection import Reply

StartServer = Callable[..., LocalServer]
TARGET = "valkey-9.1"
EXPIRING = (b"hash:expiring", b"hash:expiring table")
PARTS = 1_000  # bytes; most collections of fill() are larger
MIB = 1 << 20


@pytest.fixture
def refused(shared_source: LocalServer) -> str:
    """The URL of ``source`` for a user without permission for DUMP."""
    return f"unix://reader:x@{shared_source.socket}"


def without_dump(client: redis.Redis) -> None:
    client.execute_command("ACL", "SETUSER", "reader", "on", "nopass", "~*", "+@all", "-dump")


prepare = without_dump


def comparable(found: dict[bytes, Any], *, timed: bool = True) -> dict[bytes, Any]:
    """Return contents without what commands can't set: when a consumer was seen."""
    for key, (kind, at, value) in found.items():
        if kind == "stream":
            for group in value["groups"]:
                # Their times of delivery are read with an error of 1 ms.
                group["pending"] = [[*each[:2], each[3]] for each in group["pending"]]
                for consumer in group["consumers"]:
                    consumer.pop("seen-time")
                    consumer["pending"] = [[each[0], each[2]] for each in consumer["pending"]]
        elif key in EXPIRING and not timed:
            found[key] = kind, at, {name: (text, -1) for name, (text, _) in value.items()}
    return found


def check(source: redis.Redis, target: redis.Redis) -> None:
    timed = knows_field_expiry(target)
    wanted = comparable(contents(source), timed=timed)
    assert differences(wanted, comparable(contents(target))) == []


def misbehaving(server: LocalServer, path: Path, reply: Reply, only: str = "") -> Misbehaving:
    return Misbehaving(reply, server.url, listen=path / "socket", only=only)


def test_permission_for_dump(refused: str, source: redis.Redis, target: redis.Redis) -> None:
    report = fastresp.copy(refused, target)
    check(source, target)
    assert (report.rows, report.failed, report.gone) == (source.dbsize(), 0, 0)
    assert "NOPERM" in report.by_value and "'dump'" in report.by_value
    assert "read by the commands of their types, not DUMP: NOPERM" in str(report)


def test_keys_that_scan_finds_late(
    refused: str, source: redis.Redis, target: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    """DUMP is tried on the first keys, and large keys are found, however late these are."""
    monkeypatch.setattr(server_entries, "EMPTY_PAGES", 0)
    report = fastresp.copy(refused, target, match="*:table", verify=True)
    assert "'dump'" in report.by_value and report.rows == target.dbsize() > 0
    options: Any = {"max_payload_bytes": PARTS, "exists": "replace", "checkpoint": "late"}
    report = fastresp.copy(source, target, verify=True, **options)
    assert report.in_parts > 10 and not report.by_value
    target.delete("fastresp:{late}:copy")
    check(source, target)


def test_several_chunks_of_commands(start_server: StartServer, target: redis.Redis) -> None:
    """Values that need several chunks before they are payloads."""
    server = start_server()
    with redis.Redis.from_url(server.url) as source:
        for at in range(3_000):
            source.hset(f"hash:{at}", mapping={f"field {n}": "x" * 100 for n in range(20)})
        without_dump(source)
        fastresp.copy(f"unix://reader:x@{server.socket}", target)
        check(source, target)


def test_renamed_dump(target: redis.Redis) -> None:
    with (
        LocalServer("--rename-command", "DUMP", "") as server,
        redis.Redis.from_url(server.url) as source,
    ):
        fill(source)
        report = fastresp.copy(source, target)
        check(source, target)
    assert "unknown command" in report.by_value


@pytest.mark.parametrize("payload", [b"\x00\x01x", b"foreign" * 5, b""])
def test_foreign_payload(
    payload: bytes, shared_source: LocalServer, source: redis.Redis, target: redis.Redis,
    tmp_path: Path,
) -> None:  # fmt: skip
    """A server that stores values in another form."""
    reply = b"$%d\r\n%s\r\n" % (len(payload), payload)
    with misbehaving(shared_source, tmp_path, lambda *call: reply, "DUMP") as server:
        report = fastresp.copy(server.url, target, match="*set*")
    assert "payload" in report.by_value
    assert target.smembers("set") == source.smembers("set")


def test_another_engine(target: redis.Redis) -> None:
    """noida-db shares no code with Redis; it returns payloads as Redis does."""
    with Noida() as server, redis.Redis.from_url(server.url) as source:
        source.set("string", "x" * 30)
        source.rpush("list", "a", "b", 3)
        source.hset("hash", mapping={"a": 1, "b": "two"})
        source.sadd("set", "a", "b", "7")
        source.zadd("zset", {"a": 1.5, "b": -2})
        report = fastresp.copy(source, target, max_payload_bytes=1)
        assert report.rows == 5
        assert target.get("string") == b"x" * 30
        assert target.lrange("list", 0, -1) == [b"a", b"b", b"3"]
        assert target.hgetall("hash") == {b"a": b"1", b"b": b"two"}
        assert target.smembers("set") == {b"a", b"b", b"7"}
        assert target.zrange("zset", 0, -1, withscores=True) == [(b"b", -2), (b"a", 1.5)]


@pytest.mark.slow
@pytest.mark.parametrize("of_target", SERVERS)
@pytest.mark.parametrize("of_source", SERVERS)
def test_every_pair_of_servers(of_source: str, of_target: str) -> None:
    with two_servers(of_source, of_target) as (source, target):
        fill(source)
        without_dump(source)
        user = f"unix://reader:x@{path_of(source)}"
        fastresp.copy(user, target, field_ttl="drop")
        check(source, target)
        assert fastresp.copy(user, target, field_ttl="drop", exists="replace", verify=True)
        fastresp.copy(source, target, field_ttl="drop", exists="replace", max_payload_bytes=PARTS)
        check(source, target)


def test_parts(source: redis.Redis, target: redis.Redis) -> None:
    report = fastresp.copy(source, target, max_payload_bytes=PARTS)
    check(source, target)
    assert report.rows == report.replies == source.dbsize()
    assert report.in_parts > 10 and not report.by_value
    assert "keys read and written in parts" in str(report)
    assert target.keys("fastresp:*") == []


def test_parts_asyncio(source: redis.Redis, target: redis.Redis) -> None:
    asyncio.run(fastresp.aio.copy(source, target, max_payload_bytes=PARTS, verify=True))
    check(source, target)


def test_parts_without_memory_usage(
    shared_source: LocalServer, source: redis.Redis, target: redis.Redis
) -> None:
    rights = ("on", "nopass", "~*", "+@all", "-memory")
    source.execute_command("ACL", "SETUSER", "limited", *rights)
    user = f"unix://limited:x@{shared_source.socket}"
    report = fastresp.copy(user, target, max_payload_bytes=PARTS)
    check(source, target)
    assert report.in_parts > 5


def test_existing_keys_in_parts(source: redis.Redis, target: redis.Redis) -> None:
    target.set("list:nodes", "kept")
    options: Any = {"match": "list:nodes", "max_payload_bytes": PARTS}
    with pytest.raises(fastresp.LoadErrors) as raised:
        fastresp.copy(source, target, **options)
    [error] = raised.value.report.errors
    assert (error.code, error.row_key) == ("BUSYKEY", "key 'list:nodes'")
    report = fastresp.copy(source, target, exists="skip", **options)
    assert (report.existing, report.failed) == (1, 0)
    assert target.get("list:nodes") == b"kept"
    fastresp.copy(source, target, exists="replace", **options)
    assert target.lrange("list:nodes", 0, -1) == source.lrange("list:nodes", 0, -1)


@pytest.mark.parametrize("of_source", ["refused", "parts"])
def test_verified(of_source: str, refused: str, source: redis.Redis, target: redis.Redis) -> None:
    options: Any = {
        "exists": "replace",
        "max_payload_bytes": PARTS if of_source == "parts" else None,
    }
    user: Any = source if of_source == "parts" else refused
    report = fastresp.copy(user, target, verify=True, **options)
    assert report.verification.same, report.verification
    assert report.verification.rows_compared == source.dbsize()
    spoiled = (b"list:nodes", b"set:table", b"hash:table", b"zset:table", b"stream:groups")
    spoiling = fastresp.copy(user, target, **options)
    assert spoiling.failed == 0
    target.lset("list:nodes", 1500, "other")
    target.srem("set:table", "member 7")
    target.hset("hash:table", "field 7", "other")
    target.zadd("zset:table", {"member 7": -1})
    target.xadd("stream:groups", {"a": "late"})
    target.pexpire("list:numbers", 10_000_000)
    target.delete("string:random")

    report = fastresp.copy(user, target, changed=True, exists="replace", dry_run=False,
                           max_payload_bytes=options["max_payload_bytes"])  # fmt: skip
    assert report.failed == 0
    assert set(spoiled) <= set(target.keys())
    check(source, target)
    assert report.unchanged > 0


def test_verification_finds_differences(source: redis.Redis, target: redis.Redis) -> None:
    """A value in parts that another client changes in the target, after it was copied."""
    options: Any = {"match": "*:table", "exists": "skip", "max_payload_bytes": PARTS}
    fastresp.copy(source, target, **options)
    target.srem("set:table", "member 7")
    target.delete("zset:table")
    target.delete("hash:table")
    target.set("hash:table", "string")
    target.zadd("zset:table", {"a": 1})
    report = fastresp.copy(source, target, verify=True, **options)
    found = {(each.key, each.kind) for each in report.verification.differences}
    assert found == {(b"set:table", "value"), (b"zset:table", "value"), (b"hash:table", "type")}


def test_fields_with_times_to_live(refused: str, shared_source: LocalServer) -> None:
    with LocalServer() as server, redis.Redis.from_url(server.url) as target:
        words = "fields of the hash have a time to live"
        with pytest.raises(fastresp.SourceError, match=words):
            fastresp.copy(refused, target, match="hash:expiring")
        report = fastresp.copy(refused, target, match="hash:expiring", field_ttl="drop")
        assert (report.expiries_dropped, target.hlen("hash:expiring")) == (2, 3)
        assert target.keys() == [b"hash:expiring"]


def test_dry_run(refused: str, source: redis.Redis, target: redis.Redis) -> None:
    plan = fastresp.copy(refused, target, dry_run=True).plan
    assert plan.problems == [] and "NOPERM" in plan.by_value
    assert plan.sample_keys == source.dbsize() and plan.encodings["stream"] == 4
    assert "read by the commands of their types" in str(plan)
    plan = fastresp.copy(source, target, dry_run=True, max_payload_bytes=PARTS).plan
    assert plan.in_parts > 10 and not plan.by_value
    assert "to be read and written in parts" in str(plan)
    assert target.dbsize() == 0


def test_checkpoint(refused: str, source: redis.Redis, target: redis.Redis) -> None:
    fastresp.copy(source, target, exists="replace", max_payload_bytes=PARTS, checkpoint="parts")
    target.delete("fastresp:{parts}:copy")
    check(source, target)


def test_lost_connection_to_the_source(
    shared_source: LocalServer, source: redis.Redis, target: redis.Redis
) -> None:
    """A key of which a part is missing does not exist; the next copy repairs it."""
    source.rpush("long", *("x" * 1000 for _ in range(20_000)))
    try:
        with Proxy(str(shared_source.socket), Fault("cut", "down", at=3_000_000)) as proxy:
            url = f"redis://127.0.0.1:{proxy.port}"
            with pytest.raises(fastresp.SourceError, match='key "long" can'):
                fastresp.copy(url, target, match="long", max_payload_bytes=PARTS)
        assert target.keys() == []
        fastresp.copy(source, target, match="long", max_payload_bytes=PARTS)
        assert target.llen("long") == 20_000
    finally:
        source.delete("long")


def test_lost_connection_to_the_target(
    shared_target: LocalServer, source: redis.Redis, target: redis.Redis
) -> None:
    options: Any = {"match": "list:nodes", "max_payload_bytes": PARTS, "exists": "replace"}
    target.rpush("list:nodes", "old")
    with Proxy(str(shared_target.socket), Fault("cut", "up", at=60_000)) as proxy:
        url = f"redis://127.0.0.1:{proxy.port}"
        with pytest.raises(fastresp.TransportError, match='key "list:nodes" was not copied: lost'):
            fastresp.copy(source, url, **options)
    assert target.lrange("list:nodes", 0, -1) == [b"old"]
    fastresp.copy(source, target, **options)
    assert target.llen("list:nodes") == source.llen("list:nodes")
    assert target.dbsize() == 1


def test_part_that_is_refused(source: redis.Redis, target: redis.Redis) -> None:
    """An error in the middle of a value: the report names the key, which is not written."""
    rights = ("on", "nopass", "~*", "+@all", "-rpush")
    target.execute_command("ACL", "SETUSER", "writer", *rights)
    with pytest.raises(fastresp.LoadErrors) as raised:
        fastresp.copy(
            source, f"unix://writer:x@{path_of(target)}", match="list:*", max_payload_bytes=PARTS
        )
    keys = sorted(each.row_key for each in raised.value.report.errors)
    assert keys == ["key 'list:long'", "key 'list:nodes'", "key 'list:numbers'"]
    assert {each.code for each in raised.value.report.errors} == {"NOPERM"}
    assert target.keys() == []


def changing(change: Callable[[], object], times: int, name: bytes = b"LRANGE LONG 10") -> Reply:
    """Change the source each time when a part of a value is read, and at most ``times`` times."""
    left = [None] * times

    def changed(connection: Connection, command: list[bytes], honest: bytes) -> bytes:
        if left and b" ".join(command).upper().startswith(name):
            left.pop()
            change()
        return honest

    return changed


@pytest.fixture
def long(source: redis.Redis) -> Iterator[str]:
    """A list that is read in parts, from a source whose other keys no test changes."""
    source.rpush("long", *(f"{n:0100}" for n in range(30_000)))
    yield "long"
    source.delete("long", "moved")


@pytest.mark.parametrize("change", ["DEL long", "RENAME long moved", "PEXPIRE long 1"])
def test_key_that_goes_while_it_is_read(
    change: str, long: str, shared_source: LocalServer, source: redis.Redis, target: redis.Redis,
    tmp_path: Path,
) -> None:  # fmt: skip
    target.set("other", 1)
    changed = changing(lambda: source.execute_command(change), 1)
    with misbehaving(shared_source, tmp_path, changed) as server:
        report = fastresp.copy(server.url, target, match=long, max_payload_bytes=PARTS)
    assert (report.gone, report.rows, report.in_parts, report.failed) == (1, 0, 0, 0)
    assert target.keys() == [b"other"]


@pytest.mark.parametrize("change", ["LPOP long 50", "RPOP long 50", "LPUSH long first"])
def test_list_that_changes_while_it_is_read(
    change: str, long: str, shared_source: LocalServer, source: redis.Redis, target: redis.Redis,
    tmp_path: Path,
) -> None:  # fmt: skip
    """It is read again; an error if it changes each time."""
    options: Any = {"match": long, "max_payload_bytes": PARTS, "exists": "replace"}
    last = b"LRANGE LONG 21"
    once = changing(lambda: source.execute_command(change), 1, last)
    with misbehaving(shared_source, tmp_path, once) as server:
        report = fastresp.copy(server.url, target, **options)
    assert (report.rows, report.in_parts) == (1, 1)
    assert target.lrange(long, 0, -1) == source.lrange(long, 0, -1)
    before = target.llen(long)
    always = changing(lambda: source.execute_command(change), 1_000, last)
    with (
        misbehaving(shared_source, tmp_path, always) as server,
        pytest.raises(fastresp.LoadErrors, match="changed while it was read") as raised,
    ):
        fastresp.copy(server.url, target, **options)
    [error] = raised.value.report.errors
    assert error.row_key == "key 'long'"
    assert (target.keys(), target.llen(long)) == ([b"long"], before)


def test_appends_while_a_list_is_read(
    long: str, shared_source: LocalServer, source: redis.Redis, target: redis.Redis, tmp_path: Path
) -> None:
    """These are later changes, as to any key that was copied before."""
    changed = changing(lambda: source.rpush(long, "more"), 1_000)
    with misbehaving(shared_source, tmp_path, changed) as server:
        report = fastresp.copy(server.url, target, match=long, max_payload_bytes=PARTS)
    assert report.rows == 1
    found = target.lrange(long, 0, -1)
    assert len(found) >= 30_000 and source.lrange(long, 0, len(found) - 1) == found


@pytest.mark.parametrize(
    ("key", "name", "change"),
    [
        ("set:table", b"SSCAN", "SADD set:table new"),
        ("zset:table", b"ZSCAN", "ZADD zset:table 1 new"),
        ("hash:table", b"HSCAN", "HSET hash:table new 1"),
        ("string", b"GETRANGE", "APPEND string new"),
        ("stream:groups", b"XINFO STREAM", "DEL stream:groups"),
    ],
)
def test_values_that_change_while_they_are_read(
    key: str, name: bytes, change: str, start_server: StartServer,
    target: redis.Redis, tmp_path: Path,
) -> None:  # fmt: skip
    server = start_server(program=located("redis-8.2", WHEEL_SERVERS))
    with redis.Redis.from_url(server.url) as source:
        fill(source)
        changed = changing(lambda: source.execute_command(change), 1, name)
        with misbehaving(server, tmp_path, changed) as between:
            report = fastresp.copy(between.url, target, match=key, max_payload_bytes=10)
        assert (report.gone, report.failed) == ("DEL" in change, 0)
        wanted = {at: each for at, each in contents(source).items() if at == key.encode()}
        assert differences(comparable(wanted), comparable(contents(target))) == []


def test_rate_limit_of_keys_in_parts(start_server: StartServer, target: redis.Redis) -> None:
    """One limit for the parts of all keys: in bytes, or in keys."""
    server = start_server()
    with redis.Redis.from_url(server.url) as source:
        for at in range(8):
            source.rpush(f"list:{at}", *("x" * 1_000 for _ in range(500)))
        for rate, least in ("5MB", 0.6), (10, 0.6):
            began = time.monotonic()
            shown: list[tuple[int, int]] = []
            report = fastresp.copy(
                source, target, exists="replace", max_payload_bytes=PARTS, rate_limit=rate,
                progress=lambda report, shown=shown: shown.append((report.rows, report.bytes_sent)),
            )  # fmt: skip
            assert time.monotonic() - began >= report.seconds > least
            assert report.in_parts == 8
            assert {rows for rows, _ in shown} >= set(range(1, 9))
            assert shown == sorted(shown) and shown[-1] == (8, report.bytes_sent)


INTERRUPTED = """
import os, signal, sys, threading, time, redis, fastresp
source, target = sys.argv[1:]
client = redis.Redis.from_url(target)
def interrupt():
    while not client.keys("fastresp:copying:*"):
        time.sleep(0.001)
    os.kill(os.getpid(), signal.SIGINT)
threading.Thread(target=interrupt, daemon=True).start()
try:
    fastresp.copy(source, target, max_payload_bytes=1000, rate_limit="2MB")
except KeyboardInterrupt:
    print("interrupted")
"""


def test_interrupt(start_server: StartServer, target: redis.Redis) -> None:
    """Ctrl-C in the middle of a large value leaves nothing of it."""
    server = start_server()
    with redis.Redis.from_url(server.url) as source:
        for _ in range(100):
            source.rpush("long", *("x" * 1000 for _ in range(1_000)))
    run = subprocess.run(
        [sys.executable, "-c", INTERRUPTED, server.url, f"unix://{path_of(target)}"],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert run.stdout == "interrupted\n", run.stderr
    deadline = time.monotonic() + 10
    while target.keys() and time.monotonic() < deadline:  # UNLINK may still be on its way
        time.sleep(0.01)
    assert target.keys() == []


MEMORY = f"""
{PEAK}
import sys, fastresp
source, target = sys.argv[1:]
fastresp.copy(source, target, match="small", exists="replace")
before = peak()
fastresp.copy(source, target, exists="replace")
print(peak() - before)
"""


def test_memory(start_server: StartServer, target: redis.Redis) -> None:
    """Values of 100 MB each are copied in a few MiB."""
    server = start_server("--rdbcompression", "no")  # otherwise, whole values are small, too
    with redis.Redis.from_url(server.url) as source:
        source.set("small", 1)
        source.setrange("string", 100 * MIB, "end")
        for at in range(100):
            source.rpush("list", *(b"%d" % at + b"x" * 1000 for at in range(1_000)))
            source.hset("hash", mapping={f"{at}:{n}": "x" * 1000 for n in range(1_000)})
        run = subprocess.run(
            [sys.executable, "-c", MEMORY, server.url, f"unix://{path_of(target)}"],
            capture_output=True, text=True, timeout=100, check=True,
        )  # fmt: skip
        print(run.stdout)
        assert 0 < int(run.stdout) * 1024 < 48 * MIB
        assert target.strlen("string") == 100 * MIB + 3
        assert (target.llen("list"), target.hlen("hash")) == (100_000, 100_000)


def test_temporary_names_have_the_slot_of_their_keys() -> None:
    from redis.crc import key_slot

    keys = (b"a", b"", b"{a}b", b"a{b", b"a}b", b"{}a", b"a}{", b"x{}{y}", b"\xff{\r\n}", b"a}{b")
    for key in keys:
        if key:
            assert key_slot(temporary(key)) == key_slot(key), key
    assert len({temporary(key) for key in keys}) == len(keys)


def test_durable(start_server: StartServer, source: redis.Redis, target: redis.Redis) -> None:
    """Keys in parts are as durable as the others."""
    options = "--appendonly", "yes", "--appendfsync", "always"
    server = start_server(*options, program=located("redis-8.2", WHEEL_SERVERS))
    with redis.Redis.from_url(server.url) as client:
        report = fastresp.copy(source, client, durable="fsync", max_payload_bytes=PARTS)
        check(source, client)
        before = client.info("commandstats")["cmdstat_waitaof"]["calls"]
        one: Any = {"exists": "replace", "max_payload_bytes": PARTS, "match": "set:table"}
        fastresp.copy(source, client, durable="fsync", **one)
        calls = client.info("commandstats")["cmdstat_waitaof"]["calls"]
    assert report.in_parts > 10
    assert report.durable == report.replies == source.dbsize()
    assert calls == before + 2  # one asks whether the server has WAITAOF
    with pytest.raises(fastresp.TransportError, match='"set:table" is not confirmed to be durable'):
        fastresp.copy(source, target, durable=1, timeout=0.5, **one)


def test_damaged_key_after_keys_in_parts(
    shared_source: LocalServer, source: redis.Redis, target: redis.Redis, tmp_path: Path
) -> None:
    """Keys that were deferred before a key that can't be copied are copied."""
    tried = []

    def damaged(connection: Any, command: list[bytes], honest: bytes) -> bytes:
        tried.append(command)
        return honest if len(tried) == 1 else b"$3\r\nbad\r\n"

    with (
        misbehaving(shared_source, tmp_path, damaged, "DUMP") as server,
        pytest.raises(fastresp.SourceError) as raised,
    ):
        fastresp.copy(server.url, target, max_payload_bytes=PARTS)
    assert raised.value.report.rows == target.dbsize()
    assert not [note for note in raised.value.__notes__ if "were not copied" in note]
    assert target.keys("fastresp:*") == []


@pytest.mark.parametrize("most", [1, 1_000])
def test_keys_that_were_not_copied(
    most: int, shared_target: LocalServer, source: redis.Redis, target: redis.Redis,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """A lost target: while the source is read, or later."""
    monkeypatch.setattr(server_entries, "MAX_ASIDE", most)
    with Proxy(str(shared_target.socket), Fault("cut", "up", at=20_000)) as proxy:
        url = f"redis://127.0.0.1:{proxy.port}"
        with pytest.raises(fastresp.TransportError, match="was not copied: lost") as raised:
            fastresp.copy(source, url, match="*:table", max_payload_bytes=PARTS)
    notes = "".join(raised.value.__notes__)
    assert (most == 1) != ("keys to be copied in parts were not copied, such as" in notes)
    assert target.keys("fastresp:*") == []


def test_number_of_keys_set_aside(
    start_server: StartServer, target: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many streams there are: few are deferred at a time."""
    monkeypatch.setattr(server_entries, "MAX_ASIDE", 30)
    server = start_server()
    with redis.Redis.from_url(server.url) as client:
        fastresp.mass_insert(range(100), "XADD {0} 1-1 a b", client)
        without_dump(client)
    user = f"unix://reader:x@{server.socket}"
    entries = server_entries.ServerEntries(user, CopyOptions())
    most = []

    def empty() -> None:
        most.append(len(entries.aside))
        entries.aside.clear()

    entries.when_full(empty)
    entries.open()
    entries.prepare(Restorer(11, valkey=False, source_valkey=False))
    assert list(entries) == []
    assert (most, len(entries.aside)) == ([30] * 3, 10)
    report = fastresp.copy(user, target, verify=True)
    assert report.rows == report.in_parts == target.dbsize() == 100
    assert report.verification.same


def test_max_errors(source: redis.Redis, target: redis.Redis, tmp_path: Path) -> None:
    """Errors of keys in parts, and of other keys, count together."""
    for name in ("list:nodes", "list:numbers", "set:table", "string"):
        target.set(name, "kept")
    rejects = tmp_path / "rejects"
    options: Any = {"on_error": "collect", "max_payload_bytes": PARTS, "rejects": rejects}
    report = fastresp.copy(source, target, max_errors=3, **options)
    assert report.failed == 4
    assert report.stopped == "stopped after more than 3 error replies"
    assert [each["row_key"] for each in map(json.loads, rejects.open())] == ["key 'string'"]
    report = fastresp.copy(source, target, on_error="collect", match="list:n*", max_errors=0,
                           max_payload_bytes=PARTS)  # fmt: skip
    assert report.failed == 1 and report.stopped


def test_types_of_modules(tmp_path: Path, target: redis.Redis) -> None:
    with (
        LocalServer(*module_options(tmp_path, "bloom")) as server,
        redis.Redis.from_url(server.url) as source,
    ):
        source.execute_command("BF.ADD", "filter", "a")
        source.set("string", "value")
        without_dump(source)
        user = f"unix://reader:x@{server.socket}"
        words = 'key "filter" can\'t be read: its type is MBbloom--, which only DUMP can read'
        with pytest.raises(fastresp.SourceError, match=words):
            fastresp.copy(user, target)
        assert fastresp.copy(user, target, type="string", exists="replace").rows == 1


@pytest.mark.slow
@pytest.mark.parametrize("by_value", [False, True])
def test_clusters(by_value: bool) -> None:
    with LocalCluster(3) as one, LocalCluster(3) as other:
        source, target = (redis.RedisCluster.from_url(each.url) for each in (one, other))
        with source, target:
            for at in range(30):
                source.rpush(f"list:{at}", *range(2_000))
                source.hset(f"{{tag}}:{at}", mapping={str(n): n for n in range(2_000)})
                source.xadd(f"stream:{at}", {"a": at})
                source.set(f"string:{at}", "x" * 2_000)
            if by_value:
                for node in one.clients:
                    without_dump(node)
            url = one.url.replace("://", "://reader:x@") if by_value else one.url
            report = fastresp.copy(
                url, other.url, max_payload_bytes=PARTS, verify=True, durable="acknowledged"
            )
            assert report.rows == 120 and report.in_parts >= 90
            assert report.verification.same, report.verification
            assert target.lrange("list:7", 0, -1) == source.lrange("list:7", 0, -1)


KILLED = """
import sys, fastresp
import fastresp.load.copying.stored_copy as stored
stored.SAVE_S = 0.01
source, target = sys.argv[1:]
fastresp.copy(source, target, exists="replace", max_payload_bytes=1000, rate_limit="20MB",
              checkpoint=fastresp.Checkpoint("parts", resume=True))
"""


@pytest.mark.slow
def test_killed(start_server: StartServer, target: redis.Redis) -> None:
    """SIGKILL in the middle of a part: the resumed copy completes all keys, and leaves no other."""
    server = start_server()
    with redis.Redis.from_url(server.url) as source:
        for at in range(200):
            source.rpush(f"list:{at}", *("x" * 1000 for _ in range(300)))
            source.set(f"string:{at}", at)
        command = [sys.executable, "-c", KILLED, server.url, f"unix://{path_of(target)}"]
        kills = 0
        for _ in range(5):
            process = subprocess.Popen(command)
            while process.poll() is None:
                if temporaries := target.keys("fastresp:copying:*"):
                    process.kill()
                    kills += len(temporaries)
            process.wait()
        subprocess.run(command, check=True, timeout=100)
        assert kills >= 3
        target.delete("fastresp:{parts}:copy")
        check(source, target)
