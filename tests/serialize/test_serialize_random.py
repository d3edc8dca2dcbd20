"""Random loads, serialised and not: the same data, and a correct report for each key."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import redis
from needed import imported
from server_programs import need
from twice import Outcome, as_file, calls, commands_of, debugged, outcome

from fastresp.server.local_server import LocalServer
from fastresp.server.options import grouped

# Per test; 300 in total on each server.
LOADS = 10
TEMPLATES: list[list[str]] = [
    ["HSET h:{key} {**-items,ttl}"],
    ["HSET h:{key} {**-items,ttl}", "EXPIRE h:{key} {ttl}"],
    ["HSET h:{key} a {a} {b} {score}"],
    ["HMSET h:{key} {a} {b}", "PEXPIRE h:{key} {ttl}000"],
    ["RPUSH l:{key} {*items}"],
    ["LPUSH l:{key} {a} {*items}", "EXPIRE l:{key} 9990"],
    ["LPUSH l:{key} {a} {b}"],
    ["RPUSH l:{key} {a}", "PEXPIRE l:{key} 9990000"],
    ["SADD s:{key} {*items}"],
    ["SADD s:{key} {score}", "EXPIRE s:{key} {ttl}"],
    ["ZADD z:{key} {score} {a}"],
    ["ZADD z:{key} {score} {a} 1 {b}", "EXPIRE z:{key} {ttl}"],
]
CONTINUING = ("hset", "hmset", "rpush", "lpush", "sadd", "zadd")
# Maximum rows of a key in a load.
RUNS = [1, 1, 3, 40]
MAX_ROWS = 300
VERBS = {"HSET": 2, "hmset": 2, "RPUSH": 1, "LPUSH": 1, "rpush": 1, "SADD": 1, "ZADD": 2}


class Load(NamedTuple):
    data: Callable[[], Any]
    template: list[str] | None
    options: dict[str, Any]
    how: dict[str, Any]  # options of the serialised load only
    chunk_bytes: int
    pauses: list[int]  # of an async source: the numbers of the preceding rows

    def serialized(self) -> Any:
        """Return the data for the serialised load."""
        return pausing(self.data(), self.pauses) if self.pauses else self.data()


@pytest.fixture(scope="module", params=["redis-server", "valkey-9.1"])
def server(request: pytest.FixtureRequest) -> Iterator[LocalServer]:
    need("server")
    with debugged(request.param) as server:
        yield server


def value(source: random.Random) -> Any:
    kind = source.randrange(8)
    if kind == 0:
        return "x" * source.choice([0, 1, 63, 64, 65, 200])
    if kind == 1:
        return source.choice([0, -1, 127, 128, 4095, 4096, 1 << 23, -(1 << 31), 1 << 40, 1 << 63])
    return source.choice([source.randrange(99), f"v{source.randrange(400)}", source.random() * 99])


def runs(source: random.Random, most: int) -> Iterator[int]:
    """Yield keys; the same one several times in a row."""
    for key in range(source.randrange(1, 40 if most <= 3 else 2 + MAX_ROWS // most)):
        yield from [key] * source.randrange(1, most + 1)


def rows(source: random.Random, most: int, nulls: str) -> list[dict[str, Any]]:
    def maybe(it: Any, *policies: str) -> Any:
        return None if nulls in policies and source.random() < 0.05 else it

    return [
        {
            "key": maybe(key, "skip"), "a": maybe(value(source), "skip", "empty"),
            "b": maybe(value(source), "skip", "empty"),
            "score": maybe(source.choice([source.randrange(-9, 99), source.random()]), "skip"),
            "ttl": maybe(source.choice([9990, 99990]), "skip"),
            "items": maybe([value(source) for _ in range(source.randrange(1, 4))], "skip"),
        }
        for key in runs(source, most)
    ]  # fmt: skip


def raw_commands(source: random.Random, most: int) -> list[tuple[Any, ...]]:
    """Keys of one or several commands, some with a time to live."""
    commands: list[tuple[Any, ...]] = []
    number, verb = -1, ""
    for key in runs(source, most):
        if key != number:
            if commands and source.random() < 0.3:
                commands.append(
                    (source.choice(["EXPIRE", "expire", "PEXPIRE"]), commands[-1][1], 9_990_000)
                )
            number, verb = key, source.choice(list(VERBS))
        words: list[Any] = []
        for _ in range(source.choice([1, 1, 2, 5])):
            words += [source.random()] if verb == "ZADD" else []
            words += [value(source)] * (1 + (VERBS[verb] == 2 and verb != "ZADD"))
        commands.append((verb, f"k:{key}", *words))
    return commands


def as_columns(made: list[dict[str, Any]], source: random.Random) -> Callable[[], Any]:
    pa = imported("pyarrow")

    def text(item: Any) -> Any:
        return None if item is None else str(item)

    table = pa.table(
        {
            "key": pa.array([row["key"] for row in made], pa.int64()),
            "a": pa.array([text(row["a"]) for row in made], pa.string()),
            "b": pa.array([text(row["b"]) for row in made], pa.string()),
            "score": pa.array([row["score"] for row in made], pa.float64()),
            "ttl": pa.array([row["ttl"] for row in made], pa.int32()),
            "items": pa.array(
                [row["items"] and list(map(text, row["items"])) for row in made],
                pa.list_(pa.string()),
            ),
        }
    )
    size = source.choice([7, 64, 10_000])
    return lambda: table.to_reader(max_chunksize=size)


def random_load(source: random.Random, folder: Path, *, large: bool) -> Load:
    """Return a load; a large one has keys above the limits, which commands continue."""
    most = MAX_ROWS if large else source.choice(RUNS)
    size = 120 if large else source.choice([120, 700, 1 << 19])
    how = {
        "mode": "serialize",
        "max_payload_bytes": 300 if large else source.choice([None, 300, 2000]),
        "connections": source.choice([1, 1, 2, 3]),
        "exists": source.choice(["error", "replace", "skip"]),
    }
    kind = source.choice(["commands", "file", "rows", "columns"])
    pauses = source.choice([[], [source.randrange(200) for _ in range(3)]])
    if kind in ("commands", "file"):
        commands = raw_commands(source, most)
        if kind == "file":
            path = as_file(commands, folder)
            return Load(lambda: path, None, {}, how, size, [])
        how["connections"] = 1  # several need the command names in advance
        return Load(lambda: iter(commands), None, {}, how, size, pauses)
    template, nulls = source.choice(TEMPLATES), source.choice(["error", "skip", "empty"])
    if len(template) > 1 and nulls == "skip":
        how["connections"] = 1  # EXPIRE of a row without its HSET is a separate command
    made = rows(source, most, nulls)
    data = as_columns(made, source) if kind == "columns" else lambda: iter(made)
    return Load(data, template, {"nulls": nulls}, how, size, pauses if kind == "rows" else [])


async def pausing(data: Iterator[Any], pauses: list[int]) -> AsyncIterator[Any]:
    for number, row in enumerate(data):
        if number in pauses:
            await asyncio.sleep(0.025)
        yield row


def plant(client: redis.Redis, names: set[bytes]) -> None:
    for name in names:
        client.rpush(name, "planted", "here")


def expected(
    server: LocalServer, load: Load, planted: set[bytes], path: Path
) -> tuple[bytes, dict[bytes, int], dict[str, Any]]:
    """Load the commands, then undo changes to planted keys."""
    single = outcome(server, lambda client: None, load.data(), load.template, path, **load.options)
    assert not single.report["failed"]
    with redis.Redis.from_url(server.url) as client:
        if load.how["exists"] != "replace" and planted:
            client.delete(*planted)
            plant(client, planted)
        # No time is close to a limit of 9,990, 99,990 or 9,990,000 s.
        times = {key: (client.ttl(key) + 15) // 60 for key in client.scan_iter()}
        return client.execute_command("DEBUG DIGEST"), times, single.report


def check_errors(load: Load, planted: set[bytes], found: Outcome) -> int:
    """Check that exactly the commands of planted keys failed; return their number."""
    every = commands_of(load.data(), load.template, **load.options)
    bad = [(index, *each) for index, each in enumerate(every) if each[1][1] in planted]
    if load.how["exists"] != "error":
        assert (found.errors, found.rejects) == ([], [])
        return len(bad)
    indexes = [(index, row) for index, row, _ in bad]
    assert {error[2] for error in found.errors} <= {"BUSYKEY"}
    assert {error[:2] for error in found.errors} <= set(indexes)
    assert len(found.errors) == min(100, len(bad))
    assert sorted((each["command"], each["row"]) for each in found.rejects) == indexes
    originals = {index: arguments for index, _, arguments in bad}
    for each in found.rejects:
        assert tuple(word.encode() for word in each["arguments"]) == originals[each["command"]]
    return len(bad)


@pytest.mark.few(1)
@pytest.mark.parametrize("seed", range(0, 30 * LOADS, LOADS))
def test_random_loads(
    server: LocalServer, seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = continued = 0
    for number in range(seed, seed + LOADS):
        source = random.Random(number)
        load = random_load(source, tmp_path, large=number % 3 == 0)
        monkeypatch.setattr("fastresp.sources.source.CHUNK_BYTES", load.chunk_bytes)
        path, planted = tmp_path / "rejects", set()
        with_expire = load.template and len(load.template) > 1
        if source.random() < 0.7 and not (with_expire and load.options["nulls"] == "skip"):
            names = {
                words[1] for _, words in commands_of(load.data(), load.template, **load.options)
            }
            planted = {name for name in sorted(names) if source.random() < 0.2}
        digest, times, report = expected(server, load, planted, path)
        with redis.Redis.from_url(server.url) as client:
            client.config_resetstat()
            found = outcome(
                server, lambda client, names=planted: plant(client, names), load.serialized(),
                load.template, path, **load.options, **grouped(load.how),
            )  # fmt: skip
            keys += calls(client, "restore")
            continued += sum(calls(client, verb) for verb in CONTINUING)
            continued -= len(planted)
        what = (number, load.how, load.template)
        assert (found.digest, found.times) == (digest, times), what
        bad = check_errors(load, planted, found)
        if load.how["exists"] == "error" and bad:
            report.update(failed=bad, errors_by_code={"BUSYKEY": bad})
        report["existing"] = bad if load.how["exists"] == "skip" else 0
        report["connections"] = load.how["connections"]
        assert found.report == report, what
    assert keys > 30
    assert continued > 0
