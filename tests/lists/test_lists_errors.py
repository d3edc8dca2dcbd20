"""ListBuffer, sync and asyncio: bad items and options, and lost connections."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import redis
from buffers import DELIVERIES, Awaited, Open, end_leases, numbers
from waiting import until

import fastresp
import fastresp.aio
from fastresp.lists import push
from fastresp.server.local_server import LocalServer


@pytest.mark.parametrize("delivery", DELIVERIES)
@pytest.mark.parametrize("slow", [False, True])
def test_key_that_is_not_a_list(
    open_buffer: Open,
    client: redis.Redis,
    monkeypatch: pytest.MonkeyPatch,
    delivery: str,
    slow: bool,
) -> None:
    """The push stops and hands back all items; a slow machine sends more commands."""
    monkeypatch.setattr(push, "CHUNK_SECONDS", 0 if slow else 60)
    client.set("q", 1)
    buffer = open_buffer(delivery=delivery)
    with pytest.raises(fastresp.CommandError, match="WRONGTYPE"):
        buffer.pop(5)
    with pytest.raises(fastresp.CommandError, match="WRONGTYPE"):
        list(buffer.consume())
    source = map(str, range(2500))
    with pytest.raises(fastresp.PushError, match=r"WRONGTYPE.*first for row 0") as caught:
        buffer.push(source)
    assert "=" not in str(caught.value)  # names only options of push()
    report, taken = caught.value.report, caught.value.taken
    assert report.errors_by_code == {"WRONGTYPE": report.failed}
    assert report.failed == report.commands
    assert taken == (report.failed + report.unsent if slow else 2500)
    assert [error.row for error in report.errors][:2] == [0, 1 if slow else 1000]
    assert caught.value.items == numbers(taken)
    client.delete("q")
    assert buffer.push([*caught.value.items, *source]).length == 2500
    assert buffer.pop(3000) == numbers(2500)


def column(items: list[bytes]) -> Any:
    return pa.chunked_array([items[at : at + 5000] for at in range(0, len(items), 5000)])


async def awaited(items: list[bytes]) -> Any:
    for item in items:
        yield item


@pytest.mark.parametrize("maxlen", [None, 100_000])
@pytest.mark.parametrize("source_of", [iter, column, awaited], ids=["rows", "columns", "async"])
def test_push_into_a_full_server_loses_nothing(
    start_server: Callable[..., LocalServer], maxlen: int | None, source_of: Callable[..., Any]
) -> None:
    """A later batch may find free memory; its items count."""
    server = start_server()
    items = [b"item %05d " % i + b"x" * 200 for i in range(40_000)]
    with (
        redis.Redis.from_url(server.url) as client,
        Awaited("q", server=server.url, maxlen=maxlen) as buffer,
    ):
        client.config_set("maxmemory", client.info("memory")["used_memory"] + 3_000_000)
        with pytest.raises(fastresp.PushError, match=r"OOM (?s:.*)not in the list") as caught:
            buffer.push(source_of(items))
        error = caught.value
        pushed = client.lrange("q", 0, -1)
        assert error.taken < len(items)
        assert sorted(pushed + error.items) == items[: error.taken]
        assert error.later == sum(item > error.items[0] for item in pushed)
        assert sum(error.report.errors_by_code.values()) == error.report.failed
        client.config_set("maxmemory", 0)
        buffer.push([*error.items, *items[error.taken :]])
        assert sorted(client.lrange("q", 0, -1)) == items


def test_items_refused_after_the_source_has_failed(client: redis.Redis, open_buffer: Open) -> None:
    """They are in the source's exception, since the source may not be readable again."""
    client.set("q", 1)

    def items() -> Iterator[str]:
        yield from "abc"
        raise ArithmeticError

    with pytest.raises(ArithmeticError) as caught:
        open_buffer().push(items())
    assert caught.value.items == [b"a", b"b", b"c"]  # type: ignore[attr-defined]


@pytest.mark.parametrize(("seconds", "pushed"), [(60, 2000), (0, 2500)])
def test_item_that_cannot_be_encoded(
    open_buffer: Open,
    client: redis.Redis,
    monkeypatch: pytest.MonkeyPatch,
    seconds: float,
    pushed: int,
) -> None:
    """Whole commands are pushed; how many depends on the time that the source takes."""
    monkeypatch.setattr(push, "CHUNK_SECONDS", seconds)
    buffer = open_buffer(maxlen=100_000)
    items = [*map(str, range(2500)), None, *map(str, range(10))]
    with pytest.raises(fastresp.EncodeError, match=r"item 2,500: .*cannot send None") as caught:
        buffer.push(items)
    assert caught.value.row == 2500
    assert caught.value.report.rows == pushed  # type: ignore[attr-defined]
    assert client.lrange("q", 0, -1) == numbers(pushed)
    assert buffer.push(["a"]).length == pushed + 1


@pytest.mark.parametrize("kind", [ArithmeticError, fastresp.TransportError])
def test_source_that_fails(open_buffer: Open, client: redis.Redis, kind: type[Exception]) -> None:
    """Items before the exception are pushed, even if it is another load's TransportError."""
    error = kind("no more")
    if isinstance(error, fastresp.TransportError):
        error.report = fastresp.Report("socket", commands=7)

    def items() -> Iterator[str]:
        yield from map(str, range(2500))
        raise error

    with pytest.raises(kind, match="no more") as caught:
        open_buffer().push(items())
    assert caught.value is error
    assert len(error.__notes__) == 1
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
        ({"batch": 0}, "batch must be a whole number from 1 to 65,534"),
        ({"batch": 65_535}, "batch must be a whole number"),
        ({"order": "random"}, "order must be 'fifo' or 'lifo', not 'random'"),
        ({"delivery": "once"}, "delivery must be 'at-most-once' or 'at-least-once', not 'once'"),
        ({"maxlen": 0}, "maxlen must be a whole number above 0, or None, not 0"),
        ({"lease": 0}, "lease must be a finite number of seconds"),
        ({"lease": "x"}, "lease must be a finite number of seconds"),
        ({"timeout": 0}, "timeout must be a number of seconds above 0"),
        ({"timeout": "x"}, "timeout must be a number of seconds above 0"),
    ],
)
def test_bad_options(open_buffer: Open, options: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        open_buffer(**options)


def test_bad_calls(open_buffer: Open) -> None:
    buffer = open_buffer()
    with pytest.raises(TypeError, match="items must be an iterable of items, not one str"):
        buffer.push("text")
    with pytest.raises(TypeError, match="items must be an iterable of items, not one dict"):
        buffer.push({"a": 1})
    with pytest.raises(ValueError, match="n must be a whole number of items, 0 or more, not -1"):
        buffer.pop(-1)
    with pytest.raises(ValueError, match=r"n must be a whole number .* 0 or more, not 2\.5"):
        next(buffer.consume(2.5))
    with pytest.raises(TypeError, match="key must be a str or bytes"):
        fastresp.ListBuffer(5)  # type: ignore[arg-type]


def test_server_that_does_not_run(open_buffer: Open, port: int) -> None:
    with pytest.raises(fastresp.TransportError, match="Connection refused"):
        open_buffer(server=f"redis://localhost:{port}").pop(1)


@pytest.mark.parametrize("delivery", DELIVERIES)
def test_lost_connection(open_buffer: Open, client: redis.Redis, delivery: str) -> None:
    """With at-least-once, items already popped still belong to this consumer."""
    buffer = open_buffer(delivery=delivery)
    buffer.push(map(str, range(1000)))
    assert len(buffer.pop(10)) == 10
    client.client_kill_filter(_type="normal", skipme=True)
    with pytest.raises(fastresp.TransportError, match="a new connection works"):
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
    with pytest.raises(fastresp.LeaseError, match="including 3 already popped"):
        buffer.ack(3)
    assert buffer.pop(20) == numbers(10)
    assert buffer.ack() == 0


@pytest.mark.parametrize("value", ["x", "-3", "99", "1e400"])
@pytest.mark.parametrize("lost", [False, True])
def test_count_of_acknowledged_items_is_garbage(
    open_buffer: Open, client: redis.Redis, value: str, lost: bool
) -> None:
    """No unacknowledged items are deleted."""
    buffer = open_buffer(delivery="at-least-once")
    buffer.push(map(str, range(10)))
    assert len(buffer.pop(4)) == 4
    if lost:
        client.client_kill_filter(_type="normal", skipme=True)
        with pytest.raises(fastresp.TransportError):
            buffer.pop(1)
    [key] = client.keys("*:consumers")
    [consumer] = client.hkeys(key)
    client.hset(key, consumer, value)
    with pytest.raises(fastresp.CommandError, match=f"field fifo-.* is '{value}', which is not"):
        buffer.ack(2)
    buffer.close()
    assert client.lrange("q", 0, -1) == numbers(10)


def test_heartbeat(open_buffer: Open, client: redis.Redis) -> None:
    """If items take longer than the lease, each of these calls renews it."""
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
    """A consumer with an expired lease pops no item, which recover() would never find."""
    options = {"server": server.url, "delivery": "at-least-once"}
    with fastresp.ListBuffer("q", **options) as dead, fastresp.ListBuffer("q", **options) as other:
        client.rpush("q", "a")
        assert dead.pop(1) == [b"a"]
        end_leases(client)
        assert other.recover() == 1
        with pytest.raises(fastresp.LeaseError):
            dead._call(partial(dead._calls.delivery.waiting_until, time.monotonic() + 60.0))
        assert other.pop(10) == [b"a"]
        other.ack()
    assert client.keys("*") == []


def test_close_during_another_call(server: LocalServer, client: redis.Redis) -> None:
    got: list[list[bytes]] = []

    def waits() -> bool:
        return client.info("clients")["blocked_clients"] > 0

    buffer = fastresp.ListBuffer("q", server=server.url)
    thread = threading.Thread(target=lambda: got.append(list(buffer.consume(1, block=60.0))))
    thread.start()
    until(waits)
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
        pushing.cancel()  # between its calls: must not close the connection that consume() uses
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
