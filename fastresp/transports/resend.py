"""Resend commands that the server refused for now and did not run."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple, Protocol

from ..resp.buffer import Chunk
from ..resp.slots import keys_of
from .redirect import Moved, Redirected
from .window import WINDOW_BYTES, Position, Sending, Window

__all__ = ["Resending", "ResendingWindow"]

# How much to resend in one chunk.
RESENT_BYTES = 1 << 19


class Resending(Protocol):
    """Decides which commands to resend, and in which form: see ForgottenScripts."""

    def refused(self, words: str | bytes, /) -> bool: ...
    def can_repeat(self, command: bytes, tries: int, /) -> bool: ...
    def chunk(
        self, commands: Iterable[tuple[bytes, int]], most_bytes: int, /
    ) -> tuple[Chunk, int]: ...


class Refused(NamedTuple):
    """A command that the server did not run."""

    row: int  # of the source
    place: int  # among the commands of all connections
    command: bytes  # as first sent
    tries: int  # how many times it was sent so far


class Counted(Sending):
    """A chunk, and how many commands are resent up to its end."""

    def __init__(self, chunk: Chunk, last: Sending | None, start: Position | None = None) -> None:
        super().__init__(chunk, last, start)
        self.resent: int = last.resent if isinstance(last, Counted) else 0


class Resent(Counted):
    """A chunk of resent commands, which adds no rows or commands of the source."""

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

    def command(self, at: int, part: int) -> bytes:
        return self.refused[part].command

    def _rows(self, commands: int) -> int:
        return 0


class ResendingWindow(Window):
    """A window that resends commands which the server refused for now.

    Such a command counts as unsent and unanswered until it is resent, after the others.

    Args:
        resending: decides which commands these are; None if there can be none.
        most_bytes: as for Window.
    """

    kind = Counted

    def __init__(self, resending: Resending | None, most_bytes: int = WINDOW_BYTES) -> None:
        super().__init__(most_bytes)
        self._resending = resending
        # How many replies were checked, and how many commands of these must be resent. Replaced as
        # a whole, so that it is right after an interruption, and nothing is resent twice.
        self._seen = 0, 0
        # These commands, by number, until they are in a chunk.
        self._refused: dict[int, Refused] = {}
        # Where to put the commands that a node of a cluster redirects; None elsewhere.
        self.redirected: Redirected | None = None
        # How many replies were checked, how many commands were redirected, and in how many replies.
        # Replaced as a whole, too.
        self._moved = 0, 0, 0
        # Until all is answered: the replies that redirect, those that are errors, and the chunks
        # from the first of them on.
        self._redirects: set[int] = set()
        self._failed: set[int] = set()
        self._kept: list[Sending] = []

    @property
    def refused(self) -> int:
        """How many replies said that a command must be resent, over this or another connection."""
        return self._seen[1] + self._moved[2]

    @property
    def _resent(self) -> int:
        """How many of these commands were put into chunks."""
        last = self.last
        return last.resent if isinstance(last, Counted) else 0

    @property
    def waiting(self) -> int:
        """How many of them are not in a chunk yet."""
        return self._seen[1] - self._resent if self._refused else 0

    @property
    def made(self) -> int:
        return super().made + self.waiting

    @property
    def unsent(self) -> int:
        return super().unsent + self.waiting

    @property
    def has_room(self) -> bool:
        return not self.waiting and super().has_room

    def totals(self) -> tuple[int, int, int]:
        rows, commands, size = super().totals()
        return rows, commands - self._seen[1] - self._moved[1], size

    def sift(self, errors: list[tuple[int, bytes, bool]]) -> None:
        """Remove the errors of commands that will be resent from a list of error replies."""
        if self.redirected is not None:
            errors[:] = [each for each in errors if each[2] or not self._redirect(*each[:2])]
            if self._redirects:
                self._failed.update(index for index, _, nested in errors if not nested)
        if self._resending is not None:
            errors[:] = [each for each in errors if each[2] or not self.take(each[0], each[1])]

    def _redirect(self, index: int, words: bytes) -> bool:
        """Put aside the commands that a reply answers if it says that their slot moved."""
        assert self.redirected is not None
        if not self.redirected.accept(words):
            return False
        seen, number, replies = self._moved
        if index >= seen:
            held, at = self.locate(index)
            parts = held.chunk.parts(at)
            for count, part in enumerate(parts):
                moved = Moved(held.source_index(part), held.row(part), held.command(at, part))
                self.redirected.add(id(self), number + count, moved)
            self._redirects.add(index)
            self._moved = index + 1, number + len(parts), replies + 1
        return True

    def acknowledge(self, replies: int) -> None:
        if self._redirects:
            known = {id(each) for each in self._kept}
            answered = (each for each in self._held if each.first_reply < replies)
            self._kept += [each for each in answered if id(each) not in known]
        super().acknowledge(replies)

    def overtaken(self) -> bool:
        """Return whether a command ran after a redirected one of the same key.

        Call it when all is answered; it then forgets what it has kept for this.
        """
        kept, redirects, failed = self._kept, self._redirects, self._failed
        self._kept, self._redirects, self._failed = [], set(), set()
        moved: set[bytes | None] = set()
        for held in kept:
            for reply, key in enumerate(keys_of(held.chunk), held.first_reply):
                if reply in redirects:
                    moved.add(key)
                elif key in moved and reply not in failed:
                    return True
        return False

    def take(self, index: int, words: str | bytes, window: Window | None = None) -> bool:
        """Plan to resend a command if its error reply says so; return whether it does.

        Args:
            index: index of the command in this window or the other one.
            words: the reply.
            window: the other window, if the command is in another.
        """
        if self._resending is None or not self._resending.refused(words):
            return False
        held, at = (window or self).locate(index)
        part = held.chunk.parts(at)[0]  # a merged command is never refused for now
        command = held.command(at, part)
        tries = held.refused[at].tries if isinstance(held, Resent) else 0
        if not self._resending.can_repeat(command, tries):
            return False
        seen, number = self._seen
        if window is not None or index >= seen:
            self._refused[number] = Refused(
                held.row(part), held.source_index(part), command, tries + 1
            )
            self._seen = (index + 1 if window is None else seen), number + 1
        return True

    def resend(self) -> None:
        """Put the commands to resend into chunks, until there is enough to send."""
        while self._resending and self.waiting and self.unsent_bytes < RESENT_BYTES:
            first = self._resent
            rest = map(self._refused.__getitem__, range(first, self._seen[1]))
            again = ((each.command, each.tries) for each in rest)
            chunk, count = self._resending.chunk(again, RESENT_BYTES)
            refused = [self._refused[number] for number in range(first, first + count)]
            self._held.append(Resent(chunk, self.last, refused))
            # Drop all that are in chunks, also after a call that was interrupted here.
            left = range(self._resent, self._seen[1])
            self._refused = {number: self._refused[number] for number in left}
