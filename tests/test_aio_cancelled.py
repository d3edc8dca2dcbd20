"""Cancelled asyncio loads: connections are closed, and reports are correct."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import time
from collections.abc import AsyncIterator, Callable

import pytest
import redis
from waiting import only_we_are_connected

import fastresp
import fastresp.aio
from fastresp.server.local_server import LocalServer


def test_cancelled_while_it_connects_and_the_loop_ends(
    server: LocalServer, client: redis.Redis
) -> None:
    """A connection that opens later is closed by the code that opened it."""

    async def cancelled() -> None:
        load = fastresp.aio.mass_insert([("SET", "a", 1)], server=server.url)
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(load, 0.05)

    client.client_pause(500)
    gc.disable()  # a collection would close it
    try:
        asyncio.run(cancelled())
        only_we_are_connected(client)
    finally:
        gc.enable()


@pytest.mark.parametrize("after_s", [0.0, 0.05, 0.3])
@pytest.mark.parametrize("asynchronous", [False, True])
def test_cancellation(
    server: LocalServer, client: redis.Redis, after_s: float, asynchronous: bool
) -> None:
    """The connection is closed, and the report is correct."""

    async def endless() -> AsyncIterator[tuple[int, int]]:
        i = 0
        while True:
            yield i, i
            i += 1

    async def cancelled() -> fastresp.Report | None:
        data = endless() if asynchronous else ((i, i) for i in range(10**9))
        some = asyncio.Event()
        load = fastresp.aio.mass_insert(
            data, "SET {0} {1}", server=server.url,
            progress=lambda report: some.set() if report.replies else None,
        )  # fmt: skip
        task = asyncio.create_task(load)
        await asyncio.sleep(after_s)
        if after_s > 0.1:
            await some.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError) as caught:
            await task
        return getattr(caught.value, "report", None)

    report = asyncio.run(cancelled())
    only_we_are_connected(client)
    if after_s > 0.1:
        assert report is not None
        assert report.acknowledged > 0
    if report is not None:
        stored = client.dbsize()
        assert report.acknowledged <= stored <= report.acknowledged + report.in_doubt


def test_cancelled_while_it_waits_for_a_frozen_server(
    start_server: Callable[..., LocalServer],
) -> None:
    server = start_server()

    async def cancelled() -> None:
        task = asyncio.create_task(
            fastresp.aio.mass_insert(
                ((i, i) for i in range(10**9)), "SET {0} {1}", server=server.url, timeout=None
            )
        )
        await asyncio.sleep(0.2)
        os.kill(server.process.pid, signal.SIGSTOP)
        await asyncio.sleep(0.2)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(task, 0.2)

    started = time.monotonic()
    asyncio.run(cancelled())
    assert time.monotonic() - started < 60
