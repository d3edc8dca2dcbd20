"""``ListBuffer`` for asyncio: the same core, waited for with the event loop."""

from __future__ import annotations

import math
import time
from collections.abc import AsyncIterable, AsyncIterator, Iterable
from contextlib import suppress
from operator import length_hint
from threading import get_ident
from typing import Any, Self, TypeVar

from ..encode.row_writer import CHUNK_SECONDS
from ..outcome.errors import EncodeError, FastrespError, TransportError
from ..replies.arrow_out import StringColumn
from ..server.settings import Server, ServerLike
from ..transports.aio import connect, told, wait_for
from ..transports.base import add_report
from ..transports.connection import LostConnection
from .buffer import checked_count, checked_items
from .popping import ListCore, Steps
from .push import BATCH_BYTES, Push, Pushed
from .settings import Delivery, Order, Settings

__all__ = ["ListBuffer"]

T = TypeVar("T")


class ListBuffer:
    """A Redis list as a buffer, in an event loop: as ``fastresp.ListBuffer``, with ``await``.

    Used in an ``async with`` statement. One task at a time may use one. ``length()`` stands for
    ``len()``, and ``consume()`` and ``drain()`` are for ``async for``.
    """

    def __init__(
        self,
        key: str | bytes,
        *,
        server: ServerLike = None,
        batch: int = 1000,
        order: Order = "fifo",
        delivery: Delivery = "at-most-once",
        maxlen: int | None = None,
        lease: float = 30.0,
        timeout: float | None = 30.0,
    ) -> None:
        settings = Settings(key, batch, order, delivery, maxlen, lease, timeout)
        self._core = ListCore(Server(server), settings)

    def __repr__(self) -> str:
        settings = self._core.settings
        return f"<ListBuffer {settings.key!r}, {settings.order}, {settings.delivery}, asyncio>"

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        try:
            await self.close()
        except FastrespError as second:
            if error is None:
                raise
            error.add_note(f"fastresp: {second}")

    async def close(self) -> None:
        """As ``fastresp.ListBuffer.close``."""
        self._core.check_idle()
        try:
            if self._core.needs_ending():
                with self._core.lease_tells():
                    await self._run(self._core.ending())
        except BaseException as error:
            self._core.note_loss(error)
            raise
        finally:
            self._core.detach()

    async def push(self, items: Iterable[Any] | AsyncIterable[Any]) -> Pushed:
        """As ``fastresp.ListBuffer.push``; an async iterable is pushed batch by batch.

        A cancellation ends the connection; items of the batch that was being gathered are lost.
        """
        checked_items(items)
        push = Push(self._core.settings)
        try:
            if isinstance(items, AsyncIterable):
                async for batch in _batches(items, self._core.settings.batch):
                    await self._run(self._core.pushing(batch, push))
            else:
                await self._run(self._core.pushing(items, push))
        except TransportError as error:
            error.report = push.told()
            raise
        except BaseException as error:
            if isinstance(error, Exception):
                with suppress(TransportError):
                    await self._run(self._core.finishing(push))
            elif not self._core.busy:
                self._core.detach()  # a cancellation waits for nothing
            told_error = push.located(error) if isinstance(error, EncodeError) else error
            add_report(told_error, push.told(), str(push.told()))
            if told_error is error:
                raise
            raise told_error from None
        return push.outcome()

    async def pop(self, n: int) -> list[bytes]:
        """As ``fastresp.ListBuffer.pop``."""
        n = checked_count(n)
        await self._run(self._core.popping(n))
        return self._core.give(n)

    async def pop_arrow(self, n: int) -> StringColumn:
        """As ``fastresp.ListBuffer.pop_arrow``."""
        n = checked_count(n)
        await self._run(self._core.popping_column(n))
        return self._core.give_column()

    async def consume(
        self, max_items: int | None = None, block: float = 0.0
    ) -> AsyncIterator[bytes]:
        """As ``fastresp.ListBuffer.consume``."""
        core = self._core
        if max_items is not None:
            checked_count(max_items)
        left = math.inf if max_items is None else max_items
        while left > 0:
            most = None if max_items is None else int(left)
            if not (await self._run(core.holding(most)) or await self._run(core.waiting(block))):
                return
            held = core.held.singly
            while held and left > 0:
                left -= 1
                core.consumer.given += 1
                yield held.popleft()

    async def drain(self) -> AsyncIterator[list[bytes]]:
        """As ``fastresp.ListBuffer.drain``."""
        while await self._run(self._core.holding_batch(None)):
            yield self._core.give()

    @property
    def acknowledged(self) -> int:
        """As ``fastresp.ListBuffer.acknowledged``."""
        return self._core.consumer.acknowledged

    async def ack(self, n: int | None = None) -> int:
        """As ``fastresp.ListBuffer.ack``."""
        return await self._run(self._core.acknowledging(n))

    async def recover(self) -> int:
        """As ``fastresp.ListBuffer.recover``."""
        return await self._run(self._core.recovering())

    async def length(self) -> int:
        """Items in the list, and those taken from it and not given."""
        return await self._run(self._core.measuring())

    async def clear(self) -> None:
        """Remove all items."""
        await self._run(self._core.clearing())

    async def _run(self, steps: Steps[T]) -> T:
        """Run some steps, waiting with the event loop."""
        core = self._core
        core.check_idle()
        core.busy = get_ident()
        try:
            if core.core is None:
                [connection], answers = await connect(core.server, 1, core.settings.timeout)
                core.attach(connection, answers)
                try:
                    await self._drive(core.beginning())
                except BaseException:
                    core.detach()
                    raise
            return await self._drive(steps)
        finally:
            core.busy = 0

    async def _drive(self, steps: Steps[T]) -> T:
        core = self._core
        try:
            while True:
                await wait_for(next(steps))
        except StopIteration as end:
            result: T = end.value
            return result
        except LostConnection:
            raise await told(core.loss) from None
        except TransportError:
            core.detach()
            raise
        finally:
            steps.close()  # what was cancelled puts its things in order now


async def _batches(items: AsyncIterable[Any], most: int) -> AsyncIterator[list[Any]]:
    """The items in lists: of so many, of so many bytes, or of what comes within a moment."""
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
            yield batch  # what came before it is pushed, too
        raise
    if batch:
        yield batch
