"""A load under asyncio releases its checkpoint without blocking the event loop."""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Callable, Iterator

import pytest
from resumed_loads import NAME

import fastresp
from fastresp import aio
from fastresp.server.local_server import LocalServer
from fastresp.server.options import Checkpoint

# Maximum time that the event loop is blocked; the checkpoint waits for 2 s.
MAX_S = 1.0


@pytest.mark.few(1)
@pytest.mark.parametrize("cancelled", [True, False])
@pytest.mark.parametrize("template", ["RPUSH list {0}", "SADD set {0}"])
def test_other_tasks_continue(
    start_server: Callable[..., LocalServer], template: str, cancelled: bool
) -> None:
    server, pauses = start_server(), list[float]()

    def rows() -> Iterator[tuple[int]]:
        for number in range(50_000_000):
            yield (number,)

    async def look() -> None:
        last = time.monotonic()
        while True:
            await asyncio.sleep(0.01)
            pauses.append(time.monotonic() - last)
            last = time.monotonic()

    async def load() -> None:
        looking = asyncio.create_task(look())
        loading = asyncio.create_task(
            aio.mass_insert(
                rows(),
                template,
                server=server.url,
                checkpoint=Checkpoint(NAME, source_id="rows"),
                timeout=2,
            )
        )
        await asyncio.sleep(0.5)
        server.process.send_signal(signal.SIGSTOP)
        try:
            await asyncio.sleep(0.2)
            if cancelled:
                loading.cancel()
            with pytest.raises((asyncio.CancelledError, fastresp.TransportTimeout)):
                await loading
        finally:
            server.process.send_signal(signal.SIGCONT)
        looking.cancel()

    asyncio.run(load())
    assert max(pauses) < MAX_S
