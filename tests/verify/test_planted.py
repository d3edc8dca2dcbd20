"""Planted differences: 100 of each kind at random places, none missed and none invented."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pytest
import redis

import fastresp
from fastresp.server.local_server import LocalServer

Verify = Callable[..., fastresp.VerifyReport]
Load = Callable[..., fastresp.Report]
COUNT = 5000
PLANTED = 100
TABLE = pa.table(
    {
        "id": range(COUNT),
        "a": [f"value {i}" for i in range(COUNT)],
        "b": [f"\0\xff {i}\r\n" for i in range(COUNT)],
        "score": [i / 3 for i in range(COUNT)],
        "list": [i // 50 for i in range(COUNT)],
    }
)


@dataclass
class Plant:
    """One kind of difference.

    Attributes:
        template: of the load.
        change: changes what row i wrote.
        kind: of the difference.
        field: of the difference.
        each: how many values of the row then differ.
    """

    template: Any
    change: Callable[[redis.Redis, int], object]
    kind: str
    field: Callable[[int], Any] = lambda i: None
    each: int = 1
    exact: bool = False
    wanted: Any = ...
    found: Any = ...


def swap(client: redis.Redis, i: int) -> None:
    """Exchange an item of a list and the next one."""
    key, at = f"l:{i // 50}", i % 50
    first, second = client.lrange(key, at, at + 1)
    client.lset(key, at, second)
    client.lset(key, at + 1, first)


HASH, SET, LIST = "HSET h:{id} a {a} b {b}", "SET k:{id} {a}", "RPUSH l:{list} {a}"
TIMED = "SET k:{id} {a} EX 1000"
PLANTS = {
    "string missing": Plant(SET, lambda c, i: c.delete(f"k:{i}"), "missing", found=None),
    "string altered": Plant(
        SET, lambda c, i: c.setrange(f"k:{i}", 3, "?"), "value", found=lambda i: b"val?e %d" % i
    ),
    "string longer": Plant(SET, lambda c, i: c.append(f"k:{i}", "?"), "value"),
    "string of another type": Plant(
        SET, lambda c, i: (c.delete(f"k:{i}"), c.sadd(f"k:{i}", 1)), "type", found=b"set"
    ),
    "hash missing": Plant(HASH, lambda c, i: c.delete(f"h:{i}"), "missing", each=2),
    "field missing": Plant(
        HASH, lambda c, i: c.hdel(f"h:{i}", "b"), "missing", lambda i: b"b", found=None
    ),
    "field altered": Plant(
        HASH, lambda c, i: c.hset(f"h:{i}", "b", "?"), "value", lambda i: b"b", found=b"?"
    ),
    "hash of another type": Plant(
        HASH, lambda c, i: (c.delete(f"h:{i}"), c.set(f"h:{i}", 1)), "type", each=2, found=b"string"
    ),
    "extra field": Plant(
        HASH, lambda c, i: c.hset(f"h:{i}", "c", 1), "extra", exact=True, wanted=2, found=3
    ),
    "extra field of several rows": Plant(
        "HSET h:{list} {id} {a}",
        lambda c, i: c.hset(f"h:{i // 50}", f"more {i}", 1),
        "extra", exact=True, each=0,
    ),
    "member missing": Plant(
        "SADD s {a}", lambda c, i: c.srem("s", f"value {i}"), "missing",
        lambda i: b"value %d" % i,
    ),
    "member missing in a set of its own": Plant(
        "SADD s:{id} {a} {b}", lambda c, i: c.srem(f"s:{i}", f"value {i}"), "missing",
        lambda i: b"value %d" % i,
    ),
    "extra member": Plant(
        "SADD s:{id} {a} {b}", lambda c, i: c.sadd(f"s:{i}", 1), "extra", exact=True
    ),
    "score altered": Plant(
        "ZADD z {score} {a}", lambda c, i: c.zincrby("z", 1e-9, f"value {i}"), "value",
        lambda i: b"value %d" % i,
    ),
    "scored member missing": Plant(
        "ZADD z:{list} {score} {a}", lambda c, i: c.zrem(f"z:{i // 50}", f"value {i}"), "missing",
        lambda i: b"value %d" % i,
    ),
    "extra scored member": Plant(
        "ZADD z:{id} {score} {a}", lambda c, i: c.zadd(f"z:{i}", {"?": 1}), "extra", exact=True
    ),
    "list in other order": Plant(LIST, swap, "value", lambda i: i % 50, each=0),
    "item altered": Plant(
        LIST, lambda c, i: c.lset(f"l:{i // 50}", i % 50, "?"), "value", lambda i: i % 50,
        found=b"?",
    ),
    "item altered in a list filled from the left": Plant(
        "LPUSH l:{list} {a}", lambda c, i: c.lset(f"l:{i // 50}", -(i % 50) - 1, "?"), "value",
        lambda i: -(i % 50) - 1,
    ),
    "extra item": Plant(
        "RPUSH l:{id} {a} {b}", lambda c, i: c.rpush(f"l:{i}", "?"), "extra", wanted=2, found=3,
    ),
    "extra item of several rows": Plant(
        LIST, lambda c, i: c.rpush(f"l:{i // 50}", "?"), "extra", each=0
    ),
    "list loaded twice": Plant(
        "LPUSH l:{id} {a} {b}", lambda c, i: c.rpush(f"l:{i}", *c.lrange(f"l:{i}", 0, -1)), "extra",
        wanted=2, found=4,
    ),
    "list cut": Plant(
        "RPUSH l:{id} {a} {b}", lambda c, i: c.rpop(f"l:{i}"), "missing", lambda i: 1
    ),
    "list filled from the left and cut": Plant(
        "LPUSH l:{id} {a} {b}", lambda c, i: c.lpop(f"l:{i}"), "missing", lambda i: -2
    ),
    "list of another type": Plant(
        "RPUSH l:{id} {a} {b}", lambda c, i: (c.delete(f"l:{i}"), c.set(f"l:{i}", 1)), "type",
        each=2,
    ),
    "longer time": Plant(
        TIMED, lambda c, i: c.expire(f"k:{i}", 1100), "ttl", wanted=1_000_000
    ),
    "no time": Plant(TIMED, lambda c, i: c.persist(f"k:{i}"), "ttl", found=None),
    "another time": Plant(
        "SET k:{id} {a} PXAT 4000000000000",
        lambda c, i: c.pexpireat(f"k:{i}", 4_000_000_000_001), "ttl",
        wanted=4_000_000_000_000, found=4_000_000_000_001,
    ),
    "another time of EXPIREAT": Plant(
        [HASH, "EXPIREAT h:{id} 4000000000"], lambda c, i: c.pexpireat(f"h:{i}", 4_000_000_000_001),
        "ttl",
    ),
    "key with a time missing": Plant(TIMED, lambda c, i: c.delete(f"k:{i}"), "missing"),
    "key to be gone": Plant("DEL k:{id}", lambda c, i: c.set(f"k:{i}", 1), "extra", wanted=None),
    "field to be gone": Plant(
        "HDEL h:{id} a", lambda c, i: c.hset(f"h:{i}", "a", "?"), "extra", lambda i: b"a",
        found=b"?",
    ),
    "member to be gone": Plant(
        "SREM s a", lambda c, i: c.sadd("s", "a"), "extra", lambda i: b"a", each=0
    ),
}  # fmt: skip


@pytest.mark.parametrize("columns", [False, True], ids=["rows", "columns"])
@pytest.mark.parametrize("name", PLANTS)
def test_each_is_found(
    name: str, columns: bool, load: Load, verify: Verify, client: redis.Redis
) -> None:
    plant = PLANTS[name]
    source = TABLE if columns else TABLE.to_pylist()
    load(source, plant.template)
    assert verify(source, plant.template, exact=plant.exact).same
    rows = random.sample(range(0, COUNT, 2), PLANTED)
    for row in rows:
        plant.change(client, row)
    differences: list[fastresp.Difference] = []
    report = verify(source, plant.template, exact=plant.exact, differences=differences.append)
    assert report.by_kind == {plant.kind: report.differing}
    assert report.written_meanwhile == 0
    assert report.differing == len(differences)
    if name == "list in other order":
        assert {each.row for each in differences} == {*rows, *(row + 1 for row in rows)}
    elif name in ("extra field of several rows", "extra item of several rows"):
        keys = [b"%s:%d" % (b"h" if "field" in name else b"l", row // 50) for row in rows]
        assert {each.key for each in differences} == {*keys}
        for each in differences:
            extra = keys.count(each.key)
            # The last row of the key, before which more items are expected.
            assert each.row % 50 == 49
            assert (each.wanted, each.found) == (50, 50 + extra)
    elif plant.each == 0:  # each row sets the same member: the last counts
        assert [each.row for each in differences] == [COUNT - 1]
    else:
        assert sorted(each.row for each in differences) == sorted(rows * plant.each)
        assert report.rows_differing == PLANTED
    for each in differences:
        assert not each.changed and not each.repaired
        if plant.each == 1:
            assert each.field == plant.field(each.row)
        for actual, expected in ((each.wanted, plant.wanted), (each.found, plant.found)):
            if expected is not ...:
                assert actual == (expected(each.row) if callable(expected) else expected)


@pytest.mark.few(1)
@pytest.mark.parametrize("change", ["missing", "altered", "type", "path"])
def test_documents(change: str, json_server: LocalServer, verify: Verify) -> None:
    """They are stored in another layout than in the source, and compared by value."""
    template = ["JSON.SET d:{id} $ {a!json}", "JSON.SET e:{id} . {text}", "JSON.SET e:{id} $.n 1.0"]
    rows = [
        {
            "id": i,
            "a": {"n": i, "x": [1.5, None, True, "ü"], "big": 2**70 + i},
            "text": f'{{"n":  {i}, "one": 1, "x": [1e3,\t0.1]}}',
        }
        for i in range(1000)
    ]
    url = json_server.url
    fastresp.mass_insert(rows, template, server=url)
    report = verify(rows, template, server=url, exact=True)
    # For e, the last command counts.
    assert report.same and report.values == 3000, report
    with redis.Redis.from_url(url) as client:
        planted = sorted(random.sample(range(1000), PLANTED))
        for row in planted:
            if change == "missing":
                client.delete(f"d:{row}")
            elif change == "altered":
                client.execute_command("JSON.SET", f"d:{row}", "$.x[2]", "1")
            elif change == "type":
                client.delete(f"d:{row}")
                client.set(f"d:{row}", 1)
            else:
                client.execute_command("JSON.SET", f"e:{row}", "$.n", "true")
        found: list[fastresp.Difference] = []
        report = verify(rows, template, server=url, differences=found.append)
        assert sorted(each.row for each in found) == planted
        kind = {"altered": "value", "path": "value"}.get(change, change)
        assert report.by_kind == {kind: PLANTED}
        assert {each.field for each in found} == {b"$.n" if change == "path" else b"$"}
        if change != "type":
            assert verify(rows, template, server=url, repair=True).repaired == PLANTED
            report = verify(rows, template, server=url)
            assert report.same, report


@pytest.mark.slow
def test_one_byte_in_ten_million_values(server: LocalServer, client: redis.Redis) -> None:
    import pyarrow.compute as pc

    count = 10_000_000
    ids = pa.array(range(count))
    table = pa.table({"id": ids, "a": pc.binary_join_element_wise("v", pc.cast(ids, "string"), "")})
    fastresp.mass_insert(table, "SET {id} {a}", server=server.url)
    assert fastresp.verify(table, "SET {id} {a}", server=server.url).values == count
    row = random.randrange(count)
    client.setrange(f"{row}", 0, "w")
    report = fastresp.verify(table, "SET {id} {a}", server=server.url)
    [found] = report.differences
    assert (found.row, found.wanted, found.found) == (row, b"v%d" % row, b"w%d" % row)
