"""Commands become calls of a script: none is lost, duplicated, or out of order."""

from __future__ import annotations

from array import array

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fastresp import CheckpointError, Template, Writer
from fastresp.resp.merge import Merger
from fastresp.resp.split import CommandSplitter, arguments
from fastresp.resp.transactions import BatchedChunk, Batcher

Words = list[bytes]
PREFIX = b"fence:"
LARGE = b"v" * 600_000
VALUES = st.sampled_from([b"", b"1", b"\r\n$3\r\n", b"x" * 3000, LARGE])


def called(chunk: BatchedChunk) -> list[tuple[Words, list[Words], Words]]:
    """Return each call's parts: before its commands, the commands, and after them."""
    split = CommandSplitter().feed(b"".join(bytes(piece) for piece in chunk.pieces()))
    assert split is not None
    assert [*split.ends] == [*chunk.ends]
    assert [*chunk.execs] == [*range(len(split.ends))]
    assert not chunk.waits
    found = []
    for at in range(len(split.ends)):
        words = [*arguments(split.command(at, at))]
        before, rest, commands = words[:5], words[5:], []
        while len(rest) > 1:
            count = int(rest[0])
            commands.append(rest[1 : count + 1])
            rest = rest[count + 1 :]
        assert len(commands) == len(chunk.elements(at))
        found.append((before, commands, rest))
    return found


@pytest.mark.parametrize("merges", [False, True])
@settings(deadline=None)
@given(
    rows=st.lists(st.tuples(st.sampled_from([b"a", b"b"]), VALUES), min_size=1, max_size=50),
    begin=st.sampled_from([0, 7, 99_999]),
    most=st.integers(1, 12),
)
def test_each_row_once(
    rows: list[tuple[bytes, bytes]], begin: int, most: int, merges: bool
) -> None:
    """Each call expects the value set by its predecessor."""
    batcher = Batcher(
        [b"m"], PREFIX, most, 1 << 16, 1000, script=b"the script", reached=array("q", [begin])
    )
    writer = Writer(Template("RPUSH {0} {1}"), chunk_bytes=500, chunk_seconds=60)
    merger = Merger(1000, 65536)
    stored: list[tuple[bytes, bytes]] = []
    value = PREFIX + b"%d" % begin
    writer.start_at(begin)
    for chunk in writer.chunks(rows):
        for before, commands, [after] in called(
            batcher.batch(merger.merge(chunk) if merges else chunk)
        ):
            assert before == [b"EVAL", b"the script", b"1", b"m", value]
            assert len(commands) <= most
            for name, key, *items in commands:
                assert name == b"RPUSH"
                stored += [(key, item) for item in items]
            value = after
            assert value == PREFIX + b"%d" % (begin + len(stored))
    assert stored == rows
    assert batcher.reached == array("q", [begin + len(rows)])


def test_too_many_arguments() -> None:
    batcher = Batcher([b"m"], b"", 100, 1 << 16, 1000, script=b"s", reached=array("q", [0]))
    for count, error in ((6_998, ""), (6_999, "row 1 has a command of 7,001 arguments")):
        [chunk] = Writer(Template("RPUSH k {*v}")).chunks([{"v": [1]}, {"v": range(count)}])
        if error:
            with pytest.raises(CheckpointError, match=error):
                batcher.batch(chunk)
        else:
            [(_, commands, _)] = called(batcher.batch(chunk))
            assert [len(words) for words in commands] == [3, 7_000]


def test_a_script_needs_the_rows() -> None:
    with pytest.raises(ValueError, match="needs the rows that each marker has reached"):
        Batcher([b"m", b"n"], b"", 1, 1, 1000, script=b"s", reached=array("q", [0]))
