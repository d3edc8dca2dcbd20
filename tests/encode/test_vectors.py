"""Vectors: {v!f16}, {v!f32} and {v!f64} of every kind of sequence, compared with NumPy."""

from __future__ import annotations

import math
from array import array
from collections import deque
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastresp import EncodeError, Template, Writer, pack, pack_many

CONVERSIONS = ["f16", "f32", "f64"]


def fill(conversion: str, *vectors: Any, **options: Any) -> bytes:
    template = Template(f"HSET k v {{v!{conversion}}}")
    rows = [{"v": vector} for vector in vectors]
    return b"".join(map(bytes, Writer(template, **options).chunks(rows)))


def expected(conversion: str, values: Any) -> bytes:
    with np.errstate(over="ignore"):
        wide = np.asarray(values, "f8").astype(f"<f{int(conversion[1:]) // 8}")
    return pack("HSET", "k", "v", wide.tobytes())


VALUES = [1.5, -2.0, 0.1, 100.0]
GRID = np.arange(12.0).reshape(3, 4)

SEQUENCES = [
    [1.5, -2, True + 1, Decimal("0.1"), Fraction(1, 3)], tuple(VALUES), deque(VALUES), range(5), [],
    *(array("d", VALUES), array("f", VALUES), array("b", [-1, 2]), array("B", [255, 2])),
    array("l", [-(2**12), 2]), memoryview(array("d", VALUES))[::-2],
    *(np.array(VALUES, kind) for kind in ("f8", "f4", "f2", ">f8", ">f4", ">f2")),
    *(np.array([-5, 7], kind) for kind in ("i1", ">i2", "i4", ">i8")),
    *(np.array([5, 7], kind) for kind in ("u4", "u8")),
    np.array([250, 7], "u1"), np.array([60000, 7], "u2"), GRID[:, 1], GRID[1, ::-1],
    np.array([1.5, 2], object), list(np.array(VALUES, "f4")), [np.int64(3), np.uint8(4)],
    pd.Series(VALUES), [math.inf, -math.inf, math.nan, -0.0],
]  # fmt: skip


@pytest.mark.parametrize("conversion", CONVERSIONS)
@pytest.mark.parametrize("vector", SEQUENCES, ids=lambda vector: type(vector).__name__)
def test_sequence(vector: Any, conversion: str) -> None:
    values = np.array([float(item) for item in vector])
    assert fill(conversion, vector, vector) == expected(conversion, values) * 2


# Many bit patterns are NaN, and the processor decides how to narrow one.
FLOATS = st.floats(allow_nan=False) | st.just(math.nan)


@given(st.lists(FLOATS, min_size=5, max_size=5), st.sampled_from(CONVERSIONS))
def test_rounding(values: list[float], conversion: str) -> None:
    with np.errstate(over="ignore"):
        wide = np.array(values).astype(f"f{int(conversion[1:]) // 8}")
    if np.isinf(wide).sum() == np.isinf(values).sum():
        assert fill(conversion, values) == expected(conversion, values)
    else:
        for vector in (values, np.array(values)):
            with pytest.raises(EncodeError, match=f"too large for {conversion}"):
                fill(conversion, vector)


def test_rounding_to_halves() -> None:
    halves = np.arange(0x7C00, dtype="u2").view("f2").astype("f8")
    middles = (halves[:-1] + halves[1:]) / 2
    for values in (halves, middles, np.nextafter(middles, 0), np.nextafter(middles, 1e9)):
        assert fill("f16", values) == expected("f16", values)
    assert fill("f16", [65519.999, -65519.999]) == expected("f16", [65504, -65504])


BAD = [
    ([1.0, None], "item 1 is None: a vector can't contain nulls"),
    (np.array([None]), "item 0 is None: a vector can't contain nulls"),
    ([1.0, "2.0"], "item 1 is '2.0' (a str), not a number"),
    ([[1.0], [2.0]], "item 0 is [1.0] (a list), not a number"),
    ([True], "item 0 is True (a bool), not a number"),
    ([np.True_], "(a bool), not a number"),
    ([np.timedelta64(1, "ns")], "(a timedelta64), not a number"),
    ([1j], "item 0 is 1j (a complex), not a number"),
    ([1e39], "item 0 is 1e+39, too large for f32"),
    ([0.0, -1e39], "item 1 is -1e+39, too large for f32"),
    (array("d", [1e39]), "item 0 is 1e+39, too large for f32"),
    ([10**400], "too large for a float"),
    (GRID, "(a ndarray) as a vector: it has 2 dimensions, not one"),
    (np.array(1.5), "it has 0 dimensions, not one"),
    (np.float64(1.5), "it has 0 dimensions, not one"),
    (np.array([True]), "(a ndarray) as a vector: it must be a list, tuple, array or other"),
    (np.array(["a"]), "as a vector: it must be a list"),
    (np.array(["2020-01-01"], "M8[D]"), "as a vector: it must be a list"),
    (b"\0\0\0\0", "sequence of numbers; write the field without !f32 if it contains an encoded"),
    (bytearray(4), "without !f32 if it contains an encoded vector"),
    (memoryview(b"\0\0\0\0"), "without !f32 if it contains an encoded vector"),
    ("1.5", "cannot send '1.5' (a str) as a vector: it must be a list"),
    (1.5, "cannot send 1.5 (a float) as a vector"),
    ({1.5: 1}, "(a dict) as a vector"),
    ({1.5}, "(a set) as a vector"),
    (iter([1.5]), "(a list_iterator) as a vector"),
]


@pytest.mark.parametrize(("vector", "message"), BAD, ids=[type(each).__name__ for each, _ in BAD])
def test_bad_vector(vector: Any, message: str) -> None:
    with pytest.raises(EncodeError) as caught:
        fill("f32", vector)
    error = caught.value
    assert str(error).startswith("row 0, command 0, field 'v', argument 3: ")
    assert message in str(error)
    assert (error.row, error.argument) == (0, 3)


@pytest.mark.parametrize("vector", [[1.0, 2.0, 3.0], np.zeros(3, "f4"), np.zeros(3)])
def test_vector_of_another_length(vector: Any) -> None:
    message = "row 1, .*: the vector's length differs from the first one's"
    with pytest.raises(EncodeError, match=f"{message}, 1; .* \\(this one has 3\\)"):
        fill("f32", [0.5], vector)
    with pytest.raises(EncodeError, match=f"{message}, 3; .* \\(this one has 1\\)"):
        fill("f32", vector, [0.5])


def test_nulls() -> None:
    written = expected("f32", [1.0])
    assert fill("f32", [1.0], None, [1.0], nulls="skip") == written * 2
    assert fill("f32", None, [1.0], nulls="empty") == pack("HSET", "k", "v", "") + written
    with pytest.raises(EncodeError, match="cannot send None"):
        fill("f32", None)


def test_each_placeholder_and_each_load_has_its_own_length() -> None:
    template = Template("HSET k v {0!f32} w {1!f64}; SET k {0!f16}")
    for size in (2, 3):
        row = (np.ones(size), [2.0] * 4)
        commands = [
            ("HSET", "k", "v", np.ones(size, "f4").tobytes(), "w", np.full(4, 2.0).tobytes()),
            ("SET", "k", np.ones(size, "f2").tobytes()),
        ]
        chunks = Writer(template).chunks([row, row])
        assert b"".join(map(bytes, chunks)) == pack_many(commands * 2)


def test_an_item_that_changes_its_list() -> None:
    class Clearing:
        def __float__(self) -> float:
            vector.clear()
            return 2.0

    vector: list[Any] = [1.0, Clearing(), 3.0]
    assert fill("f32", vector) == expected("f32", [1.0, 2.0, 3.0])


def test_a_vector_larger_than_the_server_accepts() -> None:
    writer = Writer(Template("SET k {0!f32}"))
    writer.max_bulk_bytes = 39
    with pytest.raises(EncodeError, match="40 bytes"):
        list(writer.chunks([([0.5] * 10,)]))
