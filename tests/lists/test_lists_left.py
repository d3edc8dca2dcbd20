"""ListBuffer, sync and asyncio: wait, acknowledge, put back and recover items."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
import redis
from buffers import DELIVERIES, Awaited, Open, end_leases, numbers
from redis.crc import key_slot

import fastresp
import fastresp.aio
from fastresp.lists.at_most_once import WAIT_S
from fastresp.lists.settings import Settings as ListSettings
from fastresp.server.local_server import LocalServer


@pytest.mark.parametrize("order", ["fifo", "lifo"])
@pytest.mark.parametrize("delivery", DELIVERIES)
def test_consumer_that_stops_early(
    open_buffer: Open, client: redis.Redis, order: str, delivery: str
) -> None:
    """The next call returns the items in flight, or close() puts them back."""
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
    assert buffer.pop(3) == expected[at : at + 3]  # it reconnects


def test_ack(open_buffer: Open, client: redis.Redis) -> None:
    buffer = open_buffer(delivery="at-least-once")
    buffer.push(map(str, range(100)))
    buffer.pop(10)
    assert buffer.ack(3) == 7
    with pytest.raises(ValueError, match="can't acknowledge 8 items; unacknowledged: 7"):
        buffer.ack(8)
    source = buffer.consume()
    next(source)
    assert buffer.ack(0) == 8
    source.close()
    buffer.close()
    assert client.lrange("q", 0, -1) == numbers(97, 3)


def test_ack_needs_at_least_once(open_buffer: Open) -> None:
    with pytest.raises(ValueError, match="ack\\(\\) needs delivery='at-least-once'"):
        open_buffer().ack()


@pytest.mark.slow
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


@pytest.mark.few(1)
def test_waiting_keeps_the_lease(
    open_buffer: Open, server: LocalServer, client: redis.Redis
) -> None:
    buffer = open_buffer(delivery="at-least-once", lease=4.5)
    buffer.push(["a"])
    assert buffer.pop(1) == [b"a"]
    with client.monitor() as monitor:
        assert list(buffer.consume(block=1.6)) == []
        client.echo("over")
        seen = iter(lambda: monitor.next_command()["command"].split(" "), ["ECHO", "over"])
        # Only the arguments of the ACK script end with the lease; MONITOR also shows its calls.
        sent = [
            words
            for words in seen
            if words[0] == "BLMOVE" or (words[0], words[-1]) == ("EVAL", "4500")
        ]
    waits, renewals = sent[::2], sent[1::2]
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
            assert other.recover() == 0  # the lease has not expired
            assert all(0 < client.pttl(key) <= 30_000 for key in client.keys("*:lease:*"))
            end_leases(client)
            assert other.recover() == 2000
            assert other.recover() == 0
        assert client.lrange("q", 0, -1) == (before[1000:] if order == "fifo" else before[:-1000])
        with pytest.raises(fastresp.LeaseError, match=r"longer than its lease \(30 s\)"):
            buffer.ack()
        assert buffer.ack() == 0  # no item is unacknowledged
        assert len(buffer.pop(10)) == 10  # as a new consumer
        assert buffer.ack() == 0
        client.delete("q")


def test_silent_consumer_that_pops_again(
    open_buffer: Open, server: LocalServer, client: redis.Redis
) -> None:
    buffer = open_buffer(delivery="at-least-once")
    buffer.push(map(str, range(5000)))
    source = buffer.drain()
    first = next(source)
    with fastresp.ListBuffer("q", server=server.url) as other:
        # Requests that the server reads late renew the lease.
        while not (recovered := other.recover()):
            end_leases(client)
        assert recovered >= 1000
    with pytest.raises(fastresp.LeaseError):
        for _ in source:
            pass
    assert buffer.pop(1000) == first


@pytest.mark.parametrize("delivery", DELIVERIES)
def test_continued_iterator(open_buffer: Open, client: redis.Redis, delivery: str) -> None:
    """Items that it has not yielded are returned by other calls, in order."""
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


def test_refused_put_back(open_buffer: Open, client: redis.Redis) -> None:
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
    """Calls that free memory work."""
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


def test_lists_with_similar_names(server: LocalServer, client: redis.Redis) -> None:
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
    dead._calls.connection.close()
    for each in map(ListSettings, ("x", "{x}", "a{b}c", "{a}{b}")):
        assert key_slot(each.key_for("consumers")) == key_slot(each.name)


def test_recovered_by_a_buffer_of_another_order(server: LocalServer, client: redis.Redis) -> None:
    client.rpush("q", *range(10))
    options = {"server": server.url, "delivery": "at-least-once"}
    dead = fastresp.ListBuffer("q", order="lifo", **options)
    assert dead.pop(3) == [b"9", b"8", b"7"]
    end_leases(client)
    with fastresp.ListBuffer("q", server=server.url) as other:
        assert other.recover() == 3
    assert client.lrange("q", 0, -1) == numbers(10)
    dead._calls.connection.close()


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


def test_slow_async_source(server: LocalServer, client: redis.Redis) -> None:
    """Slow items are pushed as they arrive, not only in whole batches."""

    async def items() -> Any:
        deadline = time.monotonic() + 30
        for i in range(6):
            yield str(i)
            await asyncio.sleep(0.01)
            # The age of a batch is checked when its next item arrives.
            while i % 2 and client.llen("q") <= i:
                assert time.monotonic() < deadline
                await asyncio.sleep(0.01)

    async def main() -> None:
        async with fastresp.aio.ListBuffer("q", server=server.url) as buffer:
            assert (await buffer.push(items())).report.rows == 6

    asyncio.run(main())


def test_reply_that_is_not_a_list(server: LocalServer, client: redis.Redis) -> None:
    """From a broken server or proxy."""
    with fastresp.ListBuffer("q", server=server.url) as buffer:
        buffer.push(["a"])
        buffer._calls.delivery._request = lambda n: [("PING",)]  # type: ignore[method-assign]
        with pytest.raises(fastresp.TransportError, match="unexpected reply to a pop: b'PONG'"):
            buffer.pop(1)


def test_maxlen_of_a_key_that_is_not_a_list(open_buffer: Open, client: redis.Redis) -> None:
    client.set("q", 1)
    with pytest.raises(fastresp.LoadErrors, match="WRONGTYPE") as caught:
        open_buffer(maxlen=5).push(["a"])
    assert caught.value.report.failed == 1


def test_clear_after_a_pop(open_buffer: Open, client: redis.Redis) -> None:
    for delivery in DELIVERIES:
        buffer = open_buffer(delivery=delivery)
        buffer.push(map(str, range(10)))
        next(buffer.consume())
        buffer.clear()
        assert (len(buffer), client.lrange("q", 0, -1)) == (0, [])
        buffer.close()
        assert client.keys("*") == []
