"""Writer and Chunk: the ends of commands, and remaining commands after an error."""

from __future__ import annotations

import random
import sys
import time
from array import array
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastresp import Chunk, EncodeError, Template, TemplateError, Writer, pack, pack_many
from fastresp.encode.writer import CHUNK_BYTES


def commands_of(chunk: Chunk) -> list[bytes]:
    """Return the bytes of each command, cut at the ends."""
    data = bytes(chunk)
    assert len(chunk.ends) == len(chunk.rows)
    assert chunk.ends[-1] == len(chunk) == len(data)
    return [data[start:end] for start, end in pairwise([0, *chunk.ends])]


def sets(count: int, size: int = 100) -> Iterator[tuple[str, int, bytes]]:
    return (("SET", i, b"v" * size) for i in range(count))


def rest(writer: Writer) -> list[bytes]:
    """Return the whole commands that a writer still has."""
    chunk = writer.take()
    return [] if chunk is None else commands_of(chunk)


def test_chunks_of_a_mebibyte() -> None:
    assert CHUNK_BYTES == 1 << 19
    writer = Writer(chunk_seconds=60)
    expected = [pack(*command) for command in sets(50_000)]
    first = 0
    chunks = list(writer.chunks(sets(50_000)))
    for chunk in chunks:
        commands = commands_of(chunk)
        assert chunk.first_command == first
        assert list(chunk.rows) == list(range(first, first + len(commands)))
        assert commands == expected[first : first + len(commands)]
        first += len(commands)
    assert first == writer.commands == writer.rows == 50_000
    # Each ends with the command that reaches the size.
    for chunk in chunks[:-1]:
        assert CHUNK_BYTES <= len(chunk) < CHUNK_BYTES + 200
    assert len(chunks[-1]) < CHUNK_BYTES
    assert len(chunks) == sum(map(len, expected)) // CHUNK_BYTES + 1


@pytest.mark.parametrize("chunk_bytes", [1, 30, 1000])
def test_chunk_bytes(chunk_bytes: int) -> None:
    writer = Writer(chunk_bytes=chunk_bytes, chunk_seconds=60)
    chunks = list(writer.chunks(sets(100)))
    assert b"".join(map(bytes, chunks)) == pack_many(sets(100))
    assert [chunk.first_command for chunk in chunks[1:]] == [
        before.first_command + len(before.ends) for before in chunks[:-1]
    ]
    assert len(chunks[0].ends) == -(-chunk_bytes // len(pack("SET", 0, b"v" * 100)))


def test_value_larger_than_a_chunk() -> None:
    commands = [("SET", i, b"v" * size) for i, size in enumerate([5, 3 << 20, 5, 2 << 20, 1 << 20])]
    chunks = list(Writer(chunk_seconds=60).chunks(commands))
    assert [commands_of(chunk) for chunk in chunks] == [
        [pack(*commands[0]), pack(*commands[1])],
        [pack(*commands[2]), pack(*commands[3])],
        [pack(*commands[4])],
    ]


def test_many_tiny_commands() -> None:
    (chunk,) = Writer(chunk_seconds=60).chunks([["A"]] * 40_000)
    assert list(chunk.ends) == list(range(11, 440_001, 11))
    assert bytes(chunk) == pack("A") * 40_000


def test_buffer_protocol() -> None:
    (chunk,) = Writer(chunk_seconds=60).chunks([("SET", "a", 1)])
    expected = pack("SET", "a", 1)
    view = memoryview(chunk)
    assert bytes(chunk) == bytes(view) == expected
    assert (len(chunk), view.nbytes, view.format) == (len(expected), len(expected), "B")
    assert view.readonly
    with pytest.raises(TypeError):
        view[0] = 0
    del chunk
    assert view[:4] == b"*3\r\n"
    with pytest.raises(AttributeError):
        view.obj.first_command = 1
    assert repr(view.obj) == "<Chunk of 1 commands from 0, 27 bytes>"


def test_marks_are_arrays_of_int64() -> None:
    (chunk,) = Writer(chunk_seconds=60).chunks([("A",), ("B",)])
    assert (chunk.ends, chunk.rows) == (array("q", [11, 22]), array("q", [0, 1]))


@pytest.mark.parametrize("source", [[], (), iter([]), {}, (x for x in ())])
def test_empty_source(source: Any) -> None:
    writer = Writer(chunk_seconds=60)
    assert list(writer.chunks(source)) == []
    assert writer.take() is None
    assert (writer.rows, writer.commands) == (0, 0)


def test_rows_of_several_commands() -> None:
    template = Template("SET {0} {1}; SADD s {0}; PUBLISH c {1}")
    writer = Writer(template, chunk_bytes=500, chunk_seconds=60)
    chunks = list(writer.chunks((i, i * i) for i in range(100)))
    commands = [command for chunk in chunks for command in commands_of(chunk)]
    assert commands == [
        pack(*command)
        for i in range(100)
        for command in (("SET", i, i * i), ("SADD", "s", i), ("PUBLISH", "c", i * i))
    ]
    assert [row for chunk in chunks for row in chunk.rows] == [i for i in range(100) for _ in "abc"]
    # A row is never split between two chunks.
    assert len(chunks) > 5
    assert all(len(chunk.ends) % 3 == 0 for chunk in chunks)


def test_rows_with_skipped_commands() -> None:
    writer = Writer(Template("SET {0} {1}; SADD s {2}"), nulls="skip", chunk_seconds=60)
    (chunk,) = writer.chunks([(1, None, None), (2, 2, None), (3, None, 3), (None, 4, 4)])
    assert commands_of(chunk) == [pack("SET", 2, 2), pack("SADD", "s", 3), pack("SADD", "s", 4)]
    assert (list(chunk.rows), writer.rows, writer.commands) == ([1, 2, 3], 4, 3)


@pytest.mark.parametrize(
    ("nulls", "expected"),
    [
        ("skip", [("GET", "a"), ("GET", "b")]),
        ("empty", [("GET", "a"), ("SET", "", "x"), ("GET", "b"), ("SET", "x", "")]),
    ],
)
def test_nulls_in_commands(nulls: Any, expected: list[tuple[str, ...]]) -> None:
    commands = [("GET", "a"), ["SET", None, "x"], ("GET", "b"), ("SET", "x", None)]
    writer = Writer(nulls=nulls, chunk_seconds=60)
    (chunk,) = writer.chunks(commands)
    assert commands_of(chunk) == [pack(*command) for command in expected]
    assert (writer.rows, writer.commands) == (4, len(expected))


def test_all_skipped() -> None:
    writer = Writer(nulls="skip", chunk_seconds=60)
    assert list(writer.chunks([("SET", None)] * 1000)) == []
    assert (writer.rows, writer.commands) == (1000, 0)


def test_nulls_error_and_bad_policy() -> None:
    with pytest.raises(EncodeError, match="command 1, argument 1: cannot send None"):
        list(Writer(chunk_seconds=60).chunks([("GET", "a"), ("GET", None)]))
    with pytest.raises(ValueError, match=r"nulls must be 'auto', 'skip', .* not 'ignore'"):
        Writer(nulls="ignore", chunk_seconds=60)  # type: ignore[arg-type]


@pytest.mark.parametrize("before", [0, 1, 100, 30_000])
@pytest.mark.parametrize("bad", [("SET", "x", None), ("SET", "\ud800"), (), "SET", ("MONITOR",)])
def test_error_leaves_whole_commands(before: int, bad: Any) -> None:
    writer = Writer(chunk_seconds=60)
    got = []
    with pytest.raises(EncodeError) as caught:
        got.extend(writer.chunks([*sets(before), bad, ("SET", "never", 1)]))
    assert caught.value.command == caught.value.row == before
    assert str(caught.value).startswith(f"command {before:,}")
    # chunks() had yielded these before the error; extend keeps them.
    commands = [command for chunk in got for command in commands_of(chunk)] + rest(writer)
    assert commands == [pack(*command) for command in sets(before)]
    assert writer.take() is None
    (chunk,) = writer.chunks([("SET", "after", 1)])
    assert (chunk.first_command, bytes(chunk)) == (before, pack("SET", "after", 1))


def test_error_removes_the_whole_row() -> None:
    writer = Writer(Template("SET {a} 1; SADD s {b}"), chunk_seconds=60)
    with pytest.raises(EncodeError) as caught:
        list(writer.chunks([{"a": 1, "b": 2}, {"a": 3, "b": None}]))
    error = caught.value
    assert str(error).startswith("row 1 (a=3), command 3, field 'b', argument 2: cannot send None")
    assert (error.command, error.row, error.argument) == (3, 1, 2)
    assert rest(writer) == [pack("SET", 1, 1), pack("SADD", "s", 2)]


def test_missing_field_removes_the_whole_row() -> None:
    writer = Writer(Template("SET {a} 1\nSADD s {b}"), chunk_seconds=60)
    with pytest.raises(TemplateError, match=r"row 1 \(a=3\): the row has no field {b}") as caught:
        list(writer.chunks([{"a": 1, "b": 2}, {"a": 3}]))
    assert caught.value.row == 1
    assert rest(writer) == [pack("SET", 1, 1), pack("SADD", "s", 2)]


class SourceError(Exception):
    """A user's exception."""


@pytest.mark.parametrize(
    "kind", [SourceError, KeyboardInterrupt, SystemExit, ValueError, EncodeError]
)
@pytest.mark.parametrize("plan", [None, Template("SET {1} {2}")])
def test_source_raises(kind: type[BaseException], plan: Template | None) -> None:
    error = kind("from the source")

    def source() -> Iterator[Any]:
        yield from sets(3)
        raise error

    writer = Writer(plan, chunk_seconds=60)
    with pytest.raises(kind) as caught:
        list(writer.chunks(source()))
    assert caught.value is error
    assert str(error) == "from the source"
    assert rest(writer) == [pack(*command) for command in sets(3)]
    assert (writer.rows, writer.commands) == (3, 3)


@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit])
def test_interrupt_within_a_command(kind: type[BaseException]) -> None:
    def default(value: object) -> str:
        raise kind

    writer = Writer(default=default, chunk_seconds=60)
    with pytest.raises(kind):
        list(writer.chunks([*sets(3), ("SET", "half", object())]))
    assert rest(writer) == [pack(*command) for command in sets(3)]


def test_stop_iteration_of_default_does_not_end_the_stream() -> None:
    def default(value: object) -> str:
        raise StopIteration

    with pytest.raises(EncodeError, match="command 0, argument 1: StopIteration"):
        list(Writer(default=default, chunk_seconds=60).chunks([("SET", object()), ("SET", 1)]))


@pytest.mark.parametrize(
    "change", [list.clear, lambda each: each.append(1), lambda each: each.pop()]
)
def test_arguments_change_while_read(change: Any) -> None:
    command: list[Any] = ["SET", object(), "last"]

    def default(value: object) -> str:
        change(command)
        return "x"

    writer = Writer(default=default, chunk_seconds=60)
    with pytest.raises(EncodeError, match="changed while it was being read"):
        list(writer.chunks([("GET", 1), command]))
    assert rest(writer) == [pack("GET", 1)]


def test_arguments_replaced_while_read() -> None:
    command: list[Any] = ["SET", object(), object()]

    def default(value: object) -> str:
        command[:] = ["GET", "new", "newer"]
        return "x"

    assert pack_many([command], default=default) == pack("SET", "x", "newer")


def test_two_writers_share_a_template() -> None:
    """The second writes rows of another type and length while the first is inside a row."""
    template = Template("HSET user:{0}:{1} {*2}")

    def default(value: object) -> str:
        inner = Writer(template, chunk_seconds=60).chunks([["k" * 2000, "x", list(range(200))]] * 3)
        assert b"".join(map(bytes, inner)) == 3 * pack("HSET", f"user:{'k' * 2000}:x", *range(200))
        return "d"

    rows = [(object(), 2, [object(), 4])] * 3
    chunks = Writer(template, default=default, chunk_seconds=60).chunks(rows)
    assert b"".join(map(bytes, chunks)) == 3 * pack("HSET", "user:d:2", "d", 4)


def test_trickling_source() -> None:
    """Slow rows are sent before the chunk is full."""
    sent = 0

    def source() -> Iterator[tuple[str, int]]:
        nonlocal sent
        for sent in range(1000):
            if sent % 128 == 0:
                time.sleep(0.3)
            yield ("SET", sent)
            if sent >= 400:
                return

    seen = []
    for chunk in Writer(chunk_seconds=60).chunks(source()):
        seen += commands_of(chunk)
        assert len(chunk) < 10_000
        if len(seen) < 400:
            assert sent - len(seen) < 64
    assert seen == [pack("SET", i) for i in range(401)]
    assert len(seen) == sent + 1


def test_trickling_source_is_detected_early() -> None:
    def source() -> Iterator[tuple[str, int]]:
        yield ("SET", 0)
        time.sleep(0.3)
        for i in range(1, 10**9):
            yield ("SET", i)

    chunk = next(Writer().chunks(source()))
    assert 1 < len(chunk.ends) <= 64


def test_writer_is_reused_for_a_second_source() -> None:
    writer = Writer(chunk_bytes=64, chunk_seconds=60)
    chunks = [*writer.chunks(sets(3, 5)), *writer.chunks(sets(3, 5))]
    assert b"".join(map(bytes, chunks)) == pack_many(sets(3, 5)) * 2
    assert chunks[-1].first_command + len(chunks[-1].ends) == writer.commands == 6
    assert list(chunks[-1].rows)[-1] == 5


@given(
    st.lists(
        st.lists(st.binary(max_size=50), min_size=1, max_size=4).map(lambda each: ["X", *each])
    ),
    st.integers(1, 300),
)
def test_any_chunk_size_gives_the_same_stream(commands: list[Any], chunk_bytes: int) -> None:
    chunks = list(Writer(chunk_bytes=chunk_bytes, chunk_seconds=60).chunks(commands))
    assert [each for chunk in chunks for each in commands_of(chunk)] == [
        pack(*command) for command in commands
    ]
    assert all(len(chunk) >= chunk_bytes for chunk in chunks[:-1])


def test_large_arguments_live_as_long_as_their_chunk() -> None:
    large = b"L" * (1 << 20)
    unheld = sys.getrefcount(large)
    writer = Writer(Template("SET {0} {1} {2}"), nulls="skip", chunk_bytes=1 << 19)
    assert not writer.fill([("a", large, None)] * 3)
    assert sys.getrefcount(large) == unheld
    chunks = list(writer.chunks([("a", large, "x")] * 3))
    assert sys.getrefcount(large) == unheld + 3
    piece = max(chunks[0].pieces(), key=len)
    del chunks
    assert sys.getrefcount(large) == unheld + 1
    assert piece == large
    del piece
    assert sys.getrefcount(large) == unheld


@pytest.mark.slow
def test_large_arguments_anywhere() -> None:
    """Arguments that are not copied: in pairs, in skipped commands, in a rolled-back row."""
    chance = random.Random(7)
    large = "L" * (1 << 20)
    for _ in range(30):
        rows = []
        expected = b""
        for row in range(chance.randrange(1, 6)):
            values = [large, large.encode(), "s", "", None, 5, "x" * chance.randrange(2000)]
            fields = {
                f"f{i}{'y' * chance.choice([0, 1000])}": chance.choice(values)
                for i in range(chance.randrange(1, 14))
            }
            rows.append({"id": row, **fields})
            pairs = [x for pair in fields.items() if pair[1] is not None for x in pair]
            expected += pack("HSET", f"u:{row}", *pairs) if pairs else b""
        chunk_bytes = chance.choice([1 << 20, 1000])
        writer = Writer(Template("HSET u:{id} {**}"), nulls="skip", chunk_bytes=chunk_bytes)
        made = b""
        for chunk in writer.chunks(rows):
            assert bytes(chunk) == b"".join(chunk.pieces())
            assert len(chunk) == chunk.ends[-1]
            made += bytes(chunk)
        assert made == expected

        couples = [(chance.choice([large, "a"]), chance.choice([None, large])) for _ in range(6)]
        writer = Writer(Template("SET {0} {1}; GET {0}"), nulls="skip")
        expected = b"".join(
            (b"" if value is None else pack("SET", key, value)) + pack("GET", key)
            for key, value in couples
        )
        assert b"".join(map(bytes, writer.chunks(couples))) == expected

        writer = Writer(Template("SET {0} {1}; GET {0}"), chunk_bytes=1 << 30, chunk_seconds=60)
        whole = [(key, large) for key, _ in couples]
        with pytest.raises(EncodeError):
            list(writer.chunks([*whole, (large, None)]))
        left = writer.take()
        assert left is not None
        assert bytes(left) == b"".join(pack("SET", *row) + pack("GET", row[0]) for row in whole)
