"""The socket transport in an event loop: the same pipeline, waited for with asyncio."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any, Self

from ..errors import TransportError
from ..policy import ErrorPolicy
from ..report import Report
from ..server import Answers, Server
from ..wire.buffer import Chunk
from .base import add_report
from .pipeline import LoadCore, LostConnection, PipelineCore, Wait
from .stream import Stream

__all__ = ["AioTransport", "connect", "run", "wait_for"]


async def connect(core: PipelineCore) -> Answers:
    """Open a connection in a thread, since redis-py's blocks, and give it to a pipeline.

    Raises:
        TransportError: the server can't be used.
    """
    opening = asyncio.get_running_loop().run_in_executor(None, core.server.open, core.timeout)
    try:
        connection, answers = await asyncio.shield(opening)
    except asyncio.CancelledError:
        opening.add_done_callback(_close_late)
        raise
    core.attach(connection)
    return answers


def _close_late(opening: asyncio.Future[tuple[Any, Answers]]) -> None:
    """Close a connection that nobody waits for any more."""
    if not opening.cancelled() and opening.exception() is None:
        opening.result()[0].disconnect()


async def run(core: PipelineCore, waits: Iterator[Wait]) -> None:
    """Run a pipeline's generator, waiting with the event loop.

    Raises:
        TransportError: the connection was lost.
        TransportTimeout: nothing moved for too long.
    """
    try:
        for wait in waits:
            assert core.stream is not None
            await wait_for(core.stream, wait)
    except LostConnection:
        raise await asyncio.to_thread(core.loss) from None
    except TransportError:
        core.detach()
        raise


async def wait_for(stream: Stream, wait: Wait) -> None:
    """Wait as a pipeline says."""
    if wait.read and stream.has_input:
        await asyncio.sleep(0)
        return
    loop = asyncio.get_running_loop()
    ready: asyncio.Future[None] = loop.create_future()

    def wake() -> None:
        if not ready.done():
            ready.set_result(None)

    read, write = stream.interest(read=wait.read, write=wait.write)
    timer = loop.call_later(wait.seconds, wake)
    try:
        if read:
            loop.add_reader(stream.fileno(), wake)
        if write:
            loop.add_writer(stream.fileno(), wake)
        await ready
    finally:
        timer.cancel()
        if stream.fileno() >= 0:
            loop.remove_reader(stream.fileno())
            loop.remove_writer(stream.fileno())


class AioTransport:
    """A connection of its own to a server, to be used in an ``async with`` statement.

    Args:
        server: whose connection it is.
        policy: what error replies do.
        timeout: give up when nothing moves for so many seconds; None for never.
        rate_limit: send at most so many commands a second; None for no limit.

    Attributes:
        core: the pipeline.
        answers: what the server said when it was asked; None before the start.
    """

    def __init__(
        self,
        server: Server,
        policy: ErrorPolicy,
        *,
        timeout: float | None,
        rate_limit: float | None,
    ) -> None:
        self.core = LoadCore(server, policy, timeout=timeout, rate_limit=rate_limit)
        self.core.report.reason = "asyncio loads over a socket"
        self.answers: Answers | None = None

    @property
    def report(self) -> Report:
        """The report so far."""
        return self.core.report

    async def __aenter__(self) -> Self:
        self.answers = await connect(self.core)
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
            self.core.detach()

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
            self.core.detach()
            add_report(cancellation, self.report, str(self.report))
            raise
        self.core.detach()
        add_report(error, self.report, outcome or str(self.report))

    async def write(self, chunk: Chunk) -> None:
        """Send a chunk, or hold it ready while the socket is full.

        Raises:
            TransportError, TransportTimeout: the connection was lost, or nothing moves.
        """
        await run(self.core, self.core.writing(chunk))
        # Whatever the socket took at once: others in the loop have their turn.
        await asyncio.sleep(0)

    async def finish(self) -> None:
        """Send what is left, and wait for the last reply."""
        if self.core.stream is not None and self.core.stream.sure:
            await run(self.core, self.core.finishing())
