"""The window, without I/O: commands in flight and in doubt, and matching of replies."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastresp import Template, Writer, pack
from fastresp.resp.buffer import Chunk
from fastresp.resp.split import arguments
from fastresp.server.options import Options
from fastresp.server.settings import Server
from fastresp.transports.error_policy import ErrorPolicy
from fastresp.transports.lanes import Lanes
from fastresp.transports.window import WINDOW_BYTES, Window


def chunks_of(count: int, chunk_bytes: int, start: int = 0) -> Iterator[Chunk]:
    rows = ((f"k{i}", i) for i in range(start, start + count))
    return Writer(Template("SET {0} {1}"), chunk_bytes=chunk_bytes, chunk_seconds=60).chunks(rows)


def send(window: Window, most: int) -> bytes:
    """Send up to this many bytes of a window, in one piece."""
    sending = window.sending
    if sending is None:
        return b""
    piece = bytes(sending.piece(most))
    sending.written.append(len(piece))
    return piece


def test_empty() -> None:
    window = Window()
    assert (window.made, window.sent, window.acknowledged) == (0, 0, 0)
    assert (window.in_doubt, window.unsent, window.unsent_bytes) == (0, 0, 0)
    assert window.sending is None
    assert window.has_room
    with pytest.raises(LookupError, match="reply 0 answers nothing"):
        window.command(0)


def test_counts_at_any_moment() -> None:
    """Only whole commands count as sent; each reply reduces the commands in doubt."""
    window = Window()
    for chunk in chunks_of(10, 100):
        window.add(chunk)
    sizes = [len(pack("SET", f"k{i}", i)) for i in range(10)]
    assert (window.made, window.unsent, window.sent) == (10, 10, 0)
    send(window, sizes[0] - 1)
    assert (window.sent, window.in_doubt, window.unsent) == (0, 0, 10)
    sending = window.sending
    assert sending is not None
    assert sending.underway == sizes[0]
    send(window, 1)
    assert (window.sent, window.in_doubt, window.unsent) == (1, 1, 9)
    assert sending.underway == 0
    send(window, sizes[1] + 5)
    assert (window.sent, window.in_doubt, window.unsent) == (2, 2, 8)
    assert window.totals() == (2, 2, sizes[0] + sizes[1] + 5)
    window.acknowledge(1)
    assert (window.acknowledged, window.in_doubt, window.unsent) == (1, 1, 8)


@given(
    chunk_bytes=st.integers(20, 400),
    steps=st.lists(st.tuples(st.integers(1, 500), st.floats(0, 1)), max_size=60),
)
def test_any_order_of_events(chunk_bytes: int, steps: list[tuple[int, float]]) -> None:
    """Always acknowledged <= sent <= made, and each command in flight is found."""
    window = Window(max_bytes=3000)
    stream = b"".join(pack("SET", f"k{i}", i) for i in range(100))
    ends = [0]
    for i in range(100):
        ends.append(ends[-1] + len(pack("SET", f"k{i}", i)))
    source = chunks_of(100, chunk_bytes)
    went = b""
    for most, share in steps:
        while window.has_room and (chunk := next(source, None)) is not None:
            window.add(chunk)
        went += send(window, most)
        assert stream.startswith(went)
        sent = sum(end <= len(went) for end in ends[1:])
        assert window.sent == sent
        window.acknowledge(window.acknowledged + int(share * (sent - window.acknowledged)))
        assert window.in_doubt == sent - window.acknowledged
        assert window.unsent == window.made - sent
        for index in range(window.acknowledged, window.made):
            row, command = window.command(index)
            assert row == index
            assert arguments(command) == (b"SET", b"k%d" % index, b"%d" % index)


def test_acknowledged_chunks_are_released() -> None:
    window = Window(max_bytes=1)
    first, second, *_ = chunks_of(100, 500)
    assert window.has_room
    window.add(first)
    assert not window.has_room
    window.add(second)
    count = len(first.ends)
    while send(window, 10_000):
        pass
    window.acknowledge(count - 1)
    assert window.command(0)[0] == 0
    window.acknowledge(count)
    with pytest.raises(LookupError):
        window.command(0)
    assert window.command(count)[0] == count
    assert not window.has_room
    window.acknowledge(window.made)
    assert window.has_room


def test_limit_in_commands() -> None:
    window = Window(max_commands=10)
    chunks = chunks_of(100, 200)
    while window.has_room:
        window.add(next(chunks))
    assert 10 <= window.made < 20


def test_piece_of_a_number_of_commands() -> None:
    window = Window()
    window.add(next(chunks_of(100, 1 << 20)))
    sending = window.sending
    assert sending is not None
    assert bytes(sending.piece(1 << 20, 3)) == b"".join(pack("SET", f"k{i}", i) for i in range(3))
    sending.written.append(5)
    assert len(sending.piece(1 << 20, 3)) == sending.chunk.ends[2] - 5
    assert len(sending.piece(1 << 20, 0)) == 0
    assert len(sending.piece(1 << 20, 1000)) == sending.size - 5


def test_several_writers_over_one_connection() -> None:
    """Each Writer counts from 0; the window counts all."""
    window = Window()
    for start in (0, 30):
        for chunk in chunks_of(30, 200, start):
            window.add(chunk)
    assert window.made == 60
    row, command = window.command(45)
    assert row == 45
    assert arguments(command) == (b"SET", b"k45", b"45")
    while send(window, 10_000):
        pass
    assert window.totals()[:2] == (60, 60)


def test_rows_of_several_commands() -> None:
    template = Template("SET {0} 1; SADD s {0}; INCR n")
    (chunk,) = Writer(template, chunk_seconds=60).chunks([1, 2, 3])
    window = Window()
    window.add(chunk)
    assert [window.command(i)[0] for i in range(9)] == [i // 3 for i in range(9)]


def test_large_argument_is_not_copied() -> None:
    value = b"v" * (3 << 20)
    rows = [("SET", "a", 1), ("SET", value, value, "x"), ("SET", "b", 2)]
    chunks = list(Writer(chunk_seconds=60).chunks(rows))
    assert sum(chunk.memory for chunk in chunks) < 4 << 20
    window = Window()
    for chunk in chunks:
        window.add(chunk)
    went = []
    while piece := send(window, 1 << 20):
        went.append(piece)
    assert b"".join(went) == b"".join(pack(*row) for row in rows)
    assert arguments(window.command(1)[1]) == (b"SET", value, value, b"x")
    assert bytes(chunks[0]) == pack(*rows[0]) + pack(*rows[1])


def test_room_of_several_connections() -> None:
    """A chunk may be larger than a window; then the other connections have no room."""
    lanes = Lanes(Server(None), ErrorPolicy("raise"), Options(connections=3))
    for count, room in ((1, True), (3 * WINDOW_BYTES // 1000, False)):
        rows = [("SET", "a", "v" * 1000)] * count
        (chunk,) = Writer(chunk_bytes=1 << 30, chunk_seconds=60).chunks(rows)
        lanes.add(chunk)
        assert lanes.has_room == room
    lanes.lanes[1].window.acknowledge(count)
    assert lanes.has_room
