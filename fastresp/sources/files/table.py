"""Tables: columns that are read as they are loaded."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any, Literal, Self

from ...outcome.errors import SourceError
from .input import name_of
from .packages import imported
from .read_ahead import ReadAhead, Run
from .reading import AS_IT_IS, FileOptions, Reading, Wanted

__all__ = ["Table"]


class Table:
    """Columns that are read as they are loaded: what ``read`` gives.

    Anything that takes Arrow data takes it, such as ``pyarrow.table(table)``. Each time a table of
    paths or of a query is taken it is read anew; a file object can be read once.

    Attributes:
        files: the paths; of a file object its name.
        error: what ended the last reading, where it was an exception; an Arrow stream hands on
            no more than its text.
    """

    def __init__(
        self,
        files: list[Any],
        kinds: list[str | None],
        *,
        sql: str | None = None,
        options: FileOptions = AS_IT_IS,
        limit: int | None = None,
    ) -> None:
        imported("pyarrow")  # said now, and not only when it is loaded
        self._sources = files
        self._kinds = kinds
        self._sql = sql
        self._options = options
        self._limit = limit
        self._run: Run | None = None
        self._ahead: ReadAhead | None = None
        self._rows: int | Literal[False] | None = False

    def __repr__(self) -> str:
        what = [*self.files] if self._sql is None else [*self.files, self._sql]
        return f"<fastresp.Table of {', '.join(what)}>"

    @property
    def files(self) -> list[str]:
        """The paths; of a file object its name."""
        return [file if isinstance(file, str) else name_of(file) for file in self._sources]

    @property
    def error(self) -> BaseException | None:
        """What ended the last reading, where it was an exception."""
        return None if self._ahead is None else self._ahead.error

    @property
    def rows(self) -> int | None:
        """How many rows there are, where the metadata of every file say so.

        Raises:
            SourceError, OSError: a file can't be read.
        """
        if self._rows is False:
            self._rows = self._counted()
        return self._rows

    def __length_hint__(self) -> int:
        rows = self.rows
        return NotImplemented if rows is None else rows

    def fraction(self, rows: int | None = None) -> float | None:
        """How much of the files the first rows are, from 0 to 1, where that is known.

        Args:
            rows: how many rows, not fewer than in the call before; None for all that were read,
                which is ahead of those that were taken.
        """
        if self._run is None:
            return None
        part = self._run.fraction(rows)
        if part is not None and self._limit:
            count = getattr(self._run, "rows_read", 0) if rows is None else rows
            part = min(1.0, max(part, count / self._limit))
        return part

    def place(self, row: int) -> tuple[str, int]:
        """The file that a row came from, and which of its rows it is, counted from 0.

        For a query it is the row of its result, and no file.

        Raises:
            LookupError: the row has not been read.
        """
        if self._run is None:
            raise LookupError(f"row {row:,} has not been read")
        return self._run.place(row)

    @property
    def bad_rows(self) -> int:
        """How many rows the last reading left out, for ``bad_rows=`` says so."""
        count: int = getattr(self._run, "bad_rows", 0)
        return count

    @property
    def has_no_columns(self) -> bool:
        """Whether the last reading found none: JSON without rows names no columns."""
        return self._ahead is not None and not self._ahead.schema.names

    @property
    def skips_bad_rows(self) -> bool:
        """Whether rows that can't be read are left out."""
        return self._options.bad_rows != "error"

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """Begin to read, and give the batches as an Arrow stream.

        Raises:
            SourceError, OSError: the first file, or the query, can't be read.
        """
        return self._stream(None, requested_schema)

    def for_load(self, wanted: Wanted) -> Loaded:
        """The columns as a load takes them: numbers of JSON have their text, and rows theirs."""
        return Loaded(self, wanted)

    def _stream(self, wanted: Wanted | None, requested_schema: object = None) -> object:
        import pyarrow as pa

        self.close()
        self._run = self._new_run(wanted)
        ahead = self._ahead = ReadAhead(self._run)  # which other threads can close from now on
        ahead.wait_until_open()
        batches = _Batches(ahead)
        # Also when the interpreter ends: it is aborted when a thread is in the midst of Arrow.
        weakref.finalize(batches, ahead.close)
        stream = pa.RecordBatchReader.from_batches(ahead.schema, batches)
        return stream.__arrow_c_stream__(requested_schema)

    def close(self) -> None:
        """End the reading that is going on, if any."""
        if self._ahead is not None:
            self._ahead.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _new_run(self, wanted: Wanted | None) -> Run:
        if self._run is not None and not all(isinstance(file, str) for file in self._sources):
            raise SourceError(
                f"{self.files[0]} has been read, and can't be read twice; give a path, or a new "
                "file object"
            )
        run: Run
        if self._sql is None:
            several_files = imported("pyarrow", ".several_files")
            reading = Reading(self._options, wanted)
            run = several_files.SeveralFiles(self._sources, self._kinds, reading, self._limit)
        else:
            query = imported("duckdb", ".query")
            run = query.Query(self._sql, self._sources, self._kinds, self._options, self._limit)
        return run

    def rows_about(self) -> int | None:
        """How many rows there are, about, where some lines of every file tell."""
        return self._total(imported("pyarrow", ".formats").rows_about)

    def _counted(self) -> int | None:
        return self._total(imported("pyarrow", ".formats").rows_of)

    def _total(self, rows_of: Callable[[str, str | None], int | None]) -> int | None:
        if self._sql is not None:
            return None
        total = 0
        for file, kind in zip(self._sources, self._kinds, strict=True):
            rows = rows_of(file, kind) if isinstance(file, str) else None
            if rows is None:
                return None
            total += rows
        return total if self._limit is None else min(total, self._limit)


class Loaded:
    """The columns of a Table as a load takes them.

    Args:
        table: the table.
        wanted: what the template takes.
    """

    def __init__(self, table: Table, wanted: Wanted) -> None:
        self._table = table
        self._wanted = wanted

    @property
    def error(self) -> BaseException | None:
        """What ended the reading, where it was an exception."""
        return self._table.error

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self._table._stream(self._wanted, requested_schema)


class _Batches:
    """What Arrow takes the batches from; the reading ends when Arrow lets go of it."""

    def __init__(self, ahead: ReadAhead) -> None:
        self._ahead = ahead

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Any:
        return next(self._ahead)
