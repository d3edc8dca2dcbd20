"""The items that a list buffer has popped but not yet returned to its caller."""

from __future__ import annotations

from collections import deque
from itertools import islice

from ..encode.columns.arrow_out import StringColumn

__all__ = ["PoppedItems"]


class PoppedItems:
    """Items in list order, in the form in which they arrived.

    Attributes:
        column: the first items, as an Arrow column, or None.
        items: a deque of the items after the column.
        batch: the items after ``items``, as the list of a reply. It is kept unsplit, since
            splitting 1,000 items takes 20 us.
        delivered: number of items that were returned to the caller and are not yet acknowledged.
    """

    def __init__(self) -> None:
        self.column: StringColumn | None = None
        self.items: deque[bytes] = deque()
        self.batch: list[bytes] = []
        self.delivered = 0

    def __len__(self) -> int:
        count = len(self.items) + len(self.batch)
        return count if self.column is None else count + len(self.column)

    def forget(self) -> None:
        self.column = None
        self.items.clear()
        self.batch = []

    def add(self, items: list[bytes]) -> None:
        if self.items:
            self.items.extend(items)
        elif self.batch:
            self.batch.extend(items)
        else:
            self.batch = items

    def split_all(self) -> None:
        """Move all items to ``items``."""
        if self.column is not None:
            column, self.column = self.column, None
            first = column.to_bytes()
            first.reverse()
            self.items.extendleft(item for item in first if item is not None)
        batch, self.batch = self.batch, []
        self.items.extend(batch)

    def take(self, n: int | None) -> list[bytes]:
        """Remove and return the first n items, or all items if n is None."""
        in_a_batch = self.column is None and not self.items
        if in_a_batch and (n is None or n >= len(self.batch)):
            items, self.batch = self.batch, []
            return items
        self.split_all()
        items = list(islice(self.items, n))
        if len(items) == len(self.items):
            self.items.clear()
        else:
            for _ in items:
                self.items.popleft()
        return items

    def deliver(self, n: int | None = None) -> list[bytes]:
        """Remove and return the first n items, or all; add the number to ``delivered``."""
        items = self.take(n)
        self.delivered += len(items)
        return items

    def deliver_column(self) -> StringColumn:
        """Remove and return the column; add the number of its items to ``delivered``."""
        column, self.column = self.column, None
        assert column is not None
        self.delivered += len(column)
        return column

    def take_back(self, items: list[bytes] | StringColumn) -> None:
        """Put items back at the front, since the caller did not get them."""
        self.delivered -= len(items)
        if isinstance(items, StringColumn):
            assert self.column is None
            self.column = items
            return
        if self.column is not None:
            self.split_all()
        self.items.extendleft(reversed(items))
