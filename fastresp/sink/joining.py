"""Join the blocks of a task without changing their values."""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa

from ..sources.files.casting import cast
from ..sources.several_tables import check_columns

__all__ = ["joined"]


def joined(blocks: Iterable[pa.Table], advice: str) -> pa.Table:
    """Return blocks with the same columns as one table.

    Only columns of nulls or empty lists may differ in type. If other types could differ, values
    would depend on the joined blocks: a block of floats would turn another block's integers into
    floats.

    Args:
        blocks: at least one.
        advice: how to make the types of columns equal, for the message.

    Raises:
        SourceError: the name or the type of a column differs.
    """
    tables = list(blocks)
    schema = tables[0].schema.remove_metadata()
    for number, table in enumerate(tables[1:], 2):
        schema = with_types(schema, table.schema)
        check_columns(table.schema, schema, "block", number, advice)
    return pa.concat_tables([cast(table.select(schema.names), schema) for table in tables])


def with_types(schema: pa.Schema, other: pa.Schema) -> pa.Schema:
    """Return a schema whose null types are replaced by the types of another schema."""
    fields = {field.name: field.type for field in other}
    kinds = [with_type(field.type, fields.get(field.name, field.type)) for field in schema]
    return pa.schema(list(zip(schema.names, kinds, strict=True)))


def with_type(kind: pa.DataType, other: pa.DataType) -> pa.DataType:
    """Return a type whose null types, including in lists, are replaced from another type."""
    if pa.types.is_null(kind):
        return other
    if pa.types.is_list(kind) and pa.types.is_list(other):
        return pa.list_(with_type(kind.value_type, other.value_type))
    return kind
