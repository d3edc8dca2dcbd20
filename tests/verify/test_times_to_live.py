"""Times to live: relative and absolute, with and without the time of the load."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest
import redis
from waiting import until

import fastresp
from fastresp.server.local_server import LocalServer

Verify = Callable[..., fastresp.VerifyReport]
Load = Callable[..., fastresp.Report]
ROWS = [(i, f"v{i}") for i in range(100)]
TIMED = {
    "SET k:{0} {1} EX 100": 100_000,
    "SET k:{0} {1} PX 100000": 100_000,
    "SETEX k:{0} 100 {1}": 100_000,
    ("HSET k:{0} a {1}", "EXPIRE k:{0} 100"): 100_000,
    ("SADD k:{0} {1}", "PEXPIRE k:{0} 100000"): 100_000,
}


@pytest.mark.parametrize("template", TIMED)
def test_bounds(template: Any, load: Load, verify: Verify, client: redis.Redis) -> None:
    """A shorter time is accepted if the time of the load is unknown; a longer one never is."""
    template = list(template) if isinstance(template, tuple) else template
    began = time.time()
    load(ROWS, template)
    assert verify(ROWS, template).same
    assert verify(ROWS, template, since=began).same
    client.pexpire("k:7", 60_000)
    client.pexpire("k:8", 105_000)
    client.persist("k:9")
    report = verify(ROWS, template)
    assert [(each.row, each.kind, each.wanted) for each in report.differences] == [
        (8, "ttl", 100_000),
        (9, "ttl", 100_000),
    ]
    report = verify(ROWS, template, since=began)
    assert [each.row for each in report.differences] == [7, 8, 9]
    less, more, none = (each.found for each in report.differences)
    assert isinstance(less, int) and isinstance(more, int) and none is None
    assert 0 < less <= 60_000 and 100_000 < more <= 105_000
    assert "3 x with another time to live, first for row 7" in str(report)


def test_expired_keys(load: Load, verify: Verify, client: redis.Redis) -> None:
    """An expired key is missing, unless the time of the load is known."""
    began = time.time()
    for template in ("SET k:{0} {1} PX 1", ["HSET k:{0} a {1} b {1}", "PEXPIRE k:{0} 1"]):
        load(ROWS, template)
        until(lambda: not client.dbsize())
        report = verify(ROWS, template)
        values = 100 if isinstance(template, str) else 200
        assert report.by_kind == {"missing": values}
        assert verify(ROWS, template, since=began).same
        # Long enough ago for keys to expire, but these have not.
        client.set("k:7", "other")
        client.expire("k:7", 100)
        report = verify(ROWS, template, since=began)
        assert {each.row for each in report.differences} == {7}
        client.flushall()


def test_absolute_times(load: Load, verify: Verify, client: redis.Redis) -> None:
    """They are compared to the millisecond; a key with a past expiry must not exist."""
    soon = int(time.time() * 1000) + 300
    rows = [(0, 4_000_000_000_000), (1, soon), (2, soon - 10_000)]
    template = ["HSET k:{0} a b", "PEXPIREAT k:{0} {1}"]
    load(rows, template)
    assert verify(rows[:1], template).same
    client.pexpireat("k:0", 4_000_000_000_001)
    until(lambda: client.dbsize() <= 1)
    report = verify(rows, template)
    [found] = report.differences
    assert (found.row, found.kind, found.wanted, found.found) == (
        0, "ttl", 4_000_000_000_000, 4_000_000_000_001,
    )  # fmt: skip
    client.hset("k:1", "a", "b")
    assert {each.row for each in verify(rows, template).differences} == {0, 1}


@pytest.mark.parametrize(
    "command", [("EXPIRE", "k", 0), ("PEXPIREAT", "k", 1), ("EXPIRE", "k", -5)]
)
def test_a_time_that_deletes(
    command: tuple[Any, ...], load: Load, verify: Verify, client: redis.Redis
) -> None:
    rows = [("SET", "k", 1), command]
    load(rows)
    assert verify(rows).same
    client.set("k", 1)
    assert verify(rows).by_kind == ({"extra": 1} if command[0] == "EXPIRE" else {"ttl": 1})


def test_key_created_again_after_a_time_that_deletes(load: Load, verify: Verify) -> None:
    rows = [("RPUSH", "k", "a"), ("EXPIRE", "k", 0), ("RPUSH", "k", "b"), ("PEXPIRE", "j", -1)]
    load([*rows, ("HSET", "j", "a", 1)])
    report = verify([*rows, ("HSET", "j", "a", 1)], exact=True)
    assert report.same and report.written_meanwhile == 0


KEEPING = [("SET", "k", 0), ("EXPIRE", "k", 100), ("SET", "k", "v", "KEEPTTL")]


def test_time_that_a_later_row_keeps(load: Load, verify: Verify, client: redis.Redis) -> None:
    """Rechecking the text does not hide the time to live."""
    load(KEEPING)
    client.set("k", "other")
    report = verify(KEEPING)
    assert {(each.row, each.kind) for each in report.differences} == {(1, "ttl"), (2, "value")}
    assert report.written_meanwhile == 0


def test_repair_of_a_time_that_a_later_row_keeps(
    load: Load, verify: Verify, client: redis.Redis
) -> None:
    load(KEEPING)
    client.delete("k")
    assert verify(KEEPING, repair=True).same
    assert (client.get("k"), 90 < client.ttl("k") <= 100) == (b"v", True)


def test_times_are_only_compared_where_they_are_set(
    load: Load, verify: Verify, client: redis.Redis
) -> None:
    load(ROWS, "SET k:{0} {1}")
    client.expire("k:1", 100)
    assert verify(ROWS, "SET k:{0} {1}").same


def test_server_without_pexpiretime(start_server: Callable[..., LocalServer]) -> None:
    """Redis 6.2: all except absolute times; the error says what to do."""
    server = start_server("--rename-command", "PEXPIRETIME", "")
    rows = [(1, 4_000_000_000_000)]
    fastresp.mass_insert(rows, "SET k:{0} v PXAT {1}", server=server.url)
    with pytest.raises(fastresp.CommandError, match="unknown command") as caught:
        fastresp.verify(rows, "SET k:{0} v PXAT {1}", server=server.url)
    assert any("Redis 7.0" in note for note in caught.value.__notes__)
    assert fastresp.verify(rows, ["SET k:{0} v", "EXPIRE k:{0} {1}"], server=server.url).same


@pytest.mark.slow
def test_keys_that_expire_during_the_comparison(load: Load, verify: Verify) -> None:
    rows = [(i, "x" * 100) for i in range(100_000)]
    for wait in (1, 50, 200, 400):
        began = time.time()
        load(rows, f"SET k:{{0}} {{1}} PX {wait}")
        assert verify(rows, f"SET k:{{0}} {{1}} PX {wait}", since=began).same
