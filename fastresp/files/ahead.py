"""Batches taken from their source by a thread, a bounded number of bytes ahead of the consumer."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Generator, Iterator
from contextlib import suppress
from typing import Any

__all__ = ["Ahead"]

# What is read and not yet taken. Flights as CSV into a consumer of the same speed: 1 MiB is enough
# for both to be always at work; it is one batch more where a batch is larger.
AHEAD_BYTES = 4 << 20
# How long close() waits for a thread whose source does not return: a file object of the user's.
CLOSE_SECONDS = 2.0


class Ahead:
    """Take batches in a thread of its own, so that reading goes on while the consumer works.

    Args:
        batches: gives the batches; it runs, and is closed, in the thread.
        interrupt: makes what the thread waits for end soon; called by ``close()``.

    Attributes:
        error: what ended the batches, where it was an exception.
    """

    def __init__(
        self, batches: Generator[Any, None, None], interrupt: Callable[[], object]
    ) -> None:
        self.error: BaseException | None = None
        self._interrupt = interrupt
        self._ready: deque[Any] = deque()
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
        with self._changed:
            while not self._ready and not self._ended and not self._closed:
                self._changed.wait()
            if self._ready:
                batch = self._ready.popleft()
                self._bytes -= batch.nbytes
                self._changed.notify_all()
                return batch
        if self.error is not None:
            raise self.error
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
                self.error = error
                self._ended = True
                self._changed.notify_all()

    def _put(self, batch: Any) -> bool:
        """Hand over a batch; False when nobody wants it any more."""
        with self._changed:
            while self._ready and self._bytes + batch.nbytes > AHEAD_BYTES and not self._closed:
                self._changed.wait()
            if not self._closed:
                self._ready.append(batch)
                self._bytes += batch.nbytes
                self._changed.notify_all()
            return not self._closed
