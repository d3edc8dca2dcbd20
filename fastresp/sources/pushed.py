"""Batches of columns that another thread passes on, one after another."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from threading import Condition
from typing import Any

from .several_tables import Frames

__all__ = ["Pushed"]

# A thread that passes nothing on for this many seconds has paused.
PAUSE_S = 0.02


class Pushed(Frames):
    """Batches that another thread passes on, as one stream of columns.

    One batch waits at most, so that memory stays bounded: while the reader encodes a batch, and
    another one waits, the thread that makes them waits, too.

    Attributes:
        meanwhile: called by the reader while there is nothing to read.
    """

    def __init__(self) -> None:
        super().__init__(self._taken())
        self.meanwhile: Callable[[], object] = int
        self._changed = Condition()
        self._batch: Any = None
        self._ended = False
        self._failure: Exception | None = None
        self._dropped = False

    def put(self, batch: Any) -> bool:
        """Pass a batch on, and wait until the one before is taken.

        Args:
            batch: an object with ``__arrow_c_stream__`` or ``__arrow_c_array__``.

        Returns:
            Whether it will be read; False if the reader has ended.

        Raises:
            TypeError: it is no such object.
        """
        if not hasattr(batch, "__arrow_c_stream__"):
            if not hasattr(batch, "__arrow_c_array__"):
                raise TypeError(
                    "a batch must be Arrow data, such as a pyarrow.RecordBatch or a DataFrame, not "
                    f"{type(batch).__name__}"
                )
            import pyarrow as pa

            batch = pa.record_batch(batch)
        with self._changed:
            while self._batch is not None and not self._dropped:
                self._changed.wait()
            if not self._dropped:
                self._batch = batch
                self._changed.notify_all()
            return not self._dropped

    def end(self, failure: Exception | None = None) -> None:
        """End the batches; a failure is raised in the reader instead of what waits."""
        with self._changed:
            self._ended = True
            self._failure = failure
            self._changed.notify_all()

    def drop(self) -> None:
        """Read no more; whoever waits in ``put()`` goes on."""
        with self._changed:
            self._dropped = True
            self._batch = None
            self._changed.notify_all()

    def _taken(self) -> Iterator[Any]:
        while True:
            with self._changed:
                if self._batch is None and not self._ended:
                    self._changed.wait(PAUSE_S)
                if self._failure is not None:
                    raise self._failure
                batch, self._batch = self._batch, None
                self._changed.notify_all()
            if batch is not None:
                yield batch
            elif self._ended:
                return
            else:
                self.meanwhile()
