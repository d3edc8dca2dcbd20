"""Files of the same columns, read one after another."""

from __future__ import annotations

import bisect
import os
from collections import deque
from collections.abc import Generator
from typing import Any

import pyarrow as pa

from ...outcome.errors import SourceError
from .formats import OpenFile, columns_of, open_file
from .reading import Reading

__all__ = ["SeveralFiles"]


class SeveralFiles:
    """One reading of files.

    Args:
        sources: paths, or one file object.
        kinds: as which each is to be read; None to tell it by the first bytes.
        reading: how to read them.
        limit: stop after so many rows.

    The columns are those of the first file, which those of the others have to be.
    """

    def __init__(
        self,
        sources: list[Any],
        kinds: list[str | None],
        reading: Reading,
        limit: int | None,
    ) -> None:
        self._sources = sources
        self._kinds = kinds
        if len(set(kinds)) > 1:
            reading.wanted = None  # the columns of several formats meet in their types
        self._reading = reading
        self._limit = limit
        self._sizes = [os.stat(path).st_size if isinstance(path, str) else 1 for path in sources]
        self._index = 0
        self._rows = 0
        # The first row of each file, and its name, as far as they were opened.
        self._firsts: list[int] = []
        self._names: list[str] = []
        # For each batch how many rows there are up to its end, and the share of the files.
        self._shares: deque[tuple[int, float]] = deque()
        self._done = (0, 0.0)
        self._part: OpenFile
        self._schema: pa.Schema | None = None

    def open(self) -> pa.Schema:
        """Open the first file, and look at the columns of the others as far as they tell them.

        Raises:
            SourceError: they have others.
        """
        try:
            return self._open()
        except BaseException:
            self._reading.bad.close()
            raise

    def _open(self) -> pa.Schema:
        self._part = self._opened(0)
        # JSON lines without a line know no columns.
        while not self._part.schema.names and self._index + 1 < len(self._sources):
            self._part.close()
            self._part = self._opened(self._index + 1)
            self._index += 1
        self._schema = self._part.schema
        try:
            for index in range(self._index + 1, len(self._sources)):
                path, kind = self._sources[index], self._kinds[index]
                if kind is not None and (names := columns_of(path, kind, self._reading)):
                    self._check_names(path, names)
        except BaseException:
            self._part.close()
            raise
        return self._schema

    def batches(self) -> Generator[pa.RecordBatch, None, None]:
        """Give the batches of all files."""
        try:
            first = self._index
            for index in range(first, len(self._sources)):
                if index > first:
                    self._part, self._index = self._opened(index), index
                for count, batch in enumerate(self._part.batches):
                    fitted = self._fitted(batch)
                    left = None if self._limit is None else self._limit - self._rows
                    if left is not None and left <= fitted.num_rows:
                        self._rows += left
                        yield fitted.slice(0, left)
                        return
                    self._rows += fitted.num_rows
                    self._note_share(count)
                    yield fitted
                self._part.close()
        finally:
            self._part.close()
            self._reading.bad.close()

    def interrupt(self) -> None:
        """Let a read that waits for a pipe come to its end."""
        self._reading.stopped.set()

    @property
    def rows_read(self) -> int:
        """How many rows have been read."""
        return self._rows

    @property
    def bad_rows(self) -> int:
        """How many rows were left out."""
        return self._reading.bad.count

    def fraction(self, rows: int | None = None) -> float | None:
        """How much of the files these first rows are, from 0 to 1; None for all that was read.

        It is in bytes of the files, or rows where they are known. The rows of one call are not
        fewer than those of the call before.
        """
        if rows is None:
            part = self._part
            return self._share(None if part.input is None else part.input.taken)
        while self._shares and self._shares[0][0] <= rows:
            self._done = self._shares.popleft()
        if not self._shares:
            return self._done[1] if self._done[0] else None
        (before, low), (after, high) = self._done, self._shares[0]
        return low + (high - low) * max(0, rows - before) / (after - before)

    def _note_share(self, batch: int) -> None:
        """Note what has been read with a batch of the open file."""
        share = self._share(self._reading.stopped.position(batch))
        if share is not None and (not self._shares or self._shares[-1][0] < self._rows):
            self._shares.append((self._rows, share))

    def _share(self, taken: int | None) -> float | None:
        """The share of all files, of which so many bytes of the open one were taken."""
        part, index = self._part, self._index
        if part.rows is not None:
            share = (self._rows - self._firsts[index]) / part.rows if part.rows else 1.0
        elif part.input is not None and part.input.size is not None and taken is not None:
            share = taken / part.input.size if part.input.size else 1.0
        else:
            return None
        total = sum(self._sizes)
        if not total:
            return 1.0
        return min((sum(self._sizes[:index]) + share * self._sizes[index]) / total, 1.0)

    def place(self, row: int) -> tuple[str, int]:
        """The file of a row that has been read, and which of its rows that is."""
        if not 0 <= row < self._rows:
            raise LookupError(f"row {row:,} has not been read")
        index = bisect.bisect_right(self._firsts, row) - 1
        return self._names[index], row - self._firsts[index]

    def _opened(self, index: int) -> OpenFile:
        self._reading.stopped.begin()
        part = open_file(self._sources[index], self._kinds[index], self._schema, self._reading)
        try:
            _ = part.schema.names
        except UnicodeDecodeError as error:
            part.close()
            raise SourceError(
                f"{part.name}: the name of a column is not UTF-8: the file is damaged; write it "
                "again, with names that are"
            ) from error
        self._firsts.append(self._rows)
        self._names.append(part.name)
        return part

    def _fitted(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The batch with the columns in the order, and of the types, of the first file.

        Raises:
            SourceError: it has others.
        """
        assert self._schema is not None
        if batch.schema.equals(self._schema):
            return batch
        self._check_names(self._part.name, batch.schema.names)
        wanted = self._schema.names
        try:
            return batch.select(wanted).cast(self._schema)
        except pa.ArrowException as error:
            raise SourceError(
                f"{self._part.name} has columns of other types than {self._names[0]}: {error}; "
                "load them one by one, or cast in a query that names them"
            ) from error

    def _check_names(self, name: str, names: list[str]) -> None:
        """Refuse a file with other columns than those of the first one.

        Raises:
            SourceError: it has others.
        """
        assert self._schema is not None
        if sorted(names) != sorted(self._schema.names):
            raise SourceError(
                f"{name} has the columns {', '.join(names)}, and {self._names[0]} "
                f"{', '.join(self._schema.names)}; load them one by one, or name columns in a "
                "query that names its files"
            )
