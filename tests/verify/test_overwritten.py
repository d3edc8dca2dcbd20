"""Rows that later rows overwrite: only the last write counts."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import redis

import fastresp
from fastresp.server.local_server import LocalServer

Verify = Callable[..., fastresp.VerifyReport]
Load = Callable[..., fastresp.Report]

OVERWRITTEN: list[list[tuple[Any, ...]]] = [
    [("SET", "k", 1), ("SET", "k", 2)],
    [("SET", "k", 1, "EX", 100), ("SET", "k", 1)],
    [("SET", "k", 1, "EX", 100), ("SET", "k", 2, "KEEPTTL"), ("EXPIRE", "k", 50)],
    [("HSET", "k", "a", 1, "b", 1), ("HSET", "k", "a", 2), ("HSET", "k", "b", 3, "b", 4)],
    [("HSET", "k", "a", 1, "a", 2)],
    [("HSET", "k", "a", 1), ("HDEL", "k", "a"), ("HDEL", "k", "b"), ("HSET", "k", "b", 2)],
    [("HSET", "k", "a", 1), ("SET", "k", "x")],
    [("HSET", "k", "a", 1), ("DEL", "k")],
    [("DEL", "k"), ("DEL", "x"), ("SET", "k", 1)],
    [("DEL", "k"), ("DEL", "x"), ("HSET", "k", "a", 1)],
    [("DEL", "k", "x"), ("RPUSH", "k", "a", 1)],
    [("SADD", "k", "a", "b"), ("SREM", "k", "a"), ("SADD", "k", "a"), ("SREM", "k", "b")],
    [("ZADD", "k", 1, "a"), ("ZADD", "k", 2, "a", 3, "b"), ("ZREM", "k", "b")],
    [("RPUSH", "k", "a", "b"), ("DEL", "k"), ("RPUSH", "k", "c")],
    [("RPUSH", "k", "a", "b"), ("DEL", "k"), ("LPUSH", "k", "c")],
    [("RPUSH", "k", "a"), ("MSET", "j", 1, "k", 2), ("UNLINK", "k"), ("RPUSH", "k", "b")],
    [("LPUSH", "k", "a"), ("LPUSH", "k", "b", "c"), ("LPUSH", "k", "d")],
    [("MSET", "k", 1, "k", 2, "j", 1), ("SET", "j", 3)],
    [("SET", "k", 1), ("EXPIRE", "k", 100), ("PERSIST", "k")],
    [("HSET", "k", "a", 1), ("EXPIRE", "k", 100), ("HDEL", "k", "a")],
    [("HSET", "k", "a", 1), ("PEXPIREAT", "k", 4 * 10**12), ("EXPIRE", "k", 100)],
]


@pytest.mark.parametrize("exact", [False, True])
@pytest.mark.parametrize("apart", [0, 200_000], ids=["together", "apart"])
@pytest.mark.parametrize("commands", OVERWRITTEN, ids=str)
def test_overwritten(
    commands: list[tuple[Any, ...]], apart: int, exact: bool, load: Load, verify: Verify
) -> None:
    """In one chunk, or in several, with replies to other rows in between."""
    rows: list[tuple[Any, ...]] = []
    for number, command in enumerate(commands):
        rows.append(command)
        rows.append(("SET", f"other:{number}", "x" * apart))
    load(rows)
    for _ in range(2):
        report = verify(rows, exact=exact)
        assert report.same and report.written_meanwhile == 0, report


@pytest.mark.parametrize("exact", [False, True])
def test_difference_belongs_to_the_last_row(
    exact: bool, load: Load, verify: Verify, client: redis.Redis
) -> None:
    rows = [("HSET", "k", "a", 1, "b", 1), ("SET", "x", 1), ("HSET", "k", "a", 2), ("SET", "y", 1)]
    load(rows)
    client.hset("k", mapping={"a": 9, "b": 9})
    report = verify(rows, exact=exact)
    assert [(each.row, each.field) for each in report.differences] == [(0, b"b"), (2, b"a")]


@pytest.mark.parametrize(
    "after",
    [("HDEL", "k", "a"), ("SREM", "k", "a"), ("EXPIRE", "k", 9), ("DEL", "k"), ("DEL", "j")],
)
def test_deleted_key_that_is_not_created_again(
    after: tuple[Any, ...], load: Load, verify: Verify, client: redis.Redis
) -> None:
    """The next command names the key, but does not create it."""
    rows = [("DEL", "k"), after]
    load(rows)
    client.hset("k", "a", 1) if after[0] != "SREM" else client.sadd("k", "a")
    report = verify(rows)
    assert b"k" in {each.key for each in report.differences if each.kind == "extra"}
    assert {each.row for each in report.differences} >= ({1} if after == ("DEL", "k") else {0})


# The random commands, with the keys of each type.
KEYS = 12
NAMES = [
    "set", "mset", "hash", "hash", "hash", "hdel", "del", "sadd", "sadd", "srem", "zadd", "zadd",
    "zrem", "push", "time",
]  # fmt: skip


def random_command(source: random.Random) -> tuple[Any, ...]:
    key = source.randrange(KEYS)
    fields = [f"f{source.randrange(6)}" for _ in range(source.randint(1, 3))]
    value = source.choice(["", "x", "y\r\n", "z" * 100, str(source.random())])
    match source.choice(NAMES):
        case "set":
            return "SET", f"s{key}", value
        case "mset":
            return "MSET", f"s{key}", value, f"s{source.randrange(KEYS)}", "w"
        case "hash":
            return "HSET", f"h{key}", *(x for field in fields for x in (field, value))
        case "hdel":
            return "HDEL", f"h{key}", *fields
        case "del":
            keys = [source.choice("shtzl") + str(each) for each in (key, 0)]
            return "DEL", *keys[: source.randint(1, 2)]
        case "sadd":
            return "SADD", f"t{key}", *fields
        case "srem":
            return "SREM", f"t{key}", *fields
        case "zadd":
            return "ZADD", f"z{key}", source.choice([1, 2.5, "1e3", "-inf"]), fields[0]
        case "zrem":
            return "ZREM", f"z{key}", *fields
        case "push":
            return "RPUSH" if key % 2 else "LPUSH", f"l{key}", *fields
    return "EXPIRE", f"{source.choice('shtzl')}{key}", source.choice([1000, 2000])


class Model:
    """A model of the commands' outcome, and the row of each value, in plain Python."""

    def __init__(self) -> None:
        # By key and name: the row and the value; None if it must not exist.
        self.keys: dict[str, dict[Any, tuple[int, Any]]] = {}

    def run(self, row: int, command: tuple[Any, ...]) -> None:
        name, key, *rest = command
        keys = self.keys
        if name in ("DEL", "SET", "MSET"):
            pairs = [(key, rest[0] if name == "SET" else None)]
            if name == "MSET":
                pairs = [*zip([key, *rest][::2], rest[::2], strict=True)]
            for each, value in pairs:
                keys[each] = {"": (row, value)}
            for each in rest if name == "DEL" else ():
                keys[each] = {"": (row, None)}
            return
        if name == "EXPIRE":
            keys[key]["ttl"] = (row, rest[0])
            return
        made = keys.setdefault(key, {})
        if made.get("", (0, ...))[1] is None and "REM" not in name and name != "HDEL":
            del made[""]
        if name == "HSET":
            made.update({f: (row, v) for f, v in zip(rest[::2], rest[1::2], strict=True)})
        elif name == "SADD":
            made.update(dict.fromkeys(rest, (row, True)))
        elif name == "ZADD":
            made[rest[1]] = (row, float(rest[0]))
        elif name in ("RPUSH", "LPUSH"):
            for item in rest:
                at = sum(isinstance(x, int) for x in made)
                made[at if name == "RPUSH" else -at - 1] = (row, item)
        else:
            made.update(dict.fromkeys(rest, (row, None)))

    def is_plain(self, command: tuple[Any, ...]) -> bool:
        """Return whether a command keeps times to live; verify does not track their loss."""
        name, key, *names = command
        if name == "EXPIRE":
            return self.has(key)
        made = self.keys.get(key, {})
        left = {at for at, (_, v) in made.items() if v is not None} - {"ttl", *names}
        return name not in ("HDEL", "SREM", "ZREM") or "ttl" not in made or bool(left)

    def has(self, key: str) -> bool:
        """Return whether a key exists."""
        return any(v is not None for at, (_, v) in self.keys.get(key, {}).items() if at != "ttl")

    def wrong(self, client: redis.Redis) -> set[tuple[int, bytes, Any]]:
        """Return row, key and field of each missing value."""
        found = set()
        for key, made in self.keys.items():
            for at, (row, value) in made.items():
                if not self.right(client, key, at, value):
                    field = at if isinstance(at, int) else (at.encode() or None)
                    found.add((row, key.encode(), None if at == "ttl" else field))
        return found

    def right(self, client: redis.Redis, key: str, at: Any, value: Any) -> bool:
        if at == "ttl":
            return 0 < client.pttl(key) <= value * 1000
        if at == "":
            if value is None:
                return not client.exists(key)
            return client.type(key) == b"string" and client.get(key) == value.encode()
        if key[0] == "h":
            return client.hget(key, at) == (None if value is None else value.encode())
        if key[0] == "t":
            return bool(client.sismember(key, at)) == bool(value)
        if key[0] == "z":
            return client.zscore(key, at) == value
        return client.lindex(key, at) == value.encode()


def damage(source: random.Random, client: redis.Redis) -> None:
    """Change some keys, but not their type."""
    for key in source.sample(sorted(client.keys("*")), min(3, client.dbsize())):
        match key[:1], source.random() < 0.3:
            case _, True:
                client.delete(key)
            case b"s", _:
                client.setrange(key, 0, "?")
            case b"h", _:
                client.hset(key, source.choice([b"f1", b"f2"]), source.choice(["x", "?"]))
            case b"t", _:
                client.srem(key, "f1", "f2")
            case b"z", _:
                client.zadd(key, {"f1": 77, "f3": 1})
            case b"l", _:
                client.lset(key, 0, source.choice(["?", "f1"]))


def commands_of(source: random.Random, model: Model) -> Iterator[tuple[Any, ...]]:
    """Yield commands that keep times to live: not for missing keys, nor for emptied ones."""
    for row in range(source.choice([10, 100, 1000])):
        command = random_command(source)
        while not model.is_plain(command):
            command = random_command(source)
        model.run(row, command)
        yield command


@pytest.mark.few(12)
@pytest.mark.parametrize("seed", range(150))
def test_random_commands(
    seed: int, load: Load, verify: Verify, client: redis.Redis, server: LocalServer
) -> None:
    """verify finds the same differences as a plain model of the commands."""
    source = random.Random(seed)
    model = Model()
    rows = [*commands_of(source, model)]
    load(rows)
    assert model.wrong(client) == set()
    assert verify(rows).same
    damage(source, client)
    expected = model.wrong(client)
    found: list[fastresp.Difference] = []
    report = verify(rows, differences=found.append)
    # The time to live of a missing key is not a separate difference.
    gone = {key for _, key, _ in expected if not client.exists(key)}
    actual = {(each.row, each.key, each.field) for each in found if each.kind != "ttl"}
    times = {(each.row, each.key, None) for each in found if each.kind == "ttl"}
    assert len(actual) + len(times) == len(found) == report.differing
    assert actual - expected == set()
    assert {each for each in expected - actual - times if each[1] not in gone} == set()
    values = {each for each in expected if each[2] is not None or each[1][:1] == b"s"}
    assert {each for each in values - actual if each not in times} <= {
        each for each in expected if each[1] in gone and each[2] is None
    }
