"""CommandSplitter: RESP in any pieces is returned as whole commands, or refused at its offset."""

from __future__ import annotations

import re
import tracemalloc
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from reply_model import pieces_of

from fastresp import Chunk, EncodeError, ProtocolError, pack, pack_many
from fastresp.resp.split import CommandSplitter, arguments, beginning

COMMANDS = [
    ("SET", "a", b"\r\n$1\r\n*1\r\n"),
    ("PING",),
    ("SET", "", ""),
    ("MSET", *range(30)),
    ("CLIENT", "LIST"),
    ("SET", "large", b"v" * 300),
]


def commands_of(chunks: list[Chunk | None], first: int = 0) -> list[bytes]:
    """Return the commands of some chunks; check that their places are consecutive."""
    commands: list[bytes] = []
    for chunk in chunks:
        if chunk is None:
            continue
        assert chunk.first_command == first + len(commands)
        assert list(chunk.rows) == [chunk.first_command + i for i in range(len(chunk.ends))]
        assert chunk.ends[-1] == len(chunk)
        data = bytes(chunk)
        commands += [data[start:end] for start, end in pairwise([0, *chunk.ends])]
    return commands


@pytest.mark.parametrize("size", [1, 2, 3, 5, 7, 22, 23, 64, 100])
def test_pieces_of_a_size(size: int) -> None:
    data = pack_many(COMMANDS * 2)
    splitter = CommandSplitter()
    chunks = [splitter.feed(piece) for piece in pieces_of(data, list(range(size, len(data), size)))]
    assert commands_of(chunks) == [pack(*command) for command in COMMANDS * 2]
    assert splitter.pending == 0


def test_every_cut_in_two() -> None:
    data = pack_many(COMMANDS)
    ends = [0]
    for command in COMMANDS:
        ends.append(ends[-1] + len(pack(*command)))
    for cut in range(len(data) + 1):
        splitter = CommandSplitter()
        first = splitter.feed(data[:cut])
        # Whole commands are returned immediately, and the rest is kept.
        whole = max(end for end in ends if end <= cut)
        assert (0 if first is None else len(first)) == whole
        assert splitter.pending == cut - whole
        second = splitter.feed(data[cut:])
        assert commands_of([first, second]) == [pack(*command) for command in COMMANDS]
        assert splitter.pending == 0


def test_pending_and_empty_pieces() -> None:
    splitter = CommandSplitter()
    assert splitter.pending == 0
    assert splitter.feed(b"") is None
    assert splitter.feed(b"*2\r\n$3\r\nGET\r\n") is None
    assert splitter.pending == 13
    assert splitter.feed(b"") is None
    assert splitter.feed(b"$1\r\na\r") is None
    assert splitter.pending == 19
    chunk = splitter.feed(b"\n*1\r\n")
    assert chunk is not None
    assert bytes(chunk) == pack("GET", "a")
    assert splitter.pending == 4


def test_large_argument_in_pieces() -> None:
    data = pack("SET", "k", b"0123456789" * 300_000)
    splitter = CommandSplitter()
    chunks = [splitter.feed(piece) for piece in pieces_of(data, list(range(0, len(data), 65536)))]
    assert chunks[:-1] == [None] * (len(chunks) - 1)
    assert commands_of(chunks) == [data]


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_kinds_of_bytes(kind: type) -> None:
    chunk = CommandSplitter().feed(kind(pack("GET", "a")))
    assert chunk is not None
    assert bytes(chunk) == pack("GET", "a")


def test_not_bytes() -> None:
    with pytest.raises(TypeError):
        CommandSplitter().feed("*1\r\n$4\r\nPING\r\n")  # type: ignore[arg-type]


@pytest.mark.parametrize("data", [b"*01\r\n$4\r\nPING\r\n", b"*1\r\n$04\r\nPING\r\n"])
def test_leading_zeros(data: bytes) -> None:
    """A server refuses them, and closes the connection."""
    with pytest.raises(ProtocolError, match="an invalid number"):
        CommandSplitter().feed(data)


GOOD = pack("SET", "a", "b")

# Malformed bytes after one whole command, the fault's place in them, and its message.
MALFORMED = [
    (b"PING\r\n", 0, r"expected '\*' and found b'PING\\r\\n'"),
    (b"\r\r\n", 0, r"expected '\*' and found b'\\r\\r"),
    (b" \r\n", 0, r"expected '\*' and found b' "),
    (b"\n\r\nPING\r\n", 3, r"expected '\*' and found b'PING"),
    (b"*1\r\n\r\n$4\r\nPING\r\n", 4, r"expected '\$' and found b'\\r"),
    (b"*1\r\n\n$4\r\nPING\r\n", 4, r"expected '\$' and found b'\\n"),
    (b"*2\r\n$65537\r\n", 0, "a command name of 65,537 bytes is too long"),
    (b"$4\r\nPING\r\n", 0, r"expected '\*' and found b'\$4"),
    (b"+OK\r\n", 0, r"expected '\*'"),
    (b"*1\r\nPING\r\n", 4, r"expected '\$' and found b'PING"),
    (b"*2\r\n$3\r\nGET\r\n*1\r\n", 13, r"expected '\$' and found b'\*1"),
    (b"*1\r\n:4\r\n", 4, r"expected '\$'"),
    (b"*0\r\n", 0, "an empty array is not a command and gets no reply"),
    (b"*-1\r\n", 0, "this header has an invalid number"),
    (b"*\r\n", 0, "this header has an invalid number"),
    (b"*x\r\n", 0, "this header has an invalid number"),
    (b"*1\n", 0, "the line .* ends in LF"),
    (b"*1\rx\n", 0, "this header has an invalid number"),
    (b"* 1\r\n", 0, "this header has an invalid number"),
    (b"*1\r\n$-1\r\n", 4, "this header has an invalid number"),
    (b"*1\r\n$+4\r\nPING\r\n", 4, "this header has an invalid number"),
    (b"*1234567890123456789\r\n", 0, "this header has an invalid number"),
    (b"*" + b"1" * 30, 0, "this header does not end"),
    (b"*1\r\n$3\r\nPING\r\n", 11, "an argument is longer than its header says"),
    (b"*1\r\n$5\r\nPING\r\n\r\n", 13, "an argument is longer than its header says"),
    (b"*1\r\n$4\r\nPING\n\n", 12, "an argument is longer than its header says"),
]


@pytest.mark.parametrize(("data", "at", "message"), MALFORMED)
def test_malformed(data: bytes, at: int, message: str) -> None:
    whole = CommandSplitter()
    assert commands_of([whole.feed(GOOD + data)]) == [GOOD]
    with pytest.raises(ProtocolError, match=f"not RESP commands: {message}") as caught:
        whole.feed(b"")
    assert caught.value.offset == len(GOOD) + at
    # Fed as single bytes, the earlier command is returned, and the fault has the same offset.
    splitter = CommandSplitter()
    chunks = [splitter.feed(GOOD)]
    with pytest.raises(ProtocolError) as caught:
        chunks += [splitter.feed(data[i : i + 1]) for i in range(len(data))]
    assert caught.value.offset == len(GOOD) + at
    assert commands_of(chunks) == [GOOD]


@pytest.mark.parametrize("data", [each[0] for each in MALFORMED])
def test_an_error_is_permanent(data: bytes) -> None:
    splitter = CommandSplitter()
    with pytest.raises(ProtocolError) as first:
        splitter.feed(data)
    for more in (b"", b"\r\n", GOOD, b""):
        with pytest.raises(ProtocolError) as again:
            splitter.feed(more)
        assert again.value.offset == first.value.offset


def resp(*arguments: bytes) -> bytes:
    """Return RESP that pack would refuse to make."""
    return b"*%d\r\n" % len(arguments) + b"".join(b"$%d\r\n%b\r\n" % (len(a), a) for a in arguments)


@pytest.mark.parametrize(
    "command",
    [(b"MONITOR",), (b"subscribe", b"c"), (b"Client", b"Reply", b"OFF"), (b"PSYNC", b"?", b"-1")],
)
def test_refused_command(command: tuple[bytes, ...]) -> None:
    splitter = CommandSplitter()
    assert splitter.feed(GOOD) is not None
    with pytest.raises(EncodeError, match=r"^command 2: .* changes the reply stream") as caught:
        assert splitter.feed(GOOD + resp(*command)) is not None
        splitter.feed(b"")
    assert caught.value.command == 2
    with pytest.raises(EncodeError, match=r"^command 2: "):
        splitter.feed(GOOD)


@given(
    st.lists(st.lists(st.binary(max_size=40), max_size=5).map(lambda each: [b"SET", *each])),
    st.data(),
)
def test_round_trip(commands: list[list[bytes]], data: st.DataObject) -> None:
    stream = pack_many(commands)
    cuts = data.draw(st.lists(st.integers(0, len(stream)), max_size=20))
    splitter = CommandSplitter()
    chunks = [splitter.feed(piece) for piece in pieces_of(stream, cuts)]
    assert commands_of(chunks) == [pack(*command) for command in commands]
    assert splitter.pending == 0


@pytest.mark.parametrize("command", COMMANDS)
def test_arguments(command: tuple[object, ...]) -> None:
    texts = [each if isinstance(each, bytes) else str(each).encode() for each in command]
    assert arguments(pack(*command)) == tuple(texts)
    assert arguments(memoryview(pack(*command)), 2) == tuple(texts[:2])


def test_the_beginning_of_a_command() -> None:
    command = pack("SET", "k" * 9, "v" * 99)
    assert beginning(command, 9, 4) == (3, [(b"SET", 3), (b"kkkk", 9), (b"vvvv", 99)])
    for end in range(4, len(command)):
        count, found = beginning(command[:end], 2, 1000)
        assert count == 3
        assert len(found) <= 2
        for (text, size), whole in zip(found, (b"SET", b"k" * 9), strict=False):
            assert whole.startswith(text)
            assert size == len(whole)


@pytest.mark.parametrize("data", [b"", b"*", b"*3", b"PING\r\n", b"*1" * 20])
def test_beginning_of_invalid_commands(data: bytes) -> None:
    with pytest.raises(ValueError, match="this is not a RESP command"):
        beginning(data, 9, 9)


LINES = st.lists(st.sampled_from([b"\n", b"\r\n"]), max_size=3).map(b"".join)


@given(st.lists(st.tuples(LINES, st.sampled_from(COMMANDS))), LINES, st.data())
def test_empty_lines(
    commands: list[tuple[bytes, tuple[object, ...]]], end: bytes, data: st.DataObject
) -> None:
    """Like a server, ignore them before, between and after commands."""
    stream = b"".join(lines + pack(*command) for lines, command in commands) + end
    cuts = data.draw(st.lists(st.integers(0, len(stream)), max_size=20))
    for only_look in (False, True):
        splitter = CommandSplitter(only_look=only_look)
        chunks = [splitter.feed(piece) for piece in pieces_of(stream, cuts)]
        assert commands_of(chunks) == [pack(*command) for _, command in commands]
        assert splitter.pending == 0
        if commands:
            assert splitter.whole == len(stream) - len(end)
            assert splitter.last == splitter.whole - len(pack(*commands[-1][1]))


def test_endless_empty_lines() -> None:
    tracemalloc.start()
    try:
        splitter = CommandSplitter()
        for _ in range(100):
            splitter.feed(b"\r\n" * 50_000)
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
        with pytest.raises(ProtocolError) as caught:
            splitter.feed(b"x")
        assert caught.value.offset == 10_000_000
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("size", [99, 65_536, 10_000_000])
def test_only_look(size: int) -> None:
    """The beginning of a large command is kept, and all offsets are right."""
    commands = [
        ("SET", "a", "b"),
        ("SET", "k", b"x" * 200_000),
        ("CLIENT", "SETNAME", "x" * 100_000, "y" * 100_000),
        ("MSET", *range(20_000)),
        ("get", "k"),
        ("N" * 65_536, b"z" * 90_000),
        ("GET", "z"),
    ]
    stream = pack_many(commands)
    splitter = CommandSplitter(only_look=True, count_names=True)
    held = 0
    for at in range(0, len(stream), size):
        chunk = splitter.feed(stream[at : at + size])
        held = max(held, splitter.pending)
        if chunk is not None:
            assert stream[splitter.last : splitter.whole].startswith(
                bytes(chunk)[chunk.ends[-2] if len(chunk.ends) > 1 else 0 :][:5000]
            )
    assert held < 80_000
    assert (splitter.whole, splitter.pending) == (len(stream), 0)
    assert splitter.last == len(stream) - len(pack("GET", "z"))
    assert splitter.names["GET"] == 2
    assert splitter.largest == 200_000
    bad = CommandSplitter(only_look=True)
    with pytest.raises(ProtocolError, match="longer than its header says") as caught:
        for at in range(0, len(stream), size):
            bad.feed(stream[:-2][at : at + size])
        bad.feed(b"xx")
    assert caught.value.offset == len(stream) - 2


def without_empty_lines(stream: bytes) -> bytes:
    """Return the commands without the empty lines between them, by a slow parser."""
    left = at = 0
    pieces = []
    while left < len(stream):
        while stream[at:].startswith((b"\n", b"\r\n")):
            at += 1 if stream[at] == 10 else 2
        left = at
        header = re.match(rb"\*([1-9][0-9]*)\r\n", stream[at:])
        if header is None:
            break
        at += header.end()
        for _ in range(int(header[1])):
            length = re.match(rb"\$(0|[1-9][0-9]*)\r\n", stream[at:])
            if length is None or at + length.end() + int(length[1]) + 2 > len(stream):
                return b"".join(pieces) + stream[left:]
            at += length.end() + int(length[1]) + 2
        pieces.append(stream[left:at])
        left = at
    return b"".join(pieces) + stream[left:]


@given(st.binary(), st.integers(0, 200))
def test_any_bytes(noise: bytes, at: int) -> None:
    """Damaged RESP is returned whole, kept, or refused: nothing is lost or added."""
    stream = pack_many(COMMANDS)[:at] + noise
    plain = without_empty_lines(stream)
    splitter = CommandSplitter()
    taken = b""
    try:
        for i in range(len(stream)):
            chunk = splitter.feed(stream[i : i + 1])
            taken += b"" if chunk is None else bytes(chunk)
        assert len(taken) + splitter.pending == len(plain)
    except (ProtocolError, EncodeError):
        assert len(taken) < len(stream)
    assert plain.startswith(taken)
