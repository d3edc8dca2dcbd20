"""Arrow data of engines: blocks of rows to write, and hashes to read as columns of given types."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from ..encode.key_columns import as_pattern
from ..replies.fetch_hashes import fetch_hashes
from ..resp.slots import SLOTS
from ..server.options import check_timeout
from ..server.settings import with_password
from ..sources.files.columnar import cast
from ..sources.several_tables import check_columns

__all__ = ["HashPartitions", "in_utc", "join_blocks"]


def join_blocks(blocks: Iterable[pa.Table], advice: str) -> pa.Table:
    """Return blocks with the same columns as one table.

    A column may differ in type only if it has only nulls or empty lists in one of the blocks, or a
    narrower type than in the first block. So a block of floats can't turn the integers of another
    block into floats.

    Args:
        blocks: at least one.
        advice: how to make the column types equal, for the error message.

    Raises:
        SourceError: the blocks differ in the name or the type of a column.
    """
    tables = list(blocks)
    schema = tables[0].schema.remove_metadata()
    for number, table in enumerate(tables[1:], 2):
        schema = _with_types(schema, table.schema)
        check_columns(table.schema, schema, "block", number, advice)
    return pa.concat_tables([cast(table.select(schema.names), schema) for table in tables])


def _with_types(schema: pa.Schema, other: pa.Schema) -> pa.Schema:
    """Return a schema in which the type null is replaced by types of the schema ``other``."""
    fields = {field.name: field.type for field in other}
    kinds = [_with_type(field.type, fields.get(field.name, field.type)) for field in schema]
    return pa.schema(list(zip(schema.names, kinds, strict=True)))


def _with_type(kind: pa.DataType, other: pa.DataType) -> pa.DataType:
    """Return ``kind``; the type null is replaced by ``other``, even inside lists."""
    if pa.types.is_null(kind):
        return other
    if pa.types.is_list(kind) and pa.types.is_list(other):
        return pa.list_(_with_type(kind.value_type, other.value_type))
    return kind


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
    children = [kind.field(at) for at in range(kind.num_fields)]
    children = [each.with_type(_type_in_utc(each.type)) for each in children]
    if pa.types.is_struct(kind):
        return pa.struct(children)
    if pa.types.is_map(kind):
        return pa.map_(*children[0].type.fields, keys_sorted=kind.keys_sorted)
    if pa.types.is_list(kind):
        return pa.list_(children[0])
    return kind


@dataclass
class HashPartitions:
    """The hashes to read, their columns, and the number of parts.

    Attributes:
        schema: the columns and their types. One column has the part of the key that the pattern's
            placeholder matches; if the pattern has no placeholder, the column ``key`` has the whole
            key. Each other column has the field with the column's name.
        pattern: as for ``fetch_hashes``, such as ``"user:{id}"`` or ``"user:*"``.
        server: a URL; None for the environment variable ``REDIS_URL`` of each task.
        password: the server's password, if it is not in the URL.
        partitions: number of parts. Each part returns the keys of a range of slots. On a single
            server, each part scans all keys.
        timeout: as for ``fetch_hashes``.

    Raises:
        ValueError: the schema lacks the pattern's column, has only this column, or has a type that
            can't be parsed from text; or a number is invalid.
    """

    schema: pa.Schema
    pattern: str
    server: str | None = None
    password: str | None = field(default=None, repr=False)
    partitions: int = 1
    timeout: float | None = 30.0

    def __post_init__(self) -> None:
        column = as_pattern(self.pattern).column
        if column not in self.schema.names:
            raise ValueError(
                f"the pattern {self.pattern!r} needs a column {column!r}, which the schema lacks"
            )
        if len(self.schema) == 1:
            raise ValueError(f"the schema has only {column!r}; add a field of the hashes")
        if not isinstance(self.partitions, int) or not 1 <= self.partitions <= SLOTS:
            raise ValueError(f"partitions must be 1 to {SLOTS:,}, not {self.partitions!r}")
        if not isinstance(self.timeout, int | float | None):
            raise ValueError(f"timeout must be a number of seconds, not {self.timeout!r}")
        check_timeout(self.timeout)
        check_types(self.schema)

    def slot_ranges(self) -> list[range]:
        """Return the slots of each part."""
        ends = [SLOTS * number // self.partitions for number in range(self.partitions + 1)]
        return [range(first, end) for first, end in pairwise(ends)]

    def read(self, slots: range) -> Iterator[pa.RecordBatch]:
        """Yield the hashes of a part, given the part's slots.

        Raises:
            ValueError: a value does not fit the type of its column.
            others: as in ``fetch_hashes``.
        """
        column = as_pattern(self.pattern).column
        binary = [each.name for each in self.schema if pa.types.is_binary(each.type)]
        hashes: Any = fetch_hashes(
            self.pattern,
            [name for name in self.schema.names if name != column],
            server=with_password(self.server, self.password),
            binary=binary,
            timeout=self.timeout,
            slots=slots,
        )
        with hashes:
            for batch in pa.RecordBatchReader.from_stream(hashes):
                yield parse_batch(batch, self.schema, column)


def check_types(schema: pa.Schema) -> None:
    """Raise ValueError unless values of each column's type can be parsed from text."""
    for each in schema:
        try:
            pa.array([], pa.string()).cast(each.type)
        except pa.ArrowNotImplementedError:
            raise ValueError(
                f"column {each.name!r} can't be read as {each.type}; read it as STRING"
            ) from None


def parse_batch(batch: pa.RecordBatch, schema: pa.Schema, key: str) -> pa.RecordBatch:
    """Convert a batch of text to the types and the column order of a schema.

    Args:
        key: the name of the column with the keys, or with a part of each key.

    Raises:
        ValueError: a value can't be parsed as its type; the message names the column and the key.
    """
    keys = batch.column(key)
    return pa.record_batch(
        [_parse_column(batch.column(each.name), each, keys) for each in schema], schema
    )


def _parse_column(column: pa.Array, wanted: pa.Field, keys: pa.Array) -> pa.Array:
    if column.null_count and not wanted.nullable:
        key = keys[column.is_null().index(True).as_py()]
        raise ValueError(
            f"column {wanted.name!r} is missing in the hash of {key.as_py()!r}, but is not "
            "nullable in the schema; make the column nullable"
        )
    try:
        return _as_type(column, wanted.type)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        first = _first_invalid(column, wanted.type)
        where = "" if first is None else f" in the hash of {keys[first].as_py()!r}"
        raise ValueError(
            f"column {wanted.name!r}{where} can't be read as {wanted.type}: {error}"
        ) from None


def _as_type(column: pa.Array, wanted: pa.DataType) -> pa.Array:
    return _parse_times(column, wanted) if pa.types.is_timestamp(wanted) else column.cast(wanted)


def _first_invalid(column: pa.Array, wanted: pa.DataType) -> int | None:
    """Return the index of the first value that can't be converted; None if all values can."""
    for at in range(len(column)):
        try:
            _as_type(column.slice(at, 1), wanted)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
            return at
    return None


def _parse_times(column: pa.Array, wanted: pa.DataType) -> pa.Array:
    """Parse timestamps. If the type has a time zone, texts without an offset are in UTC."""
    if wanted.tz is None:
        return column.cast(wanted)
    zoned = pc.match_substring_regex(column, r":\d\d.*(Z|[+-]\d\d(:?\d\d)?)$")
    dates = pc.match_substring_regex(column, r"^\d{4}-\d\d-\d\d$")
    zone = pc.if_else(zoned, "", pc.if_else(dates, "T00:00Z", "Z"))
    return pc.binary_join_element_wise(column, zone, "").cast(wanted)
