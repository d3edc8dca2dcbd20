"""Floats as text: equal to repr, and for narrow floats to NumPy's digits."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastresp import pack_many


def texts(values: Iterable[Any]) -> list[str]:
    """Return the text that a row writes for each value."""
    return pack_many([["X", *values]]).decode().split("\r\n")[4::2]


def narrow(value: Any) -> str:
    """Return the digits of str(value), formatted like repr: NumPy's own format changed in 2.4."""
    return repr(float(str(value)))


def check(values: list[float]) -> None:
    assert texts(values) == [repr(value) for value in values]


EDGES = [0.0, 5e-324, sys.float_info.min, sys.float_info.max, math.inf, math.nan]
EDGES += [0.0001, 0.00001, 0.00009999999999999999, 9999999999999998.0, 1e15, 1e16, 1e17, 1e22, 1e23]
EDGES += [2.0**53 - 1, 2.0**53, 2.0**53 + 2, 9007199254740993.0, 12.5, 1.1, 0.000001, 999999999.9]
EDGES += [999999999.999999, 1000000000.000001, 0.1 + 0.2, 1 / 3, 100.0, 1.5e300, 1e100, 1e-100]


@pytest.mark.parametrize("value", EDGES)
def test_edges(value: float) -> None:
    check([value, -value, math.nextafter(value, math.inf), math.nextafter(value, -math.inf)])


def test_powers() -> None:
    powers = [2.0**k for k in range(-1074, 1024)] + [float(f"1e{k}") for k in range(-323, 309)]
    check(powers)
    check([math.nextafter(value, math.inf) for value in powers])
    check([-math.nextafter(value, 0) for value in powers])


@given(st.lists(st.floats()))
def test_any_float(values: list[float]) -> None:
    check(values)


@given(st.lists(st.builds(round, st.floats(-1e10, 1e10), st.integers(0, 9))))
def test_short_floats(values: list[float]) -> None:
    check(values)


@pytest.mark.slow
def test_a_million_bit_patterns() -> None:
    check(np.frombuffer(np.random.default_rng(1).bytes(8_000_000), "f8").tolist())
    check(np.random.default_rng(2).normal(0, 1e6, 100_000).round(4).tolist())


def test_negative_nan_has_no_sign() -> None:
    values = [-math.nan, np.float32(-math.nan), np.float16(-math.nan)]
    assert texts(values) == ["nan"] * 3


SINGLES = ["0", "1e-4", "9.9999e-5", "1e-5", "1e-45", "1.1754944e-38", "3.4028235e38", "1e16"]
SINGLES += ["16777215", "16777216", "33554432", "9.999999e15", "0.1", "12.5", "inf", "nan"]


@pytest.mark.parametrize("text", SINGLES)
def test_edges_of_singles(text: str) -> None:
    value = np.float32(text)
    values = [value, -value, np.nextafter(value, np.float32(9)), np.nextafter(value, np.float32(0))]
    assert texts(values) == [narrow(each) for each in values]


def test_layout_of_narrow_floats() -> None:
    values = [np.float32(each) for each in ("1e-4", "1e-5", "16777216", "1e15", "1e16", "-0.0")]
    assert texts(values) == ["0.0001", "1e-05", "16777216.0", "1000000000000000.0", "1e+16", "-0.0"]
    assert texts([np.float16(65504), np.float16(-6e-8)]) == ["65500.0", "-6e-08"]


def check_singles(count: int) -> None:
    values = list(np.frombuffer(np.random.default_rng(3).bytes(4 * count), "f4"))
    assert texts(values) == [narrow(value) for value in values]


def test_bit_patterns_of_singles() -> None:
    check_singles(200_000)
    powers = np.float32(2) ** np.arange(-149, 128, dtype="f4")
    assert texts(list(powers)) == [narrow(value) for value in powers]


@pytest.mark.long
def test_a_million_bit_patterns_of_singles() -> None:
    check_singles(1_000_000)


def test_every_half() -> None:
    values = list(np.arange(65536, dtype="u2").view("f2"))
    assert texts(values) == [narrow(value) for value in values]
