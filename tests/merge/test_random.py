"""Random loads, merged and not: the same data, the same report, the same errors and rejects."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import redis
from server_programs import need
from twice import debugged, outcome

from fastresp.server.local_server import LocalServer
from fastresp.server.options import Merge

# Per test; 2,000 in total.
LOADS = 50
BAD = ["x", "nan", "1e999", "0x10", "", "-", "5-5-5", "1e5", "+inf", "-0.25"]
TEMPLATES = [
    ["RPUSH list:{key} {a}"],
    ["SADD set:{key} {*items}"],
    ["HSET hash:{key} {a} {b}"],
    ["HSET hash:{key} {**-items}"],
    ["ZADD zset:{key} {score} {a}"],
    ["SET {a} {b}"],
    ["RPUSH list:{key} {a}", "RPUSH list:{key} {b}"],
    ["SET {a} {b}", "LPUSH list:{key} {a} {b}"],
    ["MULTI", "SET {a} 1", "SADD set:{key} {b}", "EXEC"],
    ["DEL {a}", "DEL {b}"],
    ["SET {a} {b} EX 9990"],
    ["SET {a} {b} PX 10000{score}"],
    ["GEOADD geo:{key} {score} {score} {a}"],
    ["PFADD hll:{key} {a}"],
]
VERBS = {
    "LPUSH": 1, "RPUSH": 1, "rpush": 1, "SADD": 1, "SREM": 1, "HSET": 2, "HDEL": 1, "ZADD": 2,
    "ZREM": 1, "SET": 2, "set": 2, "DEL": 1, "UNLINK": 1, "PFADD": 1, "XDEL": 1, "GEOADD": 3,
    "INCR": 0, "MULTI": -1, "EXEC": -1, "APPEND": 1, "GET": 0,
}  # fmt: skip


@pytest.fixture(scope="module", params=["redis-server", "valkey-9.1"])
def server(request: pytest.FixtureRequest) -> Iterator[LocalServer]:
    need("server")
    with debugged(request.param) as server:
        yield server


def value(source: random.Random) -> Any:
    if source.random() < 0.1:
        return source.choice(BAD)
    return source.choice([source.randrange(9), f"v{source.randrange(40)}", source.random() * 99])


def raw_commands(source: random.Random) -> Callable[[], Iterator[Any]]:
    """Runs of similar commands on few keys."""
    commands: list[tuple[Any, ...]] = []
    for _ in range(source.randrange(1, 30)):
        verb = source.choice(list(VERBS))
        key = f"k{source.randrange(5)}"
        for _ in range(source.randrange(1, 12)):
            if source.random() < 0.2:
                key = f"k{source.randrange(5)}"
            words = [value(source) for _ in range(VERBS[verb] * source.choice([1, 1, 1, 2]))]
            if verb == "SET" and source.random() < 0.3:
                words += ["EX", source.choice([9990, 9990, 9990, 0, "x"])]
            commands.append((verb,) if VERBS[verb] < 0 else (verb, key, *words))
    return lambda: iter(commands)


def rows(source: random.Random) -> Callable[[], Iterator[Any]]:
    """Rows for the templates, some with nulls."""

    def maybe(it: Any) -> Any:
        return None if source.random() < 0.05 else it

    made = [
        {
            "key": source.randrange(3), "a": maybe(value(source)), "b": maybe(value(source)),
            "score": maybe(value(source)),
            "items": [value(source) for _ in range(source.randrange(1, 4))],
        }
        for _ in range(source.randrange(1, 300))
    ]  # fmt: skip
    made.sort(key=lambda row: row["key"] if source.random() < 0.9 else -1)
    return lambda: iter(made)


def columns(source: random.Random) -> Callable[[], Any]:
    import pyarrow as pa

    made = []
    for row in rows(source)():
        made.append(
            {k: v if v is None or k in ("key", "items") else str(v) for k, v in row.items()}
        )
        made[-1]["items"] = [str(item) for item in row["items"]]
    return lambda: pa.Table.from_pylist(made).to_reader(max_chunksize=64)


def plant(seed: int, client: redis.Redis) -> None:
    """Plant values of other types."""
    source = random.Random(seed)
    names = [f"k{i}" for i in range(5)]
    names += [f"{kind}:{i}" for kind in ("list", "set", "hash", "zset", "hll") for i in range(3)]
    for name in names:
        if source.random() < 0.2:
            client.set(name, "planted", ex=source.choice([None, 9990]))
        elif source.random() < 0.1:
            client.xadd(name, {"f": "v"}, id="1-1")


def processed(server: LocalServer) -> int:
    with redis.Redis.from_url(server.url) as client:
        count: int = client.info("stats")["total_commands_processed"]
    return count


@pytest.mark.few(1)
@pytest.mark.parametrize("seed", range(0, 40 * LOADS, LOADS))
def test_random_loads(server: LocalServer, seed: int, tmp_path: Path) -> None:
    saved = 0
    for load in range(seed, seed + LOADS):
        source = random.Random(load)
        template: list[str] | None = None
        kind = source.choice([raw_commands, rows, columns])
        if kind is not raw_commands:
            template = source.choice(TEMPLATES)
        data = kind(source)
        options = {"nulls": source.choice(["skip", "empty"])}
        if kind is rows and any("items" in text for text in template or ()):
            options = {"nulls": "skip"}
        mode = Merge(source.choice([2, 3, 10, 1000]), source.choice([64, 200, 4096, 65536]))
        path, planted = tmp_path / "rejects", partial(plant, load)
        before = processed(server)
        single = outcome(server, planted, data(), template, path, **options)
        between = processed(server)
        merged = outcome(server, planted, data(), template, path, **options, mode=mode)
        saved += (between - before) - (processed(server) - between)
        assert merged == single, load
    assert saved > 1000
