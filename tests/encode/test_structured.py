"""Rows of structured NumPy arrays: their fields by name, by position, and as pairs."""

from __future__ import annotations

import io

import numpy as np
import pytest

import fastresp

ROWS = np.array(
    [(1, "Ann", 0.1), (2, "Bob", 2.5)], dtype=[("id", "i4"), ("full name", "U5"), ("v", "f4")]
)


@pytest.mark.parametrize(
    ("template", "expected"),
    [
        ("SET {id} {v}", [("SET", 1, "0.1"), ("SET", 2, "2.5")]),
        ("SET {0} {2}", [("SET", 1, "0.1"), ("SET", 2, "2.5")]),
        (
            "HSET {id} {**}",
            [
                ("HSET", 1, "full name", "Ann", "v", "0.1"),
                ("HSET", 2, "full name", "Bob", "v", "2.5"),
            ],
        ),
        (
            "HSET {0} {**}",
            [
                ("HSET", 1, "full name", "Ann", "v", "0.1"),
                ("HSET", 2, "full name", "Bob", "v", "2.5"),
            ],
        ),
    ],
)  # fmt: skip
@pytest.mark.parametrize("rows", [ROWS, ROWS.view(np.recarray)], ids=["array", "recarray"])
def test_fields(rows: np.ndarray, template: str, expected: list[tuple[object, ...]]) -> None:
    file = io.BytesIO()
    fastresp.dump(rows, template, file)
    assert file.getvalue() == fastresp.pack_many(expected)


def test_unknown_name() -> None:
    with pytest.raises(fastresp.TemplateError, match="its fields are id, full name, v"):
        fastresp.dump(ROWS, "SET {name} v", io.BytesIO())
