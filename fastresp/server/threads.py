"""Run functions in threads, and open connections in parallel with one deadline."""

from __future__ import annotations

import _thread
import socket
import weakref
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, wait
from contextlib import suppress
from functools import partial
from typing import Any, Self, TypeVar

from ..outcome.errors import TransportError, TransportTimeout
from ..outcome.messages import Hint, Message
from ..outcome.report import counted

__all__ = [
    "MAX_PARALLEL", "ConnectDeadline", "in_parallel", "in_thread", "shut_down",
]  # fmt: skip

# Seconds between checks whether a thread has started.
STARTED_CHECK_S = 0.05
# Number of connections that are opened, or servers that are asked, in parallel. Each takes several
# round trips, which may be slow.
MAX_PARALLEL = 8

Item = TypeVar("Item")
Result = TypeVar("Result")


def in_thread(function: Callable[[], Result]) -> Future[Result]:
    """Run a function in a new thread, and return a future.

    ``threading.Thread.start()`` is not used. It hangs if the new thread dies silently because there
    is no memory for its first call (https://github.com/python/cpython/issues/140746).

    Raises:
        RuntimeError: the thread can't be started.
    """
    future: Future[Result] = Future()
    begun = _thread.allocate_lock()
    begun.acquire()

    def run() -> None:
        nonlocal function
        future.set_running_or_notify_cancel()  # from now on it can't be cancelled
        begun.release()
        try:
            result = function()
        except BaseException as error:
            del function
            future.set_exception(error)
        else:
            del function  # don't keep its data alive once the result is known
            future.set_result(result)

    # Only the thread refers to the partial. CPython would leak a reference to a plain function if
    # it had no memory to call the function.
    call = partial(run)
    alive = weakref.ref(call)
    _thread.start_new_thread(call, ())
    del call
    while not begun.acquire(timeout=STARTED_CHECK_S):
        if alive() is None and begun.locked():
            raise RuntimeError("not enough memory to start a thread")
    return future


def in_parallel(
    items: Sequence[Item], function: Callable[[Item], Result]
) -> list[Result | TransportError]:
    """Call a function for each item, in a few threads; return the result of each call.

    The result of a call that raises a TransportError is that exception.
    """

    def result_of(item: Item) -> Result | TransportError:
        try:
            return function(item)
        except TransportError as error:
            return error

    results: list[Any] = [None] * len(items)
    for task in list(_tasks(items, result_of, results)):
        task.result()
    return results


def _tasks(
    items: Sequence[Item], function: Callable[[Item], object], results: list[Any]
) -> Iterator[Future[None]]:
    """Start a few threads that call a function for each item; yield the future of each thread.

    The result for item i is stored in ``results[i]``.
    """
    left = iter(range(len(items)))

    def work() -> None:
        for at in left:
            results[at] = function(items[at])

    for _ in range(min(len(items), MAX_PARALLEL)):
        yield in_thread(work)


def shut_down(connection: Any) -> None:
    """Shut down the socket of a redis-py connection, so that reads in other threads end."""
    if connection._sock is not None:
        with suppress(OSError):
            # Not SSLSocket.shutdown(), which drops the TLS state that a reader uses.
            socket.socket.shutdown(connection._sock, socket.SHUT_RDWR)


class ConnectDeadline:
    """Limits the time to open connections, in a ``with`` statement.

    redis-py's timeout applies to each read, so a server that sends single bytes could delay the
    block forever. At the deadline, and after an exception, the sockets are shut down.

    Args:
        seconds: the time for all connections together.
        each: redis-py's timeout, to connect to a server and for each read; not enforced here.

    Attributes:
        expired: whether the deadline has passed or a connection has failed. If so, no connection
            may be opened.
    """

    def __init__(self, seconds: float, each: float) -> None:
        self.each = each
        self.expired = False
        self._seconds = seconds
        self._late = False
        self._connections: list[Any] = []
        self._ended = _thread.allocate_lock()

    def add(self, connection: Any) -> None:
        """Add a redis-py connection that is about to connect."""
        self._connections.append(connection)
        if self.expired:
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
            text = f"the connections could not be opened within {self._seconds:g} s (a larger "
            raise TransportTimeout(
                Message(text, Hint("timeout", ...), f" waits longer): {error}")
            ) from error

    def open_several(self, items: Sequence[Item], open_one: Callable[[Item], Any]) -> list[Any]:
        """Open a connection for each item, in parallel; return the connections."""
        opened: list[Any] = [None] * len(items)
        tasks: list[Future[None]] = []
        try:
            tasks.extend(_tasks(items, open_one, opened))
            for task in tasks:
                task.result()
        except BaseException as error:
            self.end()  # so that the other tasks end soon
            wait(tasks)
            if type(error) is RuntimeError:  # from starting a thread
                count = counted(len(items), "more connection")
                raise TransportError(f"can't open {count}: {error}; use fewer") from error
            raise
        return opened

    def end(self) -> None:
        """Shut down the sockets, so that all reads end."""
        self.expired = True
        for connection in self._connections:
            shut_down(connection)

    def _watch(self) -> None:
        if self._ended.acquire(timeout=self._seconds):
            return
        self._late = True
        self.end()
