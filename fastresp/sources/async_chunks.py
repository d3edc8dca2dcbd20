"""The chunks of an async source: its rows are gathered, and its pauses used."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from typing import Any

from ..encode.row_writer import CHUNK_SECONDS
from ..encode.template import Template
from ..resp.buffer import Chunk
from ..server.options import Options
from .chunks import Chunks
from .source import row_writer

__all__ = ["AsyncChunks"]

# Rows of an async source that are gathered before they are encoded: a call of the encoder costs
# as much as some rows.
GATHERED_ROWS = 32
# A source idle this long counts as paused.
PAUSE_SECONDS = 0.02


class AsyncChunks(Chunks):
    """The chunks of an async iterable, as Chunks; ``next()`` gives what is to be awaited.

    While the source keeps us waiting for its next row, the rows before it go out over
    ``carrier``, and replies are read.
    """

    def __init__(self, data: Any, template: Template | None, options: Options) -> None:
        super().__init__(data, template, options)
        self._blocks = False
        self._rows: list[Any] = []
        self._failure: Exception | None = None

    def open(self) -> None:
        """Begin to read."""
        if self._source is None:
            self.writer = row_writer(self.template, self.options)
            self._source = aiter(self.data)

    async def next(self) -> Chunk | None:  # type: ignore[override]
        """As ``next()`` of Chunks, to be awaited."""
        self._check_own()
        self._drop_given()
        while self._more and not self._ready:
            await self._gather(self._source)
            if not self._ready:
                await asyncio.sleep(0)  # rows that were all left out
        return self._give()

    async def _gather(self, source: AsyncIterator[Any]) -> None:
        """Take rows until there is a chunk, or the time for one is up."""
        task = asyncio.current_task()
        assert task is not None
        deadline = time.monotonic() + CHUNK_SECONDS
        loop = asyncio.get_running_loop()
        timer: list[asyncio.TimerHandle] = []

        def pause() -> None:
            self._pause()
            if self._failure is None and not self._stopped:
                timer[:] = [loop.call_later(PAUSE_SECONDS, pause)]
            else:
                task.cancel()  # it waits for the source, which nobody wants any more

        timer[:] = [loop.call_later(PAUSE_SECONDS, pause)]
        try:
            late = False
            while self._more and not self._ready and not late:
                try:
                    async for row in source:
                        self._rows.append(row)
                        late = time.monotonic() >= deadline
                        if late or len(self._rows) >= GATHERED_ROWS:
                            break
                    else:
                        self._more = False
                except Exception:
                    self._encode()  # an error in one of these rows comes before the source's
                    raise
                self._encode()
            self._cut()
        except asyncio.CancelledError:
            if not (self._failure or self._stopped) or task.uncancel() > 0:
                raise
            self._more = False
        finally:
            timer[0].cancel()
        if self._failure is not None:
            self._rows = []
            raise self._failure

    def _encode(self) -> None:
        rows, self._rows = iter(self._rows), []
        while self.writer.fill(rows):
            self._cut()

    def _pause(self) -> None:
        """Pass on what has come before a pause of the source, and see to what is in flight."""
        carrier = self.carrier
        try:
            self._encode()
        except Exception as error:
            self._failure = error
        self._cut()
        try:
            while self._ready and carrier.has_room:
                carrier.add(self._ready.popleft())
            carrier.tend()
        except Exception as error:
            self.carrier_failed = self._failure is None
            self._failure = self._failure or error

    @property
    def _stopped(self) -> bool:
        """Whether nothing more is wanted, as after too many errors."""
        return self.carrier is not None and bool(self.carrier.report.stopped)
