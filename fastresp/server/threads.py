"""Run functions in new threads, or fail if a thread can't start."""

from __future__ import annotations

import _thread
import weakref
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from functools import partial
from typing import TypeVar

from ..outcome.errors import TransportError

__all__ = ["AT_ONCE", "in_parallel", "in_thread"]

# Seconds between checks whether a thread has started.
LOOK_SECONDS = 0.05
# Number of connections that are opened, or servers that are asked, in parallel. Each takes several
# round trips, which may be slow.
AT_ONCE = 8

Item = TypeVar("Item")
Result = TypeVar("Result")


def in_thread(function: Callable[[], Result]) -> Future[Result]:
    """Run a function in a new thread, and return a future.

    ``threading.Thread.start()`` hangs if there is no memory for the first call of the new thread,
    which dies silently (https://github.com/python/cpython/issues/140746).

    Returns:
        A future with the function's result or exception.

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
    while not begun.acquire(timeout=LOOK_SECONDS):
        if alive() is None and begun.locked():
            raise RuntimeError("not enough memory to start a thread")
    return future


def in_parallel(
    items: Sequence[Item], function: Callable[[Item], Result]
) -> list[Result | TransportError]:
    """Call a function for each item, in a few threads; return the result of each call.

    The result of a call that raises a TransportError is that exception.

    Raises:
        Exception: any other exception of the function.
    """
    results: list[Result | TransportError | None] = [None] * len(items)
    left = iter(range(len(items)))

    def work() -> None:
        for at in left:
            try:
                results[at] = function(items[at])
            except TransportError as error:
                results[at] = error

    tasks = [in_thread(work) for _ in range(min(len(items), AT_ONCE))]
    for task in tasks:
        task.result()
    return results  # type: ignore[return-value]
