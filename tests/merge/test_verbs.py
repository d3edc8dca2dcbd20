"""Each merged command on each server: one command, the same data, complete errors."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import redis
from twice import SERVERS, as_file, calls, debugged, outcome

import fastresp
from fastresp.server.local_server import LocalServer

# Commands, and the name and number of the merged ones.
VERBS: dict[str, tuple[list[tuple[Any, ...]], str, int]] = {
    "LPUSH": ([("LPUSH", "k", "a"), ("LPUSH", "k", "b", "c"), ("LPUSH", "k", "")], "LPUSH", 1),
    "RPUSH": ([("rpush", "k", i) for i in range(30)], "RPUSH", 1),
    "SADD": ([("SADD", "k", i % 7) for i in range(30)], "SADD", 1),
    "SREM": ([("SADD", "k", 1, 2, 3), ("SREM", "k", 1), ("SREM", "k", 3, 9)], "SREM", 1),
    "HSET": ([("HSET", "k", "f", 1), ("HSET", "k", "g", 2, "f", 3)], "HSET", 1),
    "HMSET": ([("HMSET", "k", "f", 1), ("HMSET", "k", "f", 3)], "HMSET", 1),
    "HDEL": ([("HSET", "k", "f", 1, "g", 2), ("HDEL", "k", "f"), ("HDEL", "k", "f")], "HDEL", 1),
    "ZADD": ([("ZADD", "k", 1, "a"), ("ZADD", "k", "-2.5", "b", "+inf", "a")], "ZADD", 1),
    "ZADD NX": ([("ZADD", "k", "NX", i, "a") for i in range(9)], "ZADD", 1),
    "ZADD xx GT": ([("ZADD", "k", "xx", "GT", i, "a") for i in range(9)], "ZADD", 1),
    "ZREM": ([("ZADD", "k", 1, "a", 2, "b"), ("ZREM", "k", "a"), ("ZREM", "k", "x")], "ZREM", 1),
    "SET": ([("SET", f"k{i}", i) for i in range(30)], "MSET", 1),
    "set": ([("set", f"k{i % 3}", i) for i in range(30)], "MSET", 1),
    "DEL": ([("SET", "k", 1), ("DEL", "k"), ("DEL", "x", "k"), ("DEL", "y")], "DEL", 1),
    "UNLINK": ([("SET", "k", 1), ("UNLINK", "k"), ("UNLINK", "x")], "UNLINK", 1),
    "ZADD of floats": ([("ZADD", "k", 0.1 + i / 7e9, i) for i in range(99)], "ZADD", 1),
    "binary": ([("SADD", b"\xff\0\r\n", b"$3\r\nSET\r\n" * i) for i in range(101)], "SADD", 1),
    "empty": ([("HSET", "", "", ""), ("HSET", "", "", "x")], "HSET", 1),
    "GEOADD": ([("GEOADD", "k", i / 2, -i / 3, f"m{i}") for i in range(99)], "GEOADD", 1),
    "XDEL": (
        [*(("XADD", "k", f"1-{i}", "f", "v") for i in range(1, 9)),
         ("XDEL", "k", "1-3"), ("XDEL", "k", "1-4", "7"), ("XDEL", "k", "1-18446744073709")],
        "XDEL", 1,
    ),
}  # fmt: skip
# Commands that are not merged, next to a similar one.
SINGLE: dict[str, list[tuple[Any, ...]]] = {
    "other key": [("RPUSH", "k", 1), ("RPUSH", "l", 1), ("RPUSH", "k", 2)],
    "other name": [("RPUSH", "k", 1), ("rpush", "k", 2), ("LPUSH", "k", 3)],
    "one between": [("RPUSH", "k", 1), ("PING",), ("RPUSH", "k", 2)],
    "SET with other times": [("SET", "k", 1, "EX", 100), ("SET", "l", 1, "EX", 99)],
    "SET with other units": [("SET", "k", 1, "EX", 100), ("SET", "l", 1, "PX", 100)],
    "SET with bad times": [("SET", "k", 1, "EX", bad) for bad in ("0", "0", "x", "x", "", "")],
    "SET with long times": [("SET", "k", 1, "PX", 10**9), ("SET", "k", 1, "PX", 10**9)],
    "SET KEEPTTL": [("SET", "k", 1, "KEEPTTL"), ("SET", "k", 2, "KEEPTTL")],
    "SET NX": [("SET", "k", 1, "NX"), ("SET", "k", 2, "NX")],
    "SET of mixed case": [("Set", "k", 1), ("Set", "l", 2)],
    "a transaction": [("MULTI",), ("SET", "k", 1), ("SET", "k", 2), ("EXEC",)],
    "ZADD INCR": [("ZADD", "k", "INCR", 1, "a"), ("ZADD", "k", "INCR", 1, "a")],
    "ZADD with other options": [("ZADD", "k", "NX", 1, "a"), ("ZADD", "k", "CH", 2, "a")],
    "no items": [("RPUSH", "k"), ("RPUSH", "k", 1)],
    "PFADD": [("PFADD", "k", i) for i in range(300)],
    "half a pair": [("HSET", "k", "f"), ("HSET", "k", "g"), ("HSET", "k", "f", 1)],
}
SCORES = [
    "0x10", "nan", "1e400", "1e-400", " 1", "1 ", "1_0", "", ".5", "5.", "1e5", "1E5", "1e+05",
    "1e", "--1", "+1", "inf", "-inf", "Infinity", "INF", "\u0661", "1,5", "1" * 40, "1\0",
    "0.1" * 9, "1e100", "5e-324", "1e-324", "0e-400", "1.7976931348623157e308",
    "1.7976931348623159e308", "-0.00017976931348623157e312",
]  # fmt: skip
DEGREES = ["180", "-180", "179.9", "85.05112878", "85.06", "1e1", "nan", "", "x", "007", "-0.0"]
IDS = ["1", "1-", "-1", "1-1-1", "99999999999999999999", "18446744073709551615-1", "x", "", "*"]


@pytest.fixture(scope="module", params=SERVERS)
def server(request: pytest.FixtureRequest) -> Iterator[LocalServer]:
    with debugged(request.param) as server:
        yield server


def same_in_both(
    server: LocalServer, commands: list[tuple[Any, ...]], path: Path, *planted: tuple[Any, ...]
) -> Any:
    """Load commands singly and merged; return the common outcome."""

    def plant(client: redis.Redis) -> None:
        for command in planted:
            client.execute_command(*command)

    single = outcome(server, plant, commands, None, path)
    assert outcome(server, plant, commands, None, path, mode="merge") == single
    assert single.report["commands"] == single.report["replies"] == len(commands)
    return single


@pytest.mark.few(40)
@pytest.mark.parametrize("verb", VERBS)
def test_merged(server: LocalServer, verb: str, tmp_path: Path) -> None:
    commands, name, count = VERBS[verb]
    assert not same_in_both(server, commands, tmp_path / "rejects").errors
    with redis.Redis.from_url(server.url) as client:
        client.flushall()
        client.config_resetstat()
        fastresp.mass_insert(as_file(commands, tmp_path), server=server.url, mode="merge")
        assert calls(client, name) == count


@pytest.mark.few(20)
@pytest.mark.parametrize(
    "verb", [verb for verb in VERBS if verb.upper() not in {"SET", "DEL", "UNLINK"}]
)
def test_wrong_type(server: LocalServer, verb: str, tmp_path: Path) -> None:
    """All commands of the merged one fail, as they would singly, and nothing is written."""
    commands = [each for each in VERBS[verb][0] if each[0].upper() == VERBS[verb][1]]
    key = commands[0][1]
    found = same_in_both(server, commands, tmp_path / "rejects", ("SET", key, "x"))
    assert [error[0] for error in found.errors] == list(range(len(commands)))[:100]
    assert {error[2] for error in found.errors} == {"WRONGTYPE"}
    assert [reject["command"] for reject in found.rejects] == list(range(len(commands)))
    with redis.Redis.from_url(server.url) as client:
        assert client.get(key) == b"x"


@pytest.mark.parametrize("name", ["SET", "set"])
def test_set_with_a_time(server: LocalServer, name: str, tmp_path: Path) -> None:
    """SETs with a time become MSETEX if the server has it."""
    times = [("EX", 1000)] * 3 + [("px", 2_000_000)] * 12 + [("EX", 3000), ("EX", 4000)]
    commands = [(name, f"k{i}", f"v{i}", *time) for i, time in enumerate(times)]
    assert not same_in_both(server, commands, tmp_path / "rejects").errors
    with redis.Redis.from_url(server.url) as client:
        client.flushall()
        client.config_resetstat()
        known = has_msetex(client)
        fastresp.mass_insert(as_file(commands, tmp_path), server=server.url, mode="merge")
        found = calls(client, "MSETEX"), calls(client, "SET")
        assert found == ((2, 2) if known else (0, 17))
        for i, (unit, time) in enumerate(times):
            wanted = time if unit == "EX" else time // 1000
            assert wanted - 60 < client.ttl(f"k{i}") <= wanted
            assert client.get(f"k{i}") == b"v%d" % i


def has_msetex(client: redis.Redis) -> bool:
    try:
        client.execute_command("MSETEX")
    except redis.ResponseError as error:
        return "unknown command" not in str(error)
    raise AssertionError


@pytest.mark.few(20)
@pytest.mark.parametrize("case", SINGLE)
def test_not_merged(server: LocalServer, case: str, tmp_path: Path) -> None:
    commands = SINGLE[case]
    same_in_both(server, commands, tmp_path / "rejects")
    with redis.Redis.from_url(server.url) as client:
        client.flushall()
        client.config_resetstat()
        fastresp.mass_insert(commands, server=server.url, mode="merge", on_error="collect")
        names = [name for name, *_ in commands if name not in {"MULTI", "EXEC", "PING"}]
        stats = client.info("commandstats")
        for name in {name.lower() for name in names}:
            found = stats[f"cmdstat_{name}"]
            assert found["calls"] + found.get("rejected_calls", 0) == sum(
                name == each.lower() for each in names
            )


@pytest.mark.few(20)
@pytest.mark.parametrize("at", [0, 2, 4])
@pytest.mark.parametrize(
    "commands",
    [
        [("ZADD", "k", score, f"m{score}") for score in SCORES],
        [("GEOADD", "k", x, 1, f"m{x}") for x in DEGREES],
        [("GEOADD", "k", 1, y, f"m{y}") for y in DEGREES],
        [("XDEL", "k", number) for number in IDS],
    ],
    ids=["scores", "longitudes", "latitudes", "ids"],
)
def test_bad_items(
    server: LocalServer, commands: list[tuple[Any, ...]], at: int, tmp_path: Path
) -> None:
    """Items that a server may refuse do not make valid items fail, nor vice versa."""
    name = commands[0][0]
    good: tuple[Any, ...] = {"ZADD": (1, "m"), "GEOADD": (1, 1, "m"), "XDEL": ("1-1",)}[name]
    planted = [("XADD", "k", f"1-{i}", "f", "v") for i in range(1, 4)] if name == "XDEL" else []
    mixed = []
    for command in commands:
        group = [(name, "k", *good) for _ in range(4)]
        group.insert(at, command)
        mixed += group
    assert same_in_both(server, mixed, tmp_path / "rejects", *planted).errors


def test_damaged_hyperloglog(server: LocalServer, tmp_path: Path) -> None:
    """PFADD fails only for some items, so it is not merged."""
    with redis.Redis.from_url(server.url) as client:
        client.flushall()
        client.pfadd("h", "z")
        damaged = client.get("h")[:-1]
    commands = [("PFADD", "h", number) for number in range(40)]
    found = same_in_both(server, commands, tmp_path / "rejects", ("SET", "h", damaged))
    assert 0 < len(found.errors) < 40
