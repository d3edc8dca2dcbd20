"""A window of idempotent commands, which ends the load at OOM, READONLY and similar errors."""

from __future__ import annotations

import bisect

from .causes import NotRun, remedy_for
from .resend import ResendingWindow

__all__ = ["RepeatableWindow"]


class RepeatableWindow(ResendingWindow):
    """A window of idempotent commands of a load with a checkpoint.

    A command that is refused because of the server's state, such as a full memory, ends the load.
    The checkpoint stays before the command's row, so a resumed load resends the command. Later
    commands may have run; they are in doubt, and are resent with it.
    """

    # The reason that the load can't continue, and the first reply not to acknowledge.
    refused_at = None
    # Later error replies, which do not count, since their commands are resent.
    _not_counted: frozenset[int] = frozenset()

    @property
    def refused(self) -> int:
        return super().refused + len(self._not_counted)

    def sift(self, errors: list[tuple[int, bytes, int]]) -> None:
        super().sift(errors)
        for index, words, _ in errors:
            if self.refused_at is None:
                self._note(index, words)
        if self.refused_at is not None:
            end = self.refused_at[1]
            self._not_counted |= {index for index, _, _ in errors if index >= end}
            errors[:] = errors[: bisect.bisect_left(errors, end, key=lambda error: error[0])]

    def _note(self, index: int, words: bytes) -> None:
        """Note an error that ends the load."""
        remedy = remedy_for(words)
        if remedy:
            held, at = self.locate(index)
            where = "the server" if self.node is None else f"the node at {self.node}"
            row, text = held.row(held.chunk.parts(at)[0]), words.decode(errors="replace")
            self.refused_at = (
                NotRun(f"{where} refused row {row:,}: {text} ({remedy}, then resume the load)"),
                index,
            )

    def acknowledge(self, replies: int) -> None:
        if self.refused_at is not None:
            replies = min(replies, self.refused_at[1])
        super().acknowledge(replies)
