"""{field!ms}: times as milliseconds since 1970, the same from rows, columns and files."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from columns import dumped, outcome

import fastresp
from fastresp import EncodeError, TemplateError, pack, pack_many

WHEN = datetime(2100, 1, 1, 12, 30, 0, 7_999, tzinfo=UTC)
MS = 4102489800007
TEMPLATE = "PEXPIREAT k {at!ms}"


@pytest.mark.parametrize(
    ("value", "milliseconds"),
    [
        (WHEN, MS),
        (WHEN.astimezone(timezone(timedelta(hours=-9, minutes=-30))), MS),
        (pd.Timestamp(WHEN), MS),
        (datetime(1969, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC), -1),
        (datetime(1, 1, 1, tzinfo=UTC), -62135596800000),
        ("2100-01-01T12:30:00.007Z", MS),
        (b"2100-01-01T12:30:00.007Z", MS),
        ("2100-01-01 13:30:00.007999+01:00", MS),
        (MS, MS),
        (str(MS), MS),
        ("-5", -5),
        (np.int64(5), 5),
        (2**80, 2**80),
    ],
)
def test_values(value: Any, milliseconds: int) -> None:
    wanted = pack("PEXPIREAT", "k", milliseconds)
    assert dumped([{"at": value}], TEMPLATE) == wanted
    if not isinstance(value, int) or value < 2**63:
        column = pl.Series([value]).to_arrow() if isinstance(value, str) else pa.array([value])
        for each in (column, column.dictionary_encode()):
            assert dumped(pa.table({"at": each}), TEMPLATE) == wanted
    joined = "XADD k {at!ms}-0 a 1"
    assert dumped([{"at": value}], joined) == pack("XADD", "k", f"{milliseconds}-0", "a", 1)


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
@pytest.mark.parametrize("zone", ["UTC", "Europe/Berlin", "+05:30"])
def test_units(unit: str, zone: str) -> None:
    per_second = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}[unit]
    numbers = [0, 1, -1, 999, 1_000_001, -1_000_001, 2**33, -(2**33), None]
    table = pa.table({"at": pa.array(numbers, pa.timestamp(unit, zone))})
    wanted = [n * 1000 // per_second for n in numbers if n is not None]
    commands = pack_many([("PEXPIREAT", "k", n) for n in wanted])
    for each in (table, table[2:], pa.concat_tables([table, table])):
        times = len(each) // len(table) if len(each) >= len(table) else 0
        expected = commands * times or pack_many([("PEXPIREAT", "k", n) for n in wanted[2:]])
        assert dumped(each, TEMPLATE, nulls="skip") == expected
    with pytest.raises(EncodeError, match=r"row 8, .*column 'at', argument 2: cannot send a null"):
        dumped(table, TEMPLATE)
    assert dumped(table[8:], TEMPLATE, nulls="empty") == pack("PEXPIREAT", "k", "")


def test_seconds_that_have_no_milliseconds() -> None:
    table = pa.table({"at": pa.array([2**62], pa.timestamp("s", "UTC"))})
    with pytest.raises(EncodeError, match="not within the years 1 to 9999"):
        dumped(table, TEMPLATE)


@pytest.mark.parametrize(
    "value",
    [datetime(2100, 1, 1), date(2100, 1, 1), "2100-01-01", "2100-01-01T00:00:00", "tomorrow", "",
     "1.5", "٣", 1.5, b"\xff", "1e3"],
)  # fmt: skip
def test_values_that_are_not_instants(value: Any) -> None:
    words = "cannot send .*: !ms needs a time with its UTC offset, such as 2026-11-27T07:00:00Z"
    for data, what in ([{"at": value}], "field"), (pa.table({"at": [value]}), "column"):
        with pytest.raises(EncodeError, match=f"row 0.*{what} 'at', argument 2: {words}"):
            dumped(data, TEMPLATE)


def test_nulls_and_missing_fields() -> None:
    rows: list[dict[str, Any]] = [{"at": WHEN}, {"at": None}]
    for nulls in ("auto", "error", "skip", "empty"):
        table = pa.Table.from_pylist(rows)
        for template in (TEMPLATE, "SET k:{at!ms} 1"):
            assert outcome(rows, template, nulls) == outcome(table, template, nulls)  # type: ignore[arg-type]


def test_nested_times() -> None:
    rows = [{"a": {"at": WHEN}}]
    for data in (rows, pa.Table.from_pylist(rows)):
        assert dumped(data, "PEXPIREAT k {a.at!ms}") == pack("PEXPIREAT", "k", MS)
    for data in (pa.table({"at": [[WHEN]]}), pa.table({"at": [{"x": 1}]})):
        with pytest.raises(TemplateError, match="the column 'at' is of type"):
            dumped(data, TEMPLATE)
    for text in ("HSET k {**!ms}", "SADD k {*at!ms}", "SET k {*!ms}"):
        with pytest.raises(TemplateError):
            fastresp.Template(text)


@pytest.mark.parametrize("suffix", ["csv", "jsonl"])
def test_files(suffix: str, tmp_path: Path) -> None:
    path = tmp_path / f"x.{suffix}"
    texts = ["2100-01-01T12:30:00.007Z", str(MS)]
    if suffix == "csv":
        path.write_text("at\n" + "".join(f"{text}\n" for text in texts))
    else:
        path.write_text(json.dumps({"at": texts[0]}) + "\n" + json.dumps({"at": MS}) + "\n")
    assert dumped(fastresp.read(path), TEMPLATE) == pack("PEXPIREAT", "k", MS) * 2
