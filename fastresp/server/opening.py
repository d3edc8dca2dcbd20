"""Connections that are being opened: one deadline for all of them."""

from __future__ import annotations

import _thread
import socket
from collections.abc import Callable
from concurrent.futures import wait
from contextlib import suppress
from typing import Any, Self

from ..outcome.errors import TransportError, TransportTimeout
from ..outcome.messages import Hint, Message
from .threads import in_thread

__all__ = ["Opening"]

# Over a long way each takes some ways there and back.
AT_ONCE = 8


class Opening:
    """Connections that are being opened, to be used in a ``with`` statement.

    redis-py has a timeout for each read, so a server that sends a byte now and then would be waited
    for without end. At the deadline the sockets are shut down; after an exception, too.

    Args:
        seconds: how long all of it may take.

    Attributes:
        over: whether nothing more is to be opened: the deadline has passed, or one has failed.
    """

    def __init__(self, seconds: float) -> None:
        self.over = False
        self._seconds = seconds
        self._late = False
        self._connections: list[Any] = []
        self._ended = _thread.allocate_lock()

    def add(self, connection: Any) -> None:
        """Take a redis-py connection that is about to connect.

        Raises:
            TransportTimeout: it is too late.
        """
        self._connections.append(connection)
        if self.over:
            raise TransportTimeout("no time is left to open a connection")

    def __enter__(self) -> Self:
        with suppress(RuntimeError):  # no thread can be had: then each read has its timeout
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
        """Open some connections, several at once.

        Raises:
            TransportError: there are no threads for it; others as ``open_one()`` does.
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
            self.end()  # the others come to their end
            wait(tasks)
            if type(error) is RuntimeError:  # of a thread
                raise TransportError(
                    f"can't open {count} connections at once: {error}; use fewer"
                ) from error
            raise
        return made

    def end(self) -> None:
        """Let whoever reads from one of the connections find its end."""
        self.over = True
        for connection in self._connections:
            if connection._sock is not None:
                with suppress(OSError):
                    # Not that of TLS, which has a say in it.
                    socket.socket.shutdown(connection._sock, socket.SHUT_RDWR)

    def _watch(self) -> None:
        if self._ended.acquire(timeout=self._seconds):
            return
        self._late = True
        self.end()
