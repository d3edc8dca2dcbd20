"""Wait for file descriptors in a way that gevent and eventlet can patch."""

from __future__ import annotations

import select
from types import BuiltinFunctionType
from typing import Any

__all__ = ["is_patched", "new_poll"]

# The values of poll(2). Eventlet removes these names from ``select``.
POLLIN, POLLOUT = 1, 4


def is_patched() -> bool:
    """Return whether a library such as gevent has patched poll(); other waits block its tasks."""
    return not isinstance(getattr(select, "poll", None), BuiltinFunctionType)


def new_poll() -> Any:
    """Return a poll object, or a substitute over select() where poll() does not exist."""
    poll = getattr(select, "poll", None)
    return SelectPoll() if poll is None else poll()


class SelectPoll:
    """The methods of ``select.poll()`` that we use, over ``select.select()``."""

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
