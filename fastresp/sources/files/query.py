"""Run a query with DuckDB, or sort the rows of files without changing any value."""

from __future__ import annotations

import glob
import os
import re
import tempfile
import uuid
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace

import duckdb
import pyarrow as pa

from ...encode.columns.exporting import altered, check_names, names_of
from ...outcome.errors import SourceError
from ...outcome.messages import shown_query
from ...outcome.passwords import cause_shown, masked, masked_url
from .columnar import as_bytes, cast_column, validated
from .formats import BATCH_ROWS, columns_of
from .paths import InitialState, files_of, format_of, is_file, is_local_file, pattern_of
from .query_tables import (
    as_name,
    check_distinct,
    columns_of_all,
    in_zones,
    parquet_select,
    tables_of,
    with_aliases,
)
from .read_ahead import SourcePass
from .reading import DEFAULT_OPTIONS, NUMBER, ColumnRequest, FileSet, Reading
from .several_files import SeveralFiles

__all__ = ["Query", "SortedFiles"]

# Measured with a Parquet file of 5,000,000 rows and 10 columns, at 5 M rows/s: the process peaks at
# 229 MiB with one thread, and at 291 MiB with two threads. One thread sorts these rows in 258 MiB.
SETTINGS: dict[str, str | bool | int | float | list[str]] = {
    "memory_limit": "128MB",
    "threads": "1",
    "preserve_insertion_order": "true",
    # A name in a query means a file, or ``source``, never one of the caller's Python variables.
    "python_enable_replacements": "false",
}
# The name of the user's query in the query that sorts its result.
RESULT = "fastresp_rows"
# DuckDB's own readers guess: read_csv drops rows, read_json changes large integers, and
# read_parquet casts the columns of later files.
READ_HERE = {"csv", "tsv", "jsonl", "parquet"}
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


class Query(SourcePass):
    """One execution of a query.

    Args:
        files: the files that the query calls ``source``; none if the query names its own files.
        sort_by: the names of the columns to sort the result by.
    """

    # The first words of DuckDB's error messages.
    _error_prefix = "the query failed"

    def __init__(
        self, files: FileSet, limit: int | None, sort_by: Sequence[str] = (), sql: str = ""
    ) -> None:
        super().__init__(limit)
        self._sql = sql
        self._files = files
        self._sort_by = sort_by
        self._tables: dict[str, FilesSource] = {}  # by their names in the query
        self._schemas: list[pa.Schema] = []  # of the files that the query reads
        self._initials: list[InitialState] = []  # files that DuckDB reads itself
        # DuckDB creates this folder for data that does not fit in memory, and removes it.
        spill = os.path.join(tempfile.gettempdir(), f"fastresp-{uuid.uuid4().hex}")
        self._connection = duckdb.connect(":memory:", config={**SETTINGS, "temp_directory": spill})

    def open(self) -> pa.Schema:
        try:
            with self._convert_errors():
                self._connection.execute("SET TimeZone = 'UTC'")
                # DuckDB would draw a progress bar on the standard output of ``python -c`` and in
                # notebooks.
                self._connection.execute("SET enable_progress_bar = false")
                self._define_tables()
                self._reader = self._result().to_arrow_reader(BATCH_ROWS)
                return self._schema()
        except BaseException:
            self._close()
            raise

    def batches(self) -> Generator[pa.RecordBatch, None, None]:
        try:
            while True:
                with self._convert_errors():
                    batch = next(self._reader, None)
                if batch is None:
                    for file in self._initials:
                        file.check()
                    return
                yield self._counted(self._restore(validated(batch, self.rows_read)))
                if self.rows_read == self._limit:
                    return
        finally:
            self._close()

    def interrupt(self) -> None:
        for source in self._tables.values():
            source.interrupt()
        with suppress(duckdb.ConnectionException):  # it has ended
            self._connection.interrupt()

    @property
    def bad_rows(self) -> int:
        return sum(source.bad_rows for source in self._tables.values())

    def _define_tables(self) -> None:
        if self._files.sources:
            self._define_source(self._files)
        self._define_files()

    def _define_source(self, files: FileSet) -> None:
        """Define ``source``: as Parquet files that DuckDB reads, or as columns that we read."""
        if self._define_parquet("source", files):
            return
        if not _are_combined(files):
            self._register("source", files)
            return
        union = []
        for number, (source, kind) in enumerate(zip(files.sources, files.kinds, strict=True), 1):
            part = f"source {number}"
            self._register(part, FileSet([source], [kind], files.options))
            union.append(f"FROM {as_name(part)}")
        self._connection.execute(f"CREATE VIEW source AS {' UNION ALL BY NAME '.join(union)}")

    def _define_parquet(self, name: str, files: FileSet) -> bool:
        """Let DuckDB read Parquet files as a table; return False if we have to read the files."""
        if set(files.kinds) != {"parquet"} or not all(map(is_local_file, files.sources)):
            return False
        if any(map(glob.has_magic, files.sources)):  # DuckDB would take the name for a pattern
            return False
        columns = columns_of_all(files.sources)
        select = parquet_select(files.sources, columns, files.options.pattern)
        if select is None:
            return False
        self._schemas.append(columns)
        self._initials += map(InitialState, files.sources)
        self._connection.execute(f"CREATE VIEW {as_name(name)} AS {select}")
        return True

    def _define_files(self) -> None:
        """Define the files named in the query as tables, in the same way as ``source``."""
        named = []
        for name in tables_of(self._sql):
            if name == "source" and self._files.sources:
                continue
            try:
                paths = files_of(name)
                kinds = list(map(format_of, paths))
            except (OSError, ValueError):
                continue  # DuckDB knows the name, or reports it
            if set(kinds) <= READ_HERE:
                options = replace(DEFAULT_OPTIONS, pattern=pattern_of(name, paths))
                files = FileSet(paths, kinds, options)
                if not self._define_parquet(name, files):
                    self._register(name, files)
                named.append(name)
        self._sql = with_aliases(self._sql, named)

    def _register(self, name: str, files: FileSet) -> None:
        source = FilesSource(files)
        twin = next((each for each in self._tables if each.lower() == name.lower()), None)
        self._tables[name] = source
        if twin is not None:
            names = f"{masked_url(twin)} and {masked_url(name)}"
            raise SourceError(f"a query can't tell {names} apart; rename one file")
        self._schemas.append(source.schema)
        names = source.schema.names
        if not names:
            raise SourceError(
                f"the query failed: {files.names[0]} has no rows, so no columns; leave out the "
                "query"
            )
        check_distinct(names)
        self._connection.register(name, source)

    def _result(self) -> duckdb.DuckDBPyRelation:
        statements = self._connection.extract_statements(self._sql)
        if len(statements) != 1 or statements[0].type != duckdb.StatementType.SELECT:
            raise SourceError(
                f"a query must be one SELECT, not {shown_query(self._sql)!r}; run other "
                "statements with DuckDB"
            )
        result = self._connection.sql(self._sql)
        self.unknown = altered(result)
        if not self._sort_by:
            return result
        self._names = result.columns
        result.create_view(RESULT)
        return self._in_order(RESULT, self._names)

    def _in_order(self, rows: str, names: list[str]) -> duckdb.DuckDBPyRelation:
        """Sort the rows of a table or view; rows with equal keys keep their order.

        The columns of the result are named ``c0``, ``c1`` and so on: DuckDB's names ignore case.
        """
        for name in self._sort_by:
            if names.count(name) != 1:
                found = "two columns have" if name in names else "no column has"
                raise SourceError(
                    f"can't sort by {name!r}: {found} this name; the columns are {', '.join(names)}"
                )
        columns = ", ".join(f"c{index}" for index in range(len(names)))
        numbered = f"SELECT *, row_number() OVER () AS place FROM {rows} AS t({columns})"
        keys = ", ".join(self._key(names.index(name)) for name in self._sort_by)
        return self._connection.sql(f"SELECT {columns} FROM ({numbered}) ORDER BY {keys}, place")

    def _key(self, index: int) -> str:
        """Return the SQL to sort by a column."""
        return f"c{index}"

    def _schema(self) -> pa.Schema:
        found = self._reader.schema
        if self._sort_by:
            named = zip(found, self._names, strict=True)
            found = pa.schema([field.with_name(name) for field, name in named])
        self._columns = in_zones(found, self._schemas)
        return self._columns

    def _restore(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Cast a batch of DuckDB's result to the types that ``_schema()`` returned."""
        arrays = list(map(cast_column, batch.columns, self._columns.types))
        return pa.RecordBatch.from_arrays(arrays, schema=self._columns)

    def _close(self) -> None:
        self._connection.close()
        for source in self._tables.values():
            source.close()

    @contextmanager
    def _convert_errors(self) -> Iterator[None]:
        """Turn a DuckDB error into a SourceError; if a FilesSource failed, raise its error."""
        try:
            yield
        except (duckdb.Error, pa.ArrowException, OSError) as error:
            for source in self._tables.values():
                if source.failure is not None:
                    raise source.failure from None
            # The message after an empty line is the query itself, or the settings of a reader.
            message = str(error).partition("\n\n")[0].replace("\n", "; ")
            schemas = [source.schema for source in self._tables.values()]
            if "VARCHAR" in message and any(set(each.types) <= {pa.string()} for each in schemas):
                message += "; the columns of CSV are text: cast them, such as price::DOUBLE"
            raise SourceError(f"{self._error_prefix}: {masked(message)}") from cause_shown(error)


class FilesSource:
    """The columns of files that DuckDB does not read itself, as an Arrow stream.

    A query may use ``source`` several times: paths are read again each time.

    Attributes:
        schema: the columns.
        failure: the exception that ended the last read; None if there was none. DuckDB passes on
            only the text of an exception.
    """

    def __init__(self, files: FileSet, request: ColumnRequest | None = None) -> None:
        self.failure: BaseException | None = None
        self._files = files
        self._request = request
        self._readings: list[SeveralFiles] = []
        self._first: SeveralFiles | None = self._new_reading()
        self.schema: pa.Schema = self._first.open()
        check_names(names_of(self._duckdb_schema()), "query")

    def __arrow_c_schema__(self) -> object:
        return self._duckdb_schema().__arrow_c_schema__()

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        reader = pa.RecordBatchReader.from_batches(self._duckdb_schema(), self._batches())
        return reader.__arrow_c_stream__(requested_schema)

    def interrupt(self) -> None:
        for reading in self._readings:
            reading.interrupt()

    def close(self) -> None:
        """Close the first file if no batch was read."""
        if self._first is not None:
            self._first.close()

    @property
    def bad_rows(self) -> int:
        return max(reading.bad_rows for reading in self._readings)

    def _duckdb_schema(self) -> pa.Schema:
        return self.schema

    def _to_duckdb(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        return batch

    def _batches(self) -> Iterator[pa.RecordBatch]:
        try:
            reading, self._first = self._first, None
            if reading is None:
                reading = self._new_reading()
                reading.open()
            yield from map(self._to_duckdb, reading.batches())
        except GeneratorExit:  # DuckDB stops reading, as after an error of its own
            raise
        except BaseException as error:
            self.failure = error
            raise

    def _new_reading(self) -> SeveralFiles:
        once = self._files.writes_bad_rows or not all(map(is_file, self._files.sources))
        if self._readings and once:
            raise SourceError(
                "the query failed: it uses source twice; start it with "
                "WITH s AS MATERIALIZED (FROM source)"
            )
        reading = SeveralFiles(self._files, self._request, None)
        self._readings.append(reading)
        return reading


def _are_combined(files: FileSet) -> bool:
    """Return whether files are CSV with different columns, to be combined with added nulls."""
    several = len(files.sources) > 1 and not files.writes_bad_rows
    if not several or not set(files.kinds) <= {"csv", "tsv"}:
        return False
    reading = Reading(files.options)
    first, *others = [
        set(columns_of(source, kind or "", reading) or ())
        for source, kind in zip(files.sources, files.kinds, strict=True)
    ]
    return any(names != first for names in others)


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
        return self._in_order("source", names)

    def _key(self, index: int) -> str:
        if self._fields[index].metadata == NUMBER:
            return f"TRY_CAST(c{index} AS DOUBLE), c{index}"
        return super()._key(index)

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
