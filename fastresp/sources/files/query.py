"""Rows of a query, run by DuckDB."""

from __future__ import annotations

import glob
import os
import tempfile
import uuid
from collections.abc import Generator, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import duckdb
import pyarrow as pa

from ...outcome.errors import SourceError
from .damage import checked
from .delimited import OTHER_DELIMITERS
from .formats import BATCH_ROWS, columns_of
from .reading import FileOptions, Reading
from .several_files import SeveralFiles

__all__ = ["Query"]

# 5,000,000 rows of 10 columns of a Parquet file at 5 M rows/s: the process peaks at 229 MiB with
# one thread and at 291 MiB with two, with either limit; one thread also sorts them within 258 MiB.
SETTINGS: dict[str, str | bool | int | float | list[str]] = {
    "memory_limit": "128MB",
    "threads": "1",
    "preserve_insertion_order": "true",
    # A name in a query is that of a file, or source: never a variable of the caller's.
    "python_enable_replacements": "false",
}
# Of itself it takes a quote that is not closed for text.
QUOTED = """union_by_name = true, quote = '"', escape = '"', strict_mode = true"""
# JSON is not among them: read_json makes floats of its large integers, without an error.
FUNCTIONS = {
    "csv": f"read_csv({{}}, {QUOTED}",
    "tsv": f"read_csv({{}}, {QUOTED}",
    "parquet": "read_parquet({}, union_by_name = true",
}


class Query:
    """One run of a query.

    Args:
        sql: the query.
        sources: paths, or one file object, that it calls ``source``; none where it names its own.
        kinds: as which each of them is to be read.
        options: what the user says of them.
        limit: stop after so many rows.
    """

    def __init__(
        self,
        sql: str,
        sources: list[Any],
        kinds: list[str | None],
        options: FileOptions,
        limit: int | None,
    ) -> None:
        self._sql = sql
        self._sources = sources
        self._kinds = kinds
        self._options = options
        self._limit = limit
        self._rows = 0
        self._source: _Source | None = None
        # What does not fit into memory goes there; DuckDB makes it, and takes it away.
        spill = os.path.join(tempfile.gettempdir(), f"fastresp-{uuid.uuid4().hex}")
        self._connection = duckdb.connect(":memory:", config={**SETTINGS, "temp_directory": spill})

    def open(self) -> pa.Schema:
        """Begin to run the query, and give the columns of its result."""
        try:
            with self._told():
                self._connection.execute("SET TimeZone = 'UTC'")
                # It draws one on the standard output of ``python -c`` and of notebooks.
                self._connection.execute("SET enable_progress_bar = false")
                if self._sources:
                    self._name_source()
                self._check()
                self._reader = self._connection.sql(self._sql).to_arrow_reader(BATCH_ROWS)
        except BaseException:
            self._connection.close()
            raise
        return self._reader.schema

    def batches(self) -> Generator[pa.RecordBatch, None, None]:
        """Give the batches of the result."""
        try:
            while True:
                with self._told():
                    batch = next(self._reader, None)
                if batch is None:
                    return
                checked(batch, self._rows)
                left = None if self._limit is None else self._limit - self._rows
                if left is not None and left <= batch.num_rows:
                    self._rows += left
                    yield batch.slice(0, left)
                    return
                self._rows += batch.num_rows
                yield batch
        finally:
            self._connection.close()

    def interrupt(self) -> None:
        """Let the query come to its end."""
        if self._source is not None:
            self._source.interrupt()
        with suppress(duckdb.ConnectionException):  # it has come to its end
            self._connection.interrupt()

    @property
    def bad_rows(self) -> int:
        """How many rows were left out."""
        return 0 if self._source is None else self._source.bad_rows

    def fraction(self, rows: int | None = None) -> float | None:
        """How much of the result these rows are, which nobody knows of a query."""
        return None

    def place(self, row: int) -> tuple[str, int]:
        """The row of the result; it has no file."""
        if not 0 <= row < self._rows:
            raise LookupError(f"row {row:,} has not been read")
        return "", row

    def _name_source(self) -> None:
        """Give the name ``source`` to files, or to the columns of what DuckDB does not read."""
        sources, kinds = self._sources, self._kinds
        function = FUNCTIONS.get(kinds[0] or "")
        theirs = all(map(_readable, sources)) and not self._options.only_ours
        if function is None or len(set(kinds)) > 1 or not theirs:
            self._source = _Source(sources, kinds, self._options)
            self._connection.register("source", self._source)
            return
        if kinds[0] in ("csv", "tsv"):
            delimiter = _delimiter(sources, kinds[0], self._options.delimiter)
            function += f", delim = {_quoted(delimiter)}"
        paths = ", ".join(map(_quoted, sources))
        self._connection.execute(
            f"CREATE VIEW source AS SELECT * FROM {function.format(f'[{paths}]')})"
        )

    def _check(self) -> None:
        statements = self._connection.extract_statements(self._sql)
        if len(statements) != 1 or statements[0].type != duckdb.StatementType.SELECT:
            raise SourceError(
                f"a query is one SELECT, and {self._sql!r} is not; run others with DuckDB"
            )

    @contextmanager
    def _told(self) -> Iterator[None]:
        """Turn an error of DuckDB's into one of ours, and one of ours into itself."""
        try:
            yield
        except (duckdb.Error, pa.ArrowException, OSError) as error:
            if self._source is not None and self._source.failure is not None:
                raise self._source.failure from None
            # What comes behind an empty line is the query itself, or settings of a reader.
            words = str(error).partition("\n\n")[0].replace("\n", "; ")
            words, *candidates = words.split("; The search space used was:")
            if candidates:
                words += "; look for a quote that is not closed, or a row with other fields"
            raise SourceError(f"the query failed: {words}") from error


class _Source:
    """The columns of files that DuckDB does not read itself, as it takes Arrow data.

    A query may use ``source`` several times: paths are read again each time.

    Args:
        sources: paths, or one file object.
        kinds: as which each of them is to be read.
        options: what the user says of them.

    Attributes:
        failure: what ended the reading; DuckDB passes on no more than its text.
    """

    def __init__(self, sources: list[Any], kinds: list[str | None], options: FileOptions) -> None:
        self.failure: BaseException | None = None
        self._sources = sources
        self._kinds = kinds
        self._options = options
        self._readings: list[SeveralFiles] = []
        self._first: SeveralFiles | None = self._new_reading()
        self._schema = self._first.open()
        if not self._schema.names:
            raise SourceError(
                "the query failed: the source has no rows, and so no columns; leave out the query"
            )

    def __arrow_c_schema__(self) -> object:
        return self._schema.__arrow_c_schema__()

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        reader = pa.RecordBatchReader.from_batches(self._schema, self._batches())
        return reader.__arrow_c_stream__(requested_schema)

    def interrupt(self) -> None:
        """Let reads that wait for a pipe come to their end."""
        for reading in self._readings:
            reading.interrupt()

    @property
    def bad_rows(self) -> int:
        """How many rows were left out."""
        return max(reading.bad_rows for reading in self._readings)

    def _batches(self) -> Iterator[pa.RecordBatch]:
        try:
            reading, self._first = self._first, None
            if reading is None:
                reading = self._new_reading()
                reading.open()
            yield from reading.batches()
        except BaseException as error:
            self.failure = error
            raise

    def _new_reading(self) -> SeveralFiles:
        once = self._options.bad_rows not in ("error", "skip")
        if self._readings and (once or not all(map(_is_file, self._sources))):
            raise SourceError(
                "the query failed: it uses source twice; begin it with "
                "WITH s AS MATERIALIZED (FROM source)"
            )
        reading = SeveralFiles(self._sources, self._kinds, Reading(self._options), None)
        self._readings.append(reading)
        return reading


def _delimiter(sources: list[str], kind: str, given: str | None) -> str:
    """The delimiter that makes several columns of the first line of each file, or the usual one.

    DuckDB itself takes another one where a quote that is not closed is at odds with the right one.

    Raises:
        SourceError: a first line can't be read.
    """
    usual = given or ("\t" if kind == "tsv" else ",")
    others = OTHER_DELIMITERS if given is None and kind == "csv" else ""
    for each in usual + others:
        reading = Reading(FileOptions(delimiter=each))
        if all(len(columns_of(source, "csv", reading) or ()) > 1 for source in sources):
            return each
    return usual


def _quoted(text: str) -> str:
    """A text as a query has it."""
    return "'" + text.replace("'", "''") + "'"


def _is_file(source: Any) -> bool:
    """Whether this can be read again."""
    return isinstance(source, str) and os.path.isfile(source)


def _readable(source: Any) -> bool:
    """Whether DuckDB reads it: a file, not packed with bzip2, whose name is no pattern."""
    return _is_file(source) and not source.lower().endswith(".bz2") and not glob.has_magic(source)
