"""ListBuffer, sync and asyncio: order, no item lost, and many clients at once."""

from __future__ import annotations

import asyncio
import ctypes
import hashlib
import itertools
import random
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import preloaded
import pytest
import redis
from buffers import DELIVERIES, Open, numbers, wait_for_silence
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from peak import PEAK
from server_programs import WHEEL_SERVERS, located

import fastresp
import fastresp.aio
from fastresp.server.local_server import LocalServer

# Items pushed are popped


@pytest.mark.few(8)
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


@pytest.mark.parametrize("mode", ["r", "rb"])
def test_lines_of_a_file(
    mode: str, open_buffer: Open, server: LocalServer, client: redis.Redis, tmp_path: Path
) -> None:
    """Without line ends, as in loads of lines and on the command line."""
    path = tmp_path / "jobs.txt"
    path.write_bytes(b"a\n\nb c\nd")
    with open(path, mode) as file:
        open_buffer().push(file)
    with open(path, mode) as file:
        fastresp.mass_insert(file, "RPUSH r {0}", server=server.url)
    table = fastresp.read(path, format="lines")
    fastresp.mass_insert(table, "RPUSH l {line}", server=server.url)
    lines = [b"a", b"", b"b c", b"d"]
    assert [client.lrange(key, 0, -1) for key in "qrl"] == [lines] * 3


def test_push_nothing(open_buffer: Open) -> None:
    pushed = open_buffer().push([])
    assert (pushed.report.commands, pushed.report.rows) == (0, 0)


def test_commands_are_bounded(
    open_buffer: Open, client: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By items and by bytes: 1,000 items of a megabyte would be a gigabyte."""
    buffer = open_buffer(batch=1000)
    # A command also ends after 2 ms, which a few items may take on a busy machine.
    monkeypatch.setattr("fastresp.lists.push.CHUNK_SECONDS", 60.0)
    assert buffer.push(["x"] * 2500).report.commands == 3
    assert buffer.push(["x" * 300_000] * 10).report.commands == 3
    assert buffer.push([5] * 2500).report.commands == 3
    assert client.llen("q") == 5010


def test_keys_with_special_characters(server: LocalServer, client: redis.Redis) -> None:
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
    """Compare with a Python list."""
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
                # With lifo, popped items come before newer ones: push only if there are none.
                if order == "fifo" or not (
                    buffer._calls.popped or buffer._calls.delivery._requests
                ):
                    model += (new := [b"%d" % next(made) for _ in range(n)])
                    buffer.push(new)
            elif kind == 1:
                assert buffer.pop(n) == take(n)
            elif kind == 2:
                assert list(itertools.islice(buffer.consume(), n)) == take(n)
            else:
                assert len(buffer) == len(model)
        assert list(buffer.consume()) == take(10**6)


# Many clients at once


@pytest.mark.slow
def test_eight_consumers_get_each_item_once(server: LocalServer, client: redis.Redis) -> None:
    """With LRANGE and LTRIM outside a transaction, two of them would get the same items."""
    count, got = 200_000, [[] for _ in range(8)]
    pushed = threading.Event()

    def consume(place: int, counted: bool) -> None:
        with fastresp.ListBuffer("q", server=server.url, batch=100) as buffer:
            buffer.pop(0)
            len(buffer)
            buffer._calls.delivery._accepts_count = counted
            over = False
            while not over:
                over = pushed.is_set()
                got[place] += buffer.consume(block=0.3)

    threads = [
        threading.Thread(target=consume, args=(i, i % 2 == 0)) for i in range(8)
    ]  # half of them behave as on a server before 6.2
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


def test_pops_of_older_servers(open_buffer: Open) -> None:
    """MULTI, LRANGE, LTRIM, EXEC, on a server that would accept a count."""
    for order in ("fifo", "lifo"):
        buffer = open_buffer(order=order)
        buffer.push(map(str, range(5000)))
        buffer._calls.delivery._accepts_count = False
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
                assert buffer._calls.delivery._accepts_count
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


@pytest.mark.few(0)
@pytest.mark.parametrize(
    "seconds",
    [2, pytest.param(5, marks=pytest.mark.slow), pytest.param(30, marks=pytest.mark.long)],
)
@pytest.mark.parametrize("delivery", DELIVERIES)
def test_killed_consumers(
    server: LocalServer, client: redis.Redis, tmp_path: Path, delivery: str, seconds: int
) -> None:
    """8 consumers killed at random, and 2 producers: no item is lost, or no item is duplicated."""
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


@pytest.mark.long
@pytest.mark.timeout(600)
def test_ten_million_in_little_memory(server: LocalServer) -> None:
    """Push and drain with at most 64 MiB of memory; count and checksum agree."""
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
    done = preloaded.run(command, capture_output=True, text=True, timeout=500, check=True)
    count, checksum, peak = done.stdout.split()
    expected = hashlib.sha256()
    for start in range(0, 10_000_000, 10_000):
        expected.update(b"".join(b"%016d" % i for i in range(start, start + 10_000)))
    assert (int(count), checksum) == (10_000_000, expected.hexdigest())
    assert int(peak) < 64 << 10


@pytest.mark.parametrize("asynchronous", [False, True])
@pytest.mark.parametrize(
    "view",
    [
        lambda item: item,
        memoryview,
        lambda item: memoryview(item)[::-1][::-1],
        lambda item: np.frombuffer(item, dtype="uint8"),
        lambda item: (ctypes.c_ubyte * 2).from_buffer(item),
    ],
    ids=["bytearray", "memoryview", "slice", "numpy", "ctypes"],
)
def test_a_source_that_fills_its_buffer_again(
    server: LocalServer, client: redis.Redis, view: Callable[[bytearray], Any], asynchronous: bool
) -> None:
    def items() -> Iterator[Any]:
        item = bytearray(2)
        viewed = view(item)
        for number in range(10, 100):
            item[:] = b"%d" % number
            yield viewed

    push(items, server, asynchronous)
    assert client.lrange("list", 0, -1) == [b"%d" % number for number in range(10, 100)]


@pytest.mark.parametrize("asynchronous", [False, True])
def test_buffers_that_are_not_bytes(
    server: LocalServer, client: redis.Redis, asynchronous: bool
) -> None:
    """An error names the item, and nothing is pushed."""
    released = memoryview(b"x")
    released.release()
    numbers = memoryview(b"123456789").cast("?")
    for item in (
        released,
        numbers,
        np.array([1.5]),
        np.array(["2020"], "M8"),
        np.datetime64("NaT"),
    ):
        with pytest.raises(fastresp.EncodeError, match="item 2"):
            push(lambda item=item: iter(["a", "b", item]), server, asynchronous)
    assert client.dbsize() == 0
    push(lambda: iter([np.uint8(7), np.float32(1.5)]), server, asynchronous)
    assert client.lrange("list", 0, 1) == [b"7", b"1.5"]


def push(items: Callable[[], Iterator[Any]], server: LocalServer, asynchronous: bool) -> None:
    """Push items to "list" from an iterator, or from an async generator."""

    async def main() -> None:
        async with fastresp.aio.ListBuffer("list", server=server.url) as buffer:
            await buffer.push(source())

    async def source() -> AsyncIterator[Any]:
        for item in items():
            yield item

    if asynchronous:
        asyncio.run(main())
    else:
        fastresp.ListBuffer("list", server=server.url).push(items())
