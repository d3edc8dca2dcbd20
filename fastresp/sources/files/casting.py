"""Cast batches to the types of a schema."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

__all__ = ["cast"]


def cast(batch: Any, schema: pa.Schema) -> Any:
    """Return a RecordBatch or Table with the types of a schema, in the same column order.

    A column that already has the wanted type is not cast, because pyarrow's cast can damage the
    nested columns of a slice.

    Raises:
        pa.ArrowException: a value can't be cast.
    """
    if batch.schema.types == schema.types:
        return batch
    columns = [
        batch.column(index) if found == wanted else batch.column(index).cast(wanted)
        for index, (found, wanted) in enumerate(zip(batch.schema.types, schema.types, strict=True))
    ]
    return type(batch).from_arrays(columns, schema=schema)
