"""redis-py with our packer: the same bytes as its own."""

from __future__ import annotations

import enum
import threading
from array import array
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import redis
import redis.asyncio
from hypothesis import given, settings
from hypothesis import strategies as st
from redis.connection import Connection, HiredisRespSerializer, PythonRespSerializer

from fastresp.redis_py import CommandPacker, fast

PLAIN = Connection()
SERIALIZER = PythonRespSerializer(6000, PLAIN.encoder.encode)


def theirs(*args: Any) -> bytes:
    """Return what redis-py's own packer makes."""
    return b"".join(map(bytes, SERIALIZER.pack(*args)))


def ours(*args: Any) -> bytes:
    return b"".join(CommandPacker().pack(*args))


names = st.one_of(
    st.sampled_from(
        ["SET", "CONFIG GET", b"CONFIG GET", b"GET", " a  b ", "a\tb", b"a\tb", "", b""]
    ),
    st.text(max_size=8),
    st.binary(max_size=8),
)
values = st.one_of(
    st.text(max_size=50), st.binary(max_size=50), st.integers(), st.floats(),
    st.binary(max_size=20).map(bytearray), st.binary(max_size=20).map(memoryview),
)  # fmt: skip


@pytest.mark.slow
@settings(max_examples=1000)
@given(name=names, args=st.lists(values, max_size=6))
def test_same_bytes(name: Any, args: list[Any]) -> None:
    assert ours(name, *args) == theirs(name, *args)


@pytest.mark.slow
@settings(max_examples=300)
@given(name=names, args=st.lists(values, max_size=6))
def test_same_bytes_as_with_hiredis(name: Any, args: list[Any]) -> None:
    assert ours(name, *args) == b"".join(HiredisRespSerializer().pack(name, *args))


@pytest.mark.slow
@settings(max_examples=200)
@given(commands=st.lists(st.tuples(names, values, values), max_size=50))
def test_same_bytes_in_a_pipeline(commands: list[tuple[Any, ...]]) -> None:
    packed = fast(Connection)().pack_commands(commands)
    assert b"".join(packed) == b"".join(theirs(*command) for command in commands)


@pytest.mark.parametrize(
    "value",
    [True, None, object(), [1], (1,), {}, 1j, array("d", [1.0]), np.array([1.0]), np.bool_(1)],
)
def test_refused_as_redis_py_does(value: Any) -> None:
    with pytest.raises(redis.DataError) as theirs_error:
        theirs("SET", "a", value)
    with pytest.raises(redis.DataError) as ours_error:
        ours("SET", "a", value)
    assert str(theirs_error.value).split(".")[0] in str(ours_error.value)


class Level(enum.IntEnum):
    HIGH = 7


class Text(str):
    pass


@pytest.mark.parametrize(
    ("value", "sent"),
    [
        (np.float64(1.5), b"1.5"),
        (memoryview(array("b", [-1, 2])), b"\xff\x02"),
        (memoryview(b"abcdef")[::2], b"ace"),
        (bytearray(b"a\r\n"), b"a\r\n"),
        (Level.HIGH, b"7"),
        (np.int64(7), b"7"),
        (np.uint8(7), b"7"),
        (10**5000, b"1" + b"0" * 5000),
        (Text("é"), "é".encode()),
    ],
    ids=lambda value: str(type(value).__name__),
)
def test_traps(value: Any, sent: bytes) -> None:
    assert ours("SET", "a", value) == b"*3\r\n$3\r\nSET\r\n$1\r\na\r\n$%d\r\n%s\r\n" % (
        len(sent),
        sent,
    )


@pytest.mark.parametrize(
    "value",
    [
        np.array([1.5]),
        np.zeros((2, 2), "u1"),
        array("d", [1.0]),
        memoryview(array("d", [1.0])),
        memoryview(bytes(6)).cast("B", (2, 3)),
    ],
)
def test_array_that_is_not_plain_bytes(value: Any) -> None:
    words = r"Invalid input of type: .*!f32.*\.tobytes\(\)"
    with pytest.raises(redis.DataError, match=words):
        ours("SET", "a", value)
    for kind in (Connection, redis.asyncio.Connection):
        with pytest.raises(redis.DataError, match=words):
            fast(kind)().pack_commands([("SET", "a", value)])


def test_lone_surrogate_and_no_arguments() -> None:
    with pytest.raises(UnicodeEncodeError):
        ours("SET", "a", "\ud800")
    with pytest.raises(IndexError):
        ours()
    with pytest.raises(TypeError):
        ours(5, "a")


def test_encoding_of_the_client() -> None:
    packer = CommandPacker("latin-1")
    assert (
        b"".join(packer.pack("SET", "é", "é")) == b"*3\r\n$3\r\nSET\r\n$1\r\n\xe9\r\n$1\r\n\xe9\r\n"
    )
    with pytest.raises(UnicodeEncodeError):
        packer.pack("SET", "€")
    assert b"?" in b"".join(CommandPacker("ascii", "replace").pack("SET", "€"))


def test_nothing_is_left_over_after_an_error() -> None:
    with pytest.raises(redis.DataError):
        fast(Connection)().pack_commands([("SET", "a", 1), ("SET", "a", None)])
    assert ours("GET", "a") == theirs("GET", "a")


def test_large_pipelines_are_packed_in_pieces() -> None:
    commands = [("SET", f"k{i}", "x" * 1000) for i in range(5000)]
    pieces = fast(Connection)().pack_commands(commands)
    assert [1 << 20 <= len(piece) < (1 << 20) + 2000 for piece in pieces[:-1]] == [True] * 4
    assert b"".join(pieces) == b"".join(theirs(*command) for command in commands)


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview, bytes.decode])
def test_large_arguments(kind: Callable[[bytes], Any]) -> None:
    values = [kind(b"x" * size) for size in (65535, 65536, 3 << 20)]
    commands = [("MSET", "a", value, "b", value, "c", 1) for value in values] * 2
    pieces = fast(Connection)().pack_commands(commands)
    assert b"".join(pieces) == b"".join(theirs(*command) for command in commands)
    assert all(pieces)


def test_large_bytes_are_not_copied() -> None:
    value = b"x" * 100_000
    pieces = CommandPacker().pack("SET", "a", value)
    assert [piece is value for piece in pieces] == [False, True, False]


def test_any_iterables() -> None:
    commands = ([str(i), i] for i in range(3))
    assert b"".join(fast(Connection)().pack_commands(commands)) == b"".join(
        theirs(str(i), i) for i in range(3)
    )


def test_several_threads() -> None:
    connection = fast(Connection)()
    failures = []

    def pack(letter: str) -> None:
        commands = [("SET", letter, letter * 100)] * 2000
        expected = theirs("SET", letter, letter * 100) * 2000
        failures.extend(
            1 for _ in range(20) if b"".join(connection.pack_commands(commands)) != expected
        )

    threads = [threading.Thread(target=pack, args=(letter,)) for letter in "abcd"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
