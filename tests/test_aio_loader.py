"""``fastresp.aio.loader``: the same load as without asyncio; cancellations, and several tasks."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing, suppress
from typing import Any

import pytest
import redis
from loads import VALUE
from stored_users import only_we_are_connected

import fastresp
import fastresp.aio
from fastresp.server.local_server import LocalServer


async def push_async(rows: Any, template: Any = None, **options: Any) -> fastresp.Report:
    async with fastresp.aio.loader(template, **options) as load:
        for row in rows:
            await load.write(row)
    return load.report


def push(rows: Any, template: Any = None, **options: Any) -> fastresp.Report:
    with fastresp.loader(template, **options) as load:
        for row in rows:
            load.write(row)
    return load.report


JOB = fastresp.Checkpoint("job", source_id="1")
TUPLES = [(i % 50, f"item {i}") for i in range(3000)]


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"on_error": "collect"},
        {"mode": "merge", "on_error": "collect"},
        {"connections": 3, "on_error": "collect"},
        {"checkpoint": JOB, "on_error": "collect"},
    ],
    ids=str,
)
def test_same_as_without_asyncio(
    server: LocalServer, client: redis.Redis, options: dict[str, Any]
) -> None:
    found = []
    for load in (push, lambda *given, **more: asyncio.run(push_async(*given, **more))):
        client.flushall()
        client.set("list:7", "not a list")
        error = None
        try:
            report = load(TUPLES, "RPUSH list:{0} {1}", server=server.url, **options)
        except fastresp.LoadErrors as caught:
            error, report = caught, caught.report
        lists = [client.lrange(f"list:{i}", 0, -1) for i in range(50) if i != 7]
        counts = report.rows, report.commands, report.replies, report.failed, report.errors_by_code
        found.append((type(error), lists, counts, [str(each) for each in report.errors]))
    assert found[0] == found[1]
    assert found[0][2][3] == 60


def test_transport() -> None:
    with pytest.raises(ValueError, match="transport must be 'auto' or 'socket' in asyncio"):
        fastresp.aio.loader("SET {0} x", transport="redis-cli")  # type: ignore[arg-type]


def test_flush(server: LocalServer, client: redis.Redis) -> None:
    async def main() -> None:
        async with fastresp.aio.loader("SET {0} x", server.url, timeout=0.3) as load:
            for end in (10, 20):
                for number in range(end - 10, end):
                    await load.write(number)
                await load.flush()
                assert client.dbsize() == load.report.replies == end
                await asyncio.sleep(0.5)

    asyncio.run(main())


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
        await push_async(range(100_000), "SET {0} x", server=server.url)
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


class Failed(Exception):
    """Raised in a block."""


@pytest.mark.parametrize("kind", [Failed, StopAsyncIteration])
def test_exception_in_the_block(
    server: LocalServer, client: redis.Redis, kind: type[Exception]
) -> None:
    async def main() -> None:
        async with fastresp.aio.loader("SET {0} x", server.url) as load:
            loads.append(load)
            for number in range(100):
                await load.write(number)
            raise kind

    loads: list[fastresp.aio.Loader] = []
    with pytest.raises(kind) as caught:
        asyncio.run(main())
    assert caught.traceback[-1].name == "main"
    report = loads[0].report
    assert (report.rows, report.replies, client.dbsize()) == (100, 100, 100)
    assert getattr(caught.value, "report", report) is report


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


def test_caught_error_of_a_row(server: LocalServer, client: redis.Redis) -> None:
    async def main() -> fastresp.Report:
        async with fastresp.aio.loader("SET {0} {1}", server.url) as load:
            for value in ("x", object(), "y"):
                with suppress(fastresp.EncodeError):
                    await load.write((value, value))
        return load.report

    assert asyncio.run(main()).replies == client.dbsize() == 2


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


def test_lost_server(start_server: Callable[..., LocalServer]) -> None:
    server = start_server()

    async def main() -> None:
        async with fastresp.aio.loader("SET {0} {1}", server.url) as load:
            for number in range(10**9):
                await load.write((number, VALUE))
                if number == 50_000:
                    server.process.kill()

    with pytest.raises(fastresp.TransportError) as caught:
        asyncio.run(main())
    assert caught.value.report is not None


def test_only_in_its_block(server: LocalServer) -> None:
    async def main() -> None:
        load = fastresp.aio.loader("SET {0} x", server.url)
        with pytest.raises(ValueError, match="use the loader in a 'with' statement"):
            await load.write(1)
        async with load:
            await load.write(1)
        for call in (lambda: load.write(1), load.flush):
            with pytest.raises(ValueError, match="the load has ended"):
                await call()

    asyncio.run(main())


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
