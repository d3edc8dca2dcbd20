"""ListBuffer, sync and asyncio: items as Arrow columns, both ways."""

from __future__ import annotations

import polars as pl
import pyarrow as pa
import pytest
import redis
from buffers import DELIVERIES, Open, numbers

import fastresp


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
    assert len(buffer.pop_arrow(5)) == 0  # reuses the parser; the previous column is unchanged
    assert sorted(pa.array(column).to_pylist()) == [b"a", b"bb"]
    assert buffer._calls.delivery._columns is not None
    assert buffer._calls.delivery._columns[1].absent == []  # does not grow with each empty reply


def test_arrow_of_many_kinds(open_buffer: Open) -> None:
    buffer = open_buffer(batch=2, maxlen=100)
    for items in (
        pa.array([1, 2, 3]), pa.array([1.5]), pa.array([b"a", b"bb"]).slice(1),
        pa.array(["x", "y"]).dictionary_encode(), pl.Series(["p", "q", "r"]), pa.array([], "int8"),
    ):  # fmt: skip
        buffer.push(items)
    words = [b"1", b"2", b"3", b"1.5", b"bb", b"x", b"y", b"p", b"q", b"r"]
    assert buffer.pop(100) == words
    with pytest.raises(TypeError, match="items must be one column, not a table"):
        buffer.push(pa.table({"a": [1]}))
    with pytest.raises(fastresp.EncodeError, match=r"item 3: .*null"):
        buffer.push(pa.array(["a", "b", "c", None, "d"]))
    assert buffer.pop(100) == [b"a", b"b"]


def test_arrow_of_large_values(open_buffer: Open, client: redis.Redis) -> None:
    """Lists are also limited in bytes."""
    for kind in (pa.binary(), pa.large_string()):
        buffer = open_buffer()
        items = pa.array(["x" * 300_000] * 10, kind).slice(1)
        assert buffer.push(items).report.commands == 3
        assert [len(item) for item in buffer.pop(20)] == [300_000] * 9


def test_arrow_of_an_older_server(open_buffer: Open) -> None:
    buffer = open_buffer()
    buffer.push(["a", "b", "c"])
    buffer._calls.delivery._accepts_count = False
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
