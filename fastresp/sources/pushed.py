"""Batches of columns that another thread passes on, one after another."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from threading import Condition
from typing import Any

from .several_tables import Frames

__all__ = ["TICK_S", "Pushed", "check_batch"]

# A thread that passes nothing on for this many seconds has paused.
PAUSE_S = 0.02
# Maximum seconds of one wait: once polars is imported, Ctrl-C does not end an unlimited wait.
TICK_S = 0.2
# The pause in seconds after which gathered commands of transactions are sent.
LONG_PAUSE_S = 1.1


def check_batch(batch: object) -> None:
    """Raise TypeError if an object has neither ``__arrow_c_stream__`` nor ``__arrow_c_array__``."""
    if not (hasattr(batch, "__arrow_c_stream__") or hasattr(batch, "__arrow_c_array__")):
        raise TypeError(
            "a batch must be Arrow data, such as a pyarrow.RecordBatch or a DataFrame, not "
            f"{type(batch).__name__}"
        )


class Pushed(Frames):
    """Batches that another thread passes on, as one stream of columns.

    At most one batch waits for the reader, so that memory stays bounded; ``put()`` of another batch
    blocks.

    Attributes:
        paused: whether no batch was passed on in the last ``PAUSE_S`` seconds.
        while_full: called while the load waits because its connections are full.
    """

    noun = "batch"

    def __init__(self) -> None:
        super().__init__(self._arriving())
        self.paused = False
        self.while_full: Callable[[], object] = int
        self._while_empty: Callable[[], object] = int
        self._changed = Condition()
        self._batch: Any = None
        self._ended = False
        self._failure: Exception | None = None
        self._dropped = False

    def call(self, *, while_empty: Callable[[], object], while_full: Callable[[], object]) -> None:
        """Set what to call while there is nothing to read, and while the connections are full."""
        self._while_empty, self.while_full = while_empty, while_full

    def put(self, batch: Any) -> bool:
        """Pass an Arrow batch on; first wait until the reader has taken the previous batch.

        Returns:
            Whether the batch will be read; False if the reader has ended.
        """
        if not hasattr(batch, "__arrow_c_stream__"):
            import pyarrow as pa

            batch = pa.record_batch(batch)
        with self._changed:
            while self._batch is not None and not self._dropped:
                self._changed.wait(TICK_S)
            if not self._dropped:
                self._batch = batch
                self._changed.notify_all()
            return not self._dropped

    def end(self, failure: Exception | None = None) -> None:
        """End the batches; the reader raises ``failure``, if any, without reading another batch."""
        with self._changed:
            self._ended = True
            self._failure = failure
            self._changed.notify_all()

    def drop(self) -> None:
        """Stop reading; a thread that waits in ``put()`` continues."""
        with self._changed:
            self._dropped = True
            self._batch = None
            self._changed.notify_all()

    def _arriving(self) -> Iterator[Any]:
        """Yield the batches; in a pause, yield None after PAUSE_S and again after LONG_PAUSE_S."""
        due, since = list[float](), time.monotonic()
        batch: Any = None
        while True:
            with self._changed:
                if self._batch is None and not self._ended:
                    self._changed.wait(PAUSE_S)
                if self._failure is not None:
                    raise self._failure
                batch, self._batch = self._batch, None
                self._changed.notify_all()
            self.paused = batch is None and not self._ended
            if batch is not None:
                yield batch
                batch = None  # otherwise it would be kept during a pause
                due, since = [0.0, LONG_PAUSE_S], time.monotonic()
            elif self._ended:
                return
            elif due and time.monotonic() - since > due[0]:
                del due[0]
                yield None
            else:
                self._while_empty()
