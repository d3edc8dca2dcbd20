"""The items that a list buffer has taken out of the list and not given to its user yet."""

from __future__ import annotations

import itertools
from collections import deque

from ..replies.arrow_out import StringColumn

__all__ = ["Held"]


class Held:
    """Items in the order of the list, held as they came: as a column, singly, or as a batch.

    Attributes:
        column: the items that come first, as a column, or None.
        singly: the items behind it.
        batch: the items behind these: the list of a reply, which costs 20 us for 1,000 items to
            take apart.
        given: how many items the user has, and has not acknowledged by a call that returned.
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
        """Hold nothing any more."""
        self.column = None
        self.singly.clear()
        self.batch = []

    def add(self, items: list[bytes]) -> None:
        """Hold the items of a reply behind all others."""
        if self.singly:
            self.singly.extend(items)
        elif self.batch:
            self.batch.extend(items)
        else:
            self.batch = items

    def take_apart(self) -> None:
        """Hold all items singly."""
        if self.column is not None:
            column, self.column = self.column, None
            first = column.to_bytes()
            first.reverse()
            self.singly.extendleft(item for item in first if item is not None)
        batch, self.batch = self.batch, []
        self.singly.extend(batch)

    def take(self, n: int | None) -> list[bytes]:
        """Let go of the first n items, or of all."""
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
        """The first n items, or all: from here on the user has them."""
        items = self.take(n)
        self.given += len(items)
        return items

    def give_column(self) -> StringColumn:
        """The column: from here on the user has it."""
        column, self.column = self.column, None
        assert column is not None
        self.given += len(column)
        return column

    def take_back(self, items: list[bytes] | StringColumn) -> None:
        """Hold before all others what the user did not get after all."""
        self.given -= len(items)
        if isinstance(items, StringColumn):
            assert self.column is None
            self.column = items
            return
        if self.column is not None:
            self.take_apart()
        self.singly.extendleft(reversed(items))
