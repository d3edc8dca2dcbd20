"""Memory estimates match the memory that a real server uses."""

from __future__ import annotations

import random
import time

import pytest
import redis

import fastresp
from fastresp.load.memory_estimate import (
    LIMITS,
    Model,
    entry_size,
    sds_size,
    size_class,
    string_size,
)

COMMANDS = 40_000
RANDOM = random.Random(5)


def word(size: int) -> str:
    return "".join(RANDOM.choices("abcdefghijklmnop", k=size))


# The i-th command of each case.
CASES = {
    "SET": lambda i: ("SET", f"key:{i:06}", word(20)),
    "SET, integers": lambda i: ("SET", f"key:{i:06}", 10_000 + i),
    "SET, 129 bytes": lambda i: ("SET", f"key:{i:06}", word(129)),
    "SETEX": lambda i: ("SETEX", f"key:{i:06}", 1000, word(30)),
    "MSET": lambda i: ("MSET", f"a:{i:06}", word(9), f"b:{i:06}", word(90)),
    "HSET, a key each": lambda i: ("HSET", f"user:{i:06}", "name", word(12), "age", i % 90),
    "HSET, long values": lambda i: ("HSET", f"user:{i:06}", "text", word(100), "id", i),
    "HSET, one key": lambda i: ("HSET", "all", f"field:{i:06}", word(30)),
    "LPUSH, one key": lambda i: ("LPUSH", "list", word(129)),
    "LPUSH, large": lambda i: ("LPUSH", "list", word(30) * 40),
    "RPUSH, a key each": lambda i: ("RPUSH", f"list:{i:06}", *(word(40) for _ in range(5))),
    "SADD, one key": lambda i: ("SADD", "set", f"member:{i:06}"),
    "SADD, a key each": lambda i: ("SADD", f"set:{i:06}", *(word(10) for _ in range(4))),
    "SADD, integers": lambda i: ("SADD", f"set:{i:06}", i, i + 1, i + 2),
    "ZADD, one key": lambda i: ("ZADD", "zset", i / 2, f"member:{i:06}"),
    "ZADD, a key each": lambda i: ("ZADD", f"zset:{i:06}", i, word(10), i + 1, word(10)),
}


def settled_memory(client: redis.Redis) -> int:
    """Return used_memory once rehashing and freeing have finished."""
    used = 0
    for _ in range(100):
        time.sleep(0.02)
        last, used = used, client.info("memory")["used_memory"]
        if last == used:
            break
    return used


@pytest.mark.few(1)
@pytest.mark.parametrize("name", CASES)
def test_estimate_matches_a_real_server(start_server, name: str) -> None:
    commands = [CASES[name](i) for i in range(COMMANDS)]
    server = start_server()
    with redis.Redis.from_url(server.url) as client:
        info = client.info("server")
        if "valkey_version" in info or not info["redis_version"].startswith("7.0"):
            pytest.skip("the formulas are for Redis 7.0")
        before = settled_memory(client)
        fastresp.mass_insert(commands, server=server.url, transport="socket")
        used = settled_memory(client) - before
        limits = LIMITS | {"hash-max-listpack-entries": 512}
        keys = client.dbsize()
    sample = [[str(word).encode() for word in command] for command in commands[:1000]]
    estimate = Model(limits).run(sample, COMMANDS / 1000)
    assert estimate.keys == keys
    assert 0.75 < estimate.memory / used < 1.25, (estimate, used)
    assert estimate.unknown == ()


def test_whole_sample_is_not_extrapolated() -> None:
    commands = [[b"LPUSH", b"list", b"x"]] * 7 + [[b"SADD", b"set", b"a", b"b"]] * 3
    assert Model().run(commands, 1.0).keys == 2
    # Repeated members need no more memory.
    few, lots = (Model().run([[b"SADD", b"s", b"a"]] * 1000, times) for times in (1.0, 1000.0))
    assert few == lots


def test_unknown_commands_are_named() -> None:
    estimate = Model().run([[b"xadd", b"s", b"*", b"a", b"1"], [b"SET", b"k", b"v"]], 1.0)
    assert estimate.unknown == ("XADD",)
    assert estimate.keys == 1
    others = [
        [b"DEL", b"k"],
        [b"PING"],
        [b"HMGET", b"h", b"f"],
        [b"ZREMRANGEBYSCORE", b"z", b"0", b"1"],
    ]
    assert Model().run(others, 1.0) == Model().run([], 1.0)


@pytest.mark.parametrize(
    "command",
    [[b"SET"], [b"SET", b"k"], [b"HSET", b"k", b"f"], [b"ZADD", b"k"], [b"MSET", b"k"], [b"SADD"]],
)
def test_wrong_arity_is_tolerated(command) -> None:
    assert Model().run([command] * 3, 10.0).memory >= 0


def test_options_of_set_and_zadd() -> None:
    expiring = Model().run([[b"SET", b"k", b"v", b"NX", b"ex", b"10"]], 1.0)
    assert expiring.memory > Model().run([[b"SET", b"k", b"v"]], 1.0).memory
    plain = Model().run([[b"ZADD", b"z", b"1", b"a"]], 1.0)
    assert Model().run([[b"ZADD", b"z", b"NX", b"ch", b"1", b"a"]], 1.0) == plain


def test_sizes() -> None:
    assert [size_class(n) for n in (1, 9, 17, 128, 129, 257, 1025, 5000)] == [
        8, 16, 32, 128, 160, 320, 1280, 5120,
    ]  # fmt: skip
    assert (sds_size(0), sds_size(30), sds_size(32)) == (8, 32, 48)
    assert string_size(b"12345") == 16
    assert (string_size(b"x" * 44), string_size(b"x" * 45)) == (64, 80)
    assert (entry_size(b"7"), entry_size(b"-7"), entry_size(b"70000")) == (2, 3, 5)
    assert (entry_size(b"x"), entry_size(b"x" * 100)) == (3, 103)
