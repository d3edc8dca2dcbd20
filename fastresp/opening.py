"""Connections that are being opened: one deadline for all of them."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any, Self

from .errors import TransportError, TransportTimeout

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
        self._timer = threading.Timer(seconds, self._be_late)
        self._timer.daemon = True

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
            self._timer.start()
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self._timer.cancel()
        if error is None:
            return
        self.end()
        for connection in self._connections:
            connection.disconnect()
        if self._late and isinstance(error, Exception):
            raise TransportTimeout(
                f"the connections could not be opened within {self._seconds:g} s (a larger "
                f"timeout= waits longer): {error}"
            ) from error

    def several(self, count: int, open_one: Callable[[], Any]) -> list[Any]:
        """Open some connections, several at once.

        Raises:
            TransportError: there are no threads for it; others as ``open_one()`` does.
        """
        with ThreadPoolExecutor(AT_ONCE) as pool:
            try:
                tasks = [pool.submit(open_one) for _ in range(count)]
                return [task.result() for task in tasks]
            except BaseException as error:
                pool.shutdown(wait=False, cancel_futures=True)
                self.end()  # the others are not waited for
                if type(error) is RuntimeError:  # of threading
                    raise TransportError(
                        f"can't open {count} connections at once: {error}; use fewer"
                    ) from error
                raise

    def end(self) -> None:
        """Let whoever reads from one of the connections find its end."""
        self.over = True
        for connection in self._connections:
            if connection._sock is not None:
                with suppress(OSError):
                    # Not that of TLS, which has a say in it.
                    socket.socket.shutdown(connection._sock, socket.SHUT_RDWR)

    def _be_late(self) -> None:
        self._late = True
        self.end()
