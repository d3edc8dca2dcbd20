"""Random loads, merged and not: the same data, the same report, the same errors and rejects."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import redis
from himport_server import HimportServer, need_yodb, running_yodb
from server_programs import need
from twice import Account, account, commands_of, debugged, outcome

from fastresp.server.local_server import LocalServer
from fastresp.server.options import Merge

# Per test; 2,000 in total.
LOADS = 50
REPLACING_LOADS = 10
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
# For exists="replace". Names of fields from values make more field sets than a load declares.
REPLACED = [
    ["HSET hash:{key} {a} {b}"],
    ["HSET hash:{key} {**-items,key}"],
    ["HSET hash:{key} {**-items}", "SADD set:{key} {*items}"],
    ["HSET hash:{key} x {a} y {b} z {score}", "EXPIRE hash:{key} 9990"],
    ["SET string:{key} {a}", "HSET hash:{key}:{score} a {a} {b} b"],
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


Hashes = dict[bytes, tuple[dict[bytes, bytes], bool]]


@pytest.fixture(scope="module")
def himport() -> Iterator[redis.Redis]:
    with HimportServer() as server:
        yield server.client


@pytest.fixture(scope="module", params=["redis-server", "yodb"])
def other(request: pytest.FixtureRequest) -> Iterator[redis.Redis]:
    """A client of a server that needs the script, or of another one with HIMPORT."""
    if request.param == "yodb":
        with running_yodb(need_yodb()) as (client, _):
            yield client
    else:
        need("server")
        with LocalServer() as server, redis.Redis.from_url(server.url) as client:
            yield client


def planted_hashes(seed: int) -> dict[bytes, tuple[str, bool]]:
    """Return the type of each key to plant, and whether it has a time to live."""
    source = random.Random(seed)
    kinds = {b"hash:%d" % n: source.choice(["", "hash", "string"]) for n in range(3)}
    return {key: (kind, source.random() < 0.5) for key, kind in kinds.items() if kind}


def plant_hashes(seed: int, client: redis.Redis) -> None:
    for key, (kind, expires) in planted_hashes(seed).items():
        client.hset(key, "old", "x") if kind == "hash" else client.set(key, "planted")
        if expires:
            client.expire(key, 9990)


def stored_hashes(client: redis.Redis) -> Hashes:
    keys = [key for key in client.keys("hash:*") if client.type(key) == b"hash"]
    return {key: (client.hgetall(key), client.ttl(key) > 0) for key in keys}


def expected_hashes(seed: int, commands: Iterator[tuple[bytes, ...]]) -> Hashes:
    """Return what remains if each HSET replaces its hash, unless the key has another type."""
    planted = planted_hashes(seed)
    found: Hashes = {
        key: ({b"old": b"x"}, expires) for key, (kind, expires) in planted.items() if kind == "hash"
    }
    for name, key, *words in commands:
        if name == b"HSET" and planted.get(key, ("", False))[0] != "string":
            found[key] = dict(zip(words[::2], words[1::2], strict=True)), False
        elif name == b"EXPIRE" and key in found:
            found[key] = found[key][0], True
    return found


@pytest.mark.few(1)
@pytest.mark.parametrize("block", range(200))
def test_replacing_with_himport(himport: redis.Redis, block: int, tmp_path: Path) -> None:
    replace_hashes(himport, block, tmp_path / "rejects")


@pytest.mark.slow
@pytest.mark.parametrize("block", range(200))
def test_replacing_on_other_servers(other: redis.Redis, block: int, tmp_path: Path) -> None:
    replace_hashes(other, block, tmp_path / "rejects")


def replace_hashes(client: redis.Redis, block: int, path: Path) -> None:
    """Check that replacing changes the data, but not the report, the errors and the rejects."""
    written = 0
    for seed in range(block * REPLACING_LOADS, (block + 1) * REPLACING_LOADS):
        source = random.Random(seed)
        data = source.choice([rows, columns])(source)
        template = source.choice(REPLACED)
        options = {"nulls": "skip", "connections": source.choice([1, 1, 2])}
        planted = partial(plant_hashes, seed)
        single = account(client, planted, data(), template, path, **options)
        mode = Merge(exists="replace")
        found = account(client, planted, data(), template, path, **options, mode=mode)
        assert in_order(found) == in_order(single), seed
        commands = (words for _, words in commands_of(data(), template, nulls="skip"))
        wanted = expected_hashes(seed, commands)
        assert stored_hashes(client) == wanted, seed
        written += len(wanted)
    assert written > REPLACING_LOADS


def in_order(found: Account) -> Account:
    """Sort what several connections report in any order; a report has only the first 100 errors."""
    rejects = sorted(found.rejects, key=str)
    errors = sorted(found.errors, key=str) if len(found.errors) < 100 else []
    return found._replace(errors=errors, rejects=rejects)
