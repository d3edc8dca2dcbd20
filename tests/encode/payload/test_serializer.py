"""Chunks of commands as chunks of finished values: the account of replies, and refused commands."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import pytest
from places import SUPPORT
from random_values import words_of

import fastresp
from fastresp.encode.payload.format import Format
from fastresp.encode.payload.serializer import Serializer
from fastresp.encode.template import Template
from fastresp.encode.writer import Writer
from fastresp.resp.buffer import Chunk
from fastresp.resp.merge import Merger

MOST = 1 << 30
LARGE = b"x" * (600 << 10)  # larger than a chunk; the writer does not copy it
HASH, LIST, SET = ["HSET", "h", "f", "v"], ["RPUSH", "l", "a"], ["SADD", "s", "a"]


def serialized(
    commands: Sequence[Any], *, chunk_bytes: int = 1 << 19, template: Any = None, **options: Any
) -> tuple[Serializer, list[Chunk]]:
    """Return a serializer that read all commands, and its chunks."""
    serializer = Serializer(Format(11), **({"max_bytes": MOST} | options))
    chunks: list[Chunk] = []
    for chunk in Writer(template, chunk_bytes=chunk_bytes, chunk_seconds=60).chunks(commands):
        chunks += serializer.serialize(chunk)
    return serializer, chunks + serializer.finish()


def keys_of(chunks: Sequence[Chunk]) -> list[bytes]:
    """Return the keys of the commands in chunks."""
    return [words[1] for chunk in chunks for words in words_of(bytes(chunk))]


def check_account(chunks: Sequence[Chunk], commands: Sequence[bytes], rows: Sequence[int]) -> None:
    """Check that each reply covers the next commands, and has their rows."""
    index = 0
    for chunk in chunks:
        lasts = [chunk.covered(replies) for replies in range(1, len(chunk.ends) + 1)]
        assert list(chunk.lasts) == lasts
        assert chunk.first_command == index
        assert chunk.covered(0) == 0 and lasts[-1] == chunk.commands == len(chunk.rows)
        assert list(chunk.rows) == list(rows[index : index + chunk.commands])
        assert chunk.ends[-1] == len(chunk) == len(bytes(chunk))
        for at, (first, last) in enumerate(pairwise([0, *lasts])):
            assert first < last
            assert chunk.parts(at) == range(first, last)
            for part in range(first, last):
                assert chunk.command(at, part) == commands[index + part]
        for count in range(chunk.commands + 1):
            assert chunk.within(count) == sum(last <= count for last in lasts)
        index += chunk.commands
    assert index == len(commands)


@pytest.mark.parametrize("chunk_bytes", [1, 50, 300, 1 << 19])
@pytest.mark.parametrize("rows_per_key", [1, 3, 40])
def test_account(chunk_bytes: int, rows_per_key: int) -> None:
    """Keys begin and end in the middle of a chunk."""
    commands = [
        ["HSET", f"k{i // rows_per_key}", f"f{i}", "v" * (i % 50), "g", i] for i in range(200)
    ]
    serializer, chunks = serialized(commands, chunk_bytes=chunk_bytes)
    assert serializer.error is None
    check_account(chunks, [fastresp.pack(*command) for command in commands], range(200))
    _, others = serialized(commands)
    assert b"".join(map(bytes, chunks)) == b"".join(map(bytes, others))
    assert serializer.key_count == -(-200 // rows_per_key) == len(keys_of(chunks))


@pytest.mark.parametrize("chunk_bytes", [1, 200, 1 << 19])
def test_account_of_several_commands_a_row(chunk_bytes: int) -> None:
    template = Template("HSET {k} f {v}", "EXPIRE {k} 100")
    rows = [{"k": f"k{i // 3}", "v": i} for i in range(50)]
    serializer, chunks = serialized(rows, chunk_bytes=chunk_bytes, template=template)
    assert serializer.error is None and serializer.key_count == 17
    commands = [
        words
        for row in rows
        for words in (
            fastresp.pack("HSET", row["k"], "f", row["v"]),
            fastresp.pack("EXPIRE", row["k"], "100"),
        )
    ]
    check_account(chunks, commands, [i // 2 for i in range(100)])
    for chunk in chunks:
        for words in words_of(bytes(chunk)):
            assert words[0] == b"RESTORE" and words[2] == b"100000"


@pytest.mark.parametrize("chunk_bytes", [1, 1 << 19])
def test_large_arguments(chunk_bytes: int) -> None:
    """The chunks have their own copies."""
    commands = [HASH, ["HSET", "h", "g", LARGE], ["SET2", "x"], LIST]
    commands[2:3] = [["SADD", "s", LARGE, b"a"], ["SADD", "s", LARGE[:-1]], ["SADD", "s2", "1"]]
    assert any(len(chunk.pieces()) > 1 for chunk in Writer().chunks(commands))
    serializer, chunks = serialized(commands, chunk_bytes=chunk_bytes)
    assert serializer.error is None
    check_account(chunks, [fastresp.pack(*command) for command in commands], range(6))
    assert keys_of(chunks) == [b"h", b"s", b"s2", b"l"]
    assert b"".join(map(bytes, chunks)).count(LARGE) == 2


def test_replies_cover_all_chunks() -> None:
    """A key spread over many chunks is in one chunk, with all of its commands."""
    commands = [["RPUSH", "l", f"{i}" * 9] for i in range(5000)]
    serializer, [chunk, _] = serialized([*commands, SET], chunk_bytes=100)
    assert serializer.key_count == 2 and len(chunk.ends) == 1
    assert chunk.parts(0) == range(5000)
    assert chunk.memory > 100_000  # its content counts


@pytest.mark.parametrize("replace", ["error", "replace", "skip"])
def test_exists(replace: Any) -> None:
    _, [chunk] = serialized([HASH], exists=replace)
    [words] = words_of(bytes(chunk))
    assert words[:3] == [b"RESTORE", b"h", b"0"]
    assert words[4:] == ([b"REPLACE"] if replace == "replace" else [])


@pytest.mark.parametrize(
    ("commands", "ttl"),
    [
        ([HASH], b"0"),
        ([HASH, ["EXPIRE", "h", 10]], b"10000"),
        ([HASH, ["pexpire", "h", 10]], b"10"),
        ([HASH, ["PEXPIRE", "h", 10], HASH], b"10"),
        ([HASH, ["EXPIRE", "h", 99], HASH, ["EXPIRE", "h", "007"]], b"7000"),
        ([HASH, ["EXPIRE", "h", "9" * 14]], b"9" * 14 + b"000"),
    ],
)
def test_time_to_live(commands: list[list[Any]], ttl: bytes) -> None:
    serializer, [chunk] = serialized(commands)
    assert serializer.error is None
    [words] = words_of(bytes(chunk))
    assert words[2] == ttl


def test_expire_of_a_key_not_in_the_load() -> None:
    """EXPIRE is sent unchanged, in its place."""
    commands = [["EXPIRE", "x", 0], HASH, ["PEXPIRE", "y", 5, "NX"], ["SADD", "y", 1], LIST]
    serializer, chunks = serialized(commands)
    assert serializer.error is None and serializer.key_count == 3
    check_account(chunks, [fastresp.pack(*command) for command in commands], range(5))
    words = [words for chunk in chunks for words in words_of(bytes(chunk))]
    assert [each[:2] for each in words] == [
        [b"EXPIRE", b"x"], [b"RESTORE", b"h"], [b"PEXPIRE", b"y"], [b"RESTORE", b"y"],
        [b"RESTORE", b"l"],
    ]  # fmt: skip
    assert words[0][2:] == [b"0"] and words[2][2:] == [b"5", b"NX"]


PLAIN = "is not a plain decimal number, which a score must be here"
ABOVE_0 = "needs one plain number above 0"
TOGETHER = "is made by commands that can't be combined"
# Earlier commands, the index of the refused command, and the error.
REFUSED: dict[str, tuple[list[list[Any]], int, str]] = {
    "another command": ([["INCR", "x"]], 0, '"INCR" does not make a hash, list, set or sorted set'),
    "a command without a key": ([["PING"]], 0, '"PING" does not make a hash'),
    "a string": ([["SET", "x", "1"]], 0, '"SET" does not make a hash'),
    "odd": ([["HSET", "h", "f"]], 0, '"HSET" has 1 argument after the key'),
    "odd of many": ([["HMSET", "h", *"fvf"]], 0, '"HMSET" has 3 arguments after the key'),
    "no fields": ([["HSET", "h"]], 0, '"HSET" has 0 arguments after the key'),
    "no members": ([["SADD", "h"]], 0, '"SADD" has 0 arguments after the key'),
    "no elements": ([LIST, ["RPUSH", "l"]], 1, '"RPUSH" has 0 arguments after the key'),
    "odd scores": ([["ZADD", "z", 1, "m", 2]], 0, '"ZADD" has 3 arguments after the key'),
    "an option": ([["ZADD", "z", "NX", 1, "m"]], 0, '"ZADD" has 3 arguments after the key'),
    "two options": ([["ZADD", "z", "GT", "CH", 1, "m"]], 0, f'"GT" {PLAIN}'),
    "a second score": ([["ZADD", "z", 1, "m", "x", "n"]], 0, f'"x" {PLAIN}'),
    "EXPIRE 0": ([HASH, ["EXPIRE", "h", 0]], 1, f'"EXPIRE" {ABOVE_0}'),
    "EXPIRE -1": ([HASH, ["EXPIRE", "h", -1]], 1, f'"EXPIRE" {ABOVE_0}'),
    "EXPIRE NX": ([HASH, ["EXPIRE", "h", 9, "NX"]], 1, f'"EXPIRE" {ABOVE_0}'),
    "EXPIRE of nothing": ([HASH, ["PEXPIRE", "h"]], 1, f'"PEXPIRE" {ABOVE_0}'),
    "two types": ([HASH, ["SADD", "h", "a"]], 1, f'key "h" {TOGETHER}'),
    "two ends": ([LIST, LIST, ["LPUSH", "l", "a"]], 2, f'key "l" {TOGETHER}'),
    "again": ([HASH, LIST, HASH], 2, 'row 2 and row 4 make the same key, "h", with other keys'),
    "again, later": ([HASH, HASH, LIST, SET, HASH], 4, 'row 2 and row 6 make the same key, "h"'),
    "again, another type": ([HASH, LIST, ["SADD", "h", "a"]], 2, "row 2 and row 4 make"),
    "again after EXPIRE": ([HASH, ["EXPIRE", "x", 1], HASH], 2, "row 2 and row 4 make"),
}
SCORES = ["nan", "-nan", "0x10", "1e400", "", " 1", "1 ", ".5", "5.", "1E5", "1_0", "1,5", "e5",
          "infinity", "Inf", "--1", "1e", "1\0", "9" * 41, "1.7976931348623159e308", "18e307",
          "1e309", "1e-324", "0.04e-322", "0e100", "1e0100"]  # fmt: skip
for each in SCORES:
    REFUSED[f"score {each!r}"] = ([["ZADD", "z", each, "m"]], 0, PLAIN)
for each in ("+5", "1.5", "", " 5", "5 ", "00", "9" * 15, "-0"):
    REFUSED[f"EXPIRE {each!r}"] = ([HASH, ["EXPIRE", "h", each]], 1, ABOVE_0)


@pytest.mark.parametrize("chunk_bytes", [1, 1 << 19])
@pytest.mark.parametrize("case", REFUSED)
def test_refused(case: str, chunk_bytes: int) -> None:
    """The error has the row and the command, and ends the load; earlier keys are kept."""
    commands, at, words = REFUSED[case]
    before = [["SADD", "one", 1], ["SADD", "two", 1]]
    after = [["SADD", "later", 1], ["SADD", "last", 1]]
    serializer, chunks = serialized([*before, *commands, *after], chunk_bytes=chunk_bytes)
    error = serializer.error
    assert isinstance(error, fastresp.EncodeError)
    assert words in str(error)
    assert str(error).startswith(f"row {at + 2}, command {at + 2}: ")
    assert (error.row, error.command) == (at + 2, at + 2)
    # The open key is dropped if the refused command has this key.
    kept = [b"one", b"two"]
    kept += dict.fromkeys(command[1].encode() for command in commands[:at])
    if [key.decode() for key in kept[-1:]] == commands[at][1:2]:
        kept.pop()
    assert keys_of(chunks) == kept
    assert serializer.key_count == sum(key != b"x" for key in kept)  # EXPIRE makes none
    assert serializer.serialize(None) == serializer.finish() == []


def test_nothing_is_read_after_an_error() -> None:
    serializer, _ = serialized([["PING"]])
    [chunk] = Writer().chunks([SET])
    assert serializer.serialize(chunk) == []
    assert serializer.key_count == 0


def test_value_larger_than_the_limit_of_an_argument() -> None:
    """The key itself is dropped; earlier keys are kept."""
    commands = [SET, ["SADD", "large", *range(1000)], LIST]
    serializer, chunks = serialized(commands, max_argument=1000)
    assert isinstance(serializer.error, fastresp.EncodeError)
    assert 'the value of key "large" has 2,885 bytes' in str(serializer.error)
    assert (serializer.error.row, serializer.error.command) == (1, 1)
    assert keys_of(chunks) == [b"s"]


def test_value_too_large_for_an_rdb_file() -> None:
    commands = [SET, *(["RPUSH", "l", f"{i}" * 100] for i in range(100))]
    serializer, chunks = serialized(commands, max_bytes=5000, chunk_bytes=1000)
    assert isinstance(serializer.error, fastresp.EncodeError)
    assert 'key "l" is too large for an RDB file: its items have more than 5,000 bytes' in str(
        serializer.error
    )
    assert serializer.error.row == serializer.error.command
    assert keys_of(chunks) == [b"s"]


@pytest.mark.parametrize("refused", [False, True])
def test_large_value_is_continued_by_commands(refused: bool) -> None:
    """The rest of a large key waits for the reply, and then is sent as merged commands."""
    commands = [SET, *(["RPUSH", "l", f"{i:05}"] for i in range(400)), HASH]
    serializer = Serializer(Format(11), max_bytes=1000, merger=Merger(100, 65536))
    chunks: list[Chunk] = []
    waited = 0
    for chunk in Writer(chunk_bytes=500).chunks(commands):
        chunks += serializer.serialize(chunk)
        if chunks and chunks[-1].fence and not waited:
            assert serializer.serialize(None) == [] == serializer.finish()
            waited = len(chunks)
            chunks[-1].refused, chunks[-1].answered = refused, True
            chunks += serializer.serialize(None)
    while fences := [chunk for chunk in chunks[waited:] if chunk.fence]:
        waited = len(chunks)
        fences[-1].refused, fences[-1].answered = refused, True
        chunks += serializer.serialize(None)
    chunks += serializer.finish()
    assert serializer.error is None
    check_account(chunks, [fastresp.pack(*each) for each in commands], range(402))
    words = [words for chunk in chunks for words in words_of(bytes(chunk)) if words[1] == b"l"]
    assert {each[0] for each in words} == ({b"RESTORE"} if refused else {b"RESTORE", b"RPUSH"})


def test_arguments_of_the_constructor() -> None:
    with pytest.raises(TypeError):
        Serializer(None, max_bytes=MOST)  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        Serializer(Format(11))  # type: ignore[call-arg]
    with pytest.raises(ValueError, match="rdb_version must be 9 or more, not 8"):
        Format(8)


# Keys with a value, or with arguments, too large for the remaining memory.
NO_MEMORY = """
import resource, sys
from fastresp.encode.payload.format import Format
from fastresp.encode.payload.serializer import Serializer
from fastresp.encode.writer import Writer
from random_values import words_of

kind, room = sys.argv[1], int(sys.argv[2])
large = {
    "value": [["SADD", "large", b"x" * 100_000 + b"%d" % i] for i in range(300)],
    "words": [["RPUSH", "large", *[b""] * 1000] for i in range(1500)],
    "keys": [["SADD", b"%d" % i, b"1"] for i in range(400_000)],
}[kind]
chunks = list(Writer().chunks([["SADD", "first", "1"], *large]))
serializer = Serializer(Format(11), max_bytes=1 << 40)
used = int(open("/proc/self/statm").read().split()[0]) * 4096
resource.setrlimit(resource.RLIMIT_AS, (used + room, resource.RLIM_INFINITY))
found = []
for chunk in chunks:
    found += serializer.serialize(chunk)
found += serializer.finish()
resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
assert isinstance(serializer.error, MemoryError), serializer.error
keys = [words[1] for chunk in found for words in words_of(bytes(chunk))]
assert keys[:1] in ([], [b"first"]), keys
assert len(keys) == serializer.key_count, (len(keys), serializer.key_count)
assert b"large" not in keys
"""


@pytest.mark.few(1)
@pytest.mark.parametrize("kind", ["value", "words", "keys"])
@pytest.mark.parametrize("room", [0, 3 << 20, 8 << 20])
def test_no_memory(kind: str, room: int) -> None:
    subprocess.run(
        [sys.executable, "-c", NO_MEMORY, kind, str(room)], check=True, timeout=100,
        env={"PYTHONPATH": f"{SUPPORT}:{SUPPORT.parents[1]}", "GLIBC_TUNABLES": ""},
    )  # fmt: skip
