"""Batch the items of an async iterable, for a push."""

from __future__ import annotations

import math
import time
from collections.abc import AsyncIterable, AsyncIterator, Awaitable
from operator import length_hint
from typing import Any

from ..encode.row_writer import CHUNK_SECONDS
from .settings import BATCH_BYTES

__all__ = ["AsyncBatches"]


class AsyncBatches:
    """Gathers the items of an async iterable into lists.

    A list ends when it is large enough for one command, or 2 ms after its first item arrived.

    Args:
        items: the iterable.
        most: maximum items per list.
    """

    def __init__(self, items: AsyncIterable[Any], most: int) -> None:
        self._batches = _gathered(items, most)

    def next(self) -> Awaitable[list[Any] | None]:
        """Return an awaitable for the next list; None at the end."""
        return anext(self._batches, None)


async def _gathered(items: AsyncIterable[Any], most: int) -> AsyncIterator[list[Any]]:
    batch: list[Any] = []
    size, deadline = 0, math.inf
    try:
        async for item in items:
            batch.append(item)
            size += length_hint(item, 32)
            now = time.monotonic()
            deadline = min(deadline, now + CHUNK_SECONDS)
            if len(batch) >= most or size >= BATCH_BYTES or now >= deadline:
                yield batch
                batch, size, deadline = [], 0, math.inf
    except Exception:
        if batch:
            yield batch  # first push the items before the exception
        raise
    if batch:
        yield batch
