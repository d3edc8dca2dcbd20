"""Commands of lanes become transactions by marker: none is lost, duplicated, or out of order."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fastresp import Template, Writer, pack
from fastresp.resp.merge import Merger
from fastresp.resp.route import Router
from fastresp.resp.slots import SLOTS, Rules, tags
from fastresp.resp.split import CommandSplitter, arguments
from fastresp.resp.transactions import BatchedChunk, Batcher, Gatherer

Words = tuple[bytes, ...]
LARGE = b"v" * 600_000
PREFIX = b"g:"


class Transaction(NamedTuple):
    """A transaction: its lane, the commands between MULTI and EXEC, and its successors."""

    lane: int
    commands: list[Words]
    marker: Words
    rows: list[int]
    waits: bool


def transactions(chunk: BatchedChunk) -> list[Transaction]:
    """Return the transactions of a chunk, from its bytes and from its marks."""
    split = CommandSplitter().feed(b"".join(bytes(piece) for piece in chunk.pieces()))
    assert split is not None
    words = [arguments(split.command(at, at)) for at in range(len(split.ends))]
    assert [*split.ends] == [*chunk.ends]
    found, begin = [], 0
    for at in chunk.execs:
        assert (words[begin], words[at]) == ((b"MULTI",), (b"EXEC",))
        parts = chunk.parts(at)
        assert [chunk.rows[part] for part in parts] == sorted(chunk.rows[part] for part in parts)
        assert len(chunk.elements(at)) == at - begin - 2
        rows = [chunk.rows[part] for part in parts]
        found.append(
            Transaction(
                chunk.lane, words[begin + 1 : at - 1], words[at - 1], rows, at in chunk.waits
            )
        )
        begin = at + 1
    assert begin == len(words)
    assert chunk.covered(len(words)) == chunk.commands
    return found


def gathered(
    rows: Sequence[tuple[bytes, ...]], ran: array[int], lanes: int, *, cluster: bool,
    merges: bool = False, start_row: int = 0, flush_every: int = 10**9, most: int = 5,
    template: str = "RPUSH {0} {1}", chunk_bytes: int = 500,
) -> list[list[Transaction]]:  # fmt: skip
    """Return the transactions of rows; everything gathered is flushed repeatedly."""
    keys = [b"{%s}" % tag for tag in tags()] if cluster else [b"m%d" % n for n in range(lanes)]
    batcher = Batcher(keys, PREFIX, most, 1 << 16, 1000)
    gatherer = Gatherer(
        batcher, ran, rules=Rules() if cluster else None,
        merger=Merger(1000, 65536, by_slot=cluster) if merges else None, start_row=start_row,
    )  # fmt: skip
    of_slots = [slot * lanes // SLOTS for slot in range(SLOTS)] if cluster else None
    router = Router(lanes, 300, 0, of_slots=of_slots, start_row=start_row)
    writer = Writer(Template(template), chunk_bytes=chunk_bytes, chunk_seconds=60)
    writer.start_at(start_row)
    found, made, count = [], 0, 0
    for chunk in writer.chunks(rows[start_row:]):
        for routed in router.route(chunk):
            gatherer.add(routed)
            count += 1
            if count % flush_every == 0:
                found.append(gatherer.flush())
    for routed in router.flush():
        gatherer.add(routed)
    found.append(gatherer.flush())
    total = 0
    for chunk in (each for flushed in found for each in flushed):
        assert chunk.first_command == made
        made += chunk.commands
        assert chunk.rows_after(chunk.commands) >= total
        total = chunk.rows_after(chunk.commands)
    return [[each for chunk in flushed for each in transactions(chunk)] for flushed in found]


KEYS = st.sampled_from([b"a", b"b", b"{a}c", b"key", b"k" * 30, b"x1", b"x2"])
VALUES = st.sampled_from([b"", b"1", b"v" * 60, b"x" * 3000, LARGE])


@pytest.mark.few(1)
@pytest.mark.parametrize("merges", [False, True])
@pytest.mark.parametrize("cluster", [False, True])
@settings(deadline=None, max_examples=20)
@given(
    rows=st.lists(st.tuples(KEYS, VALUES), min_size=1, max_size=60), lanes=st.integers(1, 5),
    start_row=st.integers(0, 3), ahead=st.lists(st.integers(0, 60), min_size=7, max_size=7),
    flush_every=st.integers(1, 20),
)  # fmt: skip
def test_each_row_once(
    rows: list[tuple[bytes, bytes]], lanes: int, start_row: int, ahead: list[int],
    flush_every: int, cluster: bool, merges: bool,
) -> None:  # fmt: skip
    """Rows that have not run according to their marker, in its order; each marker records them."""
    start_row = min(start_row, len(rows) - 1)
    number_of = [Rules().slot(pack("GET", key)) % (SLOTS if cluster else lanes) for key, _ in rows]
    ran = array("q", [start_row] * (SLOTS if cluster else lanes))
    for number, row in zip(dict.fromkeys(number_of), ahead, strict=False):
        ran[number] = max(row, start_row)
    found: dict[int, list[tuple[int, Words]]] = {}
    keys = {b"{%s}" % tag: slot for slot, tag in enumerate(tags())}
    for flushed in gathered(
        rows, ran, lanes, cluster=cluster, merges=merges, start_row=start_row,
        flush_every=flush_every,
    ):  # fmt: skip
        last: dict[int, int] = {}  # the marker of the last transaction of each lane
        for each in flushed:
            name, key, value = each.marker
            number = keys[key] if cluster else int(key[1:])
            assert (name, value) == (b"SET", PREFIX + b"%d" % (each.rows[-1] + 1))
            # It waits if it may follow a transaction with the same marker.
            assert each.waits == (last.get(each.lane) in (None, number))
            last[each.lane] = number
            items = [(key, item) for _, key, *items in each.commands for item in items]
            found.setdefault(number, []).extend(zip(each.rows, items, strict=True))
    expected: dict[int, list[tuple[int, Words]]] = {}
    for row, (number, words) in enumerate(zip(number_of, rows, strict=True)):
        if row >= ran[number]:
            expected.setdefault(number, []).append((row, words))
    assert found == expected


def test_many_rows_of_one_slot() -> None:
    """They are sent in several chunks; each continues its predecessor's marker."""
    rows = [(b"a", b"v" * 5_000)] * 300
    [flushed] = gathered(rows, array("q", bytes(8 * SLOTS)), 1, cluster=True, most=7)
    assert [row for each in flushed for row in each.rows] == [*range(300)]
    assert all(each.waits for each in flushed)


@pytest.mark.few(1)
@pytest.mark.parametrize("merges", [False, True])
@pytest.mark.parametrize("cluster", [False, True])
@settings(deadline=None, max_examples=15)
@given(
    keys=st.lists(st.tuples(KEYS, KEYS), min_size=1, max_size=20), lanes=st.integers(1, 3),
    size=st.sampled_from([1_001, 3_001, 60_001, 600_001]), most=st.sampled_from([1, 5, 2_000]),
    flush_every=st.sampled_from([1, 2, 7, 10**9]),
)  # fmt: skip
def test_rows_of_two_commands(
    keys: list[tuple[bytes, bytes]], lanes: int, size: int, most: int, flush_every: int,
    cluster: bool, merges: bool,
) -> None:  # fmt: skip
    """A marker never covers a row before both commands of the row with this marker have run."""
    # More than two of the chunks that transactions are put into.
    rows = [(*keys[row % len(keys)], b"%*d" % (size, row)) for row in range(1_200_000 // size + 1)]
    number_of = {
        key: Rules().slot(pack("GET", key)) % (SLOTS if cluster else lanes)
        for key in {key for pair in keys for key in pair}
    }
    numbers = {b"{%s}" % tag: slot for slot, tag in enumerate(tags())}
    expected: dict[int, list[tuple[int, bytes]]] = {}
    for row, words in enumerate(rows):
        for key in words[:2]:
            expected.setdefault(number_of[key], []).append((row, key))
    ran = array("q", bytes(8 * (SLOTS if cluster else lanes)))
    found: dict[int, list[tuple[int, bytes]]] = {}
    for flushed in gathered(
        rows, ran, lanes, cluster=cluster, merges=merges, most=most, flush_every=flush_every,
        template="RPUSH {0} {2}; RPUSH {1} {2}", chunk_bytes=1 << 20,
    ):  # fmt: skip
        for each in flushed:
            number = numbers[each.marker[1]] if cluster else int(each.marker[1][1:])
            there = found.setdefault(number, [])
            for _, key, *items in each.commands:
                there.extend((int(item), key) for item in items)
            reached = int(each.marker[2].removeprefix(PREFIX))
            assert sum(row < reached for row, _ in there) == sum(
                row < reached for row, _ in expected[number]
            )
    for number, commands in expected.items():
        for key in {key for _, key in commands}:
            assert [row for row, each in found[number] if each == key] == [
                row for row, each in commands if each == key
            ]


def test_nothing_follows_lost_commands() -> None:
    """After a failure no marker can cover later commands."""
    batcher = Batcher([b"m"], PREFIX, 5, 1 << 16, 1000)
    gatherer = Gatherer(batcher, array("q", [0]))
    [chunk] = Writer(Template("RPUSH {0} {1}")).chunks([(b"a", b"b")])
    [lost] = Writer(Template("RPUSH {0} {1}")).chunks([(b"a", b"b")])
    gatherer.add(lost)  # it belongs to no lane
    with pytest.raises(AssertionError, match="without a marker"):
        gatherer.flush()
    router = Router(1, 1, 0)
    for routed in router.route(chunk):
        gatherer.add(routed)
    assert gatherer.flush() == []
