"""The socket transport: a connection driven by us, every reply matched with its command."""

from __future__ import annotations

import select
from collections.abc import Iterator
from typing import Self

from ..errors import TransportError
from ..policy import ErrorPolicy
from ..report import Report
from ..server import Server, ServerLike
from ..wire.buffer import Chunk
from .base import Transport
from .pipeline import LoadCore, LostConnection, PipelineCore, Wait
from .stream import Stream

__all__ = ["SocketTransport", "run", "wait_for"]


class SocketTransport(Transport):
    """A connection of its own to a server, to be used in a ``with`` statement.

    See Transport. One thread at a time may use it; a process that forks may use it on one side.

    Args:
        server: a URL, a ``redis.Redis`` client, or None for ``REDIS_URL``, else localhost.
        policy: what error replies do; by default they are collected.
        timeout: give up when nothing moves for so many seconds; None for never.
        rate_limit: send at most so many commands a second; None for no limit.
    """

    def __init__(
        self,
        server: ServerLike | Server = None,
        *,
        policy: ErrorPolicy | None = None,
        timeout: float | None = 30.0,
        rate_limit: float | None = None,
    ) -> None:
        super().__init__(server)
        self._core = LoadCore(
            self.server, policy or ErrorPolicy("collect"), timeout=timeout, rate_limit=rate_limit
        )

    def because(self, reason: str) -> Self:
        """Say in the report why it was this transport."""
        self._core.report.reason = reason
        return self

    @property
    def report(self) -> Report:
        """The report so far: what was sent, what was answered, what is in doubt."""
        return self._core.report

    @property
    def running(self) -> bool:
        return self._core.stream is not None

    @property
    def made(self) -> int:
        return self._core.window.made

    def start(self) -> None:
        connection, self.answers = self.server.open(self._core.timeout)
        self._core.attach(connection)

    def flush(self) -> None:
        pass  # what is made is in the window, and goes with the next chunk or at the end

    def kill(self) -> None:
        self._core.detach()

    def _send(self, chunk: Chunk) -> None:
        run(self._core, self._core.writing(chunk))

    def _finish(self) -> None:
        core = self._core
        if core.stream is not None and core.stream.sure:
            run(core, core.finishing())


def run(core: PipelineCore, waits: Iterator[Wait]) -> None:
    """Run a pipeline's generator, waiting with poll().

    Raises:
        TransportError: the connection was lost.
        TransportTimeout: nothing moved for too long.
    """
    try:
        for wait in waits:
            assert core.stream is not None
            wait_for(core.stream, wait)
    except LostConnection:
        raise core.loss() from None
    except TransportError:
        core.detach()
        raise


def wait_for(stream: Stream, wait: Wait) -> None:
    """Wait as a pipeline says."""
    if wait.read and stream.has_input:
        return
    read, write = stream.interest(read=wait.read, write=wait.write)
    poll = select.poll()
    poll.register(
        stream.fileno(), (select.POLLIN if read else 0) | (select.POLLOUT if write else 0)
    )
    poll.poll(max(1, int(wait.seconds * 1000)))
