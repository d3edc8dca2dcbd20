"""Read files with the same columns, one after another."""

from __future__ import annotations

import bisect
import os
from collections import deque
from collections.abc import Generator, Iterable
from contextlib import suppress
from dataclasses import replace
from itertools import groupby
from typing import Any

import pyarrow as pa

from ...outcome.errors import SourceError
from .checks import InitialState
from .formats import OpenFile, columns_of, open_file, row_count, schema_of
from .input import LineSearch, StopEvent, from_start, name_of, start_of
from .partitions import Partitions
from .reading import ColumnRequest, FileOptions, Reading
from .remote import RemotePath, is_remote
from .schemas import cast, one_schema, same_schema

__all__ = ["SeveralFiles"]


def _size(source: Any) -> int:
    """Return the size of a file; 1 if it is unknown."""
    if isinstance(source, RemotePath):
        return source.state.size or 1
    return os.stat(source).st_size if isinstance(source, str) else 1


class SeveralFiles:
    """One pass over files.

    All files must have the columns of the first file, in any order. The folders of a file can also
    name columns.

    Args:
        sources: paths, or one file object.
        kinds: the format of each source; None to detect it from the first bytes.
        options: the user's options for text files.
        request: the parts of the rows that a load needs; None outside a load, for typed columns.
        limit: stop after this many rows.
        start_row: earlier rows are not wanted, and may be left out.
        same_types: whether all batches have the same types. If not, each file keeps its own types.

    Attributes:
        first_row: the first row in the batches; earlier rows are left out.
        schemas: the names and columns of files, as far as known before they are read.
    """

    def __init__(
        self,
        sources: list[Any],
        kinds: list[str | None],
        options: FileOptions,
        request: ColumnRequest | None,
        limit: int | None,
        *,
        start_row: int = 0,
        same_types: bool = True,
    ) -> None:
        self._sources = sources
        self._kinds = kinds
        self._same_types = same_types
        self._partitions = [Partitions(source, options.pattern) for source in sources]
        # Unused columns may be left out if they have no common type.
        self._used = None if request is None or request.document else request.columns
        self._reading = Reading(
            options,
            self._request(request),
            start_row=start_row,
            varies=not same_types,
            single=len(sources) == 1,
            folders=frozenset(name for each in self._partitions for name in each.values),
        )
        self._limit = limit
        self._sizes = [_size(source) for source in sources]
        self._index = 0
        self._rows = 0
        self.first_row = 0
        # The first row and the name of each file opened so far.
        self._first_rows: list[int] = []
        self._names: list[str] = []
        # For each batch, the number of rows up to the end of the batch, and the share of the files
        # read.
        self._shares: deque[tuple[int, float]] = deque()
        self._passed = (0, 0.0)
        self._file: OpenFile
        # By the index of each file opened: its state, its start, and the number of earlier bad
        # lines.
        self._states: dict[int, InitialState] = {}
        self._starts: dict[int, int | None] = {}
        self._bad_before: dict[int, int] = {}
        self._json: pa.Schema | None = None  # of the JSON lines so far
        # The columns that all files must have, and the name of the first file with these columns.
        self._columns: list[str] | None = None
        self._columns_of = ""
        self._schema: pa.Schema | None = None  # of all batches, if they share one
        self.schemas: list[tuple[str, pa.Schema]] = []

    def _request(self, request: ColumnRequest | None) -> ColumnRequest | None:
        """Return the parts of the rows to read: more if JSON lines are mixed with other formats."""
        if request is None or (len(set(self._kinds)) > 1 and self._same_types):
            return None  # typed columns, so that different formats match
        return replace(request, columns=None) if len(set(self._kinds)) > 1 else request

    def open(self) -> pa.Schema:
        """Open the first file, and check the columns of all other files that can be checked now.

        Returns:
            The columns of the first batch.
        """
        try:
            return self._open()
        except BaseException:
            self._reading.bad.close()
            raise

    def _open(self) -> pa.Schema:
        """Open the first file with wanted rows; return the columns of the first batch."""
        while self._index + 1 < len(self._sources):
            path, kind = self._sources[self._index], self._kinds[self._index]
            rows = row_count(path, kind) if kind == "parquet" and isinstance(path, str) else None
            if rows is None or self._rows + rows > self._reading.start_row:
                break
            # All files have the columns of the first file, even if no row of that file is wanted.
            self._check_columns(self._index)
            self._first_rows.append(self._rows)
            self._names.append(path)
            self._rows += rows
            self._index += 1
        self._file = self._open_file(self._index, self._reading.start_row)
        # An empty JSON lines file has no columns.
        while not self._file.schema.names and self._index + 1 < len(self._sources):
            self._file.close()
            self._file = self._open_file(self._index + 1, self._reading.start_row)
            self._index += 1
        self.first_row = self._rows
        try:
            first = self._record_schema(self._file.name, self._file.schema, self._index)
            for index in range(self._index + 1, len(self._sources)):
                self._check_columns(index)
            if self._same_types:
                first = self._schema = one_schema(self.schemas, self._used)
        except BaseException:
            self._file.close()
            raise
        return first

    def _check_columns(self, index: int) -> None:
        """Check the columns of a file; do nothing if its beginning does not show the columns."""
        path, kind = self._sources[index], self._kinds[index]
        if kind is None:
            return
        if (found := schema_of(path, kind, self._reading)) is not None:
            self._record_schema(path, found, index)
        elif names := columns_of(path, kind, self._reading):
            self._in_first_order(
                path, self._partitions[index].schema(pa.schema([(n, pa.null()) for n in names]))
            )

    def _record_schema(self, name: str, own: pa.Schema, index: int) -> pa.Schema:
        """Return a file's columns in the order of the first file; remember the columns' types."""
        schema = self._partitions[index].schema(own)
        if self._columns is None and not self._is_any(name):
            self._columns, self._columns_of = schema.names, name
        ordered = self._in_first_order(name, schema)
        self.schemas.append((name, ordered))
        return ordered

    def batches(self) -> Generator[pa.RecordBatch, None, None]:
        try:
            first = self._index
            for index in range(first, len(self._sources)):
                if index > first:
                    self._file, self._index = self._open_file(index), index
                for count, batch in enumerate(self._file.batches):
                    ordered = self._ordered_batch(batch)
                    left = None if self._limit is None else self._limit - self._rows
                    if left is not None and left <= ordered.num_rows:
                        self._rows += left
                        yield ordered.slice(0, left)
                        return
                    self._rows += ordered.num_rows
                    self._record_share(count)
                    yield ordered
                self._file.close()
                self._states[index].check()
            self._check_seen()
        except SourceError as error:
            self._locate(error, self._index)
            raise
        finally:
            self.close()

    def _check_seen(self) -> None:
        """Refuse a template with a field that no row of JSON lines has."""
        known = self._reading.known  # empty if no file was JSON
        unseen = self._reading.unseen - self._reading.folders if known else set()
        if self._reading.varies and set(self._kinds) <= {"jsonl", None} and self._rows and unseen:
            raise SourceError(
                f"no row has the key {min(unseen)!r}, which the template names; the keys are "
                f"{', '.join(known)}"
            )

    def _locate(self, error: SourceError, index: int) -> None:
        """Set the file and the line of an error for a row of a file."""
        row = error.row_in_file
        if row is None or error.file is not None:
            return
        error.set_file(name_of(self._sources[index]), row)
        if error.line is None:
            with suppress(Exception):
                error.set_line(*self._lines(index, [row], LineSearch(self._reading.stopped)))

    def close(self) -> None:
        self._file.close()
        self._reading.bad.close()

    def interrupt(self) -> None:
        """End a read that waits for a pipe."""
        self._reading.stopped.set()

    @property
    def rows_read(self) -> int:
        return self._rows

    @property
    def bad_rows(self) -> int:
        return self._reading.bad.count

    def fraction(self, rows: int | None = None) -> float | None:
        """Return the share of the files that the first ``rows`` rows make up, from 0 to 1.

        The share is measured in bytes of the files, or in rows if the number of rows is known.

        Args:
            rows: number of rows, which must not decrease from call to call; None for all rows read.

        Returns:
            The share; None if unknown.
        """
        if rows is None:
            file = self._file
            return self._share(None if file.input is None else file.input.taken)
        while self._shares and self._shares[0][0] <= rows:
            self._passed = self._shares.popleft()
        if not self._shares:
            return self._passed[1] if self._passed[0] else None
        (before, low), (after, high) = self._passed, self._shares[0]
        return low + (high - low) * max(0, rows - before) / (after - before)

    def _record_share(self, batch: int) -> None:
        """Remember the share of the files read at the end of a batch."""
        share = self._share(self._reading.stopped.position(batch))
        if share is not None and (not self._shares or self._shares[-1][0] < self._rows):
            self._shares.append((self._rows, share))

    def _share(self, taken: int | None) -> float | None:
        """Return the share of all files read; ``taken`` bytes of the open one; None if unknown."""
        file, index = self._file, self._index
        if file.rows is not None:
            share = (self._rows - self._first_rows[index]) / file.rows if file.rows else 1.0
        elif file.input is not None and file.input.size is not None and taken is not None:
            share = taken / file.input.size if file.input.size else 1.0
        else:
            return None
        total = sum(self._sizes)
        if not total:
            return 1.0
        return min((sum(self._sizes[:index]) + share * self._sizes[index]) / total, 1.0)

    def place(self, row: int) -> tuple[str, int]:
        """Return the file of a row that has been read, and the row's index in that file."""
        if not 0 <= row < self._rows:
            raise LookupError(f"row {row:,} has not been read")
        index = self._index_of(row)
        return self._names[index], row - self._first_rows[index]

    def _index_of(self, row: int) -> int:
        return bisect.bisect_right(self._first_rows, row) - 1

    def line_numbers(self, rows: Iterable[int], stopped: StopEvent) -> dict[int, int]:
        """Return for each row the number of its line in its file, counted from 1.

        Rows whose line is unknown are left out.

        Args:
            rows: rows that have been read.
            stopped: ends the search when it is set.

        Raises:
            OSError, SourceError: a file can't be read again.
        """
        found: dict[int, int] = {}
        in_order = sorted(set(rows))
        for index, group in groupby(in_order, self._index_of):
            of_file, first = list(group), self._first_rows[index]
            lines = self._lines(index, [row - first for row in of_file], stopped)
            found |= zip(of_file, lines, strict=False)
        return found

    def _lines(self, index: int, rows: list[int], stopped: StopEvent) -> list[int]:
        """Return the line numbers of some rows of a file, up to the first row that is not found."""
        from .line_numbers import lines_of_rows  # imports the reader of JSON: 30 ms

        source, state = self._sources[index], self._states.get(index)
        if is_remote(source) or state is None or not state.unchanged:
            return []
        bad = self._reading.bad.before[self._bad_before[index] : self._bad_before.get(index + 1)]
        options = self._reading.options
        with from_start(source, self._starts[index]) as before:
            lines = lines_of_rows(source, self._kinds[index], options, rows, bad, stopped)
        return [before + line for line in lines] if state.unchanged else []

    def _open_file(self, index: int, start_row: int = 0) -> OpenFile:
        """Open a file, without its rows before ``start_row`` if the reader can leave them out."""
        self._reading.stopped.reset()
        start = start_row - self._rows
        self._states[index] = InitialState(self._sources[index])
        self._starts[index] = start_of(self._sources[index])
        self._bad_before[index] = len(self._reading.bad.before)
        try:
            file = open_file(
                self._sources[index], self._kinds[index], self._json, self._reading, start
            )
        except SourceError as error:
            self._locate(error, index)
            raise
        if self._kinds[index] == "jsonl" and file.schema.names:
            self._json = file.schema
        try:
            _ = file.schema.names
        except UnicodeDecodeError as error:
            file.close()
            raise SourceError(
                f"{file.name}: a column name is not UTF-8; write the file again with UTF-8 names"
            ) from error
        self._first_rows.append(self._rows)
        self._names.append(file.name)
        self._rows += file.left_out
        return file

    def _ordered_batch(self, read: pa.RecordBatch) -> pa.RecordBatch:
        """Return a batch of the open file with all columns, in the order of the first file."""
        batch = self._partitions[self._index].batch(read)
        own = batch.schema
        ordered = self._in_first_order(self._file.name, own)
        if ordered is not own:
            batch = batch.select(ordered.names)
        if self._schema is not None and ordered != self._schema:
            batch = batch.select(self._schema.names)
            found = self._file.name, batch.schema
            batch = cast(batch, same_schema((self._names[0], self._schema), found))
        return batch

    def _is_any(self, name: str) -> bool:
        """Return whether a file may have any columns: JSON lines, or a single file."""
        kinds = dict(zip(map(str, self._sources), self._kinds, strict=True))
        return self._reading.varies and (self._reading.single or kinds.get(name) == "jsonl")

    def _in_first_order(self, name: str, found: pa.Schema) -> pa.Schema:
        """Return the columns of a file in the order of the first file."""
        if self._columns in (None, found.names) or self._is_any(name):
            return found
        assert self._columns is not None
        if sorted(found.names) != sorted(self._columns):
            raise SourceError(
                f"{name} has the columns {', '.join(found.names)}, but {self._columns_of} has "
                f"{', '.join(self._columns)}; load the files one by one, or select the "
                "columns in a query over the files"
            )
        return pa.schema([found.field(each) for each in self._columns])
