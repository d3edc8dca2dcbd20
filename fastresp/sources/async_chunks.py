"""The chunks of an async source, which are sent while the source pauses."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable
from typing import Any

from ..encode.template import Template
from ..encode.writer import CHUNK_SECONDS
from ..resp.buffer import Chunk
from ..server.options import Options
from .chunks import Chunks
from .source import row_writer

__all__ = ["AsyncChunks"]


class AsyncChunks(Chunks):
    """Chunks of an async iterable; ``next()`` returns an awaitable.

    While the source waits for its next row, ``ready()`` returns chunks of the earlier rows.
    """

    def __init__(self, data: Any, template: Template | None, options: Options) -> None:
        super().__init__(data, template, options)
        self._blocks = False

    def open(self) -> None:
        if self._source is None:
            self.writer = row_writer(self.template, self.options)
            self._source = aiter(self.data)

    def next(self) -> Awaitable[Chunk | None]:  # type: ignore[override]
        """Return an awaitable for the result of ``Chunks.next()``."""
        self._check_own()  # before the first await
        return self._next()

    async def _next(self) -> Chunk | None:
        self._drop_delivered()
        while self._more and not self._ready and not self.blocked:
            await self._gather(self._source)
            if not self._ready:
                await asyncio.sleep(0)  # every row was skipped
        return self._deliver()

    async def _gather(self, source: AsyncIterator[Any]) -> None:
        """Read and encode rows until a chunk is ready, or CHUNK_SECONDS have passed."""
        fill, deadline = self.writer.fill, time.monotonic() + CHUNK_SECONDS
        try:
            async for row in source:
                # Immediately: the source may change its row and yield it again.
                if fill((row,)) or time.monotonic() >= deadline:
                    break
            else:
                self._more = False
        except Exception:
            self._cut()
            self._raise_refused()  # an error in an earlier row
            raise
        self._cut()

    def ready(self) -> deque[Chunk]:
        self._cut()
        ready = super().ready()
        if not ready:
            self._raise_refused()
        return ready
