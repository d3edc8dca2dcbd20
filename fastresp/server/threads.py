"""A function in a thread of its own, which is known to run or refused."""

from __future__ import annotations

import _thread
import weakref
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from typing import TypeVar

__all__ = ["in_thread"]

# How often a thread that has not begun is looked at.
LOOK_SECONDS = 0.05

Result = TypeVar("Result")


def in_thread(function: Callable[[], Result]) -> Future[Result]:
    """Run a function in a thread of its own.

    ``threading.Thread.start()`` waits without end where no memory is left for the first call of the
    new thread: it dies unseen (https://github.com/python/cpython/issues/140746).

    Returns:
        What the function will have returned or raised.

    Raises:
        RuntimeError: no thread can be had.
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
            del function  # whoever waits must not find its data still held by this thread
            future.set_result(result)

    # Held by the thread only, and not a function: of one that there is no memory to call,
    # Python loses count.
    call = partial(run)
    alive = weakref.ref(call)
    _thread.start_new_thread(call, ())
    del call
    while not begun.acquire(timeout=LOOK_SECONDS):
        if alive() is None:
            raise RuntimeError("no memory is left to start a thread")
    return future
