"""The socket transport: our own connections, each error reply matched with its command."""

from __future__ import annotations

import time
from concurrent.futures import Future
from functools import partial
from typing import Any, Self

from ..outcome.errors import TransportError
from ..outcome.report import Report
from ..resp.buffer import Chunk
from ..server.options import Options
from ..server.settings import Server, topology_from
from .base import Transport
from .connection import LostConnection
from .driver import Blocking, Steps
from .error_policy import ErrorPolicy
from .lanes import Lanes
from .redirect import Redirected
from .resend import Resending

__all__ = ["SocketTransport", "connecting"]


class SocketTransport(Transport):
    """Send RESP to a server over private connections, in a ``with`` statement or from a core.

    See Transport. Only the process that opened it may use it, one thread at a time.

    Args:
        options: the server, the number of connections, the timeout and the rate.
        server: the same server, if its settings were read already.
        policy: how to handle error replies; by default they are collected.
        resending: which commands to send again if the server refuses them for now.
    """

    def __init__(
        self,
        options: Options,
        *,
        server: Server | None = None,
        policy: ErrorPolicy | None = None,
        resending: Resending | None = None,
    ) -> None:
        super().__init__(server or options.server)
        # Of each ``connections`` lanes; None if they were closed.
        self.nodes: list[tuple[str, int] | None] = []
        self.options = options
        self.lanes: Lanes = Lanes(self.server, policy or ErrorPolicy("collect"), options, resending)

    def because(self, reason: str) -> Self:
        """Note in the report why this transport was chosen."""
        self.lanes.so_far.reason = reason
        return self

    @property
    def report(self) -> Report:
        """The report so far: commands sent, acknowledged and in doubt."""
        return self.lanes.report

    @property
    def running(self) -> bool:
        return self.lanes.running

    @property
    def made(self) -> int:
        return self.lanes.made

    @property
    def limited(self) -> bool:
        return self.options.rate_limit is not None

    def connecting(self) -> Steps[None]:
        options = self.options
        opened = yield from connecting(self.server, options.timeout, options.connections)
        connections, self.answers = opened
        servers = None
        if self.answers.topology is not None:
            self.nodes = [*self.answers.topology.nodes]
            servers = self.server.nodes_of(self.answers.topology.nodes, options.connections)
            if self.follows:
                self.redirected = Redirected(options.timeout)
        self.lanes.attach(connections, servers, self.redirected)

    def writing(self, chunk: Chunk) -> Steps[None]:
        yield from self._unless_lost(self.lanes.writing(chunk))

    def moving(self) -> Steps[list[int]]:
        assert self.redirected is not None
        yield from self.settling()  # there is no room before all is answered
        if self.report.stopped:
            return []
        try:
            self.lanes.check_order()
            pause = self.redirected.pause(self.report)
            if pause:
                yield Blocking(partial(time.sleep, pause))
            return (yield from self._refreshing())
        except TransportError as error:
            error.report = self.report
            self.lanes.detach()
            raise

    def _refreshing(self) -> Steps[list[int]]:
        """Read the slots anew, and connect to the nodes that are new; return the lane of each."""
        count, timeout = self.options.connections, self.options.timeout
        asked = self.lanes.servers()
        topology = yield Blocking(partial(topology_from, asked, timeout))
        fresh = [node for node in topology.nodes if node not in self.nodes]
        if fresh:
            servers = self.server.nodes_of(fresh, count)
            opening = partial(self.server.open_nodes, servers, timeout)
            self.lanes.extend((yield Blocking(opening, late=_close_all_late)), servers)
            self.nodes = [*self.nodes, *fresh]
        lanes: list[int] = topology.lanes(self.nodes, count)
        # A node without slots may be shut down.
        for number in set(range(len(self.nodes))) - {lane // count for lane in lanes}:
            self.nodes[number] = None
            self.lanes.retire(range(number * count, (number + 1) * count))
        return lanes

    def settling(self) -> Steps[None]:
        yield from self._unless_lost(self.lanes.settling())

    def finishing(self) -> Steps[None]:
        yield from self._unless_lost(self.lanes.finishing())

    def losing(self) -> Steps[TransportError]:
        return self.lanes.losing()

    def stop(self) -> None:
        self.lanes.stop()

    def kill(self) -> None:
        self.lanes.detach()

    def _unless_lost(self, steps: Steps[None]) -> Steps[None]:
        """Run steps, and turn a lost connection into the exception that users get.

        Raises:
            TransportError: a connection was lost.
            TransportTimeout: no progress for ``timeout`` seconds.
        """
        try:
            yield from steps
        except LostConnection:
            raise (yield from self.losing()) from None
        except TransportError:
            self.lanes.detach()
            raise


def connecting(server: Server, timeout: float | None, count: int = 1) -> Steps[Any]:
    """Open connections; return what ``Server.open_all()`` does.

    Raises:
        CommandError: the server refuses a script.
        TransportError: the server can't be used.
    """
    try:
        return (yield Blocking(partial(server.open_all, count, timeout), late=_close_late))
    except RuntimeError as error:  # can't start a thread
        raise TransportError(f"can't open a connection to {server}: {error}") from error


def _close_all_late(opening: Future[Any]) -> None:
    """Do what ``_close_late()`` does for connections without answers."""
    if opening.exception() is None:
        for connection in opening.result():
            connection.disconnect()


def _close_late(opening: Future[Any]) -> None:
    """Close connections that opened after the wait was cancelled."""
    if opening.exception() is None:
        for connection in opening.result()[0]:
            connection.disconnect()
