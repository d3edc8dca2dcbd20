"""Commands that are resent over the same connection, because the server did not run them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple, Protocol

from ..resp.buffer import Chunk
from .window import Position, Sending

__all__ = ["Counted", "Refused", "Resending", "Resent"]


class Resending(Protocol):
    """Decides which commands to resend, and in which form; see ForgottenScripts."""

    def refused(self, words: str | bytes, /) -> bool: ...
    def can_repeat(self, command: bytes, tries: int, /) -> bool: ...
    def chunk(
        self, commands: Iterable[tuple[bytes, int]], max_bytes: int, /
    ) -> tuple[Chunk, int]: ...


class Refused(NamedTuple):
    """A command that the server did not run."""

    row: int  # row of the source
    place: int  # index among the commands of the source
    command: bytes  # as first sent
    tries: int  # number of times that the command was sent


class Counted(Sending):
    """A chunk; ``resent`` is the number of commands resent in it and in earlier chunks."""

    def __init__(self, chunk: Chunk, last: Sending | None, start: Position | None = None) -> None:
        super().__init__(chunk, last, start)
        self.resent: int = getattr(last, "resent", 0)


class Resent(Counted):
    """A chunk of resent commands; it covers no new rows, and keeps the position in the source."""

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

    def covered_rows(self, commands: int) -> int:
        return 0
