"""Rows of structured NumPy arrays: their fields by name, by position, and as pairs."""

from __future__ import annotations

import io

import numpy as np
import pytest
from columns import dumped as made

import fastresp
from fastresp import EncodeError, pack

ROWS = np.array(
    [(1, "Ann", 0.1), (2, "Bob", 2.5)], dtype=[("id", "i4"), ("full name", "U5"), ("v", "f4")]
)


@pytest.mark.parametrize("rows", [ROWS, ROWS.view(np.recarray)], ids=["array", "recarray"])
def test_fields(rows: np.ndarray) -> None:
    expected = fastresp.pack_many([("SET", 1, "0.1"), ("SET", 2, "2.5")])
    assert made(rows, "SET {id} {v}") == made(rows, "SET {0} {2}") == expected
    expected = pack("HSET", 1, "full name", "Ann", "v", "0.1")
    expected += pack("HSET", 2, "full name", "Bob", "v", "2.5")
    assert made(rows, "HSET {id} {**}") == made(rows, "HSET {0} {**}") == expected


def test_unknown_name() -> None:
    with pytest.raises(fastresp.TemplateError, match="its fields are id, full name, v"):
        fastresp.dump(ROWS, "SET {name} v", io.BytesIO())


MASKED = np.ma.array([[1, 2], [3, 4]], mask=[[0, 1], [0, 0]])
NAMED = np.ma.array([(1, 2.5), (3, 4.5)], [("id", "i4"), ("x", "f4")], mask=[(0, 1), (0, 0)])


def test_masked_elements_are_nulls() -> None:
    wanted = pack("SET", 3, 4)
    for rows in (MASKED, [tuple(row) for row in MASKED], [list(row) for row in MASKED]):
        assert made(rows, "SET {0} {1}", nulls="skip") == wanted
        assert made(rows, "SET {0} x{1}", nulls="skip") == pack("SET", 3, "x4")
        assert made(rows, "SET {0} {1}", nulls="empty") == pack("SET", 1, "") + wanted
        with pytest.raises(EncodeError, match=r"row 0 \(key '1'\), .* cannot send None"):
            made(rows, "SET {0} {1}")
    assert made(NAMED, "HSET {id} {**}") == made(NAMED, "HSET {0} x {x}", nulls="skip")
    assert made(NAMED, "HSET {id} {**}", nulls="skip") == pack("HSET", 3, "x", np.float32(4.5))
    assert made(np.ma.array([1, 2], mask=[1, 0]), "SADD k {0}", nulls="skip") == pack(
        "SADD", "k", 2
    )
    row = {"v": np.ma.array([1.0, 2.0], mask=[0, 1]), "n": np.ma.masked}
    assert made([row], "SADD k {*v}", nulls="skip") == pack("SADD", "k", 1.0)
    assert made([row], "SET k {n!json}") == pack("SET", "k", "null")
    assert made([{"n": {"a": np.ma.masked}}], "SET k {n!json}") == pack("SET", "k", '{"a":null}')
    with pytest.raises(EncodeError, match="item 1 is masked"):
        made([row], "SET k {v!f32}")
    plain = np.ma.array([1.0, 2.0], mask=[0, 0])
    assert made([{"v": plain}], "SET k {v!f32}") == made([{"v": plain.data}], "SET k {v!f32}")
    with pytest.raises(EncodeError, match="cannot send None"):
        pack("SET", "k", np.ma.masked)
