"""The chunks of an async source: gather rows, and send them while the source pauses."""

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

# Number of rows of an async source to gather before encoding: a call of the encoder takes as long
# as encoding a few rows.
GATHERED_ROWS = 32


class AsyncChunks(Chunks):
    """Chunks of an async iterable; ``next()`` returns an awaitable.

    While the source waits for its next row, ``ready()`` returns chunks of the earlier rows.
    """

    def __init__(self, data: Any, template: Template | None, options: Options) -> None:
        super().__init__(data, template, options)
        self._blocks = False
        self._rows: list[Any] = []
        self._failed = False

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
        while self._more and not self._ready and not self._failed and not self.blocked:
            await self._gather(self._source)
            if not self._ready:
                await asyncio.sleep(0)  # every gathered row was skipped
        return self._deliver()

    async def _gather(self, source: AsyncIterator[Any]) -> None:
        """Read and encode rows until a chunk is ready, or CHUNK_SECONDS have passed."""
        deadline = time.monotonic() + CHUNK_SECONDS
        late = False
        while self._more and not self._ready and not self._failed and not late:
            try:
                async for row in source:
                    self._rows.append(row)
                    late = time.monotonic() >= deadline
                    if late or len(self._rows) >= GATHERED_ROWS:
                        break
                else:
                    self._more = False
            except Exception:
                self._encode()  # the error of a gathered row, if any, is raised instead
                self._cut()
                self._raise_refused()
                raise
            self._encode()
        self._cut()

    def ready(self) -> deque[Chunk]:
        try:
            self._encode()
        except BaseException:
            self._failed = True
            raise
        finally:
            self._cut()
        ready = super().ready()
        if not ready:
            self._raise_refused()
        return ready

    def _encode(self) -> None:
        rows, self._rows = iter(self._rows), []
        try:
            # Encode nothing after a failed row, even if the source continues.
            while not self._failed and self.writer.fill(rows):
                self._cut()
        except Exception:
            self._cut()
            self._raise_refused()  # an error in an earlier row
            raise
