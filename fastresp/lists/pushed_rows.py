"""The rows of a push that are in flight or were refused.

A row is a batch of items, which one command or transaction pushes.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from ..resp.buffer import Chunk
from ..resp.split import CommandSplitter, arguments

__all__ = ["PushedRows"]


class PushedRows:
    """Matches replies with rows, and keeps the commands of rows that were not pushed.

    Args:
        per_row: number of commands per row.

    Attributes:
        refusals: how many times a cluster node refused a row.
        made: number of rows.
        overtaken: whether a row was pushed although an earlier row was refused.
    """

    def __init__(self, per_row: int) -> None:
        self.refusals = 0
        self.overtaken = False
        self._per_row = per_row
        self.made = 0
        self._in_flight: deque[tuple[Chunk, Sequence[int]]] = deque()
        self._at = 0  # number of answered rows of the first chunk
        self._refused: dict[int, bytes] = {}
        self._rejected: dict[int, bytes] = {}
        self._first_only = False  # whether the slot may still be moving

    @property
    def refused(self) -> Sequence[int]:
        """The indexes of the rows to resend, in order."""
        return sorted(self._refused)

    def add(self, chunk: Chunk) -> None:
        """Add a chunk of new rows."""
        first, self.made = self.made, self.made + chunk.commands // self._per_row
        self._in_flight.append((chunk, range(first, self.made)))

    def accepted(self) -> int:
        """Note that the next row was pushed; return its index."""
        number, _, _ = self._next()
        self.overtaken |= any(each < number for each in self._refused)
        return number

    def refuse(self) -> None:
        """Note that a cluster node refused the next row, and keep the row to resend it."""
        self._keep(self._refused)
        self.refusals += 1
        self._first_only = True

    def lose(self) -> None:
        """Keep all unanswered rows, to resend them. Call this only if none of them was sent."""
        while self._in_flight:
            self._keep(self._refused)

    def reject(self) -> int:
        """Note that the server refused the next row permanently; return its index."""
        return self._keep(self._rejected)

    def give_up(self) -> None:
        """Treat the rows to resend, and the unsent rows, as refused permanently."""
        self._rejected |= self._refused
        self._refused = {}
        while self._in_flight:
            self._keep(self._rejected)

    def rejected(self) -> list[bytes]:
        """Return the items of the permanently refused rows, in order."""
        items: list[bytes] = []
        for _, commands in sorted(self._rejected.items()):
            chunk = CommandSplitter().feed(commands)
            assert chunk is not None
            push = 0 if self._per_row == 1 else 1  # the previous command is MULTI
            items += arguments(chunk.command(push, push))[2:]
        return items

    def _keep(self, kept: dict[int, bytes]) -> int:
        number, chunk, at = self._next()
        commands = (chunk.command(i, i) for i in range(at, at + self._per_row))
        kept[number] = b"".join(commands)
        return number

    def again(self) -> Chunk:
        """Return a chunk of rows to resend.

        If a row was refused since the last call, the chunk has only the first row to resend, since
        the slot may still be moving. Otherwise, it has all rows to resend.
        """
        numbers = self.refused[: 1 if self._first_only else None]
        self._first_only = False
        chunk = CommandSplitter().feed(b"".join(map(self._refused.pop, numbers)))
        assert chunk is not None
        self._in_flight.append((chunk, numbers))
        return chunk

    def _next(self) -> tuple[int, Chunk, int]:
        """Advance to the next row; return its index, its chunk and its first command's index."""
        chunk, numbers = self._in_flight[0]
        at, self._at = self._at, self._at + 1
        if self._at == len(numbers):
            self._in_flight.popleft()
            self._at = 0
        return numbers[at], chunk, at * self._per_row
