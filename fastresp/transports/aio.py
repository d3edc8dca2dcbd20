"""The driver in an event loop: the same cores, waited for with asyncio."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from contextlib import suppress
from inspect import GEN_CLOSED, getgeneratorstate, isawaitable
from typing import Any, TypeVar

from ..server.threads import in_thread
from .driver import Asking, Blocking, Giving, Steps, Waits, Wanted

__all__ = ["answer", "run", "stream", "wait_for"]

T = TypeVar("T")

# A source idle this long counts as paused.
PAUSE_SECONDS = 0.02


async def run(steps: Steps[T]) -> T:
    """Run a core to its end, and return what it returns: as ``run()`` of the driver."""
    ended: list[T] = []
    async for _ in stream(_ending(steps, ended)):
        pass
    return ended[0]


def _ending(steps: Steps[T], ended: list[T]) -> Steps[None]:
    """The same core, which leaves what it returns in a list: async generators return nothing."""
    ended.append((yield from steps))


async def stream(steps: Generator[Wanted | Giving, Any, None]) -> AsyncGenerator[Any, None]:
    """Run a core, and yield the items that it gives: as ``stream()`` of the driver."""
    result: Any = None
    error: BaseException | None = None
    wanted: Wanted | Giving | None = None
    try:
        while True:
            try:
                wanted = steps.send(result) if error is None else steps.throw(error)
                result = error = None
                if isinstance(wanted, Giving):
                    for item in wanted.items:
                        yield item
                    await asyncio.sleep(0)
                else:
                    result = await answer(wanted)
            except BaseException as caught:
                if getgeneratorstate(steps) == GEN_CLOSED:
                    if isinstance(caught, StopIteration):
                        return
                    raise
                if isinstance(caught, GeneratorExit) and isinstance(wanted, Giving):
                    raise
                result, error = None, caught
    finally:
        error = None
        steps.close()


async def answer(wanted: Wanted) -> Any:
    """Wait for what a core waits for, and give what came of it."""
    if isinstance(wanted, Blocking):
        return await _in_thread(wanted)
    if isinstance(wanted, Asking) and wanted.blocks:
        return await asyncio.to_thread(wanted.function)
    if isinstance(wanted, Asking):
        await asyncio.sleep(0)  # whatever the sockets take at once: others have their turn
        result = wanted.function()
        if not isawaitable(result):
            return result
        return await (result if wanted.meanwhile is None else _tended(result, wanted.meanwhile))
    return await wait_for(wanted)


async def _tended(awaited: Awaitable[Any], meanwhile: Callable[[], bool]) -> Any:
    """Wait for a source, and call a function whenever it pauses; None where it says to stop."""
    task = asyncio.current_task()
    assert task is not None
    loop = asyncio.get_running_loop()
    failure: BaseException | None = None
    stopped = False
    timer: asyncio.TimerHandle

    def pause() -> None:
        nonlocal failure, stopped, timer
        try:
            stopped = not meanwhile()
        except Exception as error:
            failure, stopped = error, True
        if stopped:
            task.cancel()  # it waits for the source, which nobody wants any more
        else:
            timer = loop.call_later(PAUSE_SECONDS, pause)

    timer = loop.call_later(PAUSE_SECONDS, pause)
    try:
        result = await awaited
    except asyncio.CancelledError:
        if not stopped or task.cancelling() > 1:
            raise
        result = None
    finally:
        timer.cancel()
        if stopped:
            task.uncancel()  # also where the source went on as if nothing was
    if failure is not None:
        raise failure
    return result


async def _in_thread(wanted: Blocking) -> Any:
    """What a function returns that blocks; its thread is waited for, unless it is to end late."""
    try:
        future = in_thread(wanted.function)
    except RuntimeError:
        if wanted.late is not None:
            raise
        return wanted.function()  # which is to be known all the same: the event loop waits
    waited = asyncio.wrap_future(future)
    try:
        return await (asyncio.shield(waited) if wanted.late is None else waited)
    except asyncio.CancelledError:
        if wanted.late is not None:
            future.add_done_callback(wanted.late)  # in its thread: the event loop may end first
            raise
        if wanted.interrupt is not None:
            wanted.interrupt()
        with suppress(Exception):
            await waited
        raise


async def wait_for(waits: Waits) -> None:
    """Wait until any of some connections has what it waits for."""
    # One that is lost is so since a fork, behind which no loop runs: the next step says it.
    if any(stream.lost or (wait.read and stream.has_input) for stream, wait in waits):
        await asyncio.sleep(0)
        return
    loop = asyncio.get_running_loop()
    ready: asyncio.Future[None] = loop.create_future()

    def wake() -> None:
        if not ready.done():
            ready.set_result(None)

    timer = loop.call_later(min(wait.seconds for _, wait in waits), wake)
    try:
        for stream, wait in waits:
            read, write = stream.interest(read=wait.read, write=wait.write)
            if read:
                loop.add_reader(stream.fileno(), wake)
            if write:
                loop.add_writer(stream.fileno(), wake)
        await ready
    finally:
        timer.cancel()
        for stream, _ in waits:
            if stream.fileno() >= 0:
                loop.remove_reader(stream.fileno())
                loop.remove_writer(stream.fileno())
