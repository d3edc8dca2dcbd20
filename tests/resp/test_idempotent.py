"""Idempotent commands: a full run after any partial run changes nothing."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import pytest
import redis
from server_programs import need

from fastresp import pack
from fastresp.resp.commands import commands_with
from fastresp.resp.idempotent import IDEMPOTENT, may_ask_again, may_resend, only_reads
from fastresp.server.local_server import LocalServer

# Commands of other modules, of newer servers, without effect on data, or for a whole node.
NOT_HERE = frozenset(
    """
    JSON.SET JSON.MSET JSON.MERGE BF.ADD BF.MADD BF.INSERT VADD VREM VSETATTR MSETEX HSETEX HEXPIRE
    HPEXPIRE HEXPIREAT HPEXPIREAT HPERSIST SCRIPT FUNCTION PING ECHO RESTORE
    """.split()  # noqa: SIM905
)


def made(randoms: random.Random) -> tuple[Any, ...]:
    """Return a random idempotent command, on a few keys of each type."""
    value, score = randoms.randrange(5), randoms.randrange(10)
    field, low = randoms.choice("abc"), randoms.randrange(8)
    text, hash_, set_, zset = (f"{kind}{randoms.randrange(2)}" for kind in ("t", "h", "s", "z"))
    any_key = randoms.choice((text, hash_, set_, zset))
    options = randoms.choice(((), ("NX",), ("XX",), ("GT",), ("LT",), ("XX", "GT"), ("CH",)))
    ttl = 100_000 + value
    return randoms.choice(
        [
            ("SET", text, value, *randoms.choice(((), ("NX",), ("XX",), ("EX", ttl), ("GET",)))),
            ("SETEX", text, ttl, value), ("PSETEX", text, ttl * 1000, value),
            ("SETNX", text, value), ("GETSET", text, value), ("GETDEL", text),
            ("GETEX", text, "EX", ttl), ("SETRANGE", text, low, value), ("SETBIT", text, low, 1),
            ("MSET", "t0", value, "t1", score), ("GET", text), ("STRLEN", text),
            ("DEL", any_key), ("UNLINK", any_key), ("TOUCH", any_key), ("EXISTS", any_key),
            ("EXPIRE", any_key, ttl), ("PEXPIRE", any_key, ttl * 1000), ("PERSIST", any_key),
            ("EXPIREAT", any_key, 4_000_000_000 + value), ("TYPE", any_key), ("TTL", any_key),
            ("PEXPIREAT", any_key, 4_000_000_000_000 + value), ("PTTL", any_key),
            ("HSET", hash_, field, value), ("HMSET", hash_, field, value, "d", score),
            ("HSETNX", hash_, field, value), ("HDEL", hash_, field), ("HGET", hash_, field),
            ("HMGET", hash_, field), ("HGETALL", hash_), ("HLEN", hash_),
            ("SADD", set_, value, score), ("SREM", set_, value), ("SCARD", set_),
            ("ZADD", zset, *options, score, field), ("ZADD", zset, score, field, value, "d"),
            ("ZREM", zset, field), ("ZREMRANGEBYSCORE", zset, low, low + 2), ("ZCARD", zset),
            ("ZREMRANGEBYLEX", "z2", f"[{field}", f"[{field}"), ("ZADD", "z2", 0, field),
            ("GEOADD", "g", score, value, field), ("PFADD", "p", value), ("LLEN", "list"),
            ("XLEN", "stream"),
        ]
    )  # fmt: skip


@pytest.fixture(scope="module")
def client() -> Iterator[redis.Redis]:
    need("server")
    with LocalServer("--enable-debug-command", "yes") as server:
        yield redis.Redis.from_url(server.url)


@pytest.mark.few(3)
@pytest.mark.parametrize("tenth", range(10))
def test_full_run_after_a_partial_run(client: redis.Redis, tenth: int) -> None:
    for seed in range(100 * tenth, 100 * (tenth + 1)):
        check_again(client, seed)


def check_again(client: redis.Redis, seed: int) -> None:
    """Part of a list of random commands runs, and then all of them."""
    randoms = random.Random(seed)
    commands = [made(randoms) for _ in range(randoms.randrange(1, 40))]
    allowed = may_resend([[pack(*command)] for command in commands])
    commands = [command for command, may in zip(commands, allowed, strict=True) if may]
    before = [made(randoms) for _ in range(10)]
    ran = randoms.randrange(len(commands) + 1)

    def run(*lists: list[tuple[Any, ...]]) -> tuple[bytes, list[str]]:
        client.flushdb()
        for each in before:
            client.execute_command(*each)
        errors = []
        for each in lists:
            for command in each:
                try:
                    client.execute_command(*command)
                except redis.ResponseError as error:
                    errors.append(str(error))
        digest: bytes = client.execute_command("DEBUG", "DIGEST")
        return digest, errors

    assert run(commands[:ran], commands) == run(commands), (before, commands, ran)


def test_all_idempotent_commands_are_tried() -> None:
    randoms = random.Random(0)
    tried = {made(randoms)[0] for _ in range(10_000)}
    assert tried >= commands_with(*IDEMPOTENT) - NOT_HERE - commands_with("read")
    assert tried <= commands_with(*IDEMPOTENT)
    assert all(may_resend([[pack(name, "k", "v")]]) == [True] for name in tried)


def test_commands_that_only_read(client: redis.Redis) -> None:
    """The server agrees for all commands that it knows."""
    known = {name.upper(): details["flags"] for name, details in client.command().items()}
    named = {name: known[name] for name in commands_with("read") & known.keys()}
    assert len(named) > 80
    for name, flags in named.items():
        assert "write" not in flags, name
        assert only_reads(pack(name.lower(), "k"))
    assert not only_reads(pack("SORT", "k"))


@pytest.mark.parametrize(
    ("commands", "may"),
    [
        ([("SET", "a", 1), ("GET", "a")], True),
        ([("HSET", "a", "f", 1), ("DEL", "a")], True),
        ([("INCR", "a")], False),
        ([("GET", "a"), ("RPUSH", "b", 1)], False),
        ([("GETDEL", "a")], False),
        ([("getset", "a", 1)], False),
        ([("SETBIT", "a", 1, 1)], False),
        ([("SET", "a", 1, "GET")], False),
        ([("SET", "a", "GET")], True),
        ([("SETNX", "a", 1)], False),
        ([("SET", "a", 1, "NX")], False),
        ([("EXPIRE", "a", 1), ("HSET", "a", "f", 1)], False),
        ([("GET", "a"), ("SET", "a", 1)], False),
        ([("GET", "a"), ("SET", "b", 1)], True),
        ([("MGET", "a", "b"), ("SET", "b", 1)], False),
        ([("EVAL_RO", "return 1", 1, "a"), ("DEL", "b", "a")], False),
        ([], True),
    ],
)
def test_lost_replies(commands: list[tuple[Any, ...]], may: bool) -> None:
    """A command is not idempotent if only its first run can return the right reply."""
    allowed = may_ask_again([pack(*command) for command in commands])
    assert len(allowed) == len(commands)
    assert all(allowed) is may
