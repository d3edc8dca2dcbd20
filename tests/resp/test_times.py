"""Dates, times, durations and decimals as text: equal to isoformat, and to format(value, 'f')."""

from __future__ import annotations

import datetime as dt
import io
import re
from collections.abc import Iterable
from decimal import Decimal, localcontext

import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fastresp

DAY = dt.date(1970, 1, 1)
EPOCH = dt.datetime(1970, 1, 1)
MICROSECOND = dt.timedelta(microseconds=1)
INT64 = st.integers(-(2**63), 2**63 - 1)
UNITS = {1: "s", 10**3: "ms", 10**6: "us", 10**9: "ns"}


def texts(kind: pa.DataType, values: Iterable[int]) -> list[str]:
    """Return the texts of a column with these numbers in its memory."""
    width = kind.bit_width // 8
    data = b"".join(value.to_bytes(width, "little", signed=True) for value in values)
    column = pa.Array.from_buffers(kind, len(data) // width, [None, pa.py_buffer(data)])
    file = io.BytesIO()
    fastresp.dump(pa.table({"a": column}), "ECHO {a}", file)
    return [text.decode() for text in file.getvalue().split(b"\r\n")[4::5]]


def text_of(kind: pa.DataType, value: int) -> str | None:
    """Return the text of one value, or None."""
    try:
        [text] = texts(kind, [value])
    except fastresp.EncodeError:
        return None
    return text


def time_of(per_second: int) -> pa.DataType:
    unit = UNITS[per_second]
    return pa.time32(unit) if per_second <= 1000 else pa.time64(unit)


def test_dates() -> None:
    ordinals = [*range(1, 1000), *range(1000, 3652000, 17), *range(3652000, 3652060)]
    dates = [dt.date.fromordinal(ordinal) for ordinal in ordinals]
    days = [(date - DAY).days for date in dates]
    assert texts(pa.date32(), days) == [date.isoformat() for date in dates]
    assert texts(pa.date64(), [day * 86_400_000 for day in days]) == list(map(str, dates))


@pytest.mark.parametrize("year", [4, 100, 400, 1900, 1968, 1970, 2000, 2023, 2024, 2100, 9999])
def test_every_day_of_a_year(year: int) -> None:
    first = dt.date(year, 1, 1)
    dates = [first + dt.timedelta(i) for i in range(365 if year == 9999 else 366)]
    assert texts(pa.date32(), [(date - DAY).days for date in dates]) == list(map(str, dates))


def test_dates_without_a_text() -> None:
    assert texts(pa.date32(), [-719162, 2932896]) == ["0001-01-01", "9999-12-31"]
    for days in (-719163, 2932897, 2**31 - 1, -(2**31)):
        assert text_of(pa.date32(), days) is None
        assert text_of(pa.date64(), days * 86_400_000) is None
    for milliseconds in (2**63 - 1, -(2**63)):
        assert text_of(pa.date64(), milliseconds) is None


@given(st.times())
def test_times(time: dt.time) -> None:
    second = (time.hour * 60 + time.minute) * 60 + time.second
    assert text_of(time_of(1), second) == time.replace(microsecond=0).isoformat()
    for per_second in (10**6, 10**9):
        value = (second * 10**6 + time.microsecond) * (per_second // 10**6)
        assert text_of(time_of(per_second), value) == time.isoformat()


@pytest.mark.parametrize(
    ("value", "per_second", "text"),
    [
        (0, 1, "00:00:00"),
        (86399, 1, "23:59:59"),
        (86399999, 1000, "23:59:59.999000"),
        (1, 10**6, "00:00:00.000001"),
        (1, 10**9, "00:00:00.000000001"),
        (86399999999999, 10**9, "23:59:59.999999999"),
        (-1, 1, None),
        (86400, 1, None),
        (86400 * 10**9, 10**9, None),
    ],
)
def test_time_of_unit(value: int, per_second: int, text: str | None) -> None:
    assert text_of(time_of(per_second), value) == text


@given(st.datetimes())
def test_timestamps(time: dt.datetime) -> None:
    value = (time - EPOCH) // MICROSECOND
    assert text_of(pa.timestamp("us"), value) == time.isoformat()
    whole = time.replace(microsecond=time.microsecond // 1000 * 1000)
    assert text_of(pa.timestamp("ms"), value // 1000) == whole.isoformat()
    assert text_of(pa.timestamp("s"), value // 10**6) == time.replace(microsecond=0).isoformat()


@given(st.integers(-(2**63) + 1, 2**63 - 1), st.integers(0, 9))
def test_nanoseconds_as_pandas_writes_them(value: int, zeros: int) -> None:
    value -= value % 10**zeros
    if value > -(2**63):
        assert text_of(pa.timestamp("ns"), value) == pd.Timestamp(value).isoformat()


@pytest.mark.parametrize("per_second", [1, 10**3, 10**6])
def test_timestamps_without_a_text(per_second: int) -> None:
    kind = pa.timestamp(UNITS[per_second])
    for value in (-62135596801, 253402300800):
        assert text_of(kind, value * per_second) is None
    assert text_of(kind, -(2**63)) is None
    assert text_of(kind, 2**63 - 1) is None


@given(st.integers(-86399, 86399))
def test_offsets(seconds: int) -> None:
    time = EPOCH.replace(tzinfo=dt.timezone(dt.timedelta(seconds=seconds)))
    offset = time.isoformat()[19:]
    assert text_of(pa.timestamp("s", tz=offset), -seconds) == time.isoformat()


DURATIONS = [
    (0, 1, "PT0S"),
    (5, 1, "PT5S"),
    (60, 1, "PT1M"),
    (3600, 1, "PT1H"),
    (3601, 1, "PT1H1S"),
    (172800, 1, "P2D"),
    (-93600, 1, "-P1DT2H"),
    (93784500, 1000, "P1DT2H3M4.5S"),
    (86400001, 1000, "P1DT0.001S"),
    (-1, 10**9, "-PT0.000000001S"),
    (-(2**63), 1, "-P106751991167300DT15H30M8S"),
    (-(2**63), 10**9, "-P106751DT23H47M16.854775808S"),
    (2**63 - 1, 10**6, "P106751991DT4H54.775807S"),
]


@pytest.mark.parametrize(("value", "per_second", "text"), DURATIONS)
def test_duration(value: int, per_second: int, text: str) -> None:
    assert text_of(pa.duration(UNITS[per_second]), value) == text


SHAPE = re.compile(
    r"(-?)P(?=.)(?:(\d+)D)?(?:T(?=.)(?:(\d+)H)?(?:(\d+)M)?(?:(\d+(?:\.\d*[1-9])?)S)?)?"
)


@given(INT64 | st.integers(-(10**6), 10**6), st.sampled_from([*UNITS]))
def test_durations_read_back(value: int, per_second: int) -> None:
    match = SHAPE.fullmatch(str(text_of(pa.duration(UNITS[per_second]), value)))
    assert match is not None
    days, hours, minutes, seconds = [Decimal(each or 0) for each in match.groups()[1:]]
    assert hours < 24
    assert minutes < 60
    assert seconds < 60
    total = ((days * 24 + hours) * 60 + minutes) * 60 + seconds
    assert (-total if match[1] else total) * per_second == value


DECIMALS = [
    (110, 2, "1.10"),
    (-5, 3, "-0.005"),
    (7, -2, "700"),
    (0, 2, "0.00"),
    (0, -2, "0"),
    (-100, 2, "-1.00"),
    (99, 2, "0.99"),
    (2**64, 0, "18446744073709551616"),
    (10**18, 0, "1000000000000000000"),
    (10**38 - 1, 38, "0." + "9" * 38),
    (-(2**127), 1, f"-{2**127 // 10}.8"),
]


@pytest.mark.parametrize(("value", "scale", "text"), DECIMALS)
def test_decimal(value: int, scale: int, text: str) -> None:
    for kind in (pa.decimal128(38, scale), pa.decimal256(76, scale)):
        assert text_of(kind, value) == text


@given(st.integers(1, 255), st.data(), st.integers(-90, 90))
def test_decimals(bits: int, data: st.DataObject, scale: int) -> None:
    value = data.draw(st.integers(-(2**bits), 2**bits - 1))
    with localcontext() as context:
        context.prec = 400
        text = format(Decimal(value).scaleb(-scale), "f")
    if bits < 128:
        assert text_of(pa.decimal128(38, scale), value) == text
    assert text_of(pa.decimal256(76, scale), value) == text
