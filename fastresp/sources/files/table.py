"""Tables: columns that are read while they are loaded."""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import fields, replace
from functools import cached_property, partial
from itertools import islice
from typing import Any, Self

from ...encode.columns.exporting import Described
from ...outcome.errors import SourceError
from ...outcome.messages import shown_query
from ...outcome.passwords import masked, masked_url
from ...outcome.report import as_html
from ...server.file_io import check_unused
from .input import StopEvent
from .paths import Partitions, is_local_file
from .read_ahead import ReadAhead, SourcePass
from .reading import ColumnRequest, FileSet, import_optional
from .remote import current, is_remote

__all__ = ["Table"]


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
        files: FileSet,
        *,
        sql: str | None = None,
        limit: int | None = None,
        sort_by: Sequence[str] = (),
    ) -> None:
        import_optional("pyarrow")  # to fail now, rather than when the table is loaded
        self._files = files
        self._sql = sql
        self._limit = limit
        self._sort_by = sort_by
        self._pass = SourcePass()
        self._ahead: ReadAhead | None = None

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
        return self._files.names

    def description(self, file_of: Callable[[str], str]) -> dict[str, str]:
        """Return, by name, the settings that determine the rows and their order.

        The paths are not included: a file may be named in several ways.

        Args:
            file_of: returns an identifier of a file.

        Raises:
            SourceError: a source is a file object, which can be read only once; or it is unknown
                what the query reads, or whether that will be the same next time.
        """
        if self._sql is not None and not self._files.sources:
            raise SourceError(
                "it is unknown which files this query reads, so a load of it can't resume: pass "
                "the files, and call them source in the query"
            )
        if not self._files.are_paths:
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
        paths, options = self._files.sources, self._files.options
        found = {
            "source": "; ".join(map(file_of, paths)),
            "query": masked(str(self._sql)),  # a password could be guessed from its digest
            "format": repr((self._files.kinds, options)),
            "limit": str(self._limit),
            "order": repr(self._sort_by),
        }
        partitions = [Partitions(path, options.pattern).values for path in paths]
        return found | {"partitions": repr(partitions)} if any(partitions) else found

    @property
    def query(self) -> str | None:
        """The SQL query without credentials; None if there is no query."""
        return None if self._sql is None else masked(self._sql)

    def local_files(self) -> list[str] | None:
        """Return the local files whose bytes determine all rows; None if there are none.

        None for URLs, pipes and file objects; for queries that read anything but these files; and
        with a limit, since most of a large file may then not be read.
        """
        sources = self._files.sources
        if not sources or self._limit is not None or not all(map(is_local_file, sources)):
            return None
        if self._sql is not None and import_optional("duckdb", ".query_tables").reads_others(
            self._sql
        ):
            return None
        return list(sources)

    def arguments(self) -> dict[str, Any] | None:
        """Return arguments of ``read`` that read the same rows again; None if there are none.

        The values can be stored as JSON, and contain no credentials.
        """
        options, kinds, sql = self._files.options, set(self._files.kinds), self._sql
        sources = [getattr(each, "url", each) for each in self._files.sources]
        texts = [each for each in (*sources, options.pattern, sql) if each is not None]
        if not self._files.are_paths or not texts or any(masked(each) != each for each in texts):
            return None
        paths = [each if is_remote(each) else os.path.abspath(each) for each in sources]
        if options.pattern is not None:
            pattern = options.pattern
            source: Any = pattern if is_remote(pattern) else os.path.abspath(pattern)
        else:
            source = paths[0] if len(paths) == 1 else paths
        given: dict[str, Any] = {"source": source if paths else sql}
        if paths and sql is not None:
            given["sql"] = sql
        if len(kinds) == 1 and None not in kinds:
            given["format"] = next(iter(kinds))
        for each in fields(options):
            value = getattr(options, each.name)
            if each.compare and value != each.default:
                given[each.name] = list(value) if isinstance(value, tuple) else value
        if self._files.writes_bad_rows:
            given["bad_rows"] = "skip"
        if self._limit is not None:
            given["limit"] = self._limit
        return given | ({"sort_by": list(self._sort_by)} if self._sort_by else {})

    @property
    def error(self) -> BaseException | None:
        """The exception that ended the last read; None if there was none."""
        return None if self._ahead is None else self._ahead.error

    @cached_property
    def rows(self) -> int | None:
        """The number of rows from the metadata of all files; None if a file has no such metadata.

        Raises:
            SourceError, OSError: a file can't be read.
        """
        return self._total(import_optional("pyarrow", ".formats").row_count)

    def __length_hint__(self) -> int:
        rows = self.rows
        return NotImplemented if rows is None else rows

    def fraction(self, rows: int | None = None) -> float | None:
        """Return the share of the files that the first ``rows`` rows make up; None if unknown.

        Args:
            rows: number of rows, which must not decrease from call to call; None for all rows
                read, including those read ahead.
        """
        part = self._pass.fraction(rows)
        if part is None or not self._limit:
            return part
        count = self._pass.rows_read if rows is None else rows
        return min(1.0, max(part, count / self._limit))

    def place(self, row: int) -> tuple[str, int]:
        """Return the file of a row, and the row's index in it, as ``SourcePass.place()`` does."""
        return self._pass.place(row)

    def line_numbers(self, rows: Iterable[int], stopped: StopEvent) -> dict[int, int]:
        """Return for each row the number of its line in its file, counted from 1.

        The current read is stopped first: it may use the same file object. Rows whose
        line is unknown are left out: rows of queries, sorted rows, and rows of Parquet, Arrow and
        RDB files, of pipes, of URLs, of file objects other than regular files and BytesIO, and of
        files that have changed.

        Args:
            rows: indexes of rows that have been read.
            stopped: ends the search when it is set.

        Raises:
            OSError, SourceError: a file can't be read again.
        """
        self.close()
        over = self._ahead is not None and self._ahead.over
        return self._pass.line_numbers(rows, stopped) if over else {}

    @property
    def has_places(self) -> bool:
        """Whether the file of each row is known; False for a query, and for sorted rows."""
        return self._sql is None and not self._sort_by

    @property
    def bad_rows(self) -> int:
        """The number of rows that the last read skipped because of ``bad_rows=``."""
        return self._pass.bad_rows

    @property
    def limit(self) -> int | None:
        """The maximum number of rows to read; None for all rows."""
        return self._limit

    @property
    def skips_bad_rows(self) -> bool:
        """Whether rows that can't be read are skipped."""
        return self._files.options.bad_rows != "error"

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """Start reading, and return the batches as an Arrow stream.

        Raises:
            SourceError, OSError: the first file, or the query, can't be read.
        """
        return TableColumns(partial(self._start, None, 0)).__arrow_c_stream__(requested_schema)

    def for_load(self, request: ColumnRequest, start_row: int = 0) -> TableColumns:
        """Return the columns as a load needs them: JSON numbers and rows keep their text."""
        return TableColumns(partial(self._start, request, start_row))

    def _start(self, request: ColumnRequest | None, start_row: int) -> ReadAhead:
        """Start reading in a thread, and wait until the first file is open."""
        self.close()
        self._pass = self._new_pass(request, start_row)
        ahead = self._ahead = ReadAhead(self._pass)  # from now on other threads can close it
        ahead.wait_until_open()
        return ahead

    def close(self) -> None:
        """Stop the current read, if any."""
        if self._ahead is not None:
            self._ahead.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _new_pass(self, request: ColumnRequest | None, start_row: int) -> SourcePass:
        files, first = self._files, self._ahead is None
        if not first and not files.are_paths:
            raise SourceError(
                f"{self.files[0]} was read already and can't be read twice; pass a path or a new "
                "file object"
            )
        if not first:
            files = self._files = replace(files, sources=list(map(current, files.sources)))
        if first and files.writes_bad_rows and not start_row:
            check_unused(files.options.bad_rows, "the bad rows of an earlier load")
        new: SourcePass
        if self._sql is not None:
            query = import_optional("duckdb", ".query")
            new = query.Query(files, self._limit, self._sort_by, self._sql)
        elif self._sort_by:
            query = import_optional("duckdb", ".query")
            new = query.SortedFiles(files, self._limit, self._sort_by, request)
        else:
            several_files = import_optional("pyarrow", ".several_files")
            new = several_files.SeveralFiles(
                files, request, self._limit, start_row=start_row, same_types=request is None
            )
        return new

    def estimated_rows(self) -> int | None:
        """Estimate the number of rows from parts of every file; None if unknown."""
        return self._total(import_optional("pyarrow", ".formats").estimated_rows)

    def _total(self, count: Callable[[str, str | None], int | None]) -> int | None:
        if self._sql is not None:
            return None
        total = 0
        for file, kind in zip(self._files.sources, self._files.kinds, strict=True):
            rows = count(file, kind) if isinstance(file, str) else None
            if rows is None:
                return None
            total += rows
        return total if self._limit is None else min(total, self._limit)


class TableColumns(Described):
    """One read of a Table: a stream for each sequence of batches with equal columns.

    Reading ends when Arrow releases the last stream.

    Args:
        start: starts the read; called when the first stream is requested.

    Attributes:
        source_pass: the pass over the files, once the first stream was returned.
    """

    _ahead: ReadAhead
    source_pass: SourcePass

    def __init__(self, start: Callable[[], ReadAhead]) -> None:
        self._start = start
        self._waiting: list[Any] = []  # the first batch of the next stream

    @property
    def error(self) -> BaseException | None:
        return self._ahead.error

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        ahead = self._ahead = self._start()
        self.source_pass = ahead.source_pass
        self.unknown = self.source_pass.unknown
        weakref.finalize(self, ahead.finalize)
        return self._stream(ahead.schema, requested_schema)

    def following(self) -> object:
        """Return the next stream, up to a batch with other columns; None after the last batch."""
        return self._stream(self._waiting[0].schema) if self._waiting else None

    def _stream(self, schema: Any, requested_schema: object = None) -> object:
        import pyarrow as pa

        self.arrow_schema = schema
        batches = self._batches(schema)
        # Also runs at exit: an interpreter that ends while a thread is inside Arrow is aborted.
        weakref.finalize(batches, self._released)
        stream = pa.RecordBatchReader.from_batches(schema, batches)
        return stream.__arrow_c_stream__(requested_schema)

    def _batches(self, schema: Any) -> Iterator[Any]:
        """Yield the batches up to a change of the schema; keep none of them in memory."""
        waiting = self._waiting
        while True:
            waiting += islice(self._ahead, 1 - len(waiting))
            if not waiting or not waiting[0].schema.equals(schema, check_metadata=True):
                return
            yield waiting.pop()

    def _released(self) -> None:
        if not self._waiting:
            self._ahead.finalize()
