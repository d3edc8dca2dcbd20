"""Timestamps for engines are in UTC, at any depth of a row."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest

from fastresp.sink.arrow import in_utc

# At that time the zone was 5:53:28 ahead, which few programs can parse.
MOMENT = datetime(1850, 1, 1, tzinfo=UTC)
IN_ZONE, IN_UTC = (pa.timestamp("us", zone) for zone in ("Asia/Kolkata", "UTC"))


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (MOMENT, lambda time: time),
        ([MOMENT, None], lambda time: pa.list_(time)),
        ({"x": MOMENT, "y": 1}, lambda time: pa.struct({"x": time, "y": pa.int8()})),
        ([("a", MOMENT)], lambda time: pa.map_(pa.string(), time)),
        (
            [("a", [{"x": MOMENT}])],
            lambda time: pa.map_(pa.string(), pa.list_(pa.struct({"x": time}))),
        ),
    ],
)
def test_in_utc(value: Any, kind: Any) -> None:
    batch = pa.record_batch({"id": [1, 2], "v": pa.array([value, None], kind(IN_ZONE))})
    found = in_utc(batch)
    assert found.schema.types == [pa.int64(), kind(IN_UTC)]
    assert found.to_pylist() == batch.to_pylist()


def test_without_timestamps() -> None:
    batch = pa.record_batch({"id": [1, 2], "v": [[1], None], "local": [datetime(1850, 1, 1)] * 2})
    assert in_utc(batch) is batch
