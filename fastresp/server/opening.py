"""Open connections with one deadline for all of them."""

from __future__ import annotations

import _thread
import socket
from collections.abc import Callable
from concurrent.futures import wait
from contextlib import suppress
from typing import Any, Self

from ..outcome.errors import TransportError, TransportTimeout
from ..outcome.messages import Hint, Message
from .threads import AT_ONCE, in_thread

__all__ = ["Opening"]


class Opening:
    """Limits the time to open connections, in a ``with`` statement.

    redis-py's timeout applies to each read, so a server that sends a byte now and then could delay
    the block forever. At the deadline, and after an exception, the sockets are shut down.

    Args:
        seconds: the time for all connections together.

    Attributes:
        over: whether the deadline has passed or a connection has failed. If so, no connection may
            be opened.
    """

    def __init__(self, seconds: float) -> None:
        self.over = False
        self._seconds = seconds
        self._late = False
        self._connections: list[Any] = []
        self._ended = _thread.allocate_lock()

    def add(self, connection: Any) -> None:
        """Add a redis-py connection that is about to connect.

        Raises:
            TransportTimeout: the deadline has passed.
        """
        self._connections.append(connection)
        if self.over:
            raise TransportTimeout("no time is left to open a connection")

    def __enter__(self) -> Self:
        with suppress(RuntimeError):  # can't start a thread; each read still has its timeout
            self._ended.acquire()
            in_thread(self._watch)
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self._ended.release()
        if error is None:
            return
        self.end()
        for connection in self._connections:
            connection.disconnect()
        if self._late and isinstance(error, Exception):
            words = f"the connections could not be opened within {self._seconds:g} s (a larger "
            raise TransportTimeout(
                Message(words, Hint("timeout", ...), f" waits longer): {error}")
            ) from error

    def several(self, count: int, open_one: Callable[[], Any]) -> list[Any]:
        """Open connections in parallel.

        Raises:
            TransportError: the threads can't be started.
            Exception: exceptions of ``open_one()``.
        """
        left = iter(range(count))
        made = []

        def work() -> None:
            for _ in left:
                made.append(open_one())

        tasks = []
        try:
            for _ in range(min(count, AT_ONCE)):
                tasks.append(in_thread(work))
            for task in tasks:
                task.result()
        except BaseException as error:
            self.end()  # so that the other tasks end soon
            wait(tasks)
            if type(error) is RuntimeError:  # from starting a thread
                noun = "connection" if count == 1 else "connections"
                words = f"can't open {count} more {noun}: {error}; use fewer"
                raise TransportError(words) from error
            raise
        return made

    def end(self) -> None:
        """Shut down the sockets, so that all reads end."""
        self.over = True
        for connection in self._connections:
            if connection._sock is not None:
                with suppress(OSError):
                    # Not SSLSocket.shutdown(), which drops the TLS state that a reader uses.
                    socket.socket.shutdown(connection._sock, socket.SHUT_RDWR)

    def _watch(self) -> None:
        if self._ended.acquire(timeout=self._seconds):
            return
        self._late = True
        self.end()
