"""copy(follow=True) between servers that know other commands."""

from __future__ import annotations

import contextlib
import shlex
from typing import Any

import pytest
import redis
from every_encoding import contents, differences, fill
from test_follow import StartServer, following, wait_for
from test_from_replica import SERVERS, two_servers

import fastresp
from fastresp.load.copying.following import Following
from fastresp.load.copying.options import CopyOptions
from fastresp.server.local_server import LocalServer
from fastresp.server.settings import Server
from fastresp.sources.replica_stream import ReplicaStream

OPTIONS = ["--repl-diskless-sync-delay", "0"]
# The servers send most of these in another form. The times to live end in 2100.
COMMANDS = """
SET a 1 PXAT 4102444800000
SET a 2 IFEQ 1
SET b 1 NX GET
EXPIREAT a 4102444800 XX
PEXPIREAT b 4102444800000 NX
SETEX c 1000000 1
PERSIST c
MSETEX 2 d 1 e 2 NX EXAT 4102444800
SET f x
DELIFEQ f x
DELEX f
HSET h f 1 g 2 k 3 l 4
HSETEX h FIELDS 2 f 7 m 8
HGETDEL h FIELDS 1 g
HINCRBYFLOAT h f 1.5
HINCRBYFLOAT h new 1.5
HSETNX h n 1
RPUSH l a b c d e
LMPOP 1 l LEFT COUNT 2
ZADD z 1 a 2 b 3 c
ZMPOP 1 z MIN
GEOADD geo 1 1 a
PFADD hll a b c
PFCOUNT hll
PFADD hll d
PFCOUNT hll
XADD st MAXLEN ~ 100 5-1 a 1
XADD st 6-1 a 1
XADD st KEEPREF MAXLEN = 100 6-2 a 1
XADD st KEEPREF 6-3 KEEPREF 1
XADD st 6-4 a 1
XDELEX st KEEPREF IDS 1 6-4
XGROUP CREATE st g 0 ENTRIESREAD 1
XREADGROUP GROUP g c COUNT 1 STREAMS st >
XSETID st 9-9 ENTRIESADDED 10 MAXDELETEDID 1-1
XAUTOCLAIM st g c2 0 0
EVAL "redis.call('set','i','1','exat',4102444800)" 0
"""
# Redis 8 replicates HINCRBYFLOAT with an option that keeps times to live.
FIELD_EXPIRIES = """
HSET h f 1 g 2 k 3
HEXPIRE h 1000000 FIELDS 1 f
HPERSIST h FIELDS 1 f
HSETEX h EX 1000000 FIELDS 1 g 7
HGETEX h EX 1000000 FIELDS 1 k
HINCRBYFLOAT h k 1.5
"""


def run(client: redis.Redis, text: str) -> None:
    """Run the commands of a text that the server knows."""
    for line in text.strip().splitlines():
        with contextlib.suppress(redis.ResponseError):
            client.execute_command(*shlex.split(line))


def replicated(client: redis.Redis, of_source: str) -> dict[bytes, Any]:
    """Return the contents without what a replica of the source would not have either.

    That is when consumers were last seen; and in Redis 7.0, how many entries a group has read.
    """
    found = contents(client)
    for group in found[b"st"][2]["groups"]:
        if of_source == "redis-server":
            group.pop("entries-read", None)
            group.pop("lag", None)
        for consumer in group["consumers"]:
            del consumer["seen-time"]
    return found


def check_followed(of_source: str, of_target: str) -> None:
    with two_servers(of_source, of_target, *OPTIONS) as (client, copied):
        fill(client)
        client.delete("hash:expiring", "hash:expiring table")
        payloads = {key: client.dump(key) for key in client.scan_iter()}
        with following(client, copied) as errors:
            for key, payload in payloads.items():
                client.restore(b"restored:" + key, 0, payload)
                client.restore(key, 4_102_444_800_000, payload, replace=True, absttl=True)
            run(client, COMMANDS)
            client.set("last", 1)
            assert wait_for(lambda: errors or copied.exists("last"))
        assert errors == []
        assert differences(*(replicated(each, of_source) for each in (client, copied))) == []


def test_commands_of_redis() -> None:
    check_followed("redis-8.2", "redis-6.2")


def test_commands_of_valkey() -> None:
    check_followed("valkey-9.1", "redis-8.2")


@pytest.mark.slow
@pytest.mark.parametrize("of_target", SERVERS)
@pytest.mark.parametrize("of_source", SERVERS)
def test_every_pair_of_servers(of_source: str, of_target: str) -> None:
    check_followed(of_source, of_target)


def test_times_to_live_of_fields() -> None:
    options = {"from_replica": True, "follow": True, "until_lag": 0}
    with two_servers("valkey-9.1", "valkey-8.1", *OPTIONS) as (client, copied):
        with following(client, copied) as errors:
            run(client, FIELD_EXPIRIES)
            assert wait_for(lambda: errors)
        assert "the source ran HPEXPIREAT before" in str(errors[0])
        copied.flushall()
        fastresp.copy(client, copied, field_ttl="drop", **options)
        with following(client, copied, field_ttl="drop", exists="replace") as errors:
            run(client, FIELD_EXPIRIES)
            client.restore("restored", 0, client.dump("h"))
            assert wait_for(lambda: errors or copied.exists("restored"))
        assert errors == []
        assert copied.hgetall("restored") == copied.hgetall("h") == client.hgetall("h")


@pytest.mark.parametrize("field_ttl", ["keep", "drop"])
@pytest.mark.parametrize("of_target", ["valkey-8.1", "valkey-9.1"])
def test_times_to_live_that_are_kept(of_target: str, field_ttl: str) -> None:
    """HINCRBYFLOAT of Redis 8 keeps times to live, where the target has any."""
    with two_servers("redis-8.2", of_target, *OPTIONS) as (client, copied):
        client.hset("h", mapping={"a": 1, "b": 1})
        with following(client, copied, field_ttl=field_ttl) as errors:
            if of_target == "valkey-9.1":
                client.execute_command("HPEXPIREAT", "h", 4102444800000, "FIELDS", 1, "a")
            for field in "abc":
                client.hincrbyfloat("h", field, 1.5)
            client.set("last", 1)
            assert wait_for(lambda: errors or copied.exists("last"))
        assert errors == []
        assert copied.hgetall("h") == client.hgetall("h")
        if of_target == "valkey-9.1":
            times = ("HPEXPIRETIME", "h", "FIELDS", 2, "a", "b")
            assert copied.execute_command(*times) == client.execute_command(*times)


def test_a_restored_value_that_the_target_can_not_keep() -> None:
    with two_servers("valkey-9.1", "valkey-8.1", *OPTIONS) as (client, copied):
        client.config_set("notify-keyspace-events", "")
        run(client, FIELD_EXPIRIES)
        payload = client.dump("h")
        client.delete("h")
        with following(client, copied) as errors:
            client.restore("h", 0, payload)
            assert wait_for(lambda: errors)
    assert "the source ran RESTORE before" in str(errors[0])
    assert "key b'h'" in str(errors[0])
    assert "field_ttl" in str(errors[0])


def test_commands_over_databases(start_server: StartServer) -> None:
    source, target = start_server(*OPTIONS), start_server()
    with redis.Redis.from_url(source.url) as client, redis.Redis.from_url(target.url) as copied:
        client.mset({"a": 1, "b": 1})
        with following(source, copied) as errors:
            client.move("a", 1)
            client.copy("b", "d", destination_db=1)
            client.execute_command("SWAPDB", 1, 2)
            with redis.Redis.from_url(f"{source.url}?db=3") as third:
                third.mset({"d": 1, "e": 1})
                third.move("d", 4)
                third.flushdb()
            client.set("c", 1)
            assert wait_for(lambda: errors or copied.exists("c"))
        assert (errors, sorted(copied.keys())) == ([], [b"b", b"c"])


def test_a_server_that_sends_other_arguments(server: LocalServer) -> None:
    """They are refused, whatever a source sends."""
    applied = Following(
        ReplicaStream(Server(server.url), 5), CopyOptions(server=server.url),
        fastresp.Report("socket"), 0, None,
    )  # fmt: skip
    for text in ("RESTORE a 0", "MSETEX x a b", "HSETEX a b c", "MOVE a x",
                 "COPY a b DB", "SWAPDB a b", "RESTORE a 0 xyz"):  # fmt: skip
        command = text.encode().split()
        with pytest.raises(fastresp.SourceError, match=f"the source ran {text.split()[0]} before"):
            applied._commands_of(command[0], command)


@pytest.mark.parametrize(
    "sent",
    [
        b"+OK\r\n", b"-ERR no\r\n", b":1\r\n", b"*-1\r\n", b"*0\r\n", b"*1\r\n$-1\r\n", b"\n",
        b"%1\r\n", b"*1\r\n$999999999999\r\n", b"*1000000000\r\n", b"*1\r\n" * 10_000,
        b"*1\r\n$3\r\n\xff\xfe\xfd\r\n", b"*2\r\n$3\r\nSET\r\n:1\r\n",
    ],
)  # fmt: skip
def test_a_server_that_sends_no_commands(client: redis.Redis, sent: bytes) -> None:
    stream = ReplicaStream(Server(client), 5)
    stream.commands.write(b"*3\r\n$3\r\nSET\r\n$1\r\na\r\n$1\r\n1\r\n" + sent)
    options = CopyOptions(server=client)
    applied = Following(stream, options, fastresp.Report("socket"), 0, None)
    with pytest.raises(fastresp.SourceError, match="the source"):
        applied.run()
    # No place is passed that the target does not have.
    assert (client.get("a") == b"1") == (applied.report.offset > 0)


def test_transactions_over_several_blocks(start_server: StartServer) -> None:
    """A transaction that is larger than a block is applied as a whole."""
    source, target = start_server(*OPTIONS), start_server()
    with redis.Redis.from_url(source.url) as client, redis.Redis.from_url(target.url) as copied:
        with following(source, copied) as errors:
            transaction = client.pipeline(transaction=True)
            for number in range(5):
                transaction.set(f"key:{number}", "x" * 700_000).incr("n")
            transaction.execute()
            assert wait_for(lambda: errors or copied.get("n") == b"5")
        assert errors == []
        assert (copied.get("n"), copied.dbsize()) == (b"5", 6)
        assert copied.info("commandstats")["cmdstat_exec"]["calls"] == 1
