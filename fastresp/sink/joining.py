"""Join the blocks of a task, without changing values."""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa

from ..sources.files.schemas import cast
from ..sources.several_tables import check_columns

__all__ = ["joined"]


def joined(blocks: Iterable[pa.Table], advice: str) -> pa.Table:
    """Return blocks with the same columns as one table.

    A column may differ in type only if it has only nulls or empty lists in one of the blocks.
    Otherwise, a block of floats would turn the integers of another block into floats.

    Args:
        blocks: at least one.
        advice: how to make the column types equal, for the error message.

    Raises:
        SourceError: the blocks differ in the name or the type of a column.
    """
    tables = list(blocks)
    schema = tables[0].schema.remove_metadata()
    for number, table in enumerate(tables[1:], 2):
        schema = with_types(schema, table.schema)
        check_columns(table.schema, schema, "block", number, advice)
    return pa.concat_tables([cast(table.select(schema.names), schema) for table in tables])


def with_types(schema: pa.Schema, other: pa.Schema) -> pa.Schema:
    """Return a schema in which types of another schema replace the type null."""
    fields = {field.name: field.type for field in other}
    kinds = [with_type(field.type, fields.get(field.name, field.type)) for field in schema]
    return pa.schema(list(zip(schema.names, kinds, strict=True)))


def with_type(kind: pa.DataType, other: pa.DataType) -> pa.DataType:
    """Return ``other`` instead of the type null, also inside lists; else return ``kind``."""
    if pa.types.is_null(kind):
        return other
    if pa.types.is_list(kind) and pa.types.is_list(other):
        return pa.list_(with_type(kind.value_type, other.value_type))
    return kind
