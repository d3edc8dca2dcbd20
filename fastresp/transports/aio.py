"""The driver in an event loop: the same cores, waited for with asyncio."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from contextlib import suppress
from inspect import GEN_CLOSED, getgeneratorstate, isawaitable
from typing import Any, Generic, TypeVar

from ..server.threads import in_thread
from .driver import Asking, Blocking, Giving, Steps, Waits, Wanted

__all__ = ["answer", "run", "stream", "wait_for"]

T = TypeVar("T")

# A source idle this long counts as paused.
PAUSE_SECONDS = 0.02


class Core(Generic[T]):
    """A core that runs in an event loop, as the driver's ``stream()`` runs one.

    Attributes:
        error: what is to be raised in it next.
        returned: what it returned, at its end.
    """

    def __init__(self, steps: Generator[Wanted | Giving, Any, T]) -> None:
        self._steps = steps
        self._answer: Any = None
        self.error: BaseException | None = None
        self.returned: T

    async def given(self) -> Giving | None:
        """Run it until it gives items; None at its end."""
        steps = self._steps
        while True:
            try:
                wanted = steps.send(self._answer) if self.error is None else steps.throw(self.error)
                self._answer = self.error = None
                if isinstance(wanted, Giving):
                    return wanted
                self._answer = await answer(wanted)
            except BaseException as caught:
                if getgeneratorstate(steps) == GEN_CLOSED:
                    if isinstance(caught, StopIteration):
                        self.returned = caught.value
                        return None
                    raise
                self._answer, self.error = None, caught

    def close(self) -> None:
        """End it, if it has not come to its end."""
        self.error = None  # it holds the frames of the core, and so the data
        self._steps.close()


async def run(steps: Steps[T]) -> T:
    """Run a core to its end, and return what it returns: as ``run()`` of the driver."""
    core = Core(steps)
    try:
        while await core.given() is not None:
            pass
        return core.returned
    finally:
        core.close()


async def stream(steps: Generator[Wanted | Giving, Any, None]) -> AsyncGenerator[Any, None]:
    """Run a core, and yield the items that it gives: as ``stream()`` of the driver."""
    core = Core(steps)
    try:
        while (given := await core.given()) is not None:
            try:
                for item in given.items:
                    yield item
                await asyncio.sleep(0)
            except GeneratorExit:
                raise
            except BaseException as error:
                core.error = error
    finally:
        core.close()


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
    cancellations = task.cancelling()  # of others, in spite of which the caller goes on
    pauses = Pauses(task, meanwhile)
    try:
        try:
            result = await awaited
        except (Exception, asyncio.CancelledError):
            # Whatever the source made of our cancellation, it is not what ended the load.
            if not pauses.stopped or task.cancelling() > cancellations + 1:
                raise
            result = None
        if pauses.failure is not None:
            raise pauses.failure
        return result
    finally:
        pauses.end()


class Pauses:
    """Calls a function whenever the source that a task waits for pauses.

    Attributes:
        stopped: whether the task was cancelled, for it waits for what nobody wants any more.
        failure: what the function raised.
    """

    def __init__(self, task: asyncio.Task[Any], meanwhile: Callable[[], bool]) -> None:
        self.stopped = False
        self.failure: Exception | None = None
        self._task = task
        self._meanwhile = meanwhile
        self._begin()

    def end(self) -> None:
        """Call it no more, and take back the cancellation, also where the source ignored it."""
        self._timer.cancel()
        self.failure = None  # its traceback holds the frame that has this
        if self.stopped:
            self._task.uncancel()

    def _begin(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(PAUSE_SECONDS, self._pause)

    def _pause(self) -> None:
        try:
            self.stopped = not self._meanwhile()
        except Exception as error:
            self.failure, self.stopped = error, True
        if self.stopped:
            self._task.cancel()
        else:
            self._begin()


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
