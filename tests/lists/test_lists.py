"""ListBuffer, sync and asyncio: order, what is lost and what comes twice, and every way to end."""

from __future__ import annotations

import asyncio
import hashlib
import itertools
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import polars as pl
import pyarrow as pa
import pytest
import redis
from buffers import DELIVERIES, Awaited, end_leases, numbers, wait_for_silence
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from peak import PEAK
from redis.crc import key_slot
from server_programs import WHEEL_SERVERS, located

import fastresp
import fastresp.aio
from fastresp.lists import push
from fastresp.lists.core import WAIT_S
from fastresp.lists.settings import Settings as ListSettings
from fastresp.outcome.report import ERRORS_KEPT
from fastresp.server.local_server import LocalServer
from fastresp.transports.window import Window

Open: TypeAlias = Callable[..., Any]


# What goes in comes out


@pytest.mark.parametrize("delivery", DELIVERIES)
@pytest.mark.parametrize("order", ["fifo", "lifo"])
@pytest.mark.parametrize("batch", [1, 7, 1000, 65_534])
def test_order(open_buffer: Open, client: redis.Redis, delivery: str, order: str, batch: int):
    count = 20_000 if batch > 7 else 300
    buffer = open_buffer(delivery=delivery, order=order, batch=batch)
    pushed = buffer.push(str(i) for i in range(count))
    assert (pushed.length, pushed.dropped, len(buffer)) == (count, 0, count)
    assert (pushed.report.rows, pushed.report.failed) == (count, 0)
    expected = numbers(count) if order == "fifo" else numbers(count)[::-1]
    assert buffer.pop(0) == []
    assert buffer.pop(5) == expected[:5]
    assert buffer.pop(count // 2) == expected[5 : 5 + count // 2]
    some = list(buffer.consume(max_items=20))
    assert some == expected[5 + count // 2 : 25 + count // 2]
    assert list(itertools.chain(*buffer.drain())) == expected[25 + count // 2 :]
    assert (buffer.pop(10), list(buffer.consume()), len(buffer)) == ([], [], 0)
    if delivery == "at-least-once":
        assert buffer.ack() == 0
    assert client.keys("*q*:processing:*") == []


def test_all_kinds_of_items(open_buffer: Open) -> None:
    buffer = open_buffer()
    items = [b"", "ä", 5, 2.5, b"\x00\r\n" * 1000, bytearray(b"x"), "x" * 2_000_000, b"y" * 600_000]
    buffer.push(items)
    expected = [b"", "ä".encode(), b"5", b"2.5", b"\x00\r\n" * 1000, b"x", *map(_bytes, items[6:])]
    assert buffer.pop(100) == expected


def _bytes(item: Any) -> bytes:
    return item.encode() if isinstance(item, str) else item


def test_push_nothing(open_buffer: Open) -> None:
    pushed = open_buffer().push([])
    assert (pushed.report.commands, pushed.report.rows) == (0, 0)


def test_commands_are_bounded(open_buffer: Open, client: redis.Redis) -> None:
    """By the number of items and by their bytes: 1,000 of a megabyte would be a gigabyte."""
    buffer = open_buffer(batch=1000)
    assert buffer.push(["x"] * 2500).report.commands == 3
    assert buffer.push(["x" * 300_000] * 10).report.commands == 3
    assert buffer.push([5] * 2500).report.commands == 3
    assert client.llen("q") == 5010


def test_key_with_anything_in_it(server: LocalServer, client: redis.Redis) -> None:
    for key in (b'{a} "\xff\r\n {**} ;', "{}", "a{b}c", ""):
        for delivery in DELIVERIES:
            with fastresp.ListBuffer(key, server=server.url, delivery=delivery) as buffer:
                assert buffer.push(list("abc")).length == 3
                assert buffer.pop(2) == [b"a", b"b"]
                assert client.llen(key) == 1
            assert client.lrange(key, 0, -1)[-1:] == [b"c"]
            client.delete(key)


def test_maxlen(open_buffer: Open, client: redis.Redis) -> None:
    buffer = open_buffer(maxlen=5000, batch=100)
    pushed = buffer.push(str(i) for i in range(4000))
    assert (pushed.length, pushed.dropped, pushed.report.rows) == (4000, 0, 4000)
    pushed = buffer.push(str(i) for i in range(4000, 12_345))
    assert (pushed.length, pushed.dropped) == (5000, 7345)
    assert buffer.pop(10_000) == numbers(5000, 7345)


def test_clear(open_buffer: Open) -> None:
    buffer = open_buffer()
    buffer.push(map(str, range(5000)))
    next(buffer.consume())
    buffer.clear()
    assert (len(buffer), buffer.pop(10)) == (0, [])


@given(data=st.data())
@settings(max_examples=60, suppress_health_check=list(HealthCheck))
def test_any_calls_in_any_order(server: LocalServer, data: st.DataObject) -> None:
    """Against a list of Python's."""
    order = data.draw(st.sampled_from(["fifo", "lifo"]))
    with fastresp.ListBuffer("any", server=server.url, batch=3, order=order) as buffer:
        buffer.clear()
        model: list[bytes] = []
        made = itertools.count()

        def take(n: int) -> list[bytes]:
            taken = model[:n] if order == "fifo" else model[::-1][:n]
            del model[slice(0, n) if order == "fifo" else slice(max(0, len(model) - n), None)]
            return taken

        for kind, n in data.draw(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 12)))):
            if kind == 0:
                # What was taken already comes first, even before the newest.
                if order == "fifo" or not (buffer._core.held or buffer._core._asked):
                    model += (new := [b"%d" % next(made) for _ in range(n)])
                    buffer.push(new)
            elif kind == 1:
                assert buffer.pop(n) == take(n)
            elif kind == 2:
                assert list(itertools.islice(buffer.consume(), n)) == take(n)
            else:
                assert len(buffer) == len(model)
        assert list(buffer.consume()) == take(10**6)


# Arrow


@pytest.mark.parametrize("delivery", DELIVERIES)
@pytest.mark.parametrize("order", ["fifo", "lifo"])
def test_arrow(open_buffer: Open, client: redis.Redis, delivery: str, order: str) -> None:
    buffer = open_buffer(delivery=delivery, order=order, batch=300)
    items = pa.chunked_array([[f"{i}" for i in range(1000)], [f"{i}" for i in range(1000, 2500)]])
    pushed = buffer.push(items)
    assert (pushed.report.rows, pushed.length, pushed.report.commands) == (2500, 2500, 4 + 5)
    expected = numbers(2500) if order == "fifo" else numbers(2500)[::-1]
    assert pa.array(buffer.pop_arrow(0)).to_pylist() == []
    assert pa.array(buffer.pop_arrow(700)).to_pylist() == expected[:700]
    assert buffer.pop(10) == expected[700:710]
    source = buffer.consume()
    assert next(source) == expected[710]
    source.close()
    if delivery == "at-least-once":
        assert buffer.ack(711) == 0
    assert pa.array(buffer.pop_arrow(5)).to_pylist() == expected[711:716]
    left = []
    while len(column := buffer.pop_arrow(400)):
        left += pa.array(column).to_pylist()
    assert left == expected[716:]
    column = buffer.pop_arrow(5)
    assert (len(column), pa.array(column).type) == (0, pa.binary())
    buffer.push(["a", "bb"])
    column = buffer.pop_arrow(5)
    assert len(buffer.pop_arrow(5)) == 0  # made by what made the one before, which stays as it is
    assert sorted(pa.array(column).to_pylist()) == [b"a", b"bb"]
    assert buffer._core._columns is not None
    assert buffer._core._columns[1].absent == []  # does not grow with each empty reply


def test_arrow_of_many_kinds(open_buffer: Open) -> None:
    buffer = open_buffer(batch=2, maxlen=100)
    for items in (
        pa.array([1, 2, 3]), pa.array([1.5]), pa.array([b"a", b"bb"]).slice(1),
        pa.array(["x", "y"]).dictionary_encode(), pl.Series(["p", "q", "r"]), pa.array([], "int8"),
    ):  # fmt: skip
        buffer.push(items)
    words = [b"1", b"2", b"3", b"1.5", b"bb", b"x", b"y", b"p", b"q", b"r"]
    assert buffer.pop(100) == words
    with pytest.raises(TypeError, match="items is one column, not a table"):
        buffer.push(pa.table({"a": [1]}))
    with pytest.raises(fastresp.EncodeError, match=r"item 3: .*null"):
        buffer.push(pa.array(["a", "b", "c", None, "d"]))
    assert buffer.pop(100) == [b"a", b"b"]


def test_arrow_of_large_values(open_buffer: Open, client: redis.Redis) -> None:
    """Lists are bounded by their bytes, too."""
    for kind in (pa.binary(), pa.large_string()):
        buffer = open_buffer()
        items = pa.array(["x" * 300_000] * 10, kind).slice(1)
        assert buffer.push(items).report.commands == 3
        assert [len(item) for item in buffer.pop(20)] == [300_000] * 9


def test_arrow_of_an_older_server(open_buffer: Open) -> None:
    buffer = open_buffer()
    buffer.push(["a", "b", "c"])
    buffer._core._counted = False
    assert pa.array(buffer.pop_arrow(2)).to_pylist() == [b"a", b"b"]


def test_arrow_errors(open_buffer: Open, client: redis.Redis) -> None:
    buffer = open_buffer()
    assert len(buffer) == 0
    client.set("q", 1)
    with pytest.raises(fastresp.CommandError, match="WRONGTYPE"):
        buffer.pop_arrow(5000)
    client.delete("q")
    buffer.push(["a"])
    assert pa.array(buffer.pop_arrow(5000)).to_pylist() == [b"a"]
    client.client_kill_filter(_type="normal", skipme=True)
    with pytest.raises(fastresp.TransportError):
        buffer.pop_arrow(5)
    assert pa.array(buffer.pop_arrow(5)).to_pylist() == []


# Left in the midst


@pytest.mark.parametrize("order", ["fifo", "lifo"])
@pytest.mark.parametrize("delivery", DELIVERIES)
def test_consumer_that_leaves(
    open_buffer: Open, client: redis.Redis, order: str, delivery: str
) -> None:
    """What is on its way is given by the next call, or put back by close()."""
    buffer = open_buffer(order=order, delivery=delivery)
    buffer.push(map(str, range(20_000)))
    expected = numbers(20_000) if order == "fifo" else numbers(20_000)[::-1]
    source = buffer.consume()
    assert [next(source) for _ in range(10)] == expected[:10]
    source.close()
    assert buffer.pop(5) == expected[10:15]
    source = buffer.drain()
    batch = next(source)
    at = 15 + len(batch)
    assert batch == expected[15:at]
    if delivery == "at-least-once":
        assert buffer.ack() == 0
    source.close()
    buffer.close()
    left = client.lrange("q", 0, -1)
    assert (left if order == "fifo" else left[::-1]) == expected[at:]
    assert client.keys("*") == [b"q"]
    assert buffer.pop(3) == expected[at : at + 3]  # it connects again


def test_ack(open_buffer: Open, client: redis.Redis) -> None:
    buffer = open_buffer(delivery="at-least-once")
    buffer.push(map(str, range(100)))
    buffer.pop(10)
    assert buffer.ack(3) == 7
    with pytest.raises(ValueError, match="8 items can't be acknowledged: 7 were given"):
        buffer.ack(8)
    source = buffer.consume()
    next(source)
    assert buffer.ack(0) == 8
    source.close()
    buffer.close()
    assert client.lrange("q", 0, -1) == numbers(97, 3)


def test_ack_is_for_at_least_once(open_buffer: Open) -> None:
    with pytest.raises(ValueError, match="ack\\(\\) is for delivery='at-least-once'"):
        open_buffer().ack()


def test_wait_for_items(open_buffer: Open, server: LocalServer, client: redis.Redis) -> None:
    for delivery in DELIVERIES:
        buffer = open_buffer(delivery=delivery, timeout=1.0)
        started = time.monotonic()
        assert list(buffer.consume(block=0.3)) == []
        assert 0.25 < time.monotonic() - started < WAIT_S
        timer = threading.Timer(1.5, lambda: client.rpush("q", *range(5000)))
        timer.start()
        assert list(buffer.consume(5000, block=20)) == numbers(5000)
        timer.join()
        buffer.close()


def test_waiting_keeps_the_lease(
    open_buffer: Open, server: LocalServer, client: redis.Redis
) -> None:
    buffer = open_buffer(delivery="at-least-once", lease=4.5)
    buffer.push(["a"])
    assert buffer.pop(1) == [b"a"]
    with client.monitor() as monitor:
        assert list(buffer.consume(block=1.6)) == []
        client.echo("over")
        said = iter(lambda: monitor.next_command()["command"].split(" "), ["ECHO", "over"])
        # Of the scripts only that of ack() ends with the lease; what they call is told, too.
        asked = [
            words
            for words in said
            if words[0] == "BLMOVE" or (words[0], words[-1]) == ("EVAL", "4500")
        ]
    waits, renewals = asked[::2], asked[1::2]
    assert {words[0] for words in waits} == {"BLMOVE"}
    assert max(float(words[-1]) for words in waits) <= 1.5
    assert len(renewals) == len(waits) and {words[0] for words in renewals} == {"EVAL"}
    with fastresp.ListBuffer("q", server=server.url) as other:
        assert other.recover() == 0
    assert buffer.ack() == 0


def test_recover(open_buffer: Open, server: LocalServer, client: redis.Redis) -> None:
    for order in ("fifo", "lifo"):
        buffer = open_buffer(delivery="at-least-once", lease=30.0, order=order)
        client.rpush("q", *range(5000))
        before = client.lrange("q", 0, -1)
        assert len(buffer.pop(3000)) == 3000
        assert buffer.ack(1000) == 2000
        with fastresp.ListBuffer("q", server=server.url, order=order) as other:
            assert other.recover() == 0  # it lives
            assert all(0 < client.pttl(key) <= 30_000 for key in client.keys("*:lease:*"))
            end_leases(client)
            assert other.recover() == 2000
            assert other.recover() == 0
        assert client.lrange("q", 0, -1) == (before[1000:] if order == "fifo" else before[:-1000])
        with pytest.raises(fastresp.LeaseError, match=r"silent for more than lease=30 s"):
            buffer.ack()
        assert buffer.ack() == 0  # nothing is waited for
        assert len(buffer.pop(10)) == 10  # as a new consumer
        assert buffer.ack() == 0
        client.delete("q")


def test_silent_consumer_that_asks_again(
    open_buffer: Open, server: LocalServer, client: redis.Redis
) -> None:
    buffer = open_buffer(delivery="at-least-once")
    buffer.push(map(str, range(5000)))
    source = buffer.drain()
    first = next(source)
    with fastresp.ListBuffer("q", server=server.url) as other:
        # What it has asked for and the server has not read yet begins the lease anew.
        while not (recovered := other.recover()):
            end_leases(client)
        assert recovered >= 1000
    with pytest.raises(fastresp.LeaseError):
        for _ in source:
            pass
    assert buffer.pop(1000) == first


@pytest.mark.parametrize("delivery", DELIVERIES)
def test_consumer_that_is_kept(open_buffer: Open, client: redis.Redis, delivery: str) -> None:
    """What it has not given is nobody's but the buffer's: other calls see it, in order."""
    buffer = open_buffer(delivery=delivery)
    buffer.push(map(str, range(10)))
    source = buffer.consume(6)
    assert next(source) == b"0"
    assert len(buffer) == 9
    assert buffer.pop(3) == [b"1", b"2", b"3"]
    if delivery == "at-least-once":
        assert buffer.ack() == 0
    assert next(source) == b"4"
    buffer.close()
    source.close()
    first = 5 if delivery == "at-most-once" else 4
    assert client.lrange("q", 0, -1) == numbers(10 - first, first)


def test_put_back_that_is_refused(open_buffer: Open, client: redis.Redis) -> None:
    buffer = open_buffer()
    buffer.push(map(str, range(10)))
    source = buffer.consume()
    next(source)
    client.config_set("maxmemory", 1)
    try:
        with pytest.raises(fastresp.CommandError, match="OOM"):
            buffer.close()
    finally:
        client.config_set("maxmemory", 0)
    assert buffer.pop(20) == numbers(9, 1)


def test_full_server(open_buffer: Open, client: redis.Redis) -> None:
    """What frees memory works."""
    buffer = open_buffer(delivery="at-least-once")
    buffer.push(map(str, range(10)))
    assert len(buffer.pop(5)) == 5
    client.config_set("maxmemory", 1)
    try:
        assert buffer.ack() == 0
        assert len(buffer.pop(5)) == 5
        assert buffer.ack(3) == 2
        buffer.close()
    finally:
        client.config_set("maxmemory", 0)
    assert client.lrange("q", 0, -1) == numbers(2, 8)


def test_lists_with_like_names(server: LocalServer, client: redis.Redis) -> None:
    def open_one(key: str) -> fastresp.ListBuffer:
        return fastresp.ListBuffer(key, server=server.url, delivery="at-least-once")

    dead = open_one("{x}")
    dead.push("abc"[i] for i in range(3))
    assert len(dead.pop(3)) == 3
    end_leases(client)
    with open_one("x") as other:
        assert other.recover() == 0
    with open_one("{x}") as other:
        assert other.recover() == 3
    dead._core.detach()
    for each in map(ListSettings, ("x", "{x}", "a{b}c", "{a}{b}")):
        assert key_slot(each.beside("consumers")) == key_slot(each.name)


def test_recovered_by_one_of_another_order(server: LocalServer, client: redis.Redis) -> None:
    client.rpush("q", *range(10))
    options = {"server": server.url, "delivery": "at-least-once"}
    dead = fastresp.ListBuffer("q", order="lifo", **options)
    assert dead.pop(3) == [b"9", b"8", b"7"]
    end_leases(client)
    with fastresp.ListBuffer("q", server=server.url) as other:
        assert other.recover() == 3
    assert client.lrange("q", 0, -1) == numbers(10)
    dead._core.detach()


def test_one_call_at_a_time(open_buffer: Open, server: LocalServer) -> None:
    buffer = open_buffer()

    def items() -> Iterator[str]:
        yield "a"
        len(buffer)

    if isinstance(buffer, Awaited):

        async def both() -> list[Any]:
            calls = buffer.buffer.pop(1), buffer.buffer.pop(1)
            return await asyncio.gather(*calls, return_exceptions=True)

        first, second = buffer.loop.run_until_complete(both())
        assert first == []
        with pytest.raises(RuntimeError, match="is already running another call"):
            raise second
    else:
        with pytest.raises(RuntimeError, match="is already running another call"):
            buffer.push(items())
    assert buffer.push(["b"]).length >= 1


def test_async_source_that_is_slow(server: LocalServer, client: redis.Redis) -> None:
    """What comes slowly goes as it comes, and not only with a whole batch."""

    async def items() -> Any:
        deadline = time.monotonic() + 30
        for i in range(6):
            yield str(i)
            await asyncio.sleep(0.01)
            # The first of a batch is asked for its age when the next one comes.
            while i % 2 and client.llen("q") <= i:
                assert time.monotonic() < deadline
                await asyncio.sleep(0.01)

    async def main() -> None:
        async with fastresp.aio.ListBuffer("q", server=server.url) as buffer:
            assert (await buffer.push(items())).report.rows == 6

    asyncio.run(main())


def test_reply_that_is_no_list(server: LocalServer, client: redis.Redis) -> None:
    """Of a server, or what is in between, that is not to be trusted."""
    with fastresp.ListBuffer("q", server=server.url) as buffer:
        buffer.push(["a"])
        buffer._core._request = lambda n: [("PING",)]  # type: ignore[method-assign]
        with pytest.raises(fastresp.TransportError, match="a pop is answered by b'PONG'"):
            buffer.pop(1)


def test_maxlen_of_a_key_that_is_no_list(open_buffer: Open, client: redis.Redis) -> None:
    client.set("q", 1)
    with pytest.raises(fastresp.LoadErrors, match="WRONGTYPE") as caught:
        open_buffer(maxlen=5).push(["a"])
    assert caught.value.report.failed == 1


def test_clear_of_what_was_given(open_buffer: Open, client: redis.Redis) -> None:
    for delivery in DELIVERIES:
        buffer = open_buffer(delivery=delivery)
        buffer.push(map(str, range(10)))
        next(buffer.consume())
        buffer.clear()
        assert (len(buffer), client.lrange("q", 0, -1)) == (0, [])
        buffer.close()
        assert client.keys("*") == []


# Errors


@pytest.mark.parametrize("delivery", DELIVERIES)
@pytest.mark.parametrize("slow", [False, True])
def test_key_that_is_no_list(
    open_buffer: Open,
    client: redis.Redis,
    monkeypatch: pytest.MonkeyPatch,
    delivery: str,
    slow: bool,
) -> None:
    """Each error names the first item of its command, however many a slow machine makes of them."""
    monkeypatch.setattr(push, "CHUNK_SECONDS", 0 if slow else 60)
    client.set("q", 1)
    buffer = open_buffer(delivery=delivery)
    with pytest.raises(fastresp.CommandError, match="WRONGTYPE"):
        buffer.pop(5)
    with pytest.raises(fastresp.CommandError, match="WRONGTYPE"):
        list(buffer.consume())
    with pytest.raises(fastresp.LoadErrors, match="WRONGTYPE") as caught:
        buffer.push(map(str, range(2500)))
    assert "=" not in str(caught.value)  # no options that push() has not
    report = caught.value.report
    assert report.failed == report.commands == (2500 if slow else 3)
    rows = list(range(ERRORS_KEPT)) if slow else [0, 1000, 2000]
    assert [error.row for error in report.errors] == rows
    client.delete("q")
    assert buffer.push(["a"]).length == 1
    assert buffer.pop(5) == [b"a"]


@pytest.mark.parametrize(("seconds", "pushed"), [(60, 2000), (0, 2500)])
def test_item_that_has_no_form(
    open_buffer: Open,
    client: redis.Redis,
    monkeypatch: pytest.MonkeyPatch,
    seconds: float,
    pushed: int,
) -> None:
    """Whole commands are pushed, of as many items as the source gives in a time."""
    monkeypatch.setattr(push, "CHUNK_SECONDS", seconds)
    buffer = open_buffer(maxlen=100_000)
    items = [*map(str, range(2500)), None, *map(str, range(10))]
    with pytest.raises(fastresp.EncodeError, match=r"item 2,500: .*cannot send None") as caught:
        buffer.push(items)
    assert caught.value.row == 2500
    assert caught.value.report.rows == pushed  # type: ignore[attr-defined]
    assert client.lrange("q", 0, -1) == numbers(pushed)
    assert buffer.push(["a"]).length == pushed + 1


def test_interruption_before_the_first_item(
    open_buffer: Open, client: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It stays what it is, and nothing was pushed."""
    buffer = open_buffer()
    assert len(buffer) == 0  # connected
    totals = Window.totals

    def interrupted(window: Window) -> Any:
        monkeypatch.setattr(Window, "totals", totals)
        raise KeyboardInterrupt

    monkeypatch.setattr(Window, "totals", interrupted)
    with pytest.raises(KeyboardInterrupt) as caught:
        buffer.push(["a"])
    assert caught.value.report.rows == 0  # type: ignore[attr-defined]
    assert client.llen("q") == 0
    assert buffer.push(["b"]).length == 1


def test_source_that_fails(open_buffer: Open, client: redis.Redis) -> None:
    def items() -> Iterator[str]:
        yield from map(str, range(2500))
        raise ArithmeticError("no more")

    with pytest.raises(ArithmeticError) as caught:
        open_buffer().push(items())
    assert client.llen("q") == 2500
    assert caught.value.report.rows == 2500  # type: ignore[attr-defined]


def test_items_from_an_async_source(server: LocalServer, client: redis.Redis) -> None:
    async def items() -> Any:
        for i in range(2500):
            yield str(i)

    async def main() -> fastresp.Pushed:
        async with fastresp.aio.ListBuffer("q", server=server.url) as buffer:
            return await buffer.push(items())

    pushed = asyncio.run(main())
    assert (pushed.report.rows, pushed.length, client.llen("q")) == (2500, 2500, 2500)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"batch": 0}, "batch is a number from 1 to 65,534"),
        ({"batch": 65_535}, "batch is a number"),
        ({"order": "random"}, "order is 'fifo' or 'lifo', not 'random'"),
        ({"delivery": "once"}, "delivery is 'at-most-once' or 'at-least-once', not 'once'"),
        ({"maxlen": 0}, "maxlen is a number above 0, or None, not 0"),
        ({"lease": 0}, "lease is a number of seconds"),
        ({"lease": "x"}, "lease is a number of seconds"),
        ({"timeout": 0}, "timeout is a number of seconds above 0"),
        ({"timeout": "x"}, "timeout is a number of seconds above 0"),
    ],
)
def test_bad_options(open_buffer: Open, options: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        open_buffer(**options)


def test_bad_calls(open_buffer: Open) -> None:
    buffer = open_buffer()
    with pytest.raises(TypeError, match="items is an iterable of items, not one str"):
        buffer.push("text")
    with pytest.raises(TypeError, match="items is an iterable of items, not one dict"):
        buffer.push({"a": 1})
    with pytest.raises(ValueError, match="n is a number of items of 0 or more, not -1"):
        buffer.pop(-1)
    with pytest.raises(ValueError, match=r"n is a number of items of 0 or more, not 2\.5"):
        next(buffer.consume(2.5))
    with pytest.raises(TypeError, match="key is a str or bytes"):
        fastresp.ListBuffer(5)  # type: ignore[arg-type]


def test_server_that_is_not_there(open_buffer: Open, port: int) -> None:
    with pytest.raises(fastresp.TransportError, match="Connection refused"):
        open_buffer(server=f"redis://localhost:{port}").pop(1)


@pytest.mark.parametrize("delivery", DELIVERIES)
def test_lost_connection(open_buffer: Open, client: redis.Redis, delivery: str) -> None:
    """At least once, what was given is still this consumer's afterwards."""
    buffer = open_buffer(delivery=delivery)
    buffer.push(map(str, range(1000)))
    assert len(buffer.pop(10)) == 10
    client.client_kill_filter(_type="normal", skipme=True)
    with pytest.raises(fastresp.TransportError, match="a new connection to it works"):
        buffer.pop(10)
    assert buffer.recover() == 0
    assert len(buffer) == 990
    if delivery == "at-least-once":
        assert buffer.ack(4) == 6
        buffer.close()
        assert client.lrange("q", 0, 6) == [b"%d" % i for i in [4, 5, 6, 7, 8, 9, 10]]
        assert client.keys("*") == [b"q"]


def test_lost_connection_and_lease(open_buffer: Open, client: redis.Redis) -> None:
    buffer = open_buffer(delivery="at-least-once")
    other = open_buffer()
    buffer.push(map(str, range(10)))
    assert len(buffer.pop(3)) == 3
    client.client_kill_filter(_type="normal", skipme=True)
    with pytest.raises(fastresp.TransportError):
        buffer.pop(1)
    end_leases(client)
    assert other.recover() == 3
    with pytest.raises(fastresp.LeaseError, match="3 items that it had"):
        buffer.ack(3)
    assert buffer.pop(20) == numbers(10)
    assert buffer.ack() == 0


def test_heartbeat(open_buffer: Open, client: redis.Redis) -> None:
    """Items that take longer than the lease: each of these calls begins it anew."""
    buffer, other = open_buffer(delivery="at-least-once", lease=100.0), open_buffer()
    buffer.push(["a", "b", "c"])
    assert buffer.pop(1) == [b"a"]
    [lease] = client.keys("*:lease:*")
    for call, result in (
        (lambda: buffer.ack(0), 1), (lambda: buffer.pop(1), [b"b"]), (buffer.ack, 0),
        (lambda: buffer.pop_arrow(1).to_bytes(), [b"c"]),
    ):  # fmt: skip
        client.pexpire(lease, 30_000)
        assert call() == result
        assert 30_000 < client.pttl(lease) <= 100_000
        assert other.recover() == 0
    assert buffer.ack() == 0


def test_waiting_for_an_item_after_the_lease(server: LocalServer, client: redis.Redis) -> None:
    """A consumer that was taken for dead in its sleep takes nothing that nobody would find."""
    options = {"server": server.url, "delivery": "at-least-once"}
    with fastresp.ListBuffer("q", **options) as dead, fastresp.ListBuffer("q", **options) as other:
        client.rpush("q", "a")
        assert dead.pop(1) == [b"a"]
        end_leases(client)
        assert other.recover() == 1
        with pytest.raises(fastresp.LeaseError):
            dead._run(dead._core.waiting(60.0))
        assert other.pop(10) == [b"a"]
        other.ack()
    assert client.keys("*") == []


def test_close_while_another_call_is_under_way(server: LocalServer, client: redis.Redis) -> None:
    got: list[list[bytes]] = []

    def waits() -> bool:
        return client.info("clients")["blocked_clients"] > 0

    buffer = fastresp.ListBuffer("q", server=server.url)
    thread = threading.Thread(target=lambda: got.append(list(buffer.consume(1, block=60.0))))
    thread.start()
    while not waits():
        time.sleep(0.01)
    with pytest.raises(RuntimeError, match="is already running another call"):
        buffer.close()
    client.rpush("q", "a")
    thread.join()
    assert got == [[b"a"]]
    buffer.close()

    async def main() -> None:
        asked = asyncio.Event()

        async def never() -> Any:
            asked.set()
            await asyncio.sleep(100)
            yield "x"

        async def consume() -> list[bytes]:
            return [item async for item in buffer.consume(1, block=60.0)]

        buffer = fastresp.aio.ListBuffer("q", server=server.url)
        consuming = asyncio.create_task(consume())
        pushing = asyncio.create_task(buffer.push(never()))
        await asked.wait()
        while not waits():
            await asyncio.sleep(0.01)
        with pytest.raises(RuntimeError, match="is already running another call"):
            await buffer.close()
        pushing.cancel()  # between its calls: the other one's connection is not its own
        await asyncio.wait([pushing])
        client.rpush("q", "b")
        assert await consuming == [b"b"]
        await buffer.close()

    asyncio.run(main())


def test_items_of_odd_sizes(open_buffer: Open) -> None:
    buffer = open_buffer()
    assert buffer.push([np.array(5), np.float64(1.5), bytearray(b"x")]).length == 3
    assert len(buffer.pop(2**70)) == 3
    assert len(buffer.pop_arrow(2**70)) == 0


def test_lost_while_pushing(open_buffer: Open, client: redis.Redis) -> None:
    def items() -> Iterator[str]:
        for i in range(200_000):
            if i == 100_000:
                client.client_kill_filter(_type="normal", skipme=True)
            yield str(i)

    with pytest.raises(fastresp.TransportError) as caught:
        open_buffer().push(items())
    report = caught.value.report
    assert report is not None
    assert report.rows <= client.llen("q") <= report.rows + 1000 * report.in_doubt
    assert report.in_doubt + report.unsent > 0


def test_frozen_server(open_buffer: Open, start_server: Callable[..., LocalServer]) -> None:
    server = start_server()
    buffer = open_buffer(server=server.url, timeout=0.5)
    buffer.push(map(str, range(10)))
    os.kill(server.process.pid, signal.SIGSTOP)
    with pytest.raises(fastresp.TransportTimeout):
        buffer.pop(1)
    os.kill(server.process.pid, signal.SIGCONT)


INTERRUPTED = """
import sys, fastresp, threading, os, signal, random, time
key, url, delivery = sys.argv[1:]
random.seed(7)
with fastresp.ListBuffer(key, server=url, delivery=delivery) as buffer:
    for round in range(60):
        pause = 0.0005 + 0.004 * random.random()
        timer = threading.Timer(pause, lambda: os.kill(os.getpid(), signal.SIGINT))
        try:
            timer.start()
            while True:
                len(buffer)
                time.sleep(0)
        except KeyboardInterrupt:
            pass
    items = buffer.pop(100_000)
    assert len(items) == 100_000 and items[99_999] == b"99999", (len(items), items[-1:])
    assert len(buffer) == 0
print("all well")
"""


@pytest.mark.parametrize("delivery", DELIVERIES)
def test_interruptions_leave_it_in_step(
    server: LocalServer, client: redis.Redis, delivery: str
) -> None:
    """The reply to a call that was interrupted is not taken for that to another."""
    client.rpush("q", *range(100_000))
    command = [sys.executable, "-c", INTERRUPTED, "q", server.url, delivery]
    done = subprocess.run(command, capture_output=True, text=True, timeout=200)
    assert done.stdout == "all well\n", done.stderr


# Many at once


def test_eight_consumers_get_each_item_once(server: LocalServer, client: redis.Redis) -> None:
    """With LRANGE and LTRIM outside of a transaction two of them get the same items."""
    count, got = 200_000, [[] for _ in range(8)]
    pushed = threading.Event()

    def consume(place: int, counted: bool) -> None:
        with fastresp.ListBuffer("q", server=server.url, batch=100) as buffer:
            buffer.pop(0)
            len(buffer)
            buffer._core._counted = counted
            over = False
            while not over:
                over = pushed.is_set()
                got[place] += buffer.consume(block=0.3)

    threads = [
        threading.Thread(target=consume, args=(i, i % 2 == 0)) for i in range(8)
    ]  # half as with a server before 6.2
    for thread in threads:
        thread.start()
    with fastresp.ListBuffer("q", server=server.url) as buffer:
        buffer.push(map(str, range(count)))
    pushed.set()
    for thread in threads:
        thread.join()
    assert sorted(map(int, itertools.chain(*got))) == list(range(count))
    assert sum(map(bool, got)) > 1
    assert all(items == sorted(items, key=int) for items in got)  # each sees the list's order


def test_older_servers_way(open_buffer: Open) -> None:
    """MULTI, LRANGE, LTRIM, EXEC, on a server that would have the count."""
    for order in ("fifo", "lifo"):
        buffer = open_buffer(order=order)
        buffer.push(map(str, range(5000)))
        buffer._core._counted = False
        expected = numbers(5000) if order == "fifo" else numbers(5000)[::-1]
        assert buffer.pop(2500) == expected[:2500]
        assert list(buffer.consume()) == expected[2500:]
        assert buffer.pop(1) == []


@pytest.mark.parametrize("server_name", ["redis-server", *WHEEL_SERVERS])
def test_servers(server_name: str) -> None:
    with LocalServer(program=located(server_name, WHEEL_SERVERS)) as server:
        for delivery in DELIVERIES:
            with fastresp.ListBuffer("q", server=server.url, delivery=delivery) as buffer:
                assert buffer.push(map(str, range(5000))).length == 5000
                assert buffer.pop(100) == numbers(100)
                assert buffer._core._counted
                if delivery == "at-least-once":
                    assert buffer.ack() == 0
                assert list(buffer.consume()) == numbers(4900, 100)
                if delivery == "at-least-once":
                    assert buffer.ack() == 0


CONSUMER = """
import sys, fastresp
key, url, delivery, out = sys.argv[1:]
with fastresp.ListBuffer(key, server=url, delivery=delivery, lease=1.0, batch=200) as buffer, \\
        open(out, "ab", buffering=0) as file:
    while True:
        for items in buffer.drain():
            file.write(b"".join(item + b"\\n" for item in items))
            if delivery == "at-least-once":
                buffer.ack()
        buffer.recover()
        for item in buffer.consume(1, block=0.2):
            file.write(item + b"\\n")
        if delivery == "at-least-once":
            buffer.ack()
"""


@pytest.mark.parametrize("seconds", [5, pytest.param(30, marks=pytest.mark.slow)])
@pytest.mark.parametrize("delivery", DELIVERIES)
def test_killed_consumers(
    server: LocalServer, client: redis.Redis, tmp_path: Path, delivery: str, seconds: int
) -> None:
    """8 consumers, killed at random, and 2 producers: nothing lost, or nothing twice."""
    chance = random.Random(5)
    out = [tmp_path / f"out{i}" for i in range(8)]
    stop = threading.Event()
    pushed = [0, 0]

    def produce(which: int) -> None:
        with fastresp.ListBuffer("q", server=server.url) as buffer:
            while not stop.is_set():
                start = pushed[which]
                buffer.push(f"{which}:{i}" for i in range(start, start + 500))
                pushed[which] += 500
                time.sleep(0.01)

    def start(place: int) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-c", CONSUMER, "q", server.url, delivery, str(out[place])]
        return subprocess.Popen(command)

    producers = [threading.Thread(target=produce, args=(i,)) for i in range(2)]
    consumers = [start(i) for i in range(8)]
    try:
        for thread in producers:
            thread.start()
        deadline = time.monotonic() + seconds
        kills = 0
        while time.monotonic() < deadline or kills < 2 * seconds:
            time.sleep(0.1 + 0.3 * chance.random())
            place = chance.randrange(8)
            consumers[place].kill()
            consumers[place].wait()
            kills += 1
            consumers[place] = start(place)
    finally:
        stop.set()
        for thread in producers:
            thread.join()
        for consumer in consumers:
            consumer.kill()
            consumer.wait()
    wait_for_silence(client)
    with fastresp.ListBuffer("q", server=server.url) as buffer:
        buffer.recover()
        left = list(buffer.consume())
    got = Counter(left)
    for path in out:
        got.update(path.read_bytes().split(b"\n")[:-1] if path.exists() else [])
    made = {b"%d:%d" % (which, i) for which in range(2) for i in range(pushed[which])}
    assert got.keys() <= made
    if delivery == "at-least-once":
        assert got.keys() == made
    else:
        assert set(got.values()) == {1}
    assert client.keys("*processing*") == []


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_ten_million_in_little_memory(server: LocalServer) -> None:
    """Pushed and drained with at most 64 MiB of memory; counts and a checksum agree."""
    code = f"""{PEAK}
import hashlib, fastresp
def items():
    for i in range(10_000_000):
        yield "%016d" % i
with fastresp.ListBuffer("q", server={server.url!r}) as buffer:
    pushed = buffer.push(items())
    assert pushed.length == 10_000_000
    count, checksum = 0, hashlib.sha256()
    for batch in buffer.drain():
        count += len(batch)
        checksum.update(b"".join(batch))
peak = peak()
print(count, checksum.hexdigest(), peak)
"""
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, timeout=500, check=True)
    count, checksum, peak = done.stdout.split()
    expected = hashlib.sha256()
    for start in range(0, 10_000_000, 10_000):
        expected.update(b"".join(b"%016d" % i for i in range(start, start + 10_000)))
    assert (int(count), checksum) == (10_000_000, expected.hexdigest())
    assert int(peak) < 64 << 10


RANDOMLY = """
import random, signal, sys, threading, time, fastresp, redis
key, url, way, where = sys.argv[1:]
random.seed(3)
made = 0
got, interruptions = [], 0

def interrupt(number, frame):
    # Only there: an item that the code below has, and drops, is lost by that code.
    while frame is not None:
        if "/fastresp/lists/" in frame.f_code.co_filename:
            raise KeyboardInterrupt
        frame = frame.f_back

def disturb():
    # In the end it is left in peace: on a busy machine nearly every call would be interrupted.
    while interruptions < 300:
        time.sleep(0.0001 + 0.001 * random.random())
        signal.pthread_kill(idle.ident if where == "idle" else main, signal.SIGALRM)

signal.signal(signal.SIGALRM, interrupt)
main = threading.get_ident()
idle = threading.Thread(target=time.sleep, args=(1000,), daemon=True)
idle.start()
# A column that is on its way is lost with at-most-once; so is what is when another thread is in the
# midst of a signal, which it had before we knew.
safe = way == "pop_arrow" or where == "idle"
delivery = "at-least-once" if safe else "at-most-once"
with fastresp.ListBuffer(key, server=url, batch=50, delivery=delivery, timeout=5.0) as buffer:
    len(buffer)
    client = redis.Redis.from_url(url)
    threading.Thread(target=disturb, daemon=True).start()
    # On a fast machine it takes more items until there were some interruptions.
    while len(got) < made or made < 30_000 or interruptions < 10:
        if len(got) == made:
            client.rpush(key, *range(made, made + 30_000))
            made += 30_000
        try:
            if way == "pop":
                got += buffer.pop(200)
            elif way == "push":
                # What an iterator that was left had asked for comes in here.
                got.append(next(buffer.consume()))
                buffer.push([])
                got += buffer.pop(70)
            elif way == "consume":
                for item in buffer.consume(1000):
                    got.append(item)
            elif way == "pop_arrow":
                got += buffer.pop_arrow(70).to_bytes()
            else:
                len(buffer)
                got += buffer.pop(200)
            if safe:
                buffer.ack()
        except KeyboardInterrupt:
            interruptions += 1
    signal.signal(signal.SIGALRM, signal.SIG_IGN)
print(got == [b"%d" % i for i in range(made)], interruptions)
"""


@pytest.mark.parametrize("where", ["main", "idle"])
@pytest.mark.parametrize("way", ["pop", "consume", "pop_arrow", "push", "len"])
def test_interruptions_at_random_lose_nothing(
    server: LocalServer, client: redis.Redis, way: str, where: str
) -> None:
    """Wherever in a call they come, and whichever thread the kernel gives them to."""
    command = [sys.executable, "-c", RANDOMLY, "q", server.url, way, where]
    done = subprocess.run(command, capture_output=True, text=True, timeout=250)
    assert done.stdout.startswith("True "), done.stderr[-2000:]
