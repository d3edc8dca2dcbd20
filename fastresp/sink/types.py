"""Convert the text in hashes to values of Arrow types."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from ..sources.files.schemas import cast

__all__ = ["check_types", "in_utc", "parsed"]


def in_utc(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Convert the timestamps of a batch to UTC, including timestamps in nested columns.

    In other time zones, times before the introduction of standard time have UTC offsets with
    seconds, which other programs can't parse.
    """
    fields = [each.with_type(_type_in_utc(each.type)) for each in batch.schema]
    wanted = pa.schema(fields, batch.schema.metadata)
    return cast(batch, wanted)


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
    """Check that values of each column's type can be parsed from text.

    Raises:
        ValueError: values of a column's type can't be parsed from text.
    """
    for each in schema:
        try:
            pa.array([], pa.string()).cast(each.type)
        except pa.ArrowNotImplementedError:
            raise ValueError(
                f"column {each.name!r} can't be read as {each.type}; read it as STRING"
            ) from None


def parsed(batch: pa.RecordBatch, schema: pa.Schema, key: str) -> pa.RecordBatch:
    """Convert a batch of text to the types and the column order of a schema.

    Args:
        batch: the batch.
        schema: the schema.
        key: the name of the column with the keys, or with a part of each key.

    Raises:
        ValueError: a value can't be parsed as its type; the message names the column and the key.
    """
    keys = batch.column(key)
    return pa.record_batch(
        [_parsed(batch.column(each.name), each, keys) for each in schema], schema
    )


def _parsed(column: pa.Array, wanted: pa.Field, keys: pa.Array) -> pa.Array:
    if column.null_count and not wanted.nullable:
        key = keys[column.is_null().index(True).as_py()]
        raise ValueError(
            f"column {wanted.name!r} is missing in the hash of {key.as_py()!r}, but is not "
            "nullable in the schema; make the column nullable"
        )
    try:
        return _as_type(column, wanted.type)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        first = _first_refused(column, wanted.type)
        where = "" if first is None else f" in the hash of {keys[first].as_py()!r}"
        raise ValueError(
            f"column {wanted.name!r}{where} can't be read as {wanted.type}: {error}"
        ) from None


def _as_type(column: pa.Array, wanted: pa.DataType) -> pa.Array:
    return _times(column, wanted) if pa.types.is_timestamp(wanted) else column.cast(wanted)


def _first_refused(column: pa.Array, wanted: pa.DataType) -> int | None:
    """Return the index of the first value that can't be converted; None if all values can."""
    for at in range(len(column)):
        try:
            _as_type(column.slice(at, 1), wanted)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
            return at
    return None


def _times(column: pa.Array, wanted: pa.DataType) -> pa.Array:
    """Parse timestamps. If the type has a time zone, texts without an offset are in UTC."""
    if wanted.tz is None:
        return column.cast(wanted)
    zoned = pc.match_substring_regex(column, r":\d\d.*(Z|[+-]\d\d(:?\d\d)?)$")
    dates = pc.match_substring_regex(column, r"^\d{4}-\d\d-\d\d$")
    zone = pc.if_else(zoned, "", pc.if_else(dates, "T00:00Z", "Z"))
    return pc.binary_join_element_wise(column, zone, "").cast(wanted)
