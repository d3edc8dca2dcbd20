"""Run a query with DuckDB, and read its rows."""

from __future__ import annotations

import glob
import os
import tempfile
import uuid
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Any

import duckdb
import pyarrow as pa

from ...encode.columns.exporting import altered, check_names, names_of
from ...outcome.errors import SourceError
from ...outcome.messages import shown_query
from ...outcome.passwords import cause_shown, masked, masked_url
from .checks import InitialState
from .formats import BATCH_ROWS, columns_of
from .paths import files_of, format_of, is_file, pattern_of
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
from .reading import DEFAULT_OPTIONS, ColumnRequest, FileSet, Reading
from .remote import is_remote
from .schemas import cast_column, validated
from .several_files import SeveralFiles

__all__ = ["FilesSource", "Query", "in_order"]

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
            self._define_source()
        self._define_files()

    def _define_source(self) -> None:
        """Define ``source``: as Parquet files that DuckDB reads, or as columns that we read."""
        files = self._files
        if self._define_parquet("source", files):
            return
        if not _are_combined(files):
            self._register("source", FilesSource(files))
            return
        union = []
        for number, (source, kind) in enumerate(zip(files.sources, files.kinds, strict=True), 1):
            part = f"source {number}"
            self._register(part, FilesSource(FileSet([source], [kind], files.options)))
            union.append(f"FROM {as_name(part)}")
        self._connection.execute(f"CREATE VIEW source AS {' UNION ALL BY NAME '.join(union)}")

    def _define_parquet(self, name: str, files: FileSet) -> bool:
        """Let DuckDB read Parquet files as a table; return False if we have to read the files."""
        if set(files.kinds) != {"parquet"} or not all(map(_readable, files.sources)):
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
                    self._register(name, FilesSource(files))
                named.append(name)
        self._sql = with_aliases(self._sql, named)

    def _register(self, name: str, source: FilesSource) -> None:
        twin = next((each for each in self._tables if each.lower() == name.lower()), None)
        self._tables[name] = source
        if twin is not None:
            names = f"{masked_url(twin)} and {masked_url(name)}"
            raise SourceError(f"a query can't tell {names} apart; rename one file")
        self._schemas.append(source.schema)
        names = source.schema.names
        if not names:
            raise SourceError(
                f"the query failed: {source.name} has no rows, so no columns; leave out the query"
            )
        check_distinct(names)
        self._connection.register(name, source)

    def _result(self) -> duckdb.DuckDBPyRelation:
        self._check()
        result = self._connection.sql(self._sql)
        self.unknown = altered(result)
        if not self._sort_by:
            return result
        self._names = result.columns
        result.create_view(RESULT)
        return self._connection.sql(in_order(RESULT, self._names, self._sort_by))

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

    def _check(self) -> None:
        statements = self._connection.extract_statements(self._sql)
        if len(statements) != 1 or statements[0].type != duckdb.StatementType.SELECT:
            raise SourceError(
                f"a query must be one SELECT, not {shown_query(self._sql)!r}; run other "
                "statements with DuckDB"
            )

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
            if "VARCHAR" in message and any(source.is_text for source in self._tables.values()):
                message += "; the columns of CSV are text: cast them, such as price::DOUBLE"
            raise SourceError(f"{self._error_prefix}: {masked(message)}") from cause_shown(error)


def in_order(
    rows: str, names: list[str], sort_by: Sequence[str], key: Callable[[int], str] = "c{}".format
) -> str:
    """Return a query that sorts rows, and keeps the order of rows with equal keys.

    The query's columns are named ``c0``, ``c1`` and so on, because DuckDB's names ignore case.

    Args:
        rows: the name of a table or view with the columns ``names``.
        sort_by: the columns to sort by.
        key: called with a column's index; returns the SQL to sort by that column.
    """
    for name in sort_by:
        if names.count(name) != 1:
            found = "two columns have" if name in names else "no column has"
            raise SourceError(
                f"can't sort by {name!r}: {found} this name; the columns are {', '.join(names)}"
            )
    columns = ", ".join(f"c{index}" for index in range(len(names)))
    numbered = f"SELECT *, row_number() OVER () AS place FROM {rows} AS t({columns})"
    keys = ", ".join(key(names.index(name)) for name in sort_by)
    return f"SELECT {columns} FROM ({numbered}) ORDER BY {keys}, place"


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

    @property
    def name(self) -> str:
        return self._files.names[0]

    @property
    def is_text(self) -> bool:
        return all(pa.types.is_string(field.type) for field in self.schema)

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


def _readable(source: Any) -> bool:
    """Return whether DuckDB can read a source: a file whose name is not a pattern."""
    return is_file(source) and not is_remote(source) and not glob.has_magic(source)
