"""Commands are distributed over lanes: none is lost, and the order of each key is kept."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fastresp import Template, Writer, pack
from fastresp.resp.buffer import Chunk
from fastresp.resp.merge import Merger
from fastresp.resp.route import Router
from fastresp.resp.slots import Rules
from fastresp.resp.split import arguments

Command = tuple[bytes, ...]
LARGE = b"v" * 200_000


def slot_of(command: bytes) -> int:
    """Return the slot of a command; argument 1 is the key of an unknown command."""
    number = Rules().slot(command)
    words = arguments(command)
    return Rules().slot(pack("GET", words[1])) if number == -2 and len(words) > 1 else number


def routed(
    rows: Iterable[Any],
    template: Template | None = None,
    *,
    lanes: int = 3,
    max_bytes: int = 1000,
    full_bytes: int = 0,
    chunk_bytes: int = 500,
) -> list[Chunk]:
    router = Router(lanes, max_bytes, full_bytes)
    found = []
    for chunk in Writer(template, chunk_bytes=chunk_bytes, chunk_seconds=60).chunks(rows):
        found += router.route(chunk)
    return found + router.flush()


def commands_of(chunk: Chunk) -> list[Command]:
    return [arguments(chunk.command(at, at)) for at in range(len(chunk.ends))]


def by_lane(chunks: Iterable[Chunk]) -> dict[int, list[tuple[int, Command]]]:
    """Return the commands of each lane, with their places in the source."""
    found: dict[int, list[tuple[int, Command]]] = {}
    for chunk in chunks:
        places = [chunk.place(at) for at in range(chunk.commands)]
        found.setdefault(chunk.lane, []).extend(zip(places, commands_of(chunk), strict=True))
    return found


KEYS = st.sampled_from([b"a", b"b", b"{a}c", b"key", b"k" * 30])
VALUES = st.sampled_from([b"", b"1", b"v" * 60, b"x" * 3000, LARGE])
COMMANDS = st.one_of(
    st.tuples(st.just(b"SET"), KEYS, VALUES),
    st.tuples(st.just(b"RPUSH"), KEYS, VALUES, VALUES),
    st.tuples(st.just(b"EVAL"), VALUES, st.just(b"1"), KEYS, VALUES),
    st.tuples(st.just(b"BOGUS"), VALUES),
    st.just((b"PING",)),
)


@settings(max_examples=100)
@given(
    st.lists(COMMANDS, max_size=60),
    st.integers(1, 5),
    st.sampled_from([1, 300, 10**6]),
    st.sampled_from([1, 400, 10**6]),
    st.sampled_from([0, 10**7]),
)
def test_random_commands(
    commands: list[Command], lanes: int, max_bytes: int, chunk_bytes: int, full_bytes: int
) -> None:
    chunks = routed(
        commands, lanes=lanes, max_bytes=max_bytes, chunk_bytes=chunk_bytes, full_bytes=full_bytes
    )
    found = by_lane(chunks)
    assert sorted(each for lane in found.values() for each in lane) == [*enumerate(commands)]
    for lane, listed in found.items():
        assert listed == sorted(listed)
        for _, command in listed:
            number = slot_of(pack(*command))
            assert lane == (number % lanes if number >= 0 else 0)
    made = 0
    for chunk in chunks:  # each chunk continues its predecessor
        assert chunk.first_command == made
        made += chunk.commands
        assert bytes(chunk) == b"".join(pack(*command) for command in commands_of(chunk))
        assert [*chunk.rows] == [chunk.place(at) for at in range(chunk.commands)]
        assert chunk.rows_after(chunk.commands) == made


def test_large_arguments_are_not_copied() -> None:
    value = b"v" * (3 << 20)
    chunks = routed([("SET", key, value, value) for key in "abc"], lanes=2)
    assert sum(chunk.memory for chunk in chunks) < 1 << 20
    assert len(by_lane(chunks)) == 2


def test_key_behind_a_large_argument() -> None:
    [(lane, _)] = by_lane(routed([("EVAL", LARGE, 1, "key")])).items()
    assert lane == slot_of(pack("GET", "key")) % 3


@pytest.mark.parametrize("end", ["EXEC", "DISCARD"])
def test_transactions_stay_together(end: str) -> None:
    template = Template(f"MULTI; PING; INCR {{0}}; INCR {{1}}; {end}; INCR {{1}}")
    rows = [(f"a{i}", f"b{i}") for i in range(200)]
    found = by_lane(routed(rows, template, chunk_bytes=3000))
    assert len(found) == 3
    for lane, listed in found.items():
        inside: list[bytes] = []
        for _, (name, *words) in listed:
            if name == b"MULTI":
                inside = [b"MULTI"]
            elif inside:
                inside.append(words[0] if words else name)
                if name == end.encode():
                    assert slot_of(pack("GET", inside[2])) % 3 == lane
                    assert inside[3] == b"b" + inside[2][1:]
                    inside = []
            else:
                assert slot_of(pack("GET", *words)) % 3 == lane
        assert not inside


@pytest.mark.parametrize("chunk_bytes", [1, 100, 1000])
def test_transactions_of_a_cluster(chunk_bytes: int) -> None:
    template = Template("MULTI; INCR {{{0}}}a; INCR {{{0}}}b; EXEC; DEL {0}")
    lanes = [number * 3 // 16384 for number in range(16384)]
    router = Router(3, 1000, 0, of_slots=lanes)
    chunks: list[Chunk] = []
    rows = [(i,) for i in range(300)]
    for chunk in Writer(template, chunk_bytes=chunk_bytes, chunk_seconds=60).chunks(rows):
        chunks += router.route(chunk)
    chunks += router.flush()
    assert router.error is None
    assert sum(chunk.commands for chunk in chunks) == 1500
    for lane, listed in by_lane(chunks).items():
        for _, command in listed:
            if len(command) > 1:
                assert lanes[slot_of(pack(*command))] == lane


def test_transaction_without_keys() -> None:
    assert [*by_lane(routed([("MULTI",), ("PING",), ("EXEC",), ("SET", "b", 1)]))] == [0]


def test_rows_without_commands_count() -> None:
    rows = [{"k": None if i % 3 else f"k{i}"} for i in range(31)]
    writer = Writer(Template("SET {k} 1; DEL {k}"), nulls="skip", chunk_seconds=60)
    router = Router(2, 1, 0)
    chunks = [made for chunk in writer.chunks(rows) for made in router.route(chunk)]
    chunks += router.flush()
    assert chunks[-1].rows_after(chunks[-1].commands) == 31
    assert sum(chunk.commands for chunk in chunks) == 22


def test_each_lane_is_merged() -> None:
    rows = [("RPUSH", f"key{i % 5}", i) for i in range(100)]
    router = Router(3, 10**6, 0, lambda: Merger(1000, 65536))
    assert not [
        each for chunk in Writer(chunk_seconds=60).chunks(rows) for each in router.route(chunk)
    ]
    chunks = router.flush()
    assert sum(chunk.commands for chunk in chunks) == 100
    found = {}
    for chunk in chunks:
        for at in range(len(chunk.ends)):
            for part in chunk.parts(at):
                found[chunk.place(part)] = arguments(chunk.command(at, part))
    assert found == {i: (b"RPUSH", b"key%d" % (i % 5), b"%d" % i) for i in range(100)}


def test_nothing_is_kept_after_a_small_chunk() -> None:
    router = Router(3, 10**6, 10**5)
    (chunk,) = Writer(chunk_seconds=60).chunks([("SET", key, 1) for key in "abcdef"])
    assert sum(each.commands for each in router.route(chunk)) == 6
    assert router.flush() == []
