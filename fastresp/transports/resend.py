"""Commands that a server refused for now, and did not run: they are sent once more."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple, Protocol

from ..resp.buffer import Chunk
from .window import WINDOW_BYTES, Position, Sending, Window

__all__ = ["Resending", "ResendingWindow"]

# So much goes again at once.
RESENT_BYTES = 1 << 19


class Resending(Protocol):
    """What knows which commands are to be sent again, and in which form: see ForgottenScripts."""

    def refused(self, words: str | bytes, /) -> bool: ...
    def can_repeat(self, command: bytes, tries: int, /) -> bool: ...
    def chunk(
        self, commands: Iterable[tuple[bytes, int]], most_bytes: int, /
    ) -> tuple[Chunk, int]: ...


class Refused(NamedTuple):
    """A command that the server did not run."""

    row: int  # of the source
    place: int  # among the commands of all connections
    command: bytes  # as it was sent first
    tries: int  # how many times it has been sent until now


class Counted(Sending):
    """A chunk, and how many commands have gone again when it has."""

    def __init__(self, chunk: Chunk, last: Sending | None, start: Position | None = None) -> None:
        super().__init__(chunk, last, start)
        self.resent: int = last.resent if isinstance(last, Counted) else 0


class Resent(Counted):
    """A chunk of commands that go again: no rows or commands of the source."""

    def __init__(self, chunk: Chunk, last: Sending | None, refused: Sequence[Refused]) -> None:
        super().__init__(chunk, last)
        self.refused = refused
        self.resent += len(refused)

    @property
    def end(self) -> Position:
        return self.start

    def row(self, index: int) -> int:
        return self.refused[index].row

    def source_index(self, index: int) -> int:
        return self.refused[index].place

    def command(self, index: int) -> bytes:
        return self.refused[index].command

    def _rows(self, commands: int) -> int:
        return 0


class ResendingWindow(Window):
    """A window that takes commands in again that the server refused for now.

    Such a command counts as not sent and not answered until it is sent again, behind the others.

    Args:
        resending: which they are; None where there can be none.
        most_bytes: as for a Window.
    """

    kind = Counted

    def __init__(self, resending: Resending | None, most_bytes: int = WINDOW_BYTES) -> None:
        super().__init__(most_bytes)
        self._resending = resending
        # The reply up to which all was looked at, and how many said so. Replaced as a whole, so
        # that an interruption finds it right, and nothing is sent twice.
        self._seen = 0, 0
        # The commands of those, by number, until they are held as a chunk.
        self._refused: dict[int, Refused] = {}

    @property
    def refused(self) -> int:
        """How many replies said that a command has to be sent again."""
        return self._seen[1]

    @property
    def _resent(self) -> int:
        """How many of these commands are held as chunks, or were."""
        last = self.last
        return last.resent if isinstance(last, Counted) else 0

    @property
    def waiting(self) -> int:
        """How many of them are not held as chunks yet."""
        return self.refused - self._resent if self._refused else 0

    @property
    def made(self) -> int:
        return super().made + self.waiting

    @property
    def has_room(self) -> bool:
        return not self.waiting and super().has_room

    def totals(self) -> tuple[int, int, int]:
        rows, commands, size = super().totals()
        return rows, commands - self.refused, size

    def sift(self, errors: list[tuple[int, bytes, bool]]) -> None:
        """Take from a list of error replies those of commands that are to be sent again."""
        if self._resending is not None:
            errors[:] = [each for each in errors if each[2] or not self.take(each[0], each[1])]

    def take(self, index: int, words: str | bytes, window: Window | None = None) -> bool:
        """Whether an error reply says that a command is to be sent again; if so, it will be.

        Args:
            index: which command it answers, of this window or another.
            words: the reply.
            window: the other one.
        """
        if self._resending is None or not self._resending.refused(words):
            return False
        held, at = (window or self).locate(index)
        command = held.command(at)
        tries = held.refused[at].tries if isinstance(held, Resent) else 0
        if not self._resending.can_repeat(command, tries):
            return False
        seen, number = self._seen
        if window is not None or index >= seen:
            self._refused[number] = Refused(held.row(at), held.source_index(at), command, tries + 1)
            self._seen = (index + 1 if window is None else seen), number + 1
        return True

    def resend(self) -> None:
        """Hold commands that are to be sent again as chunks, until there is enough to send."""
        while self._resending and self.waiting and self.unsent_bytes < RESENT_BYTES:
            first = self._resent
            rest = map(self._refused.__getitem__, range(first, self.refused))
            again = ((each.command, each.tries) for each in rest)
            chunk, count = self._resending.chunk(again, RESENT_BYTES)
            refused = [self._refused[number] for number in range(first, first + count)]
            self._held.append(Resent(chunk, self.last, refused))
            # All that are held, also those of a call that was interrupted here.
            left = range(self._resent, self.refused)
            self._refused = {number: self._refused[number] for number in left}
