"""The iterator of ``consume()``."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import repeat
from operator import length_hint

from ..transports.driver import Steps
from .calls import Calls
from .settings import checked_count

__all__ = ["Consuming"]


class Consuming:
    """Yields items one at a time: ``more()`` fetches some items, and iterating yields them.

    Args:
        calls: the calls of the buffer.
        max_items: stop after this many items; None for no limit.
        block: seconds to wait for an item when the list is empty, before the iteration ends.
    """

    def __init__(self, calls: Calls, max_items: int | None, block: float) -> None:
        self._calls = calls
        self._block = block
        self._bounded = max_items is not None
        # One element per item that may still be yielded. This is cheaper than a counter.
        self._places = repeat(None) if max_items is None else repeat(None, checked_count(max_items))

    def more(self) -> Steps[bool]:
        """Fetch some items; return False at the end of the iteration."""
        most = length_hint(self._places) if self._bounded else None
        if most == 0:
            return False
        calls = self._calls
        return (yield from calls.call(calls.items.finding(most, self._block)))

    def __iter__(self) -> Iterator[bytes]:
        held = self._calls.held
        singly = held.singly
        # Remove an item only when it is yielded, since the caller may make other calls.
        for _ in self._places:
            # Without a function call, no Ctrl-C can lose the item before the caller has it.
            item = singly[0]
            del singly[0]
            held.given += 1
            yield item
            if not singly:
                return
