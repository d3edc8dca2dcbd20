"""File descriptors: wait until they are ready, and explain errors if none is free."""

from __future__ import annotations

import errno
import os
import select
from collections.abc import Iterator
from contextlib import contextmanager
from types import BuiltinFunctionType
from typing import Any

__all__ = [
    "ADVICE", "are_exhausted", "is_patched", "needed_for", "new_poll",
]  # fmt: skip

EXHAUSTED = (errno.EMFILE, errno.ENFILE)
ADVICE = (
    "this process, or the system, is out of file descriptors: raise the limit, for example with "
    "'ulimit -n 4096', or close files and connections"
)
# The values of poll(2). Eventlet removes these names from ``select``.
POLLIN, POLLOUT = 1, 4


def are_exhausted(error: BaseException | None) -> bool:
    """Return whether an exception or one of its causes is due to a lack of file descriptors."""
    while error is not None:
        # Without free descriptors, imports and looking up a host or a folder fail with an
        # unrelated error.
        if isinstance(error, OSError | ImportError) and (
            getattr(error, "errno", None) in EXHAUSTED or not _one_is_left()
        ):
            return True
        error = error.__cause__ or error.__context__
    return False


def _one_is_left() -> bool:
    try:
        os.close(os.open(os.devnull, os.O_RDONLY))
    except OSError as error:
        return error.errno not in EXHAUSTED
    return True


@contextmanager
def needed_for(what: str) -> Iterator[None]:
    """If no file descriptor is free, convert an error in the block to a TransportError.

    ``what`` is the failed action, such as ``"redis-cli can't be started"``.
    """
    try:
        yield
    except (OSError, ImportError) as error:
        from ..outcome.errors import TransportError  # not at the start: --help does not need it

        if isinstance(error, TransportError) or not are_exhausted(error):
            raise
        why = getattr(error, "strerror", None) or error
        raise TransportError(f"{what}: {why} ({ADVICE})") from error


def is_patched() -> bool:
    """Return whether a library such as gevent has patched poll(); if so, all waits must use it."""
    return not isinstance(getattr(select, "poll", None), BuiltinFunctionType)


def new_poll() -> Any:
    """Return a poll object; where poll() does not exist, a substitute based on select()."""
    poll = getattr(select, "poll", None)
    return SelectPoll() if poll is None else poll()


class SelectPoll:
    """The methods of ``select.poll()`` that we use, implemented with ``select.select()``."""

    def __init__(self) -> None:
        self._events: dict[int, int] = {}

    def register(self, file: Any, events: int = POLLIN) -> None:
        self._events[file if isinstance(file, int) else file.fileno()] = events

    def unregister(self, file: Any) -> None:
        del self._events[file if isinstance(file, int) else file.fileno()]

    def poll(self, milliseconds: float | None = None) -> list[tuple[int, int]]:
        reading = [number for number, events in self._events.items() if events & POLLIN]
        writing = [number for number, events in self._events.items() if events & POLLOUT]
        seconds = None if milliseconds is None or milliseconds < 0 else milliseconds / 1000
        readable, writable, _ = select.select(reading, writing, [], seconds)
        found = dict.fromkeys(readable, POLLIN)
        for number in writable:
            found[number] = found.get(number, 0) | POLLOUT
        return list(found.items())
