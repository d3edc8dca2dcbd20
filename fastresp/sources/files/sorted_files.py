"""Sort the rows of files with DuckDB, without changing any value."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace

import duckdb
import pyarrow as pa

from ...outcome.errors import SourceError
from .query import FilesSource, Query, in_order
from .reading import NUMBER, ColumnRequest, FileSet
from .schemas import as_bytes, cast_column

__all__ = ["SortedFiles"]

# Memory for this many rows is added to the limit for narrow rows, because DuckDB keeps rows in
# memory while it merges sorted parts. Measured with 300,000 to 1,200,000 rows: for rows of 750
# bytes, 128 MB fail and 240 MB work; for 1,500 bytes, 192 MB fail and 256 MB work; for 3,000 bytes,
# 256 MB fail and 512 MB work.
MERGED_ROWS = 150_000
NARROW_BYTES = 128_000_000
# The maximum memory limit: otherwise a few huge rows would raise the limit without bound.
MAX_BYTES = 4_000_000_000
# The maximum average size of narrow rows, in bytes.
NARROW_ROW_BYTES = 256.0
NOT_IN_DUCKDB = re.compile("halffloat|decimal256")


class SortedFiles(Query):
    """One pass over files, with the rows sorted.

    fastresp reads the files: DuckDB would infer types, such as numbers in CSV.
    """

    _error_prefix = "sorting the rows failed"

    def __init__(
        self,
        files: FileSet,
        limit: int | None,
        sort_by: Sequence[str],
        request: ColumnRequest | None,
    ) -> None:
        super().__init__(files, limit, sort_by)
        if request is not None and request.columns is not None:
            request = replace(request, columns=request.columns | set(sort_by))
        self._request = request

    def _define_tables(self) -> None:
        source = SortableSource(self._files, self._request)
        source.allow = self._allow
        self._tables["source"] = source
        self._fields = [_decoded_field(field) for field in source.schema]
        for field in self._fields:
            if NOT_IN_DUCKDB.search(str(field.type)):
                raise _unsortable(field)
        if self._fields:  # JSON without rows has no columns
            self._connection.register("source", source)

    def _allow(self, row_bytes: float) -> None:
        """Raise the memory limit so that DuckDB can sort rows of this size."""
        limit = min(int(NARROW_BYTES + MERGED_ROWS * row_bytes), MAX_BYTES)
        self._connection.cursor().execute(f"SET memory_limit = '{limit}B'")

    def _result(self) -> duckdb.DuckDBPyRelation:
        if not self._fields:
            return self._connection.sql("SELECT 1 AS c0 WHERE false")
        names = [field.name for field in self._fields]
        return self._connection.sql(in_order("source", names, self._sort_by, self._key))

    def _key(self, index: int) -> str:
        if self._fields[index].metadata == NUMBER:
            return f"TRY_CAST(c{index} AS DOUBLE), c{index}"
        return f"c{index}"

    def _schema(self) -> pa.Schema:
        for field, found in zip(self._fields, self._reader.schema, strict=bool(self._fields)):
            try:
                pa.nulls(0, found.type).cast(_duckdb_type(field))
            except pa.ArrowException as error:
                raise _unsortable(field) from error
        return pa.schema(self._fields)

    def _restore(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        arrays = [
            _to_type(cast_column(array, _duckdb_type(field)), field.type)
            for array, field in zip(batch.columns, self._fields, strict=True)
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=pa.schema(self._fields))


class SortableSource(FilesSource):
    """The columns of files, converted to types that DuckDB stores unchanged.

    Attributes:
        allow: called with the mean row size of a batch in bytes, if this is the largest mean so
            far.
    """

    allow: Callable[[float], None]
    _row_bytes = NARROW_ROW_BYTES

    def _duckdb_schema(self) -> pa.Schema:
        kinds = [_duckdb_type(_decoded_field(field)) for field in self.schema]
        return pa.schema([(f"c{index}", kind) for index, kind in enumerate(kinds)])

    def _to_duckdb(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        row_bytes = batch.get_total_buffer_size() / max(1, batch.num_rows)
        if row_bytes > self._row_bytes:
            self.allow(row_bytes)
            self._row_bytes = row_bytes
        arrays = [
            _decoded(array).view(_duckdb_type(_decoded_field(field)))
            for array, field in zip(batch.columns, self.schema, strict=True)
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=self._duckdb_schema())


def _unsortable(field: pa.Field) -> SourceError:
    return SourceError(
        f"can't sort rows with column {field.name!r} of type {field.type}; write the file with "
        "another type"
    )


def _decoded_field(field: pa.Field) -> pa.Field:
    """Return the field with the type of its values, without dictionary or run-end encoding."""
    kind = field.type
    if pa.types.is_dictionary(kind) or pa.types.is_run_end_encoded(kind):
        return field.with_type(kind.value_type)
    return field


def _duckdb_type(field: pa.Field) -> pa.DataType:
    """Return a type that DuckDB stores unchanged, with the same order and memory layout.

    Text becomes bytes, because it need not be UTF-8. Times and durations become integers: DuckDB
    truncates some times to microseconds, and can't sort durations.
    """
    kind = field.type
    if _has_interval(kind):
        raise _unsortable(field)
    if isinstance(kind, pa.BaseExtensionType):
        kind = kind.storage_type
    if pa.types.is_time32(kind):
        return pa.int32()
    if pa.types.is_temporal(kind) and kind not in (pa.date32(), pa.month_day_nano_interval()):
        return pa.int64()
    return kind if field.metadata == NUMBER else as_bytes(kind)


def _has_interval(kind: pa.DataType) -> bool:
    """Return whether a type has intervals, for which pyarrow has no arrays."""
    inner = [kind.field(index).type for index in range(kind.num_fields)]
    return str(kind) in ("month_interval", "day_time_interval") or any(map(_has_interval, inner))


def _decoded(array: pa.Array) -> pa.Array:
    """Return the values of an array, without a dictionary or an extension type."""
    if isinstance(array.type, pa.BaseExtensionType):
        return array.storage
    if pa.types.is_dictionary(array.type):
        return array.dictionary_decode()
    if pa.types.is_run_end_encoded(array.type):
        import pyarrow.compute as pc  # takes 30 ms

        return pc.run_end_decode(array)
    return array


def _to_type(array: pa.Array, kind: pa.DataType) -> pa.Array:
    """Convert an array from the type returned by ``_duckdb_type()`` back to the original type."""
    if isinstance(kind, pa.BaseExtensionType):
        return pa.ExtensionArray.from_storage(kind, array.view(kind.storage_type))
    return array.view(kind)
