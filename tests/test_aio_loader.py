"""``fastresp.aio.loader``: pauses, cancellations, and several tasks.

``load/test_loader.py`` compares its loads with ``mass_insert``.
"""

from __future__ import annotations

import asyncio
import gc
import os
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing, suppress

import pytest
import redis
from loads import VALUE
from waiting import only_we_are_connected

import fastresp
import fastresp.aio
from fastresp.server.local_server import LocalServer


def test_transport() -> None:
    with pytest.raises(ValueError, match="transport must be 'auto' or 'socket' in asyncio"):
        fastresp.aio.loader("SET {0} x", transport="redis-cli")  # type: ignore[arg-type]


def test_several_tasks(server: LocalServer, client: redis.Redis) -> None:
    async def main() -> None:
        async def write(first: int) -> None:
            for number in range(first, first + 20_000):
                await load.write((number, VALUE))
            await load.flush()

        async with fastresp.aio.loader("SET {0} {1}", server.url) as load:
            await asyncio.gather(*(write(20_000 * i) for i in range(4)))
        assert client.dbsize() == load.report.replies == load.report.rows == 80_000

    asyncio.run(main())


def test_other_tasks_run(server: LocalServer) -> None:
    """While rows are written without another await."""

    async def main() -> int:
        ticks = 0

        async def tick() -> None:
            nonlocal ticks
            while True:
                ticks += 1
                await asyncio.sleep(0)

        task = asyncio.create_task(tick())
        async with fastresp.aio.loader("SET {0} x", server.url) as load:
            for number in range(100_000):
                await load.write(number)
        task.cancel()
        return ticks

    assert asyncio.run(main()) > 10


def test_rows_are_sent_in_a_pause(server: LocalServer, client: redis.Redis) -> None:
    async def main() -> None:
        async with fastresp.aio.loader("SET {0} x", server.url, connections=2) as load:
            for end in (10, 20):
                for number in range(end - 10, end):
                    await load.write(number)
                while load.report.replies < end:
                    await asyncio.sleep(0.001)
                assert client.dbsize() == end

    asyncio.run(asyncio.wait_for(main(), 30))


def test_load_that_ends_in_a_pause(start_server: Callable[..., LocalServer]) -> None:
    """The next call raises, or the end of the block."""
    server = start_server()

    async def stopped() -> None:
        async with fastresp.aio.loader("RPUSH text {0}", server.url, on_error="stop") as load:
            await load.write(1)
            await load.write(2)
            await asyncio.sleep(0.2)
            await load.write(3)
            raise AssertionError

    async def lost(*, write: bool) -> None:
        async with fastresp.aio.loader("SET {0} x", server.url) as load:
            await load.write(1)
            server.stop()
            await asyncio.sleep(0.2)
            if write:
                await load.write(2)
                raise AssertionError

    with redis.Redis.from_url(server.url) as client:
        client.set("text", "x")
    with pytest.raises(fastresp.LoadErrors) as caught:
        asyncio.run(stopped())
    assert caught.value.report.rows == 2
    for write in (True, False):
        with pytest.raises(fastresp.TransportError, match="lost the connection"):
            asyncio.run(lost(write=write))
        server.start()


def test_generator_that_is_closed_early(server: LocalServer, client: redis.Redis) -> None:
    """All rows that were written are sent, as without asyncio."""

    async def copied() -> AsyncIterator[int]:
        async with fastresp.aio.loader("SET {0} x", server.url) as load:
            loads.append(load)
            for number in range(100):
                await load.write(number)
                yield number

    async def main() -> None:
        async with aclosing(copied()) as numbers:
            async for number in numbers:
                if number == 49:
                    break

    loads: list[fastresp.aio.Loader] = []
    asyncio.run(main())
    report = loads[0].report
    assert (report.rows, report.replies, client.dbsize()) == (50, 50, 50)


@pytest.mark.parametrize("place", ["block", "write", "flush", "exit"])
def test_cancellation(start_server: Callable[..., LocalServer], place: str) -> None:
    """It closes the connection at once, wherever the task waits; the report is right."""
    server = start_server()

    async def work() -> None:
        async with fastresp.aio.loader("SET {0} {1}", server.url, timeout=None) as load:
            loads.append(load)
            for number in range(100):
                await load.write((number, VALUE))
            if place == "block":
                await asyncio.sleep(60)
            await load.flush()
            os.kill(server.process.pid, signal.SIGSTOP)
            for number in range(100, 100_000_000 if place == "write" else 1000):
                await load.write((number, VALUE))
            if place == "flush":
                await load.flush()

    async def main() -> BaseException:
        task = asyncio.create_task(work())
        await asyncio.sleep(0.5)
        task.cancel()
        with pytest.raises(asyncio.CancelledError) as caught:
            await asyncio.wait_for(task, 10)
        return caught.value

    loads: list[fastresp.aio.Loader] = []
    asyncio.run(main())
    os.kill(server.process.pid, signal.SIGCONT)
    report = loads[0].report
    with redis.Redis.from_url(server.url) as client:
        only_we_are_connected(client)
        assert 0 < report.acknowledged <= client.dbsize() <= report.acknowledged + report.in_doubt


def test_write_after_a_cancelled_write(start_server: Callable[..., LocalServer]) -> None:
    """The cancellation has ended the load, even if it is not raised."""
    server = start_server()

    async def main() -> None:
        async with fastresp.aio.loader("SET {0} {1}", server.url, timeout=None) as load:
            os.kill(server.process.pid, signal.SIGSTOP)
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.3):
                    for number in range(10**9):
                        await load.write((number, VALUE))
            os.kill(server.process.pid, signal.SIGCONT)
            with pytest.raises(ValueError, match="the load has ended"):
                await load.write((0, 0))

    with pytest.raises(fastresp.TransportError, match="the load was cancelled") as caught:
        asyncio.run(main())
    assert caught.value.report is not None
    assert isinstance(caught.value.__cause__, asyncio.CancelledError)


@pytest.mark.parametrize("cancelled", [False, True])
def test_timeout_of_a_write_in_a_task_group(server: LocalServer, cancelled: bool) -> None:
    """A group would ignore a CancelledError that nobody has requested: rows would be lost."""

    async def work() -> None:
        async with fastresp.aio.loader("SET {0} {1}", server.url, rate_limit=10) as load:
            with pytest.raises(TimeoutError):
                for number in range(100):
                    await asyncio.wait_for(load.write((number, 1)), 0.05)
            if cancelled:
                task = asyncio.current_task()
                assert task is not None
                task.cancel()
                with suppress(asyncio.CancelledError):
                    await asyncio.sleep(60)

    async def main() -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(work())

    if cancelled:
        asyncio.run(main())
        return
    with pytest.raises(ExceptionGroup) as caught:
        asyncio.run(main())
    [error] = caught.value.exceptions
    assert isinstance(error, fastresp.TransportError)
    assert "the load was cancelled" in str(error)


def test_dropped_loader(server: LocalServer, client: redis.Redis) -> None:
    async def main() -> None:
        load = fastresp.aio.loader("SET {0} x", server.url)
        await load.__aenter__()
        await load.write(1)
        await load.flush()
        with pytest.warns(ResourceWarning, match="a loader was not closed"):
            del load
        await asyncio.sleep(0.01)
        await asyncio.to_thread(only_we_are_connected, client)

    gc.disable()
    try:
        asyncio.run(main())
    finally:
        gc.enable()
    assert client.keys() == [b"1"]
