"""Text of hashes as values of Arrow types."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

__all__ = ["parsed"]


def parsed(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Return a batch of text as one of the types of a schema, with its columns in that order.

    Raises:
        ValueError: a value is no text of its type; the message names the column.
    """
    return pa.record_batch([_parsed(batch.column(each.name), each) for each in schema], schema)


def _parsed(column: pa.Array, wanted: pa.Field) -> pa.Array:
    try:
        if pa.types.is_timestamp(wanted.type):
            return _times(column, wanted.type)
        return column.cast(wanted.type)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise ValueError(
            f"column {wanted.name!r} can't be read as {wanted.type}: {error}"
        ) from None


def _times(column: pa.Array, wanted: pa.DataType) -> pa.Array:
    """Return points in time; those without an offset are in UTC, or the column has no time zone."""
    if wanted.tz is None:
        return column.cast(wanted)
    zoned = pc.match_substring_regex(column, r":\d\d.*(Z|[+-]\d\d(:?\d\d)?)$")
    return pc.if_else(zoned, column, pc.binary_join_element_wise(column, "Z", "")).cast(wanted)
