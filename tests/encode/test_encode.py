"""pack: the text of each type of argument, refused values, and equality with hiredis."""

from __future__ import annotations

import ctypes
import datetime as dt
import decimal
import enum
import fractions
import math
import mmap
import sys
import uuid
from array import array
from collections.abc import Iterator

import hiredis
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from plain_resp import Text, resp

from fastresp import EncodeError, Template, pack, pack_many
from fastresp.encode.writer import Writer

COMPARED_COMMANDS = 100_000


class Number(enum.IntEnum):
    A = 1


class Flags(enum.IntFlag):
    A = 4
    B = 8


class Word(enum.StrEnum):
    A = "word"


class Bytes(bytes):
    def __bytes__(self) -> bytes:
        return b"wrong"


class Float(float):
    def __repr__(self) -> str:
        return "wrong"


class Int(int):
    def __repr__(self) -> str:
        return "wrong"

    __str__ = __repr__


class Index:
    def __index__(self) -> int:
        return 12


class NoRepr:
    def __repr__(self) -> str:
        raise RuntimeError("no repr")


class LongRepr:
    def __repr__(self) -> str:
        return "R" * 1000


def test_whole_commands() -> None:
    assert pack("SET", "k", "v") == b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$1\r\nv\r\n"
    assert pack("PING") == b"*1\r\n$4\r\nPING\r\n"
    assert pack(b"DEL", *[b"k"] * 10) == b"*11\r\n$3\r\nDEL\r\n" + b"$1\r\nk\r\n" * 10


MAPPED = mmap.mmap(-1, 8)
MAPPED[:] = b"mapped\r\n"

VALUES = [
    ("", b""),
    ("text", b"text"),
    ("naïve ✓ 😀", "naïve ✓ 😀".encode()),
    ("é" * 5, b"\xc3\xa9" * 5),
    (b"", b""),
    (b"\x00\xff", b"\x00\xff"),
    (bytearray(b"array"), b"array"),
    ("a\r\nb\x00c'\"*3 $5", b"a\r\nb\x00c'\"*3 $5"),
    (b"*3\r\n$5\r\n", b"*3\r\n$5\r\n"),
    (Text("text"), b"text"),
    (Text("é"), b"\xc3\xa9"),
    (Bytes(b"bytes"), b"bytes"),
    (Word.A, b"word"),
    (np.str_("né"), b"n\xc3\xa9"),
    (np.bytes_(b"nb"), b"nb"),
    (0, b"0"),
    (7, b"7"),
    (-1, b"-1"),
    (10, b"10"),
    (99, b"99"),
    (100, b"100"),
    (999, b"999"),
    (1000, b"1000"),
    (2**63 - 1, b"9223372036854775807"),
    (2**63, b"9223372036854775808"),
    (-(2**63), b"-9223372036854775808"),
    (-(2**63) - 1, b"-9223372036854775809"),
    (2**64, b"18446744073709551616"),
    (10**5000, b"1" + b"0" * 5000),
    (-(10**5000), b"-1" + b"0" * 5000),
    (Number.A, b"1"),
    (Flags.A | Flags.B, b"12"),
    (Int(5), b"5"),
    (Int(2**70), b"1180591620717411303424"),
    (Index(), b"12"),
    (np.int64(7), b"7"),
    (np.int8(-7), b"-7"),
    (np.uint64(2**64 - 1), b"18446744073709551615"),
    (Float(1.5), b"1.5"),
    (np.float64(1.5), b"1.5"),
    (np.float32(0.1), b"0.1"),
    (np.float16(0.1), b"0.1"),
    (np.float32("inf"), b"inf"),
    (np.array(1.5), b"1.5"),
    (np.array(1.5, dtype=">f8"), b"1.5"),
    (np.array(0.1, dtype="f4"), b"0.1"),
    (np.array(7), b"7"),
    (np.array(7, dtype=">i2"), b"7"),
    (memoryview(b"abcdef"), b"abcdef"),
    (memoryview(b"abcdef")[::2], b"ace"),
    (memoryview(b"abcdef")[::-1], b"fedcba"),
    (memoryview(b""), b""),
    (memoryview(array("b", [-1, 2])), b"\xff\x02"),
    (array("B", b"ab"), b"ab"),
    (np.frombuffer(b"abcdef", "u1"), b"abcdef"),
    (np.frombuffer(b"abcdef", "i1")[::2], b"ace"),
    ((ctypes.c_ubyte * 3)(1, 2, 3), b"\x01\x02\x03"),
    (ctypes.create_string_buffer(b"ab"), b"ab\0"),
    (pa.py_buffer(b"arrow"), b"arrow"),
    (MAPPED, b"mapped\r\n"),
]


@pytest.mark.parametrize(
    ("value", "payload"), VALUES, ids=[type(value).__name__ for value, _ in VALUES]
)
def test_value(value: object, payload: bytes) -> None:
    assert pack("SET", value) == resp(b"SET", payload)
    assert pack_many([("SET", value), ["GET", value]]) == resp(b"SET", payload) + resp(
        b"GET", payload
    )


@pytest.mark.parametrize("size", [0, 1, 3, 4, 7, 8, 9, 16, 17, 99, 1023, 1024, 99_999, 3_000_000])
def test_length_of_payload(size: int) -> None:
    payload = bytes(i % 251 for i in range(size))
    assert pack("SET", payload, "x") == resp(b"SET", payload, b"x")


@pytest.mark.parametrize("count", [1, 9, 10, 99, 100, 999, 1000, 1023, 1024, 100_000])
def test_number_of_arguments(count: int) -> None:
    assert pack(*["DEL"] * count) == b"*%d\r\n" % count + b"$3\r\nDEL\r\n" * count


INDIA = dt.timezone(dt.timedelta(hours=5, minutes=30))
NOON = dt.datetime(2013, 1, 1, 12, 0, 0, 500)

USUAL_TEXTS = [
    (decimal.Decimal("1.50"), "1.50"),
    (decimal.Decimal("-1E+3"), "-1000"),
    (decimal.Decimal("1E-7"), "0.0000001"),
    (decimal.Decimal("NaN"), "NaN"),
    (decimal.Decimal("-Infinity"), "-Infinity"),
    (dt.date(13, 1, 2), "0013-01-02"),
    (dt.time(5), "05:00:00"),
    (dt.time(5, 6, 7, 8, INDIA), "05:06:07.000008+05:30"),
    (NOON, "2013-01-01T12:00:00.000500"),
    (NOON.replace(tzinfo=dt.UTC), "2013-01-01T12:00:00.000500+00:00"),
    (pd.Timestamp(1), "1970-01-01T00:00:00.000000001"),
    (pd.Timestamp("2013-01-01 05:00", tz="America/New_York"), "2013-01-01T05:00:00-05:00"),
    (dt.timedelta(1, 7384, 500_000), "P1DT2H3M4.5S"),
    (dt.timedelta(), "PT0S"),
    (-dt.timedelta(hours=26), "-P1DT2H"),
    (dt.timedelta.max, "P999999999DT23H59M59.999999S"),
    (dt.timedelta.min, "-P999999999D"),
    (pd.Timedelta(-1, "ns"), "-PT0.000000001S"),
    (pd.Timedelta(1500, "ms"), "PT1.5S"),
    (uuid.UUID(int=1), "00000000-0000-0000-0000-000000000001"),
]


@pytest.mark.parametrize(("value", "text"), USUAL_TEXTS)
def test_common_text_forms(value: object, text: str) -> None:
    assert pack("SET", value) == resp(b"SET", text.encode())
    assert pack("SET", value, default=lambda each: 7) == resp(b"SET", b"7")


FLOATS = [0.0, -0.0, 1.0, 1.5, 0.1, 1 / 3, 1e16, 1e15, 123456789012345680.0, 1e22, 1e23, 1e-4]
FLOATS += [1e-5, 5e-324, 2.2250738585072014e-308, sys.float_info.max, math.inf, -math.inf, math.nan]


@pytest.mark.parametrize("value", FLOATS)
def test_float_is_sent_as_repr(value: float) -> None:
    assert pack(value) == resp(repr(value).encode())
    assert pack(np.float64(value)) == resp(repr(value).encode())


OBJECTS = (
    "an argument must be str, bytes, int, float, Decimal, a date, time or timedelta, UUID or a "
    "buffer; convert it, or pass default="
)

REFUSED_VALUES = [
    (True, r"cannot send True \(a bool\): Redis has no booleans; send 1 or 'true', or pass"),
    (False, "send 0 or 'false', or pass default=int"),
    (np.bool_(True), "Redis has no booleans; send 1 or 'true', or pass default=int"),
    (None, "cannot send None: Redis has no null; leave it out, or send an empty string"),
    ([1], rf"cannot send \[1\] \(a list\): {OBJECTS}"),
    ({}, OBJECTS),
    (fractions.Fraction(1, 3), rf"cannot send Fraction\(1, 3\) \(a Fraction\): {OBJECTS}"),
    (pd.NaT, r"cannot send NaT \(a NaTType\): it is a null; leave it out, or send an empty"),
    (pd.NA, r"cannot send <NA> \(a NAType\)"),
    (1j, OBJECTS),
    (np.complex128(1j), OBJECTS),
    (np.array(object()), OBJECTS),
    (np.array(True), OBJECTS),
    (np.array("text"), OBJECTS),
    (np.datetime64("2020-01-01"), rf"\(a datetime64\): {OBJECTS}"),
    (np.timedelta64(1, "s"), OBJECTS),
    (np.array(["2020-01-01"], dtype="M8[D]"), OBJECTS),
    ("ab\ud800", "character 2 is a lone surrogate, which UTF-8 can't encode; encode the text"),
    (Text("é\udfff"), "character 1 is a lone surrogate"),
    (NoRepr(), rf"\(a NoRepr\): {OBJECTS}"),
]


@pytest.mark.parametrize(
    ("value", "message"), REFUSED_VALUES, ids=[type(value).__name__ for value, _ in REFUSED_VALUES]
)
def test_refused_value(value: object, message: str) -> None:
    with pytest.raises(EncodeError, match=message) as caught:
        pack("SET", "k", value)
    error = caught.value
    assert str(error).startswith("argument 2: cannot send ")
    assert (error.command, error.row, error.argument) == (None, None, 2)


def test_released_memoryview() -> None:
    view = memoryview(b"abc")
    view.release()
    with pytest.raises(EncodeError, match="argument 1: cannot send <released") as caught:
        pack("SET", view)
    assert isinstance(caught.value.__cause__, ValueError)


ARRAYS = [
    np.array([0.1, 0.2]),
    np.array([0.1, 0.2], "f4"),
    np.arange(3),
    np.arange(3, dtype="u2"),
    np.zeros((2, 3), "u1"),
    np.zeros((0, 3)),
    np.array([True, False]),
    np.array(["text"]),
    np.array([b"bytes"]),
    np.array([object()]),
    np.ones(2, dtype=[("Order", "<i4")]),
    array("d", [1.0, 2.0]),
    array("i", [1]),
    memoryview(array("d", [1.0, 2.0])),
    memoryview(array("d", [1.0, 2.0]))[::-1],
    memoryview(bytes(6)).cast("B", (2, 3)),
    memoryview(b"a").cast("B", ()),
    (ctypes.c_float * 2)(1, 2),
]


@pytest.mark.parametrize("value", ARRAYS, ids=lambda value: type(value).__name__)
def test_array_that_is_not_plain_bytes(value: object) -> None:
    """The raw bytes of an array could be float64 for a FLOAT32 index, or vice versa."""
    kind = type(value).__name__
    words = rf" \(a {kind}\): only one-dim.* \{{field!f32\}} in a template .* its \.tobytes\(\)$"
    for commands in ([("SET", "k", value)], [("SET", "k", value, "EX", 5)]):
        with pytest.raises(EncodeError, match=f"argument 2: cannot send .*{words}"):
            pack(*commands[0])
        with pytest.raises(EncodeError, match=f"command 0, argument 2: .*{words}"):
            pack_many(commands)
    for template in ("SET k {v}", "SET k v:{v}", "HSET {k} {**}", "SADD k {*list}"):
        with pytest.raises(EncodeError, match=f"row 0.*, command 0, .*{words}"):
            list(Writer(Template(template)).chunks([{"k": "k", "v": value, "list": [value]}]))
    assert pack("SET", "k", value, default=lambda each: bytes(memoryview(each).tobytes())) == resp(
        b"SET",
        b"k",
        memoryview(value).tobytes(),  # type: ignore[arg-type]
    )


@pytest.mark.parametrize("value", [LongRepr(), list(range(10**6)), {LongRepr(): LongRepr()}])
def test_repr_in_errors_is_cut(value: object) -> None:
    with pytest.raises(EncodeError) as caught:
        pack("SET", value)
    shown = str(caught.value).partition("cannot send ")[2].partition(f" (a {type(value).__name__}")
    assert 20 <= len(shown[0]) <= 40
    assert shown[1]


def test_error_names_command_and_argument() -> None:
    with pytest.raises(EncodeError, match=r"^command 1, argument 2: cannot send None") as caught:
        pack_many([("SET", 1, 2), ("SET", 1, None)])
    assert (caught.value.command, caught.value.argument) == (1, 2)


@pytest.mark.parametrize(
    ("result", "payload"), [("é", b"\xc3\xa9"), (b"b", b"b"), (2**70, b"%d" % 2**70), (0.5, b"0.5")]
)
def test_default(result: object, payload: bytes) -> None:
    seen = []

    def default(value: object) -> object:
        seen.append(value)
        return result

    thing = decimal.Decimal(1)
    assert pack("SET", "k", 7, thing, default=default) == resp(b"SET", b"k", b"7", payload)
    assert pack_many([("SET", thing)], default=default) == resp(b"SET", payload)
    assert seen == [thing, thing]


def test_default_for_bool_dates_and_objects() -> None:
    assert pack("SET", True, np.bool_(False), default=int) == resp(b"SET", b"1", b"0")
    assert pack("SET", np.datetime64("2020-01-01"), default=str) == resp(b"SET", b"2020-01-01")
    dates = np.array(["2020-01-01"], dtype="M8[D]")
    assert pack("SET", dates, default=str) == resp(b"SET", b"['2020-01-01']")
    assert pack("SET", np.array([None]), default=str) == resp(b"SET", b"[None]")


@pytest.mark.parametrize("result", [None, True, [1], bytearray(b"x"), object()])
def test_default_returns_another_type(result: object) -> None:
    with pytest.raises(EncodeError, match="must return str, bytes, int or float"):
        pack("SET", 1j, default=lambda value: result)


def test_default_raises() -> None:
    with pytest.raises(EncodeError, match=r"^argument 1: ZeroDivisionError: ") as caught:
        pack("SET", 1j, default=lambda value: 1 // 0)
    assert isinstance(caught.value.__cause__, ZeroDivisionError)


TEXTS = st.text(st.characters(exclude_categories=("Cs",)))
ARGUMENTS = st.one_of(TEXTS, st.binary(), st.integers(), st.floats())


def commands_of(arguments: list[object]) -> Iterator[tuple[object, ...]]:
    """Yield every run of one to six adjacent arguments as a command."""
    for size in range(1, 7):
        for start in range(len(arguments) - size + 1):
            yield ("SET", *arguments[start : start + size])


@pytest.mark.slow
def test_equal_to_hiredis() -> None:
    compared = 0

    @settings(max_examples=1500, suppress_health_check=list(HealthCheck))
    @given(st.lists(ARGUMENTS, min_size=16, max_size=24))
    def compare(arguments: list[object]) -> None:
        nonlocal compared
        commands = list(commands_of(arguments))
        expected = [hiredis.pack_command(command) for command in commands]
        assert [pack(*command) for command in commands] == expected
        assert pack_many(commands) == b"".join(expected)
        compared += len(commands)

    compare()
    assert compared >= COMPARED_COMMANDS


@pytest.mark.slow
@given(st.lists(st.lists(ARGUMENTS, min_size=1, max_size=12).map(lambda each: ["X", *each])))
def test_pack_many_joins_packs(commands: list[list[object]]) -> None:
    assert pack_many(commands) == b"".join(pack(*command) for command in commands)
    assert pack_many(map(tuple, commands)) == pack_many(iter(commands))
