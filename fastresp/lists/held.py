"""The items that a list buffer has popped but not yet returned to its caller."""

from __future__ import annotations

import itertools
from collections import deque

from ..replies.arrow_out import StringColumn

__all__ = ["Held"]


class Held:
    """Items in list order, in the form in which they arrived.

    Attributes:
        column: the first items, as an Arrow column, or None.
        singly: a deque of the items after the column.
        batch: the items after ``singly``, as the list of a reply. It is kept unsplit, since
            splitting 1,000 items takes 20 us.
        given: number of items that were returned to the caller and are not yet acknowledged.
    """

    def __init__(self) -> None:
        self.column: StringColumn | None = None
        self.singly: deque[bytes] = deque()
        self.batch: list[bytes] = []
        self.given = 0

    def __len__(self) -> int:
        count = len(self.singly) + len(self.batch)
        return count if self.column is None else count + len(self.column)

    def forget(self) -> None:
        """Drop all held items."""
        self.column = None
        self.singly.clear()
        self.batch = []

    def add(self, items: list[bytes]) -> None:
        """Add the items of a reply at the end."""
        if self.singly:
            self.singly.extend(items)
        elif self.batch:
            self.batch.extend(items)
        else:
            self.batch = items

    def take_apart(self) -> None:
        """Move all items to ``singly``."""
        if self.column is not None:
            column, self.column = self.column, None
            first = column.to_bytes()
            first.reverse()
            self.singly.extendleft(item for item in first if item is not None)
        batch, self.batch = self.batch, []
        self.singly.extend(batch)

    def take(self, n: int | None) -> list[bytes]:
        """Remove and return the first n items, or all items if n is None."""
        in_a_batch = self.column is None and not self.singly
        if in_a_batch and (n is None or n >= len(self.batch)):
            items, self.batch = self.batch, []
            return items
        self.take_apart()
        items = list(itertools.islice(self.singly, n))
        if len(items) == len(self.singly):
            self.singly.clear()
        else:
            for _ in items:
                self.singly.popleft()
        return items

    def give(self, n: int | None = None) -> list[bytes]:
        """Remove and return the first n items, or all if n is None; add the number to ``given``."""
        items = self.take(n)
        self.given += len(items)
        return items

    def give_column(self) -> StringColumn:
        """Remove and return the column; add the number of its items to ``given``."""
        column, self.column = self.column, None
        assert column is not None
        self.given += len(column)
        return column

    def take_back(self, items: list[bytes] | StringColumn) -> None:
        """Put items back at the front, since the caller did not get them."""
        self.given -= len(items)
        if isinstance(items, StringColumn):
            assert self.column is None
            self.column = items
            return
        if self.column is not None:
            self.take_apart()
        self.singly.extendleft(reversed(items))
