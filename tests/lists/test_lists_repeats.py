"""ListBuffer, sync and asyncio: calls retried after a lost connection."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import redis
from buffers import Cutter, Open, numbers
from needed import imported

import fastresp
from fastresp.lists.settings import ACK
from fastresp.server.local_server import LocalServer

ACKNOWLEDGEMENT = ACK.splitlines()[-1].encode()


@pytest.fixture
def cutter(server: LocalServer, tmp_path: Path) -> Iterator[Cutter]:
    with Cutter(tmp_path, server.socket) as cutter:
        yield cutter


def cut(cutter: Cutter, marker: bytes, arrives: bool, call: Callable[[], Any]) -> None:
    """Run a call that loses its connection at a command."""
    cutter.marker, cutter.arrives, before = marker, arrives, cutter.cuts
    with pytest.raises(fastresp.TransportError):
        call()
    assert cutter.cuts == before + 1


arriving = pytest.mark.parametrize("arrives", [True, False])


@arriving
@pytest.mark.parametrize("way", ["pop", "consume", "pop_arrow"])
def test_ack_can_be_retried(
    open_buffer: Open, cutter: Cutter, client: redis.Redis, arrives: bool, way: str
) -> None:
    """The retry applies to the same items, whether or not the first call arrived."""
    client.rpush("q", *range(20))
    buffer = open_buffer(server=cutter.url, delivery="at-least-once", batch=4)
    if way == "consume":
        source = buffer.consume()  # leaves others in flight
        assert [next(source) for _ in range(10)] == numbers(10)
    elif way == "pop":
        assert buffer.pop(10) == numbers(10)
    else:
        assert buffer.pop_arrow(10).to_bytes() == numbers(10)
    cut(cutter, ACKNOWLEDGEMENT, arrives, lambda: buffer.ack(5))
    assert buffer.acknowledged == 0
    assert buffer.ack(5) == 5
    assert buffer.acknowledged == 5
    buffer.close()
    assert client.lrange("q", 0, -1) == numbers(15, 5)
    assert client.keys("*") == [b"q"]


@arriving
@pytest.mark.parametrize("parts", [(0, 3, 2), (1, 0, 4), (2, 2, 1), (7,), (5, 0), (0, 5, 1, 1)])
def test_ack_can_be_retried_in_parts(
    open_buffer: Open, cutter: Cutter, client: redis.Redis, arrives: bool, parts: tuple[int, ...]
) -> None:
    """Retried in parts, with other calls in between, each item counts once."""
    client.rpush("q", *range(30))
    buffer = open_buffer(server=cutter.url, delivery="at-least-once")
    assert buffer.pop(10) == numbers(10)
    assert buffer.ack(1) == 9
    cut(cutter, ACKNOWLEDGEMENT, arrives, lambda: buffer.ack(5))
    assert len(buffer) == 20
    assert buffer.pop(4) == numbers(4, 10)
    left = 13
    for count in parts:
        left -= count
        assert buffer.ack(count) == left
    assert buffer.acknowledged == 14 - left
    buffer.close()
    done = max(14 - left, 6 if arrives else 0)
    assert client.lrange("q", 0, -1) == numbers(30 - done, done)
    assert client.keys("*") == [b"q"]


@arriving
def test_ack_of_all_can_be_retried(
    open_buffer: Open, cutter: Cutter, client: redis.Redis, arrives: bool
) -> None:
    """Retried several times, with items popped in between."""
    client.rpush("q", *range(30))
    buffer = open_buffer(server=cutter.url, delivery="at-least-once")
    for start in (0, 5, 10):
        assert buffer.pop(5) == numbers(5, start)
        cut(cutter, ACKNOWLEDGEMENT, arrives, buffer.ack)
        cut(cutter, ACKNOWLEDGEMENT, not arrives, buffer.ack)
    assert buffer.acknowledged == 0
    with pytest.raises(ValueError, match="can't acknowledge 16 items; unacknowledged: 15"):
        buffer.ack(16)
    assert buffer.ack() == 0
    assert buffer.acknowledged == 15
    assert buffer.pop(5) == numbers(5, 15)
    assert buffer.ack(2) == 3
    buffer.close()
    assert client.lrange("q", 0, -1) == numbers(13, 17)


def test_unacknowledged_items_stay_in_the_server(
    open_buffer: Open, cutter: Cutter, server: LocalServer, client: redis.Redis
) -> None:
    """Even after a retry: if this consumer dies, they are recovered."""
    client.rpush("q", *range(10))
    buffer = open_buffer(server=cutter.url, delivery="at-least-once", lease=0.2)
    assert buffer.pop(10) == numbers(10)
    cut(cutter, ACKNOWLEDGEMENT, True, lambda: buffer.ack(5))
    assert buffer.ack(5) == 5
    [processing] = client.keys("*processing*")
    assert client.lrange(processing, 0, -1) == numbers(5, 5)


@arriving
def test_clear_can_be_retried(
    open_buffer: Open, cutter: Cutter, client: redis.Redis, arrives: bool
) -> None:
    """Cleared items are not confused with items popped later."""
    client.rpush("q", *range(10))
    buffer = open_buffer(server=cutter.url, delivery="at-least-once")
    assert buffer.pop(6) == numbers(6)
    cut(cutter, b"DEL", arrives, buffer.clear)
    client.rpush("q", *range(10, 20))
    if arrives:
        # The clear ran: this ack() counts the cleared items.
        assert buffer.pop(4) == numbers(4, 10)
        assert buffer.ack(6) == 4
        buffer.close()
        assert client.lrange("q", 0, -1) == numbers(10, 10)
    else:
        buffer.clear()
        client.rpush("q", *range(30, 40))
        assert buffer.pop(4) == numbers(4, 30)
        assert buffer.ack(3) == 1
        buffer.close()
        assert client.lrange("q", 0, -1) == numbers(7, 33)
    assert client.keys("*") == [b"q"]


@arriving
@pytest.mark.parametrize("order", ["fifo", "lifo"])
def test_close_after_a_lost_connection(
    open_buffer: Open, cutter: Cutter, client: redis.Redis, order: str, arrives: bool
) -> None:
    """With at-most-once, items that may be back in the list are not pushed again."""
    client.rpush("q", *range(100))
    buffer = open_buffer(server=cutter.url, order=order, batch=10)
    source = buffer.consume()
    first = next(source)
    held = len(buffer._calls.popped) + sum(buffer._calls.delivery._requests)
    cut(cutter, b"LPUSH" if order == "fifo" else b"RPUSH", arrives, buffer.close)
    buffer.close()
    left = client.lrange("q", 0, -1)
    assert len(set(left)) == len(left)
    assert set(left) <= set(numbers(100)) - {first}
    # One batch of the held items is in doubt; all others are back in the list.
    assert len(left) >= 99 - min(10, held)
    assert left == sorted(left, key=int)


@arriving
def test_push_after_a_lost_connection(
    open_buffer: Open, cutter: Cutter, client: redis.Redis, arrives: bool
) -> None:
    """The report shows where to continue; a retry may push items in doubt twice."""
    buffer = open_buffer(server=cutter.url)
    cutter.marker, cutter.arrives = b"RPUSH", arrives
    with pytest.raises(fastresp.TransportError) as caught:
        buffer.push(["a", "b"])
    report = caught.value.report
    assert report is not None
    assert (report.rows, report.in_doubt + report.unsent) == (0, 1)
    assert buffer.push(["a", "b"]).length == (4 if arrives else 2)


@arriving
def test_recover_can_be_retried(
    open_buffer: Open, cutter: Cutter, server: LocalServer, client: redis.Redis, arrives: bool
) -> None:
    client.rpush("q", *range(10))
    dead = open_buffer(delivery="at-least-once", lease=0.1)
    assert dead.pop(4) == numbers(4)
    dead._calls.connection.close()
    client.delete(*client.keys("*lease*"))
    other = open_buffer(server=cutter.url)
    cut(cutter, b"LRANGE", arrives, other.recover)
    assert other.recover() == (0 if arrives else 4)
    assert client.lrange("q", 0, -1) == numbers(10)


@pytest.mark.parametrize("consumed", [0, 3])
@pytest.mark.parametrize("way", ["pop", "pop_arrow", "consume", "drain", "len", "close"])
def test_a_column_taken_back_comes_first(
    open_buffer: Open, client: redis.Redis, way: str, consumed: int
) -> None:
    """A column taken back after a Ctrl-C comes before other held items and the list."""
    buffer = open_buffer(batch=4)
    client.rpush("q", *range(20))
    source = buffer.consume()
    assert [next(source) for _ in range(consumed)] == numbers(consumed)
    source.close()
    column = buffer.pop_arrow(6)
    assert column.to_bytes() == numbers(6, consumed)
    buffer._calls.popped.take_back(column)
    left = numbers(20 - consumed, consumed)
    if way == "pop":
        assert buffer.pop(2) + buffer.pop(100) == left
    elif way == "pop_arrow":
        assert buffer.pop_arrow(7).to_bytes() + buffer.pop_arrow(100).to_bytes() == left
    elif way == "consume":
        assert list(buffer.consume()) == left
    elif way == "drain":
        assert [item for items in buffer.drain() for item in items] == left
    elif way == "len":
        assert len(buffer) == len(left)
        assert buffer.pop(100) == left
    else:
        buffer.close()
        assert client.lrange("q", 0, -1) == left


@pytest.mark.parametrize("items", [["a", None], [["a"]], [object()], [True]])
def test_errors_name_only_options_of_push(open_buffer: Open, items: list[Any]) -> None:
    with pytest.raises(fastresp.EncodeError, match=rf"item {len(items) - 1}") as caught:
        open_buffer().push(items)
    assert "=" not in str(caught.value)
    assert ";" in str(caught.value)


def test_error_for_a_null_in_a_column(open_buffer: Open) -> None:
    pa = imported("pyarrow")
    with pytest.raises(fastresp.EncodeError, match=r"item 1: .*null") as caught:
        open_buffer().push(pa.array(["a", None]))
    assert "nulls=" not in str(caught.value)
