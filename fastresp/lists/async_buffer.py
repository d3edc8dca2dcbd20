"""``ListBuffer`` for asyncio: the same calls, run by the event loop."""

from __future__ import annotations

import math
import time
from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterable
from functools import partial
from typing import Any, Self, TypeVar

from ..encode.columns.arrow_out import StringColumn
from ..encode.writer import CHUNK_SECONDS
from ..outcome.tracebacks import shorten
from ..transports.aio import run
from ..transports.driver import Steps
from .buffer import BaseBuffer, ItemIterator
from .push import Push, Pushed
from .settings import BATCH_BYTES, checked_count
from .variadic import size_of, unchanging

__all__ = ["ListBuffer"]

T = TypeVar("T")


class ListBuffer(BaseBuffer):
    """Use a Redis list as a queue from asyncio; see ``fastresp.ListBuffer``.

    Use it in an ``async with`` statement, from one task at a time. ``length()`` replaces ``len()``;
    use ``consume()`` and ``drain()`` with ``async for``.
    """

    _in_event_loop = True

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        await self._run(self._calls.closing(after=error))

    async def close(self) -> None:
        """Put items back, and close the connection; see ``fastresp.ListBuffer.close``."""
        await self._run(self._calls.closing())

    async def push(self, items: Iterable[Any] | AsyncIterable[Any]) -> Pushed:
        """Push items from an iterable or async iterable; see ``fastresp.ListBuffer.push``.

        A cancellation closes the connection, and items read for an incomplete batch are lost.
        """
        calls = self._calls
        push = Push(calls.settings)
        if not isinstance(items, AsyncIterable):
            return await self._run(calls.pushing(items, push))
        batches = _batches_of(items, calls.settings.batch)
        return await self._run(calls.pushing((), push, partial(anext, batches, None)))

    async def pop(self, n: int) -> list[bytes]:
        """Pop n items, or all items if the list has fewer."""
        n = checked_count(n)
        await self._call(partial(self._calls.delivery.popping, n))
        return self._calls.popped.deliver(n)

    async def pop_arrow(self, n: int) -> StringColumn:
        """Pop n items as an Arrow array; see ``fastresp.ListBuffer.pop_arrow``."""
        await self._call(partial(self._calls.delivery.popping_column, checked_count(n)))
        return self._calls.popped.deliver_column()

    async def consume(
        self, max_items: int | None = None, block: float = 0.0
    ) -> AsyncIterator[bytes]:
        """Yield items one at a time; see ``fastresp.ListBuffer.consume``."""
        items = ItemIterator(self._calls, max_items, block)
        while await self._run(items.more()):
            for item in items:
                yield item

    async def drain(self) -> AsyncIterator[list[bytes]]:
        """Yield batches of items until the list is empty; see ``fastresp.ListBuffer.drain``."""
        while await self._call(partial(self._calls.delivery.popping_some, None)):
            yield self._calls.popped.deliver()

    async def ack(self, n: int | None = None) -> int:
        """Acknowledge the first n popped items, or all; see ``fastresp.ListBuffer.ack``."""
        return await self._call(self._calls.delivery.acknowledging(n))

    async def recover(self) -> int:
        """Put back the items of consumers with an expired lease; return the number of items."""
        return await self._call(self._calls.delivery.recovering())

    async def length(self) -> int:
        """Return the length of the list, including items popped but not yet returned."""
        return await self._call(self._calls.delivery.measuring)

    async def clear(self) -> None:
        """Remove all items; see ``fastresp.ListBuffer.clear``."""
        await self._call(self._calls.delivery.clearing)

    async def _call(self, begin: Callable[[], Steps[T]]) -> T:
        return await self._run(self._calls.call(begin))

    async def _run(self, steps: Steps[T]) -> T:
        try:
            return await run(steps)
        except BaseException as error:
            shorten(error)
            raise


async def _batches_of(items: AsyncIterable[Any], most: int) -> AsyncIterator[list[Any]]:
    """Yield lists of items; a list ends when it is large enough, or 2 ms after its first item."""
    batch: list[Any] = []
    size, deadline = 0, math.inf
    try:
        async for item in items:
            item = unchanging(item)
            batch.append(item)
            size += size_of(item)
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
