"""A digest depends only on the rows, not on their batches."""

from __future__ import annotations

import pickle
from typing import Any

import pyarrow as pa
import pytest

from fastresp.sink.sink import DIGEST_ROWS, digest

COLUMNS: list[Any] = [
    pa.array([1, None, 3], pa.int32()),
    pa.array([True, None, False]),
    pa.array(["a", None, "c"]),
    pa.array(["a" * 20, None, "c" * 20], pa.string_view()),
    pa.array(["a", None, "c"]).dictionary_encode(),
    pa.array([[1.5, 2], None, []], pa.list_(pa.float32())),
    pa.array([[1.5, 2], None, [3, 4]], pa.list_(pa.float32(), 2)),
    pa.array([{"a": 1, "b": "x"}, None, {"a": None, "b": "y"}]),
    pa.nulls(3),
]


@pytest.mark.parametrize("column", COLUMNS, ids=lambda column: str(column.type)[:12])
def test_digest_depends_only_on_the_rows(column: Any) -> None:
    table = pa.table({"a": column})
    found = digest(table)
    assert found.startswith("3 rows, ")
    # Other batches, a slice, and other bytes under the null.
    assert digest(pa.concat_tables([table[:1], table[1:2], table[2:]])) == found
    assert digest(pa.concat_tables([table, table])[3:]) == found
    assert digest(pickle.loads(pickle.dumps(table))) == found
    assert digest(table.replace_schema_metadata({"some": "metadata"})) == found
    # Other rows, another order, another name.
    if column.type != pa.null():
        assert digest(pa.concat_tables([table[2:], table[1:2], table[:1]])) != found
    assert digest(table[:2]) != found
    assert digest(table.rename_columns(["b"])) != found


def test_bytes_under_nulls_are_ignored() -> None:
    validity = pa.py_buffer(bytes([0b101]))
    first, second = (
        pa.Array.from_buffers(pa.int64(), 3, [validity, pa.array([1, hidden, 3]).buffers()[1]])
        for hidden in (2, 99)
    )
    assert digest(pa.table({"a": first})) == digest(pa.table({"a": second}))


def test_many_rows() -> None:
    """The digest covers every row, for any division into batches."""
    table = pa.table({"a": range(2 * DIGEST_ROWS + 7)})
    chunks = pa.table(
        {"a": pa.chunked_array([range(DIGEST_ROWS - 3), range(DIGEST_ROWS - 3, len(table))])}
    )
    assert digest(chunks) == digest(table)
    changed = pa.table({"a": [*range(2 * DIGEST_ROWS + 6), 0]})
    assert digest(changed) != digest(table)
