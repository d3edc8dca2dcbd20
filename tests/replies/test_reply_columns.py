"""ReplyColumns: replies as columns, compared with hiredis; all memory is released."""

from __future__ import annotations

import gc
import random
import threading
import time
from collections.abc import Iterator, Sequence
from copy import copy
from typing import Any

import hiredis
import nanoarrow as na
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from reply_model import cut_up, pieces_of

from fastresp import ProtocolError
from fastresp.encode.columns import arrow_out
from fastresp.encode.columns.arrow_out import StringBatch, StringColumn
from fastresp.replies.reply_columns import ReplyColumns, string_column

Row = Sequence[bytes | None]


class ErrorReply(Exception):
    """An error reply, as hiredis returns it."""


@pytest.fixture(autouse=True)
def _memory_is_released() -> Iterator[None]:
    gc.collect()
    before = arrow_out.live_columns()
    yield
    gc.collect()
    assert arrow_out.live_columns() == before


def reply(row: Row) -> bytes:
    items = [b"$-1\r\n" if x is None else b"$%d\r\n%b\r\n" % (len(x), x) for x in row]
    return b"*%d\r\n%b" % (len(row), b"".join(items))


def fed(stream: bytes, names: Sequence[str], **options: Any) -> Any:
    columns = ReplyColumns(names, **options)
    columns.feed(stream)
    return columns


def rows_of(batch: StringBatch | None) -> list[tuple[Any, ...]]:
    if batch is None:
        return []
    found = pa.record_batch(batch)
    found.validate(full=True)
    return list(zip(*(column.to_pylist() for column in found.columns), strict=True))


def parsed(stream: bytes) -> list[Any]:
    """Parse replies with hiredis."""
    more = object()
    reader = hiredis.Reader(replyError=ErrorReply, notEnoughData=more)
    reader.feed(stream)
    return list(iter(reader.gets, more))


VALUES = st.none() | st.binary(max_size=12) | st.integers(0, 3000).map(lambda n: b"\r\n" * n)
ERRORS = st.sampled_from([b"-ERR no\r\n", b"-WRONGTYPE Operation \xff\r\n", b"-\r\n"])
CUTS = st.lists(st.integers(0, 2**16), max_size=12)


@pytest.mark.slow
@settings(max_examples=800)
@given(st.data(), st.integers(1, 4), CUTS, st.integers(1, 5))
def test_same_rows_as_hiredis(data: st.DataObject, n: int, cuts: list[int], step: int) -> None:
    """Fixed rows and errors, split anywhere, with some rows taken meanwhile."""
    row = st.lists(VALUES, min_size=n, max_size=n).map(reply)
    stream = b"".join(data.draw(st.lists(row | ERRORS, max_size=15)))
    replies = parsed(stream)
    columns = ReplyColumns([f"c{i}" for i in range(n)], text=False)
    rows: list[Any] = []
    for index, piece in enumerate(cut_up(stream, cuts)):
        columns.feed(piece)
        if index % step == 0:
            rows += rows_of(columns.take(step))
    rows += rows_of(columns.take())
    nulls = (None,) * n
    assert rows == [nulls if isinstance(r, ErrorReply) else tuple(r) for r in replies]
    errors = [(i, str(r)) for i, r in enumerate(replies) if isinstance(r, ErrorReply)]
    assert [(i, text.decode(errors="replace")) for i, text in columns.errors] == errors
    assert (columns.replies, columns.offset, columns.rows) == (len(replies), len(stream), 0)
    assert not columns.pending


@pytest.mark.slow
@settings(max_examples=400)
@given(st.data(), st.integers(1, 3), CUTS)
def test_items_of_any_number(data: st.DataObject, n: int, cuts: list[int]) -> None:
    """As for RPOP with a count: items fill the columns in turn; errors and null arrays add none."""
    some = st.integers(0, 4).flatmap(lambda k: st.lists(VALUES, min_size=k * n, max_size=k * n))
    stream = b"".join(
        data.draw(st.lists(some.map(reply) | ERRORS | st.just(b"*-1\r\n"), max_size=10))
    )
    replies = parsed(stream)
    columns = ReplyColumns([f"c{i}" for i in range(n)], text=False, fixed=False)
    for piece in cut_up(stream, cuts):
        columns.feed(piece)
    items = [item for r in replies if isinstance(r, list) for item in r]
    assert rows_of(columns.take()) == list(zip(*[iter(items)] * n, strict=True))
    assert columns.absent == [i for i, r in enumerate(replies) if r is None]
    assert columns.replies == len(replies)
    assert columns.take() is None


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("stream", "fixed", "words", "offset"),
    [
        (b"*2\r\n$1\r\nx\r\n$1\r\ny\r\n*1\r\n", True, "an array of 1 item, where 2 are", 18),
        (b"*3\r\n", True, "an array of 3 items, where 2 are expected", 0),
        (b"*0\r\n", True, "an array of 0 items, where 2 are", 0),
        (b"*-1\r\n", True, "a null array, where 2 are", 0),
        (b"*3\r\n", False, "where a multiple of 2 are expected", 0),
        (b":1\r\n", True, "a reply is not an array", 0),
        (b"+OK\r\n", False, "a reply is not an array", 0),
        (b"$1\r\nx\r\n", True, "a reply is not an array", 0),
        (b"*2\r\n:1\r\n", True, "an item is not a bulk string", 4),
        (b"*2\r\n$1\r\nx\r\n*1\r\n", True, "an item is not a bulk string", 11),
        (b"*2\r\n-ERR\r\n", True, "an item is not a bulk string", 4),
        (b"*2\r\n$1\r\nxy\r\n", True, "longer than its header says", 9),
        (b"*2\r\n$1\r\nx\ry", True, "longer than its header says", 10),
        (b"*x\r\n", True, "an invalid value", 0),
        (b"*2\r\n$\r\n", True, "an invalid value", 4),
        (b"*2\r\n$-2\r\n", True, "an invalid value", 4),
        (b"*2\r\n$9999999999999999999\r\n", True, "an invalid value", 4),
        (b"*2\r\n$536870913\r\n", True, "more than the 536,870,912 bytes that a reply may", 4),
        (b"*8388610\r\n", False, "more than the 536,870,912 bytes that a reply may have", 0),
    ],
)
def test_bad_replies(stream: bytes, fixed: bool, words: str, offset: int) -> None:
    for pieces in ([stream], pieces_of(stream, range(len(stream)))):
        columns = ReplyColumns(["a", "b"], fixed=fixed)
        with pytest.raises(ProtocolError, match=words) as caught:
            for piece in pieces:
                columns.feed(piece)
        assert caught.value.offset == offset
        with pytest.raises(ProtocolError):
            columns.feed(b"*2\r\n")
        with pytest.raises(ProtocolError):
            columns.take()


@settings(max_examples=500)
@given(st.binary(max_size=40), CUTS, st.booleans())
def test_any_bytes(stream: bytes, cuts: list[int], fixed: bool) -> None:
    """Split or not, they parse to the same rows or fail at the same byte."""
    outcomes: list[Any] = []
    for pieces in ([stream], cut_up(stream, cuts), pieces_of(stream, range(len(stream)))):
        columns = ReplyColumns(["a"], text=False, fixed=fixed)
        try:
            for piece in pieces:
                columns.feed(piece)
            outcomes.append((columns.replies, columns.errors, rows_of(columns.take())))
        except ProtocolError as error:
            outcomes.append((columns.replies, columns.errors, error.offset))
    assert outcomes[0] == outcomes[1] == outcomes[2]


@pytest.mark.parametrize("size", [1, 7, 60])
def test_too_large(size: int) -> None:
    """A value, an array or a line larger than the limit of a reply is refused."""
    for head, more in (
        (b"*4\r\n", b"$100\r\n" + b"x" * 100 + b"\r\n"),
        (b"*2\r\n$600\r\n", b"x"),
        (b"-", b"x"),
    ):
        stream = b"*2\r\n$-1\r\n$1\r\ny\r\n" + head + more * 600
        columns = ReplyColumns(["a", "b"], fixed=head.startswith(b"*2"), max_reply_bytes=300)
        with pytest.raises(ProtocolError, match="more than the 300 bytes"):
            for at in range(0, len(stream), size):
                columns.feed(stream[at : at + size])


def test_a_line_without_an_end() -> None:
    columns = ReplyColumns(["a"])
    with pytest.raises(ProtocolError, match="a line does not end"):
        for _ in range(100):
            columns.feed(b"*1")
    columns = ReplyColumns(["a"])
    for _ in range(100):
        columns.feed(b"-" + b"x" * 10_000)
    columns.feed(b"\r\n")
    assert len(columns.errors[0][1]) == 4_096


def test_text_that_is_not_utf8() -> None:
    good = [("ä€😀".encode(), b""), (b"x" * 100, None)]
    bad = [b"\xff", b"\xc0\x80", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\xc3", b"x" * 70 + b"\x80"]
    for value in bad:
        rows = [*good, (b"y", value), (value, b"z")]
        columns = fed(b"".join(map(reply, rows)), ["a", "b"])
        assert columns.invalid == (2, 1)
        with pytest.raises(ValueError, match="row 2, column 1: this text is not UTF-8"):
            columns.take()
        mixed = fed(b"".join(map(reply, rows[:3])), ["a", "b"], text=[True, False])
        batch = mixed.take()
        assert [str(kind) for kind in pa.schema(batch).types] == ["string", "binary"]
        assert rows_of(batch)[2] == ("y", value)


def test_a_character_split_over_two_values() -> None:
    """Neither value is UTF-8, although both together are."""
    columns = fed(reply([b"\xc3", None]) + reply([b"\xa4", None]), ["a", "b"])
    assert columns.invalid == (0, 0)


def test_rows_are_counted_from_the_first() -> None:
    columns = fed(reply([b"x"]) * 5, ["a"])
    assert len(columns.take()) == 5
    columns.feed(reply([b"x"]) + reply([b"\xff"]))
    assert columns.invalid == (6, 0)


def test_a_large_value_in_small_pieces() -> None:
    """About as fast as in large pieces; rows taken earlier stay unchanged."""
    value = random.Random(1).randbytes(32 << 20)
    stream = reply([b"first", b""]) + reply([b"x", value])
    seconds = {}
    for size in (16_384, 1 << 20):
        columns = ReplyColumns(["a", "b"], text=False)
        start = time.process_time()
        for at in range(0, len(stream), size):
            columns.feed(stream[at : at + size])
            if at == 0:
                assert rows_of(columns.take()) == [(b"first", b"")]
        seconds[size] = time.process_time() - start
        assert rows_of(columns.take()) == [(b"x", value)]
    assert seconds[16_384] < 20 * seconds[1 << 20] + 0.5


def test_many_rows_of_nulls_and_values() -> None:
    chance = random.Random(2)
    rows = [
        tuple(None if chance.random() < 0.3 else b"%d" % i * (i % 7) for _ in range(3))
        for i in range(20_000)
    ]
    batch = fed(b"".join(map(reply, rows)), ["a", "b", "c"], text=False).take()
    assert rows_of(batch) == rows
    assert batch.columns[0].null_count == sum(row[0] is None for row in rows)
    assert batch.nbytes == sum(len(x) for row in rows for x in row if x is not None)


def test_libraries() -> None:
    """All libraries accept a batch, more than once, and a single column."""
    batch = fed(reply([b"x", None]) + reply(["ä".encode(), b"1"]), ["a", "b"]).take()
    expected = {"a": ["x", "ä"], "b": [None, "1"]}
    for _ in range(2):
        assert pa.table(batch).to_pydict() == expected
        assert pl.DataFrame(pl.from_arrow(batch)).unnest("").to_dict(as_series=False) == expected
        assert na.Array(batch).to_pylist() == [{"a": "x", "b": None}, {"a": "ä", "b": "1"}]
    assert pa.array(batch.columns[1]).to_pylist() == [None, "1"]
    assert pl.Series(batch.columns[0]).to_list() == ["x", "ä"]
    assert pa.schema(batch) == pa.schema([("a", pa.string()), ("b", pa.string())])
    assert len(batch) == len(batch.columns[0]) == 2


def test_memory_is_shared_and_outlives_the_batch() -> None:
    before = arrow_out.live_columns()
    batch = fed(reply([b"x", b"y"]) * 1000, ["a", "b"]).take()
    assert arrow_out.live_columns() == before + 2
    first, second = pa.record_batch(batch), pa.record_batch(batch)
    assert first.column(0).buffers()[2].address == second.column(0).buffers()[2].address
    column = first.column(1)
    del batch, first, second
    gc.collect()
    # pyarrow keeps the whole batch.
    assert arrow_out.live_columns() == before + 2
    assert column.to_pylist() == ["y"] * 1000
    thread = threading.Thread(target=lambda kept: kept.clear(), args=([column],))
    del column
    thread.start()
    thread.join()
    assert arrow_out.live_columns() == before


def test_unused_capsules() -> None:
    before = arrow_out.live_columns()
    batch = fed(reply([b"x"]), ["a"]).take()
    batch.__arrow_c_array__()
    batch.columns[0].__arrow_c_array__()
    capsules = batch.__arrow_c_array__()
    del batch
    assert arrow_out.live_columns() == before + 1
    del capsules
    assert arrow_out.live_columns() == before


def test_streams() -> None:
    """A stream yields the batches of an iterator, and closes it when it is released."""
    closed = []

    def batches(fail: bool) -> Iterator[StringBatch]:
        try:
            for i in range(3):
                yield fed(reply([b"%d" % i]), ["a"]).take()
            if fail:
                raise ZeroDivisionError("mine")
        finally:
            closed.append(fail)

    def capsule(fail: bool = False) -> Any:
        return arrow_out.stream(["a"], [True], batches(fail))

    class Source:
        def __init__(self, capsule: Any) -> None:
            self.capsule = capsule

        def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
            return self.capsule

    assert pa.table(Source(capsule())).to_pydict() == {"a": ["0", "1", "2"]}
    with pytest.raises(OSError, match="mine"):
        pa.table(Source(capsule(fail=True)))
    assert closed == [False, True]
    reader = pa.RecordBatchReader.from_stream(Source(capsule()))
    reader.read_next_batch()
    reader.close()
    del reader
    gc.collect()
    assert closed == [False, True, False]
    capsule()  # never started: there is nothing to close


@pytest.mark.parametrize("text", [True, False])
def test_column_of_bytes_objects(text: bool) -> None:
    column = string_column([b"user:1:x", b"user::x"], head=5, tail=2, text=text)
    assert pa.array(column).to_pylist() == (["1", ""] if text else [b"1", b""])
    assert pa.array(string_column([], text=text)).to_pylist() == []


def test_column_of_text_that_is_not_utf8() -> None:
    with pytest.raises(UnicodeDecodeError):
        string_column([b"x", b"a\xff"], head=1)


def test_bad_arguments() -> None:
    with pytest.raises(ValueError, match="at least one column"):
        ReplyColumns([])
    with pytest.raises(ValueError, match="one bool for each"):
        ReplyColumns(["a"], text=[True, False])
    with pytest.raises(TypeError):
        ReplyColumns(["a"]).feed("x")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="columns of the same length"):
        StringBatch(["a", "b"], [string_column([]), string_column([b"x"])])


def test_created_directly() -> None:
    """A column without memory would read from a null pointer."""
    for made in (
        StringColumn,
        lambda: StringColumn.__new__(StringColumn),
        lambda: copy(string_column([])),
    ):
        with pytest.raises(TypeError):
            made()  # type: ignore[operator]
    batch = StringBatch.__new__(StringBatch)
    for use in (len, rows_of):
        with pytest.raises(TypeError):
            use(batch)


@pytest.mark.parametrize("text", [True, False])
def test_values_of_a_column(text: bool) -> None:
    values = ["ä", None, ""] if text else [b"\xff", None, b""]
    stream = reply([x.encode() if isinstance(x, str) else x for x in values])
    column = fed(stream, ["a"], text=text, fixed=False).take().columns[0]
    assert list(column) == values
    assert pd.Series(column).astype(object).where(lambda x: x.notna(), None).tolist() == values
    assert pd.Series.from_arrow(column).dropna().tolist() == [values[0], values[2]]
    assert pl.Series(column).to_list() == values


def test_name_with_a_nul() -> None:
    with pytest.raises(ValueError, match="allows no NUL"):
        arrow_out.schema(["a", "b\0c"], [True, True])
