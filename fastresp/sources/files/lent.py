"""Python objects that Arrow's threads hold, and the wait until they have let go of them."""

from __future__ import annotations

import time
import weakref
from collections.abc import Callable
from typing import Any

__all__ = ["Block", "Lent"]

CLOSE_SECONDS = 1.0


class Block(bytearray):
    """Bytes whose end can be seen: a weak reference to plain bytes is not to be had."""


class Lent:
    """What Arrow was handed that its own threads use.

    An interpreter that ends is aborted when one of them comes back to it, if only to let go of an
    object: so whoever closes a file waits for that.
    """

    def __init__(self) -> None:
        self._lent: list[weakref.ref[Any]] = []

    def add(self, what: Any, returned: Callable[[Any], object] | None = None) -> None:
        """Note what Arrow has to let go of, and what to call when it has."""
        self._lent = [lent for lent in self._lent if lent() is not None]
        self._lent.append(weakref.ref(what, returned))

    def wait(self) -> None:
        """Wait until Arrow has let go of all of it, a second at most."""
        until = time.monotonic() + CLOSE_SECONDS
        while any(lent() is not None for lent in self._lent) and time.monotonic() < until:
            time.sleep(0.001)
