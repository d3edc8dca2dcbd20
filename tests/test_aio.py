"""Asyncio: async sources, pauses, and a loop that is never blocked for long."""

from __future__ import annotations

import asyncio
import inspect
import os
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
import redis

import fastresp
import fastresp.aio
from fastresp.server.local_server import LocalServer

# Measured in CPU time, so that other processes don't matter: a chunk takes 2 ms.
TURNS_A_SECOND = 50


async def rows(
    count: int, pause_s: float = 0.0, every: int = 1000
) -> AsyncIterator[tuple[int, str]]:
    for i in range(count):
        if pause_s and i % every == every - 1:
            await asyncio.sleep(pause_s)
        yield i, f"value {i}"


async def until(happened: Callable[[], bool]) -> None:
    """Let other tasks run until a condition is true."""
    deadline = time.monotonic() + 60
    while not happened():
        assert time.monotonic() < deadline
        await asyncio.sleep(0.01)


def load(data: Any, server: LocalServer, **options: Any) -> fastresp.Report:
    return asyncio.run(fastresp.aio.mass_insert(data, "SET {0} {1}", server=server.url, **options))


FUNCTIONS = [n for n in fastresp.aio.__all__ if inspect.isfunction(getattr(fastresp.aio, n))]


@pytest.mark.parametrize("name", FUNCTIONS)
def test_parameters_and_defaults_as_without_asyncio(name: str) -> None:
    here, there = (
        [
            (each.name, each.kind, each.default)
            for each in inspect.signature(found).parameters.values()
        ]
        for found in (getattr(fastresp.aio, name), getattr(fastresp, name))
    )
    assert here == there


def test_verify_omits_the_nulls_that_a_load_omits(server: LocalServer) -> None:
    users = [{"id": 1, "name": "Ann", "city": None}]
    template = "HSET user:{id} {**}"
    asyncio.run(fastresp.aio.mass_insert(users, template, server=server.url))
    report = asyncio.run(fastresp.aio.verify(users, template, server=server.url))
    assert report.same


@pytest.mark.parametrize("pause_s", [0.0, 0.001, 0.05])
def test_async_source(server: LocalServer, client: redis.Redis, pause_s: float) -> None:
    report = load(rows(20_000, pause_s), server)
    assert (report.rows, report.commands, report.replies) == (20_000,) * 3
    assert client.dbsize() == 20_000
    assert client.get("19999") == b"value 19999"


def test_rows_before_a_pause_do_not_wait_for_its_end(
    server: LocalServer, client: redis.Redis
) -> None:
    async def source() -> AsyncIterator[tuple[int, int]]:
        yield 1, 1
        yield 2, 2
        await until(lambda: client.dbsize() == 2)
        yield 3, 3
        await until(lambda: client.dbsize() == 3)

    assert load(source(), server).replies == 3


def test_the_load_continues_during_a_pause_of_the_source(
    server: LocalServer, client: redis.Redis
) -> None:
    """During a pause, bytes that the socket did not accept are sent, and errors are read."""
    rejected: list[int | None] = []

    async def source() -> AsyncIterator[tuple[str, str]]:
        yield "large", "x" * (60 << 20)
        yield "text", "x"
        await until(lambda: client.strlen("large") == 60 << 20 and rejected == [0, 1])
        yield "end", "x"

    report = asyncio.run(
        fastresp.aio.mass_insert(
            source(), "SET {0} {1}; LPUSH {0} 1", server=server.url, on_error="collect",
            rejects=lambda error: rejected.append(error.row),
        )
    )  # fmt: skip
    assert (report.replies, report.failed, rejected) == (6, 3, [0, 1, 2])


def test_rejects_that_raise_during_a_pause(server: LocalServer, client: redis.Redis) -> None:
    client.set("text", 1)

    async def source() -> AsyncIterator[tuple[str, int]]:
        yield "list", 1
        yield "text", 1
        await asyncio.sleep(110)
        yield "list", 2

    def refuse(error: fastresp.CommandError) -> None:
        raise ZeroDivisionError

    started = time.monotonic()
    with pytest.raises(ZeroDivisionError) as caught:
        asyncio.run(
            fastresp.aio.mass_insert(
                source(), "RPUSH {0} {1}", server=server.url, rejects=refuse, on_error="collect"
            )
        )
    assert time.monotonic() - started < 60
    assert caught.value.report.commands == caught.value.report.replies == 2  # type: ignore[attr-defined]
    assert client.lrange("list", 0, -1) == [b"1"]


def test_server_lost_during_a_pause(start_server: Callable[..., LocalServer]) -> None:
    server = start_server()

    async def source() -> AsyncIterator[tuple[int, int]]:
        yield 1, 1
        with redis.Redis.from_url(server.url) as client:
            await until(lambda: client.dbsize() == 1)
        await asyncio.sleep(0.1)
        server.process.kill()
        await asyncio.sleep(110)
        yield 2, 2

    started = time.monotonic()
    with pytest.raises(fastresp.TransportError, match="lost the connection") as caught:
        load(source(), server)
    assert time.monotonic() - started < 60
    assert caught.value.report is not None
    assert caught.value.report.replies == 1


@pytest.mark.parametrize("what", ["replies", "hashes"])
def test_server_lost_while_a_source_of_requests_pauses(
    start_server: Callable[..., LocalServer], what: str
) -> None:
    """The reader gets the error at once, not after the pause."""
    server = start_server()

    async def source() -> AsyncIterator[int]:
        yield 1
        await asyncio.sleep(0.2)
        server.process.kill()
        await asyncio.sleep(110)
        yield 2

    async def read() -> None:
        if what == "replies":
            items = fastresp.aio.iter_replies(source(), "ECHO {0}", server=server.url)
        else:
            items = fastresp.aio.fetch_hashes(source(), ["a"], server=server.url)
        async for _ in items:
            pass

    started = time.monotonic()
    with pytest.raises(fastresp.TransportError, match="lost the connection"):
        asyncio.run(read())
    assert time.monotonic() - started < 60


def test_source_that_ignores_the_end_of_a_load(server: LocalServer) -> None:
    """A cancellation that it swallows does not reach the caller that awaits the load."""

    async def source() -> AsyncIterator[tuple[int, str]]:
        yield 1, "a"
        with pytest.raises(asyncio.CancelledError):
            await asyncio.sleep(60)
        yield 2, "b"

    async def main() -> int:
        with pytest.raises(fastresp.LoadErrors):
            await fastresp.aio.mass_insert(
                source(), "INCRBY {0} {1}", server=server.url, on_error="stop"
            )
        await asyncio.sleep(0)
        task = asyncio.current_task()
        assert task is not None
        return task.cancelling()

    assert asyncio.run(main()) == 0


async def with_a_clock(data: Any, server: LocalServer, **options: Any) -> tuple[int, int]:
    """Load while another task runs; return the number of commands, and of that task's turns."""
    turns = 0

    async def clock() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    ticking = asyncio.create_task(clock())
    report = await fastresp.aio.mass_insert(data, "SET {0} {1}", server=server.url, **options)
    ticking.cancel()
    return report.commands, turns


@pytest.mark.parametrize("asynchronous", [False, True])
def test_rows_that_are_left_out_do_not_block(server: LocalServer, asynchronous: bool) -> None:
    async def nothing() -> AsyncIterator[tuple[int, None]]:
        for _ in range(300_000):
            yield 1, None

    data = nothing() if asynchronous else [(1, None)] * 1_000_000
    before = time.process_time()
    commands, turns = asyncio.run(with_a_clock(data, server, nulls="skip"))
    assert commands == 0
    assert turns > TURNS_A_SECOND * (time.process_time() - before)


def test_async_source_raises(server: LocalServer, client: redis.Redis) -> None:
    async def source() -> AsyncIterator[tuple[int, int]]:
        for i in range(1007):
            yield i, i
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError) as caught:
        load(source(), server)
    assert caught.value.report.replies == 1007  # type: ignore[attr-defined]
    assert client.dbsize() == 1007


def test_mapping_as_data(server: LocalServer) -> None:
    with pytest.raises(TypeError, match="put it in a list"):
        load({"a": 1}, server)


def test_redis_cli_is_not_for_asyncio(server: LocalServer) -> None:
    with pytest.raises(ValueError, match="'auto' or 'socket' in asyncio"):
        load([], server, transport="redis-cli")


def test_source_that_fails_after_a_row_that_cannot_be_encoded(
    server: LocalServer, client: redis.Redis
) -> None:
    """The row's error is raised first, and the source is read no further, as without asyncio."""

    async def failing() -> AsyncIterator[tuple[str, object]]:
        for i in range(20):
            yield f"key:{i}", object() if i == 10 else i
        raise ArithmeticError("no more")

    with pytest.raises(fastresp.EncodeError, match="row 10") as caught:
        asyncio.run(fastresp.aio.mass_insert(failing(), "SET {0} {1}", server=server.url))
    assert not isinstance(caught.value.__context__, ArithmeticError)
    assert caught.value.report.rows == client.dbsize() == 10  # type: ignore[attr-defined]


def test_the_loop_is_not_blocked(server: LocalServer) -> None:
    """Another task keeps running, however slow or fast the source is."""

    def slow() -> Any:
        for i in range(2000):
            time.sleep(0.0002)
            yield i, i

    # The source blocks for at least 0.4 s, in chunks of 2 ms and one row.
    assert asyncio.run(with_a_clock(slow(), server))[1] > 50
    data = [(i, "x" * 100) for i in range(100_000)]
    before = time.process_time()
    _, turns = asyncio.run(with_a_clock(data, server))
    assert turns > TURNS_A_SECOND * (time.process_time() - before)


def test_several_loads_in_one_loop(server: LocalServer, client: redis.Redis) -> None:
    async def all_of_them() -> list[fastresp.Report]:
        return await asyncio.gather(
            *[
                fastresp.aio.mass_insert(rows(5000), f"SET {name}:{{0}} {{1}}", server=server.url)
                for name in range(8)
            ]
        )

    assert [report.replies for report in asyncio.run(all_of_them())] == [5000] * 8
    assert client.dbsize() == 40_000


@pytest.mark.parametrize("kind", ["csv", "jsonl"])
def test_a_named_pipe_does_not_block_the_loop(
    server: LocalServer, client: redis.Redis, tmp_path: Path, kind: str
) -> None:
    """Other tasks run until it is opened for writing, and while nothing is written."""
    path = tmp_path / f"pipe.{kind}"
    os.mkfifo(path)
    lines = b"id\n1\n2\n" if kind == "csv" else b'{"id": 1}\n{"id": 2}\n'

    async def write() -> None:
        for _ in range(20):
            await asyncio.sleep(0.01)
        await asyncio.to_thread(path.write_bytes, lines)

    async def both() -> fastresp.Report:
        loading = fastresp.aio.mass_insert(path, "SET k:{id} v", server=server.url)
        report, _ = await asyncio.gather(loading, write())
        return report

    assert asyncio.run(asyncio.wait_for(both(), 60)).commands == client.dbsize() == 2


@pytest.mark.parametrize("opened", [False, True])
def test_cancelled_while_a_named_pipe_is_silent(
    server: LocalServer, tmp_path: Path, opened: bool
) -> None:
    """The thread that waits for the pipe also ends."""
    path = tmp_path / "pipe.csv"
    os.mkfifo(path)
    table = fastresp.read(path)

    async def begin() -> None:
        loading = fastresp.aio.mass_insert(table, "SET k:{id} v", server=server.url)
        task = asyncio.create_task(loading)
        await asyncio.sleep(0.1)
        writer = await asyncio.to_thread(path.open, "wb") if opened else None
        await asyncio.sleep(0.1)
        task.cancel()
        with pytest.raises(asyncio.CancelledError) as caught:
            await task
        assert caught.value.report.commands == 0  # type: ignore[attr-defined]
        if writer is not None:
            writer.close()
        ahead = table._ahead
        assert ahead is not None
        await until(ahead._reading.done)

    asyncio.run(asyncio.wait_for(begin(), 60))
