"""Track Python objects used by Arrow's threads, and wait until they are released."""

from __future__ import annotations

import time
import weakref
from collections.abc import Callable
from typing import Any

__all__ = ["Block", "Lent"]

CLOSE_SECONDS = 1.0


class Block(bytearray):
    """Bytes that can be weakly referenced, unlike ``bytes`` objects."""


class Lent:
    """Objects that Arrow's threads use.

    If a thread of Arrow calls into an interpreter that is shutting down, even only to release an
    object, the process is aborted. So closing a file waits for the threads.
    """

    def __init__(self) -> None:
        self._lent: list[weakref.ref[Any]] = []

    def add(self, what: Any, returned: Callable[[Any], object] | None = None) -> None:
        """Track an object; call ``returned`` when Arrow has released it."""
        self._lent = [lent for lent in self._lent if lent() is not None]
        self._lent.append(weakref.ref(what, returned))

    def wait(self) -> None:
        """Wait until Arrow has released all objects, for at most one second."""
        until = time.monotonic() + CLOSE_SECONDS
        while any(lent() is not None for lent in self._lent) and time.monotonic() < until:
            time.sleep(0.001)
