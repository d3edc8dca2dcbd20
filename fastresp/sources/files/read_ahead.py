"""Read batches in a thread, a bounded number of bytes ahead of the consumer."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import wait
from contextlib import suppress
from types import MappingProxyType
from typing import Any

from ...outcome.errors import SourceError
from ...server.forks import Inherited, is_own, on_fork
from ...server.threads import in_thread
from .input import StopEvent

__all__ = ["ReadAhead", "SourcePass"]

# Maximum bytes read and not yet consumed: some blocks of CSV, or batches of Parquet (1.3 MB for
# 16,384 rows of 10 columns). A larger batch must be the only one.
AHEAD_BYTES = 4 << 20
# How many seconds close() waits for a stuck thread, for example in the user's file object.
CLOSE_SECONDS = 2.0
CLOSED = "the table was closed while it was read"


class SourcePass:
    """One pass over a source, from start to end, in one thread. This base class has no rows.

    Args:
        limit: stop after this many rows.

    Attributes:
        rows_read: number of rows read so far.
        first_row: index of the first row in the batches; earlier rows are left out.
        schemas: the name and the columns of each file whose columns are known before it is read.
        unknown: the names of the columns that can't be sent, each with the reason.
    """

    rows_read = first_row = 0
    schemas: Sequence[tuple[str, Any]] = ()
    unknown: Mapping[str, str] = MappingProxyType({})

    def __init__(self, limit: int | None = None) -> None:
        self._limit = limit

    def _counted(self, batch: Any) -> Any:
        """Count the rows of a batch; return it without rows beyond the limit."""
        if self._limit is not None:
            batch = batch.slice(0, self._limit - self.rows_read)
        self.rows_read += batch.num_rows
        return batch

    def open(self) -> Any:
        """Open the source, and return the schema of its columns."""
        raise NotImplementedError

    def batches(self) -> Generator[Any, None, None]:
        """Yield the batches; close the source at the end."""
        raise NotImplementedError

    def interrupt(self) -> None:
        """End the thread's current wait; called by other threads."""

    @property
    def bad_rows(self) -> int:
        """Number of rows that could not be read, and were skipped."""
        return 0

    def fraction(self, rows: int | None = None) -> float | None:
        """Return the share of the source that the first ``rows`` rows make up; None if unknown."""
        return None

    def place(self, row: int) -> tuple[str, int]:
        """Return the file of a row that has been read, and the row's index in that file.

        For a query, the file is empty, and the index is the row's index in the result.
        """
        if not 0 <= row < self.rows_read:
            raise LookupError(f"row {row:,} has not been read")
        return "", row

    def line_numbers(self, rows: Iterable[int], stopped: StopEvent) -> dict[int, int]:
        """Return the line numbers of rows in their files, as far as they are known."""
        return {}


class ReadAhead:
    """Reads batches in a separate thread, so that reading continues while the consumer works.

    The thread also opens the source, because Ctrl-C can't end a wait inside Arrow.

    Args:
        source_pass: yields the batches.

    Attributes:
        schema: the columns, once the source is open.
        error: the exception that ended the batches; None if there was none.

    Raises:
        SourceError: no thread can be started.
    """

    def __init__(self, source_pass: SourcePass) -> None:
        self.schema: Any = None
        self.error: BaseException | None = None
        self.source_pass = source_pass
        self._ready: deque[tuple[Any, int]] = deque()
        self._bytes = 0
        self._ended = self._closed = False
        self._changed = threading.Condition()
        on_fork(self, ReadAhead._release)
        self._thread = 0
        try:
            self._reading = in_thread(self._read)
        except RuntimeError as error:
            raise SourceError(f"can't read the source: {error}") from error

    def wait_until_open(self) -> None:
        """Wait for the schema; if opening the source fails, raise its exception."""
        try:
            self.schema = next(self)
        except BaseException:
            self.close()
            raise

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        with self._changed:
            while not self._ready and not self._ended and not self._closed:
                self._changed.wait()
            if self._ready:
                batch, size = self._ready.popleft()
                self._bytes -= size
                self._changed.notify_all()
                return batch
        if self.error is not None:
            raise self.error
        if self._closed:
            raise SourceError(CLOSED)
        raise StopIteration

    @property
    def over(self) -> bool:
        return is_own(self) and self._reading.done()

    def close(self) -> None:
        """Stop the thread; wait up to ``CLOSE_SECONDS`` until the thread has closed the source."""
        if not is_own(self):
            return
        with self._changed:
            self._closed = not self._ended
            self._ready.clear()
            self._changed.notify_all()
        self.source_pass.interrupt()
        # Don't wait in the thread itself, which may drop the last reference to the table.
        if self._thread != threading.get_ident():
            wait([self._reading], CLOSE_SECONDS)

    def finalize(self) -> None:
        """Close the reader in a finalizer: Ctrl-C ends the wait, and Python prints no traceback."""
        with suppress(KeyboardInterrupt):
            self.close()

    def _release(self) -> None:
        """Stop reading in a forked child, where the thread does not run."""
        self._changed = threading.Condition()  # the thread may hold the old lock
        self.error = SourceError(str(Inherited("table")))
        self._ready.clear()
        self._ended = True

    def _read(self) -> None:
        self._thread = threading.get_ident()
        try:
            self._put(self.source_pass.open(), 0)
            batches = self.source_pass.batches()
            try:
                # Not nbytes: it does not support some types, and aborts the process for an empty
                # union.
                while (batch := next(batches, None)) is not None and self._put(
                    batch, batch.get_total_buffer_size()
                ):
                    pass
            finally:
                with suppress(Exception):
                    batches.close()
        except BaseException as error:
            self.error = self.error or error
        finally:
            with self._changed:
                self._ended = True
                self._changed.notify_all()

    def _put(self, batch: Any, size: int) -> bool:
        """Wait for room, and pass on a batch, or first the schema; False after ``close()``."""
        with self._changed:
            while self._ready and self._bytes + size > AHEAD_BYTES and not self._closed:
                self._changed.wait()
            if not self._closed:
                self._ready.append((batch, size))
                self._bytes += size
                self._changed.notify_all()
            return not self._closed
