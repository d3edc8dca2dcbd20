"""Async sources that end a load or outlive it: the right error, and nothing left behind."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import suppress
from typing import Any

import pytest
import redis

import fastresp
import fastresp.aio
from fastresp.server.local_server import LocalServer

BAD = "SET", "bad", object()


def swallow() -> None:
    """Ignore the exception."""


def convert() -> None:
    raise RuntimeError("the source was disturbed")


def source(*rows: Any, then: Callable[[], None]) -> AsyncIterator[Any]:
    async def source() -> AsyncIterator[Any]:
        for row in rows:
            yield row
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            then()
        yield "SET", "late", 1

    return source()


async def ended(server: LocalServer, data: Any, **options: Any) -> tuple[BaseException, int]:
    """Return the exception that ends a load, and its task's remaining cancellations."""
    with pytest.raises(Exception) as caught:  # noqa: PT011
        await fastresp.aio.mass_insert(data, server=server.url, **options)
    task = asyncio.current_task()
    assert task is not None
    return caught.value, task.cancelling()


@pytest.mark.parametrize("then", [swallow, convert])
def test_bad_row_before_a_pause(
    server: LocalServer, client: redis.Redis, then: Callable[[], None]
) -> None:
    """It ends the load, whatever the source does then; nothing after it is sent."""
    error, left = asyncio.run(ended(server, source(("SET", "a", 1), BAD, then=then)))
    assert isinstance(error, fastresp.EncodeError)
    assert left == 0
    assert client.keys() == [b"a"]


def test_bad_row_before_rows_without_end(server: LocalServer, client: redis.Redis) -> None:
    """A source that ignores the end of its load and never ends is not read forever."""

    async def endless() -> AsyncIterator[Any]:
        yield BAD
        with suppress(asyncio.CancelledError):
            await asyncio.sleep(60)
        while True:
            yield "SET", "late", 1

    async def main() -> tuple[BaseException, int]:
        return await asyncio.wait_for(ended(server, endless()), 10)

    error, left = asyncio.run(main())
    assert isinstance(error, fastresp.EncodeError)
    assert left == 0
    assert client.keys() == []


@pytest.mark.parametrize("then", [swallow, convert])
def test_load_that_stops_in_a_pause(
    server: LocalServer, client: redis.Redis, then: Callable[[], None]
) -> None:
    client.set("text", "x")
    data = source(("LPUSH", "text", 1), then=then)
    error, left = asyncio.run(ended(server, data, on_error="stop"))
    assert isinstance(error, fastresp.LoadErrors)
    assert left == 0
    assert client.keys() == [b"text"]


def test_load_of_a_task_that_is_being_cancelled(server: LocalServer, client: redis.Redis) -> None:
    """A load that a task starts while being cancelled ends like any other."""

    async def work() -> tuple[BaseException, int]:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            return await ended(server, source(("SET", "a", 1), BAD, then=convert))
        raise AssertionError

    async def main() -> tuple[BaseException, int]:
        task = asyncio.create_task(work())
        await asyncio.sleep(0)
        task.cancel()
        return await task

    error, left = asyncio.run(main())
    assert isinstance(error, fastresp.EncodeError)
    assert left == 1  # the one that ends the task
    assert client.keys() == [b"a"]


def test_replies_outlast_a_pause(server: LocalServer) -> None:
    """All replies have arrived, so a pause longer than the timeout is not the server's silence."""

    async def paused() -> AsyncIterator[int]:
        for number in range(10):
            yield number
        await asyncio.sleep(1.5)
        yield 10

    async def read() -> list[Any]:
        replies = fastresp.aio.iter_replies(
            paused(), "ECHO {0}", server=server.url, timeout=0.5, decode=True
        )
        return [reply async for reply in replies]

    assert asyncio.run(read()) == [str(number) for number in range(11)]


def test_closed_coroutine(server: LocalServer, client: redis.Redis) -> None:
    """Its connection and its source are closed at once."""
    closed = asyncio.Event()

    async def endless() -> AsyncGenerator[tuple[str, str, int], None]:
        try:
            while True:
                yield "SET", "a", 1
                await asyncio.sleep(0.01)
        finally:
            closed.set()

    async def main() -> int:
        source = endless()
        load = fastresp.aio.mass_insert(source, server=server.url)
        waited = load.__await__()
        before = len(client.client_list())

        def begun() -> bool:
            return len(client.client_list()) > before and bool(client.exists("a"))

        # Python can't close an async generator whose next item was waited for.
        while not begun() or source.ag_running:
            future = next(waited)
            while future is not None and not future.done():
                await asyncio.sleep(0.01)
        load.close()
        left = len(client.client_list()) - before
        del load, waited, source
        await asyncio.wait_for(closed.wait(), 30)  # a generator is closed by the event loop
        return left

    assert asyncio.run(main()) == 0


@pytest.mark.few(2)
@pytest.mark.parametrize("kind", ["load", "replies"])
@pytest.mark.parametrize("pause", [0, 0.05])
def test_a_loaded_source_is_released(server: LocalServer, kind: str, pause: float) -> None:
    class Source:
        async def __aiter__(self) -> AsyncIterator[tuple[str, str, int]]:
            for number in range(3):
                yield "SET", "a", number
                await asyncio.sleep(pause)

    async def use() -> weakref.ref[Source]:
        data = Source()
        if kind == "load":
            await fastresp.aio.mass_insert(data, server=server.url)
        else:
            async for _ in fastresp.aio.iter_replies(data, server=server.url):
                pass
        return weakref.ref(data)

    gc.collect()
    gc.disable()
    try:
        assert asyncio.run(use())() is None
    finally:
        gc.enable()


def test_rows_that_could_not_be_sent_are_released(server: LocalServer) -> None:
    class Rows(list[Any]):
        pass

    rows = Rows([("SET", "a", 1), BAD])
    held = weakref.ref(rows)
    gc.collect()
    gc.disable()
    try:
        with pytest.raises(fastresp.EncodeError):
            list(fastresp.iter_replies(rows, server=server.url))
        del rows
        assert held() is None
    finally:
        gc.enable()


@pytest.mark.parametrize("options", [{}, {"mode": "merge"}, {"connections": 3}])
def test_a_source_that_changes_its_row(
    server: LocalServer, client: redis.Redis, options: dict[str, Any]
) -> None:
    """Each row is encoded before the source continues, as without asyncio."""

    async def rows() -> AsyncIterator[dict[str, int]]:
        row = {"id": 0}
        for row["id"] in range(100):
            yield row

    async def main() -> None:
        await fastresp.aio.mass_insert(rows(), "SET {id} {id}", server=server.url, **options)
        assert (await fastresp.aio.verify(rows(), "SET {id} {id}", server.url)).same
        replies = fastresp.aio.iter_replies(rows(), "GET {id}", server.url)
        assert [int(reply) async for reply in replies] == list(range(100))

    asyncio.run(main())
    assert client.dbsize() == 100
