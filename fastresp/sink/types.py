"""Text of hashes as values of Arrow types."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

__all__ = ["check_types", "in_utc", "parsed"]


def in_utc(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return a batch with its points in time in UTC, and no longer in the zone of a session.

    Those in lists, maps and structs, too.
    Before there were time zones, offsets had seconds, which others can't read.
    """
    fields = [each.with_type(_type_in_utc(each.type)) for each in batch.schema]
    wanted = pa.schema(fields, batch.schema.metadata)
    return batch if wanted == batch.schema else batch.cast(wanted)


def _type_in_utc(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_timestamp(kind):
        return kind if kind.tz is None else pa.timestamp(kind.unit, "UTC")
    inner = [kind.field(at) for at in range(kind.num_fields)]
    inner = [each.with_type(_type_in_utc(each.type)) for each in inner]
    if pa.types.is_struct(kind):
        return pa.struct(inner)
    if pa.types.is_map(kind):
        return pa.map_(*inner[0].type.fields, keys_sorted=kind.keys_sorted)
    if pa.types.is_list(kind):
        return pa.list_(inner[0])
    return kind


def check_types(schema: pa.Schema) -> None:
    """Check that each column has a type that text can be parsed as.

    Raises:
        ValueError: one has not.
    """
    for each in schema:
        try:
            pa.array([], pa.string()).cast(each.type)
        except pa.ArrowNotImplementedError:
            raise ValueError(
                f"column {each.name!r} can't be read as {each.type}; read it as STRING"
            ) from None


def parsed(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Return a batch of text as one of the types of a schema, with its columns in that order.

    Raises:
        ValueError: a value is no text of its type; the message names the column.
    """
    return pa.record_batch([_parsed(batch.column(each.name), each) for each in schema], schema)


def _parsed(column: pa.Array, wanted: pa.Field) -> pa.Array:
    if column.null_count and not wanted.nullable:
        raise ValueError(
            f"column {wanted.name!r} is missing in a hash, and the schema says that it never is; "
            "make the column nullable"
        )
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
    dates = pc.match_substring_regex(column, r"^\d{4}-\d\d-\d\d$")
    zone = pc.if_else(zoned, "", pc.if_else(dates, "T00:00Z", "Z"))
    return pc.binary_join_element_wise(column, zone, "").cast(wanted)
