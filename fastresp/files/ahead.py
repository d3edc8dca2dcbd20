"""Batches taken from their source by a thread, a bounded number of bytes ahead of the consumer."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Generator, Iterator
from contextlib import suppress
from typing import Any

from ..errors import SourceError

__all__ = ["Ahead"]

# What is read and not yet taken: some blocks of CSV, or batches of Parquet (1.3 MB for 16,384 rows
# of 10 columns). It is one batch, where that is larger.
AHEAD_BYTES = 4 << 20
# How long close() waits for a thread whose source does not return: a file object of the user's.
CLOSE_SECONDS = 2.0


class Ahead:
    """Take batches in a thread of its own, so that reading goes on while the consumer works.

    Args:
        batches: gives the batches; it runs, and is closed, in the thread.
        interrupt: makes what the thread waits for end soon; called by ``close()``.

    Attributes:
        error: what ended the batches, or the wait for them, where it was an exception.
    """

    def __init__(
        self, batches: Generator[Any, None, None], interrupt: Callable[[], object]
    ) -> None:
        self.error: BaseException | None = None
        self._interrupt = interrupt
        self._ready: deque[tuple[Any, int]] = deque()
        self._bytes = 0
        self._ended = self._closed = False
        self._changed = threading.Condition()
        self._thread = threading.Thread(
            target=self._run, args=(batches,), name="fastresp-read", daemon=True
        )
        self._thread.start()

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
        if not self._ended:
            raise SourceError("the table was closed while it was read")
        raise StopIteration

    def close(self) -> None:
        """Stop the thread, and wait until it has let go of its source."""
        with self._changed:
            self._closed = True
            self._ready.clear()
            self._changed.notify_all()
        self._interrupt()
        # The last reference may be dropped by the thread itself.
        if self._thread is not threading.current_thread():
            self._thread.join(CLOSE_SECONDS)

    def _run(self, batches: Generator[Any, None, None]) -> None:
        error: BaseException | None = None
        try:
            for batch in batches:
                if not self._put(batch):
                    break
        except BaseException as raised:
            error = raised
        finally:
            with suppress(Exception):
                batches.close()
            with self._changed:
                self.error = self.error or error
                self._ended = not self._closed
                self._changed.notify_all()

    def _put(self, batch: Any) -> bool:
        """Hand over a batch; False when nobody wants it any more."""
        size = batch.nbytes
        with self._changed:
            while self._ready and self._bytes + size > AHEAD_BYTES and not self._closed:
                self._changed.wait()
            if not self._closed:
                self._ready.append((batch, size))
                self._bytes += size
                self._changed.notify_all()
            return not self._closed
