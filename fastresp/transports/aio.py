"""The driver in an event loop: the same cores, waited for with asyncio."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Generator, Iterator
from concurrent.futures import Future
from contextlib import suppress
from inspect import GEN_CLOSED, getgeneratorstate, isawaitable
from typing import Any, Self, TypeVar

from ..encode.template import NO_SCRIPTS, Scripts
from ..outcome.errors import TransportError
from ..outcome.report import Report
from ..resp.buffer import Chunk
from ..server.answers import Answers
from ..server.settings import Server
from ..server.threads import in_thread
from .base import add_report
from .connection import LostConnection
from .driver import Asking, Blocking, Giving, Steps, Waits, Wanted
from .error_policy import ErrorPolicy
from .lanes import Lanes

__all__ = ["AioTransport", "connect", "run", "stream", "told", "wait_for"]

T = TypeVar("T")


async def run(steps: Steps[T]) -> T:
    """Run a core to its end, and return what it returns: as ``run()`` of the driver."""
    answer: Any = None
    error: BaseException | None = None
    try:
        while True:
            try:
                wanted = steps.send(answer) if error is None else steps.throw(error)
                answer = error = None
                answer = await _answer(wanted)
            except BaseException as caught:
                if getgeneratorstate(steps) == GEN_CLOSED:
                    if isinstance(caught, StopIteration):
                        return caught.value  # type: ignore[no-any-return]
                    raise
                answer, error = None, caught
    finally:
        error = None


async def stream(steps: Generator[Wanted | Giving, Any, None]) -> AsyncIterator[Any]:
    """Run a core, and yield the items that it gives: as ``stream()`` of the driver."""
    answer: Any = None
    error: BaseException | None = None
    try:
        while True:
            try:
                wanted = steps.send(answer) if error is None else steps.throw(error)
                answer = error = None
                if isinstance(wanted, Giving):
                    for item in wanted.items:
                        yield item
                    await asyncio.sleep(0)
                else:
                    answer = await _answer(wanted)
            except GeneratorExit:
                raise
            except BaseException as caught:
                if getgeneratorstate(steps) == GEN_CLOSED:
                    if isinstance(caught, StopIteration):
                        return
                    raise
                answer, error = None, caught
    finally:
        error = None
        steps.close()


async def _answer(wanted: Wanted) -> Any:
    if isinstance(wanted, Blocking):
        return await _in_thread(wanted)
    if isinstance(wanted, Asking):
        await asyncio.sleep(0)  # whatever the sockets take at once: others have their turn
        answer = wanted.function()
        return await answer if isawaitable(answer) else answer
    return await wait_for(wanted)


async def _in_thread(wanted: Blocking) -> Any:
    """What a function returns that blocks; its thread is waited for, unless it is to end late."""
    try:
        future = in_thread(wanted.function)
    except RuntimeError:
        return wanted.function()  # without a thread the event loop waits
    waited = asyncio.wrap_future(future)
    try:
        return await asyncio.shield(waited)
    except asyncio.CancelledError:
        if wanted.late is not None:
            future.add_done_callback(wanted.late)  # in its thread: the event loop may end first
            raise
        if wanted.interrupt is not None:
            wanted.interrupt()
        with suppress(Exception):
            await waited
        raise


async def connect(
    server: Server, count: int, timeout: float | None, scripts: Scripts = NO_SCRIPTS
) -> tuple[list[Any], Answers]:
    """Open connections in a thread, since redis-py's block.

    Raises:
        CommandError: the server refuses a script.
        TransportError: the server can't be used, or no thread can be had.
    """
    try:
        opening = in_thread(lambda: server.open_all(count, timeout, scripts))
    except RuntimeError as error:
        raise TransportError(f"can't open a connection to {server}: {error}") from error
    try:
        return await asyncio.wrap_future(opening)
    except asyncio.CancelledError:
        opening.add_done_callback(_close_late)  # in its thread: the event loop may end first
        raise


def _close_late(opening: Future[tuple[list[Any], Answers]]) -> None:
    """Close connections that nobody waits for any more."""
    if opening.exception() is None:
        for connection in opening.result()[0]:
            connection.disconnect()


async def told(loss: Callable[[], TransportError]) -> TransportError:
    """What ``loss()`` says, in a thread; it is waited for even by who is cancelled meanwhile."""
    try:
        telling = asyncio.wrap_future(in_thread(loss))
    except RuntimeError:
        return loss()  # without a thread the event loop waits
    try:
        return await asyncio.shield(telling)
    except asyncio.CancelledError:
        await telling
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


class AioTransport:
    """Connections of its own to a server, to be used in an ``async with`` statement.

    Args:
        server: where they lead to.
        policy: what error replies do.
        connections: how many there are.
        timeout: give up when nothing moves for so many seconds; None for never.
        rate_limit: send at most this many commands per second; None for no limit.
        scripts: what is to be loaded before, and to be sent again if the server forgets it.

    Attributes:
        lanes: the connections.
        answers: what the server said when it was asked; None before the start.
    """

    def __init__(
        self,
        server: Server,
        policy: ErrorPolicy,
        *,
        connections: int,
        timeout: float | None,
        rate_limit: float | None,
        scripts: Scripts,
    ) -> None:
        self.lanes = Lanes(
            server,
            policy,
            connections=connections,
            timeout=timeout,
            rate_limit=rate_limit,
            scripts=scripts,
        )
        self.lanes.so_far.reason = "asyncio loads over a socket"
        self.answers: Answers | None = None

    @property
    def report(self) -> Report:
        """The report so far."""
        return self.lanes.report

    async def __aenter__(self) -> Self:
        lanes = self.lanes
        try:
            opened, self.answers = await connect(
                lanes.server, len(lanes.lanes), lanes.timeout, lanes.scripts
            )
        except asyncio.CancelledError as cancellation:
            add_report(cancellation, self.report, str(self.report))
            raise
        lanes.attach(opened)
        return self

    async def __aexit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        try:
            if error is not None:
                await self._end_after(error)
                return
            try:
                await self.finish()
            except TransportError:
                raise
            except BaseException as interruption:
                await self._end_after(interruption)
                raise
        finally:
            self.lanes.detach()

    async def _end_after(self, error: BaseException) -> None:
        """The exception goes up as it is; what was whole still goes in.

        A cancellation waits for nothing.
        """
        if isinstance(error, TransportError):
            return
        outcome = None
        try:
            if isinstance(error, Exception):
                await self.finish()
        except TransportError as second:
            outcome = str(second)
        except asyncio.CancelledError as cancellation:
            self.lanes.detach()
            add_report(cancellation, self.report, str(self.report))
            raise
        self.lanes.detach()
        add_report(error, self.report, outcome or str(self.report))

    async def write(self, chunk: Chunk) -> None:
        """Send a chunk, or hold it ready while the socket is full.

        Raises:
            TransportError, TransportTimeout: the connection was lost, or nothing moves.
        """
        await self._run(self.lanes.writing(chunk))
        # Whatever the socket took at once: others in the loop have their turn.
        await asyncio.sleep(0)

    async def finish(self) -> None:
        """Send what is left, and wait for the last reply."""
        await self._run(self.lanes.finishing())

    async def _run(self, waits: Iterator[Waits]) -> None:
        """Run a generator of the lanes, waiting with the event loop.

        Raises:
            TransportError: a connection was lost.
            TransportTimeout: nothing moved for too long.
        """
        try:
            for wait in waits:
                await wait_for(wait)
        except LostConnection:
            raise await told(self.lanes.loss) from None
        except TransportError:
            self.lanes.detach()
            raise
