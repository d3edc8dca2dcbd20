"""Commands that a server refused for now, and did not run: they are sent once more."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import islice
from typing import NamedTuple, Protocol

from ..resp.buffer import Chunk
from .window import Sending, Window

__all__ = ["Repeat", "Repeater", "Repeats", "Resending"]

# So much is put into the window at once.
REPEAT_BYTES = 1 << 19


class Resending(Protocol):
    """What knows which commands are to be sent again, and in which form: see ForgottenScripts."""

    def refused(self, words: str | bytes, /) -> bool: ...
    def can_repeat(self, command: bytes, tries: int, /) -> bool: ...
    def chunk(self, commands: Iterable[tuple[bytes, int]], /) -> tuple[Chunk, int]: ...


class Repeat(NamedTuple):
    """A command that the server did not run, to be sent once more."""

    row: int  # of the source
    place: int  # among the commands of all connections
    command: bytes  # as it was sent first
    tries: int  # how many times it has been sent until now


class Repeats(Sending):
    """A chunk of commands that were sent before: no rows or commands of the source.

    Args:
        chunk: the commands, maybe written in another way now.
        last: the chunk that goes before it.
        repeats: which commands these are, one by one.
    """

    def __init__(self, chunk: Chunk, last: Sending, repeats: Sequence[Repeat]) -> None:
        super().__init__(chunk, last)
        self.repeats = repeats
        self.repeated += len(repeats)
        self._of_source = last.of_source

    @property
    def of_source(self) -> Sending:
        return self._of_source

    def row(self, index: int) -> int:
        return self.repeats[index].row

    def source_index(self, index: int) -> int:
        return self.repeats[index].place

    def command(self, index: int) -> bytes:
        return self.repeats[index].command

    def _rows(self, commands: int) -> int:
        return 0


class Repeater:
    """The commands of a connection that the server did not run, until they are sent again.

    Args:
        resending: which they are; None where there can be none.
        window: where the commands are, and where they go once more.
    """

    def __init__(self, resending: Resending | None, window: Window) -> None:
        self._resending = resending
        self._window = window
        # Replaced as a whole, so that an interruption finds it right, and nothing is sent twice:
        # the reply up to which all was looked at, how many commands were repeated before, and
        # those that came since. Of these the window knows how many it has.
        self._state: tuple[int, int, list[Repeat]] = (0, 0, [])

    @property
    def taken(self) -> int:
        """How many replies said that a command has to be sent again."""
        _, before, repeats = self._state
        return before + len(repeats)

    @property
    def waiting(self) -> int:
        """How many commands are to be sent again, and are not in the window yet."""
        return self.taken - self._window.repeated

    def take(self, errors: list[tuple[int, bytes, bool]]) -> None:
        """Take from a list of error replies those of commands that can be sent again."""
        if self._resending is None:
            return
        seen, before, repeats = self._state
        found, others = [], []
        for error in errors:
            repeat = self._repeat(*error)
            if repeat is None:
                others.append(error)
            elif error[0] >= seen:
                found.append(repeat)
                seen = error[0] + 1
        if found:
            inside = self._window.repeated
            self._state = (seen, inside, repeats[inside - before :] + found)
        errors[:] = others

    def send(self) -> None:
        """Put commands into the window, until it has enough to send."""
        window = self._window
        seen, before, repeats = self._state
        while self._resending and self.waiting and window.unsent_bytes < REPEAT_BYTES:
            begin = window.repeated - before
            rest = ((each.command, each.tries) for each in islice(repeats, begin, None))
            chunk, count = self._resending.chunk(rest)
            assert window.last is not None
            window.append(Repeats(chunk, window.last, repeats[begin : begin + count]))
        if repeats and not self.waiting:
            self._state = (seen, window.repeated, [])

    def _repeat(self, index: int, text: bytes, nested: bool) -> Repeat | None:
        """The command that a reply belongs to, if it can be sent again."""
        if nested or self._resending is None or not self._resending.refused(text):
            return None
        held, at = self._window.locate(index)
        command = held.command(at)
        tries = held.repeats[at].tries if isinstance(held, Repeats) else 0
        if not self._resending.can_repeat(command, tries):
            return None
        return Repeat(held.row(at), held.source_index(at), command, tries + 1)
