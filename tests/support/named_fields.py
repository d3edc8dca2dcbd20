"""Rows and columns with named fields, and a check for templates that name missing fields."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import pyarrow as pa
import pytest
from carets import check_caret
from columns import dumped

from fastresp import TemplateError


def refused(data: Any, marked: str, words: str, nulls: Any = "error") -> None:
    """Check for a TemplateError that has these words, and a caret at the marker ^."""
    text = marked.replace("^", "")
    with pytest.raises(TemplateError) as caught:
        dumped(data, text, nulls=nulls)
    where = "" if caught.value.row is None else f"row {caught.value.row}: "
    check_caret(caught.value, text, marked.index("^"), where + words)


class Geo(NamedTuple):
    lat: float
    lon: float


@dataclass
class Address:
    city: str
    geo: Any = None


class Slotted:
    __slots__ = ("city", "geo")

    def __init__(self, city: str, geo: Any) -> None:
        self.city, self.geo = city, geo


CITIES = pa.array(
    [
        {"city": "Ulm", "geo": {"lat": 48.4, "lon": 10}, "tags": ["a", "b"]},
        None,
        {"city": None, "geo": None, "tags": None},
        {"city": "Bonn", "geo": {"lat": None, "lon": 7}, "tags": [None]},
        {"city": "", "geo": {"lat": 1.5, "lon": 2}, "tags": []},
    ]
)
RUNS = pa.RunEndEncodedArray.from_arrays(pa.array([2, 3, 5], "int32"), CITIES[:3])
CODES = pa.DictionaryArray.from_arrays(pa.array([3, None, 0, 1, 3], "int8"), CITIES)
VECTORS = pa.array([{"v": [1, 2]}, None, {"v": None}, {"v": [3, 4]}, {"v": [5, 6]}])
BASE = pa.table({"id": range(5), "at": CITIES, "vec": VECTORS, "name": ["a", "b", None, "d", "e"]})
