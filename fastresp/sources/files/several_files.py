"""Read files with the same columns, one after another."""

from __future__ import annotations

import bisect
import os
from collections import deque
from collections.abc import Generator, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import groupby
from operator import attrgetter
from typing import Any

import pyarrow as pa

from ...outcome.errors import SourceError
from .columnar import cast, one_schema, same_schema
from .formats import OpenFile, columns_of, metadata_of, open_file, row_count
from .input import LineSearch, StopEvent, from_start, name_of, start_of
from .line_numbers import lines_of_rows
from .paths import InitialState, Partitions
from .read_ahead import SourcePass
from .reading import ColumnRequest, FileSet, Reading
from .remote import RemotePath, is_remote

__all__ = ["SeveralFiles"]


@dataclass
class SourceFile:
    """One of the files; the attributes from ``initial`` on are set when it is opened.

    Attributes:
        initial: its state before it is read; None if it was not opened.
        start: where a file object starts; None for paths and pipes.
        first_row: index of its first row.
        bad_before: for each of its bad lines, the number of earlier rows.
    """

    source: Any
    kind: str | None
    partitions: Partitions
    initial: InitialState | None = None
    start: int | None = None
    first_row: int = 0
    bad_before: Sequence[int] = ()

    @property
    def name(self) -> str:
        return name_of(self.source)

    @property
    def size(self) -> int:
        """The size in bytes; 1 if it is unknown."""
        if isinstance(self.source, RemotePath):
            return self.source.state.size or 1
        return os.stat(self.source).st_size if isinstance(self.source, str) else 1


class SeveralFiles(SourcePass):
    """One pass over files.

    All files must have the columns of the first file, in any order. Folders such as ``day=1`` add
    columns.

    Args:
        request: the parts of the rows that a load needs. Outside a load, it is None: columns have
            types.
        start_row: earlier rows are not wanted, and may be left out.
        same_types: whether all batches have the same types. If not, each file keeps its own types.
    """

    def __init__(
        self,
        files: FileSet,
        request: ColumnRequest | None,
        limit: int | None,
        *,
        start_row: int = 0,
        same_types: bool = True,
    ) -> None:
        super().__init__(limit)
        self._files = [
            SourceFile(source, kind, Partitions(source, files.options.pattern))
            for source, kind in zip(files.sources, files.kinds, strict=True)
        ]
        self._same_types = same_types
        # Unused columns may be left out if they have no common type.
        self._used = None if request is None or request.document else request.columns
        mixed = len(set(files.kinds)) > 1
        if request is not None and mixed:
            # The columns of different formats must match: request typed columns or, if each file
            # keeps its own types, at least all columns.
            request = None if same_types else replace(request, columns=None)
        self._reading = Reading(
            files.options,
            request,
            start_row=start_row,
            varies=not same_types,
            single=len(self._files) == 1,
            folders=frozenset(name for each in self._files for name in each.partitions.values),
        )
        self._sizes = [each.size for each in self._files]
        self._index = 0  # of the open file
        self._file: OpenFile
        # For each batch, the number of rows up to its end, and their share of the files.
        self._shares: deque[tuple[int, float]] = deque()
        self._passed = (0, 0.0)
        self._json: pa.Schema | None = None  # of the JSON lines so far
        # The columns that all files must have, and the name of the first file with these columns.
        self._columns: list[str] | None = None
        self._columns_of = ""
        self._schema: pa.Schema | None = None  # of all batches, if all have the same schema
        self.schemas: list[tuple[str, pa.Schema]] = []

    def open(self) -> pa.Schema:
        """Open the first file, and check the columns of all other files that can be checked now."""
        try:
            return self._open()
        except BaseException:
            self._reading.bad.close()
            raise

    def _open(self) -> pa.Schema:
        """Open the first file with wanted rows; return the columns of the first batch."""
        last = len(self._files) - 1
        while self._index < last:
            file = self._files[self._index]
            rows = row_count(file.source, "parquet") if file.kind == "parquet" else None
            if rows is None or self.rows_read + rows > self._reading.start_row:
                break
            # All files have the columns of the first file, even if no row of that file is wanted.
            self._check_columns(file)
            file.first_row = self.rows_read
            self.rows_read += rows
            self._index += 1
        self._file = self._open_file(self._index, self._reading.start_row)
        # An empty JSON lines file has no columns.
        while not self._file.schema.names and self._index < last:
            self._file.close()
            self._file = self._open_file(self._index + 1, self._reading.start_row)
            self._index += 1
        self.first_row = self.rows_read
        try:
            first = self._record_schema(self._files[self._index], self._file.schema)
            for file in self._files[self._index + 1 :]:
                self._check_columns(file)
            if self._same_types:
                first = self._schema = one_schema(self.schemas, self._used)
        except BaseException:
            self._file.close()
            raise
        return first

    def _check_columns(self, file: SourceFile) -> None:
        """Check the columns of a file, if its metadata or its header has them."""
        if file.kind is None:
            return
        if (found := metadata_of(file.source, file.kind)) is not None:
            self._record_schema(file, found.schema)
        elif names := columns_of(file.source, file.kind, self._reading):
            columns = pa.schema([(name, pa.null()) for name in names])
            self._in_first_order(file, file.partitions.schema(columns))

    def _record_schema(self, file: SourceFile, own: pa.Schema) -> pa.Schema:
        """Return a file's columns in the order of the first file; remember the columns' types."""
        schema = file.partitions.schema(own)
        if self._columns is None and not self._is_any(file):
            self._columns, self._columns_of = schema.names, file.name
        ordered = self._in_first_order(file, schema)
        self.schemas.append((file.name, ordered))
        return ordered

    def batches(self) -> Generator[pa.RecordBatch, None, None]:
        try:
            first = self._index
            for index in range(first, len(self._files)):
                if index > first:
                    self._file, self._index = self._open_file(index), index
                for count, batch in enumerate(self._file.batches):
                    ordered = self._counted(self._ordered_batch(batch))
                    self._record_share(count)
                    yield ordered
                    if self.rows_read == self._limit:
                        return
                self._file.close()
                if (initial := self._files[index].initial) is not None:
                    initial.check()
            self._check_seen()
        except SourceError as error:
            self._locate(error, self._files[self._index])
            raise
        finally:
            self.close()

    def _check_seen(self) -> None:
        """Refuse a template with a field that no row of JSON lines has."""
        reading = self._reading
        unseen = reading.unseen - reading.folders
        # ``known`` is empty if no file was JSON.
        if not (reading.varies and reading.known and unseen and self.rows_read):
            return
        if {file.kind for file in self._files} <= {"jsonl", None}:
            raise SourceError(
                f"no row has the key {min(unseen)!r}, which the template names; the keys are "
                f"{', '.join(reading.known)}"
            )

    def _locate(self, error: SourceError, file: SourceFile) -> None:
        """Set the file and the line of an error for a row of a file."""
        row = error.row_in_file
        if row is None or error.file is not None:
            return
        error.set_file(file.name, row)
        if error.line is None:
            with suppress(Exception):
                error.set_line(*self._lines(file, [row], LineSearch(self._reading.stopped)))

    def close(self) -> None:
        self._file.close()
        self._reading.bad.close()

    def interrupt(self) -> None:
        self._reading.stopped.set()

    @property
    def bad_rows(self) -> int:
        return self._reading.bad.count

    def fraction(self, rows: int | None = None) -> float | None:
        """Return the share of the files that the first ``rows`` rows make up; None if unknown.

        The share is measured in bytes of the files, or in rows if the number of rows is known.
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
        """At the end of a batch, remember which share of the files was read."""
        share = self._share(self._reading.stopped.position(batch))
        if share is not None and (not self._shares or self._shares[-1][0] < self.rows_read):
            self._shares.append((self.rows_read, share))

    def _share(self, taken: int | None) -> float | None:
        """Return the share of all files that was read so far; None if unknown.

        Args:
            taken: number of bytes read from the open file; None if unknown.
        """
        file, index = self._file, self._index
        if file.rows is not None:
            done, total = self.rows_read - self._files[index].first_row, file.rows
        elif file.input is not None and file.input.size is not None and taken is not None:
            done, total = taken, file.input.size
        else:
            return None
        share = done / total if total else 1.0
        size = sum(self._sizes)
        if not size:
            return 1.0
        return min((sum(self._sizes[:index]) + share * self._sizes[index]) / size, 1.0)

    def place(self, row: int) -> tuple[str, int]:
        super().place(row)
        file = self._files[self._index_of(row)]
        return file.name, row - file.first_row

    def _index_of(self, row: int) -> int:
        opened = self._index + 1
        return bisect.bisect(self._files, row, hi=opened, key=attrgetter("first_row")) - 1

    def line_numbers(self, rows: Iterable[int], stopped: StopEvent) -> dict[int, int]:
        found: dict[int, int] = {}
        for index, group in groupby(sorted(set(rows)), self._index_of):
            of_file, file = list(group), self._files[index]
            lines = self._lines(file, [row - file.first_row for row in of_file], stopped)
            found |= zip(of_file, lines, strict=False)
        return found

    def _lines(self, file: SourceFile, rows: list[int], stopped: StopEvent) -> list[int]:
        """Return the line numbers of some rows of a file, up to the first row that is not found."""
        if is_remote(file.source) or file.initial is None or not file.initial.unchanged:
            return []
        options = self._reading.options
        with from_start(file.source, file.start) as before:
            lines = lines_of_rows(file.source, file.kind, options, rows, file.bad_before, stopped)
        return [before + line for line in lines] if file.initial.unchanged else []

    def _open_file(self, index: int, start_row: int = 0) -> OpenFile:
        """Open a file, without its rows before ``start_row`` if the reader can leave them out."""
        reading, file = self._reading, self._files[index]
        reading.stopped.reset()
        file.initial = InitialState(file.source)
        file.start = start_of(file.source)
        file.first_row = self.rows_read
        file.bad_before = reading.bad.next_file()
        try:
            opened = open_file(
                file.source, file.kind, self._json, reading, start_row - self.rows_read
            )
        except SourceError as error:
            self._locate(error, file)
            raise
        try:
            names = opened.schema.names
        except UnicodeDecodeError as error:
            opened.close()
            raise SourceError(
                f"{file.name}: a column name is not UTF-8; write the file again with UTF-8 names"
            ) from error
        if file.kind == "jsonl" and names:
            self._json = opened.schema
        self.rows_read += opened.left_out
        return opened

    def _ordered_batch(self, read: pa.RecordBatch) -> pa.RecordBatch:
        """Return a batch of the open file with all columns, in the order of the first file."""
        file = self._files[self._index]
        batch = file.partitions.batch(read)
        own = batch.schema
        ordered = self._in_first_order(file, own)
        if ordered is not own:
            batch = batch.select(ordered.names)
        if self._schema is not None and ordered != self._schema:
            batch = batch.select(self._schema.names)
            first = self._files[0].name, self._schema
            batch = cast(batch, same_schema(first, (file.name, batch.schema)))
        return batch

    def _is_any(self, file: SourceFile) -> bool:
        """Return whether a file may have any columns: JSON lines, or a single file."""
        return self._reading.varies and (self._reading.single or file.kind == "jsonl")

    def _in_first_order(self, file: SourceFile, found: pa.Schema) -> pa.Schema:
        """Return the columns of a file in the order of the first file."""
        if self._columns is None or self._columns == found.names or self._is_any(file):
            return found
        if sorted(found.names) != sorted(self._columns):
            raise SourceError(
                f"{file.name} has the columns {', '.join(found.names)}, but {self._columns_of} has "
                f"{', '.join(self._columns)}; load the files one by one, or select the "
                "columns in a query over the files"
            )
        return pa.schema([found.field(each) for each in self._columns])
