"""Tables: columns that are read while they are loaded."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Sequence
from importlib import import_module
from typing import Any, Literal, Self

from ...encode.columns.exporting import Described
from ...outcome.errors import SourceError
from ...outcome.messages import shown_query
from ...outcome.passwords import masked, masked_url
from ...outcome.report import as_html
from .checks import check_unused
from .input import StopEvent, name_of
from .partitions import Partitions
from .read_ahead import ReadAhead, SourcePass
from .reading import DEFAULT_OPTIONS, ColumnRequest, FileOptions
from .remote import current

__all__ = ["Table", "import_optional"]


class Table:
    """Columns that are read while they are loaded, as returned by ``read``.

    Any consumer of Arrow data accepts a Table, such as ``pyarrow.table(table)``. Paths and queries
    are read again each time; a file object can be read only once.

    Attributes:
        files: the paths, or the name of the file object.
        error: the exception that ended the last read; None if there was none. An Arrow stream
            passes on only the text of an exception.
    """

    def __init__(
        self,
        files: list[Any],
        kinds: list[str | None],
        *,
        sql: str | None = None,
        options: FileOptions = DEFAULT_OPTIONS,
        limit: int | None = None,
        sort_by: Sequence[str] = (),
    ) -> None:
        import_optional("pyarrow")  # to fail now, rather than when the table is loaded
        self._sources = files
        self._kinds = kinds
        self._sql = sql
        self._options = options
        self._limit = limit
        self._sort_by = sort_by
        self._pass: SourcePass | None = None
        self._ahead: ReadAhead | None = None
        self._streams: BatchStreams | None = None
        self._rows: int | Literal[False] | None = False

    def __repr__(self) -> str:
        what = [*self.files] if self._sql is None else [*self.files, shown_query(self._sql)]
        return f"<fastresp.Table of {', '.join(what)}>"

    def _repr_html_(self) -> str:
        pairs = [
            ("files", self.files),
            ("sql", self._sql and shown_query(self._sql)),
            ("sort_by", self._sort_by),
        ]
        return as_html("Table", "", [pair for pair in pairs if pair[1]])

    @property
    def files(self) -> list[str]:
        """The paths, or the name of the file object."""
        return list(map(name_of, self._sources))

    def description(self, file_of: Callable[[str], str]) -> dict[str, str]:
        """Return, by name, the settings that determine the rows and their order.

        The paths are not included: a file may be named in several ways.

        Args:
            file_of: returns an identifier of a file.

        Raises:
            SourceError: a source is a file object, which can be read only once, or it is unknown
                which data the query reads.
        """
        if self._sql is not None and not self._sources:
            raise SourceError(
                "it is unknown which files this query reads, so a load of it can't resume: pass "
                "the files, and call them source in the query"
            )
        if not all(isinstance(file, str) for file in self._sources):
            raise SourceError(f"{self.files[0]} can be read only once; pass a path")
        if self._sql is not None:
            from .query_tables import reads_others

            other = reads_others(self._sql)
            if other:
                raise SourceError(
                    f"it is unknown whether {masked_url(other)}, which this query reads, will be "
                    "the same when the load is resumed: pass the files, and call them source in "
                    "the query, or write its result to a file first"
                )
        found = {
            "source": "; ".join(map(file_of, self._sources)),
            "query": masked(str(self._sql)),  # no digest of a password: it could be guessed
            "format": repr((self._kinds, self._options)),
            "limit": str(self._limit),
            "order": repr(self._sort_by),
        }
        partitions = [Partitions(file, self._options.pattern).values for file in self._sources]
        return found | {"partitions": repr(partitions)} if any(partitions) else found

    @property
    def error(self) -> BaseException | None:
        """The exception that ended the last read; None if there was none."""
        return None if self._ahead is None else self._ahead.error

    @property
    def rows(self) -> int | None:
        """The number of rows from the metadata of all files; None if a file has no such metadata.

        Raises:
            SourceError, OSError: a file can't be read.
        """
        if self._rows is False:
            self._rows = self._total(import_optional("pyarrow", ".formats").row_count)
        return self._rows

    def __length_hint__(self) -> int:
        rows = self.rows
        return NotImplemented if rows is None else rows

    def fraction(self, rows: int | None = None) -> float | None:
        """Return the share of the files that the first ``rows`` rows make up, from 0 to 1.

        Args:
            rows: number of rows, which must not decrease from call to call; None for all rows
                read, which are more than the rows consumed.

        Returns:
            The share; None if unknown.
        """
        if self._pass is None:
            return None
        part = self._pass.fraction(rows)
        if part is not None and self._limit:
            count = getattr(self._pass, "rows_read", 0) if rows is None else rows
            part = min(1.0, max(part, count / self._limit))
        return part

    def place(self, row: int) -> tuple[str, int]:
        """Return the file of a row, and the row's index in that file, counted from 0.

        For a query, and for sorted rows, the name of the file is empty, and the index is the
        row's index in the result.

        Args:
            row: index of the row in the table.

        Raises:
            LookupError: the row has not been read.
        """
        if self._pass is None:
            raise LookupError(f"row {row:,} has not been read")
        return self._pass.place(row)

    def line_numbers(self, rows: Iterable[int], stopped: StopEvent) -> dict[int, int]:
        """Return for each row the number of its line in its file, counted from 1.

        The current read is stopped first, since it may use the same file object. Rows whose line is
        unknown are left out: rows of queries, sorted rows, and rows of Parquet and Arrow, of pipes
        and URLs, of file objects that are neither files nor BytesIO, and of files that have changed
        since they were read.

        Args:
            rows: indexes of rows that have been read.
            stopped: ends the search when it is set.

        Returns:
            The line numbers, by row.

        Raises:
            OSError, SourceError: a file can't be read again.
        """
        self.close()
        over = self._ahead is not None and self._ahead.over
        if self._pass is None or not self.has_places or not over:
            return {}
        found: dict[int, int] = self._pass.line_numbers(rows, stopped)  # type: ignore[attr-defined]
        return found

    @property
    def has_places(self) -> bool:
        """Whether the file of each row is known; False for a query, and for sorted rows."""
        return self._sql is None and not self._sort_by

    @property
    def bad_rows(self) -> int:
        """The number of rows that the last read skipped because of ``bad_rows=``."""
        count: int = getattr(self._pass, "bad_rows", 0)
        return count

    @property
    def is_columnless(self) -> bool:
        """Whether the last read found no columns, as in JSON without rows."""
        return self._ahead is not None and not self._ahead.schema.names

    @property
    def skips_bad_rows(self) -> bool:
        """Whether rows that can't be read are skipped."""
        return self._options.bad_rows != "error"

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """Start reading, and return the batches as an Arrow stream.

        Raises:
            SourceError, OSError: the first file, or the query, can't be read.
        """
        return self._stream(None, requested_schema)

    def for_load(self, request: ColumnRequest, start_row: int = 0) -> LoadColumns:
        """Return the columns as a load needs them: JSON numbers and rows keep their text.

        Args:
            start_row: the first wanted row; earlier rows may be left out: see ``first_row``.
        """
        return LoadColumns(self, request, start_row)

    @property
    def first_row(self) -> int:
        """The index of the first row that the last read returned; earlier rows were left out."""
        first: int = getattr(self._pass, "first_row", 0)
        return first

    @property
    def schemas(self) -> list[tuple[str, Any]]:
        """The names and columns of the files, as far as known at the start of the last read."""
        return getattr(self._pass, "schemas", [])

    def _stream(
        self, request: ColumnRequest | None, requested_schema: object = None, start_row: int = 0
    ) -> object:
        self.close()
        self._pass = self._new_pass(request, start_row)
        ahead = self._ahead = ReadAhead(self._pass)  # from now on other threads can close it
        ahead.wait_until_open()
        self._streams = BatchStreams(ahead)
        return self._streams.stream(ahead.schema, None, requested_schema)

    def following(self) -> object:
        """Return a stream of the next batches, whose column types differ from the ended stream's.

        None if there are no more batches.
        """
        return None if self._streams is None else self._streams.following()

    def close(self) -> None:
        """Stop the current read, if any."""
        if self._ahead is not None:
            self._ahead.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _new_pass(self, request: ColumnRequest | None, start_row: int) -> SourcePass:
        if self._pass is not None and not all(isinstance(file, str) for file in self._sources):
            raise SourceError(
                f"{self.files[0]} was read already and can't be read twice; pass a path or a new "
                "file object"
            )
        if self._pass is not None:
            self._sources = list(map(current, self._sources))
        bad_rows = self._options.bad_rows
        if bad_rows not in ("error", "skip") and self._pass is None and not start_row:
            check_unused(bad_rows, "the bad rows of an earlier load")
        new: SourcePass
        if self._sql is None and self._sort_by:
            sorted_files = import_optional("duckdb", ".sorted_files")
            new = sorted_files.SortedFiles(
                self._sources, self._kinds, self._options, self._limit, self._sort_by, request
            )
        elif self._sql is None:
            several_files = import_optional("pyarrow", ".several_files")
            new = several_files.SeveralFiles(
                self._sources,
                self._kinds,
                self._options,
                request,
                self._limit,
                start_row=start_row,
                same_types=request is None,
            )
        else:
            query = import_optional("duckdb", ".query")
            new = query.Query(
                self._sql, self._sources, self._kinds, self._options, self._limit, self._sort_by
            )
        return new

    def estimated_rows(self) -> int | None:
        """Estimate the number of rows from parts of every file; None if unknown."""
        return self._total(import_optional("pyarrow", ".formats").estimated_rows)

    def _total(self, count: Callable[[str, str | None], int | None]) -> int | None:
        if self._sql is not None:
            return None
        total = 0
        for file, kind in zip(self._sources, self._kinds, strict=True):
            rows = count(file, kind) if isinstance(file, str) else None
            if rows is None:
                return None
            total += rows
        return total if self._limit is None else min(total, self._limit)


class LoadColumns(Described):
    """The columns of a Table as a load needs them; rows before ``start_row`` may be left out."""

    def __init__(self, table: Table, request: ColumnRequest, start_row: int) -> None:
        self._table = table
        self._request = request
        self._start_row = start_row

    @property
    def error(self) -> BaseException | None:
        return self._table.error

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        stream = self._table._stream(self._request, requested_schema, self._start_row)
        self.arrow_schema = self._table._streams and self._table._streams.schema
        self.unknown = getattr(self._table._pass, "unknown", {})
        if self._table._ahead is not None:
            weakref.finalize(self, self._table._ahead.close)
        return stream

    def following(self) -> object:
        """Return a stream of the next batches, as ``Table.following()`` does."""
        stream = self._table.following()
        self.arrow_schema = self._table._streams and self._table._streams.schema
        return stream


class BatchStreams:
    """The batches of a source, as one stream for each sequence of batches with the same types.

    Reading ends when Arrow releases the last stream.
    """

    def __init__(self, ahead: ReadAhead) -> None:
        self._ahead = ahead
        self.schema: Any = None  # of the current stream
        self._next_batch: Any = None  # the first batch of the next stream

    def stream(self, schema: Any, first: Any, requested_schema: object = None) -> object:
        """Return a stream of the next batches, up to a change of the schema.

        Args:
            schema: the schema of the stream.
            first: the first batch; None if it was not read yet.
            requested_schema: as for ``__arrow_c_stream__``.
        """
        import pyarrow as pa

        self.schema = schema
        batches = BatchIterator(self, schema, first)
        # Even at exit: an interpreter that ends while a thread is inside Arrow is aborted.
        weakref.finalize(batches, self._released)
        stream = pa.RecordBatchReader.from_batches(schema, batches)
        return stream.__arrow_c_stream__(requested_schema)

    def following(self) -> object:
        """Return a stream of the batches after the ended stream; None if there are no more."""
        held, self._next_batch = self._next_batch, None
        return None if held is None else self.stream(held.schema, held)

    def next(self, schema: Any) -> Any:
        """Return the next batch; None at the end, or if that batch has a different schema."""
        batch = next(self._ahead, None)
        if batch is None or batch.schema.equals(schema, check_metadata=True):
            return batch
        self._next_batch = batch
        return None

    def _released(self) -> None:
        if self._next_batch is None:
            self._ahead.close()


class BatchIterator:
    """The iterator of batches that Arrow consumes."""

    def __init__(self, parts: BatchStreams, schema: Any, first: Any) -> None:
        self._streams = parts
        self._schema = schema
        self._first = first

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Any:
        batch, self._first = self._first, None
        if batch is None:
            batch = self._streams.next(self._schema)
        if batch is None:
            raise StopIteration
        return batch


def import_optional(package: str, module: str | None = None) -> Any:
    """Import an optional package; then import and return our module that needs it, if any."""
    try:
        import_module(package)
    except ImportError as error:
        raise ImportError(
            f"reading files needs {package}, which is not installed: pip install 'fastresp[files]'"
        ) from error
    return import_module(module, __package__) if module else None
