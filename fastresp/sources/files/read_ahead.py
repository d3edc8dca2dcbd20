"""Batches taken from their source by a thread, a bounded number of bytes ahead of the consumer."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Generator, Iterator
from concurrent.futures import wait
from contextlib import suppress
from typing import Any, Protocol

from ...outcome.errors import SourceError
from ...server.forks import Inherited, is_own, own
from ...server.threads import in_thread

__all__ = ["ReadAhead", "Run"]

# What is read and not yet taken: some blocks of CSV, or batches of Parquet (1.3 MB for 16,384 rows
# of 10 columns). It is one batch, where that is larger.
AHEAD_BYTES = 4 << 20
# How long a close waits for a thread that does not return, as from a file object of the user's.
CLOSE_SECONDS = 2.0
CLOSED = "the table was closed while it was read"


class Run(Protocol):
    """One reading of a source, from its beginning; it runs in one thread."""

    def open(self) -> Any:
        """Open the source, and give the schema of its columns."""

    def batches(self) -> Generator[Any, None, None]:
        """Give the batches, and let go of the source."""

    def interrupt(self) -> None:
        """Let what the thread waits for come to its end; other threads call it."""

    def fraction(self, rows: int | None = None) -> float | None:
        """How much of the source these first rows are, from 0 to 1; None for all that was read."""

    def place(self, row: int) -> tuple[str, int]:
        """The file of a row that has been read, and which of its rows that is."""


class ReadAhead:
    """Take batches in a thread of its own, so that reading goes on while the consumer works.

    Args:
        run: what gives the batches. The source is opened in the thread, too: the consumer's waits
            have to end with a Ctrl-C, and those within Arrow do not.

    Attributes:
        schema: the columns, once it is open.
        error: what ended the batches, or the wait for them, where it was an exception.

    Raises:
        SourceError: no thread can be had.
    """

    def __init__(self, run: Run) -> None:
        self.schema: Any = None
        self.error: BaseException | None = None
        self._run = run
        self._ready: deque[tuple[Any, int]] = deque()
        self._bytes = 0
        self._open = self._ended = self._closed = False
        self._changed = threading.Condition()
        own(self, ReadAhead._let_go)
        self._thread = 0
        try:
            self._reading = in_thread(self._read)
        except RuntimeError as error:
            raise SourceError(f"can't read the source: {error}") from error

    def wait_until_open(self) -> None:
        """Wait for the schema.

        Raises:
            Exception: what opening the source raised.
        """
        try:
            with self._changed:
                while not self._open and not self._ended and not self._closed:
                    self._changed.wait()
        except BaseException:
            self.close()
            raise
        if not self._open:
            raise self.error or SourceError(CLOSED)

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        try:
            with self._changed:
                while not self._ready and not self._ended and not self._closed:
                    self._changed.wait()
                if self._ready:
                    batch, size = self._ready.popleft()
                    self._bytes -= size
                    self._changed.notify_all()
                    return batch
        except KeyboardInterrupt as error:
            self.error = error
            raise
        if self.error is not None:
            raise self.error
        if self._closed:
            raise SourceError(CLOSED)
        raise StopIteration

    def close(self) -> None:
        """Stop the thread, and wait until it has let go of its source."""
        if not is_own(self):
            return
        with self._changed:
            self._closed = not self._ended
            self._ready.clear()
            self._changed.notify_all()
        self._run.interrupt()
        # The last reference may be dropped by the thread itself.
        if self._thread != threading.get_ident():
            wait([self._reading], CLOSE_SECONDS)

    def _let_go(self) -> None:
        """Come to an end, in a child of the process that the thread is in."""
        self._changed = threading.Condition()  # the thread may have held the former one's lock
        self.error = SourceError(str(Inherited("table")))
        self._ready.clear()
        self._ended = True

    def _read(self) -> None:
        self._thread = threading.get_ident()
        try:
            schema = self._run.open()
            with self._changed:
                self.schema, self._open = schema, True
                self._changed.notify_all()
            batches = self._run.batches()
            try:
                while self._put(next(batches, None)):
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

    def _put(self, batch: Any) -> bool:
        """Hand over a batch; False when there is none, or nobody wants it any more."""
        if batch is None:
            return False
        size = batch.nbytes
        with self._changed:
            while self._ready and self._bytes + size > AHEAD_BYTES and not self._closed:
                self._changed.wait()
            if not self._closed:
                self._ready.append((batch, size))
                self._bytes += size
                self._changed.notify_all()
            return not self._closed
