"""The socket transport: connections driven by us, every reply matched with its command."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Self

from ..encode.template import NO_SCRIPTS, Scripts
from ..outcome.errors import TransportError
from ..outcome.report import Report
from ..resp.buffer import Chunk
from ..server.settings import Server, ServerLike
from .base import Transport
from .connection import LostConnection
from .driver import Waits
from .error_policy import ErrorPolicy
from .lanes import Lanes
from .stream import wait_for

__all__ = ["SocketTransport"]


class SocketTransport(Transport):
    """Connections of its own to a server, to be used in a ``with`` statement.

    See Transport. One thread at a time may use it, of the process that opened it.

    Args:
        server: a URL, a ``redis.Redis`` client, or None for ``REDIS_URL``, else localhost.
        policy: what error replies do; by default they are collected.
        connections: how many connections, from 1 to 64; what is written in one piece goes over
            one of them.
        timeout: give up when nothing moves for so many seconds; None for never.
        rate_limit: send at most this many commands per second; None for no limit.
        scripts: what is to be loaded before, and to be sent again if the server forgets it.
    """

    def __init__(
        self,
        server: ServerLike | Server = None,
        *,
        policy: ErrorPolicy | None = None,
        connections: int = 1,
        timeout: float | None = 30.0,
        rate_limit: float | None = None,
        scripts: Scripts = NO_SCRIPTS,
    ) -> None:
        super().__init__(server)
        self._lanes = Lanes(
            self.server,
            policy or ErrorPolicy("collect"),
            connections=connections,
            timeout=timeout,
            rate_limit=rate_limit,
            scripts=scripts,
        )

    def because(self, reason: str) -> Self:
        """Say in the report why it was this transport."""
        self._lanes.so_far.reason = reason
        return self

    @property
    def report(self) -> Report:
        """The report so far: what was sent, what was answered, what is in doubt."""
        return self._lanes.report

    @property
    def running(self) -> bool:
        return self._lanes.running

    @property
    def made(self) -> int:
        return self._lanes.made

    def start(self) -> None:
        lanes = self._lanes
        count = len(lanes.lanes)
        connections, self.answers = self.server.open_all(count, lanes.timeout, lanes.scripts)
        lanes.attach(connections)

    def flush(self) -> None:
        pass  # what is made is in the window, and goes with the next chunk or at the end

    def stop(self) -> None:
        self._lanes.stop()

    def kill(self) -> None:
        self._lanes.detach()

    def _send(self, chunk: Chunk) -> None:
        self._run(self._lanes.writing(chunk))

    def _finish(self) -> None:
        self._run(self._lanes.finishing())

    def _run(self, waits: Iterator[Waits]) -> None:
        """Run a generator of the lanes, waiting with poll().

        Raises:
            TransportError: a connection was lost.
            TransportTimeout: nothing moved for too long.
        """
        try:
            for wait in waits:
                wait_for(wait)
        except LostConnection:
            raise self._lanes.loss() from None
        except TransportError:
            self._lanes.detach()
            raise
