"""The driver for asyncio: run the cores defined in ``driver``, and wait with the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from contextlib import suppress
from inspect import GEN_CLOSED, getgeneratorstate, isawaitable
from typing import Any, Generic, TypeVar

from ..outcome.tracebacks import shorten
from ..server.threads import in_thread
from .driver import Blocking, Emit, Pull, Step, Steps, Waits

__all__ = ["answer", "run", "stream", "wait_for"]

T = TypeVar("T")

# Seconds between two calls of ``Pull.meanwhile`` while a task waits for a source.
PAUSE_SECONDS = 0.02


class Core(Generic[T]):
    """Runs a core in an event loop, as ``driver.stream()`` does with poll().

    Attributes:
        error: the exception to raise in the core when it next runs, or None.
        returned: the core's return value, once it has ended.
    """

    def __init__(self, steps: Generator[Step | Emit, Any, T]) -> None:
        self._steps = steps
        self._answer: Any = None
        self.error: BaseException | None = None
        self.returned: T

    async def next_items(self) -> Emit | None:
        """Run the core until it yields items, and return the items; None if the core ends."""
        steps = self._steps
        while True:
            try:
                step = steps.send(self._answer) if self.error is None else steps.throw(self.error)
                self._answer = self.error = None
                if isinstance(step, Emit):
                    return step
                self._answer = await answer(step)
            except BaseException as caught:
                if getgeneratorstate(steps) == GEN_CLOSED:
                    if isinstance(caught, StopIteration):
                        self.returned = caught.value
                        return None
                    if isinstance(caught, GeneratorExit):
                        shorten(caught)  # frames in its traceback would keep the source alive
                    raise
                self._answer, self.error = None, caught

    def close(self) -> None:
        """Close the core, if it has not ended."""
        self.error = None  # its traceback would keep the core's frames, and so the data, alive
        self._steps.close()


async def run(steps: Steps[T]) -> T:
    """Run a core to the end, and return its result, like ``driver.run()``."""
    core = Core(steps)
    try:
        while await core.next_items() is not None:
            pass
        return core.returned
    finally:
        core.close()


async def stream(steps: Generator[Step | Emit, Any, None]) -> AsyncGenerator[Any, None]:
    """Run a core, and yield its items, like ``driver.stream()``."""
    core = Core(steps)
    try:
        while (emitted := await core.next_items()) is not None:
            try:
                for item in emitted.items:
                    yield item
                await asyncio.sleep(0)
            except GeneratorExit:
                raise
            except BaseException as error:
                core.error = error
    except BaseException as error:
        shorten(error)
        raise
    finally:
        core.close()


async def answer(step: Step) -> Any:
    """Handle a step that a core yielded, and return the result."""
    if isinstance(step, Blocking):
        return await _in_thread(step)
    if isinstance(step, Pull) and step.blocks:
        return await asyncio.to_thread(step.function)
    if isinstance(step, Pull):
        await asyncio.sleep(0)  # let other tasks run even if sockets never fill up
        result = step.function()
        if not isawaitable(result):
            return result
        return await (result if step.meanwhile is None else _await_source(result, step.meanwhile))
    return await wait_for(step)


async def _await_source(awaited: Awaitable[Any], meanwhile: Callable[[], bool]) -> Any:
    """Wait for a source, and call ``meanwhile`` every PAUSE_SECONDS until it returns False.

    Return the source's result; None if ``meanwhile`` has returned False.
    """
    task = asyncio.current_task()
    assert task is not None
    cancellations = task.cancelling()  # earlier requests, which the caller ignores
    pauses = Pauses(task, meanwhile)
    try:
        try:
            result = await awaited
        except (Exception, asyncio.CancelledError):
            # Ignore a cancellation that only ``pauses`` has requested.
            if not pauses.stopped or task.cancelling() > cancellations + 1:
                raise
            result = None
        if pauses.failure is not None:
            raise pauses.failure
        return result
    finally:
        pauses.end()


class Pauses:
    """Calls a function every PAUSE_SECONDS while a task waits for a source.

    If the function returns False or raises an exception, the task is cancelled.

    Attributes:
        stopped: whether the task was cancelled.
        failure: the function's exception.
    """

    def __init__(self, task: asyncio.Task[Any], meanwhile: Callable[[], bool]) -> None:
        self.stopped = False
        self.failure: Exception | None = None
        self._task = task
        self._meanwhile = meanwhile
        self._begin()

    def end(self) -> None:
        """Stop the calls. Undo their cancellation of the task, even if the source ignored it."""
        self._timer.cancel()
        self.failure = None  # its traceback refers back to this object
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


async def _in_thread(step: Blocking) -> Any:
    """Run a blocking function in a thread; see Blocking for cancellations."""
    try:
        future = in_thread(step.function)
    except RuntimeError:
        if step.late is not None:
            raise
        return step.function()  # no thread: block the event loop for the result
    waited = asyncio.wrap_future(future)
    try:
        return await (asyncio.shield(waited) if step.late is None else waited)
    except asyncio.CancelledError:
        if step.late is not None:
            future.add_done_callback(step.late)  # runs in the thread, even after the event loop
            raise
        if step.interrupt is not None:
            step.interrupt()
        with suppress(Exception):
            await waited
        raise


async def wait_for(waits: Waits) -> None:
    """Wait until any of the connections is ready."""
    # Don't wait if a stream is lost, or if OpenSSL has buffered input: the next step handles both.
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
