"""The driver in an event loop: the same cores, waited for with asyncio."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Generator
from contextlib import suppress
from inspect import GEN_CLOSED, getgeneratorstate, isawaitable
from typing import Any, TypeVar

from ..server.threads import in_thread
from .driver import Asking, Blocking, Giving, Steps, Waits, Wanted

__all__ = ["answer", "run", "stream", "wait_for"]

T = TypeVar("T")


async def run(steps: Steps[T]) -> T:
    """Run a core to its end, and return what it returns: as ``run()`` of the driver."""
    result: Any = None
    error: BaseException | None = None
    try:
        while True:
            try:
                wanted = steps.send(result) if error is None else steps.throw(error)
                result = error = None
                result = await answer(wanted)
            except BaseException as caught:
                if getgeneratorstate(steps) == GEN_CLOSED:
                    if isinstance(caught, StopIteration):
                        return caught.value  # type: ignore[no-any-return]
                    raise
                result, error = None, caught
    finally:
        error = None


async def stream(steps: Generator[Wanted | Giving, Any, None]) -> AsyncGenerator[Any, None]:
    """Run a core, and yield the items that it gives: as ``stream()`` of the driver."""
    result: Any = None
    error: BaseException | None = None
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
            except GeneratorExit:
                raise
            except BaseException as caught:
                if getgeneratorstate(steps) == GEN_CLOSED:
                    if isinstance(caught, StopIteration):
                        return
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
        return await result if isawaitable(result) else result
    return await wait_for(wanted)


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
