"""A window of idempotent commands, in which OOM, READONLY and similar errors end the load."""

from __future__ import annotations

import bisect

from .causes import NotRun, remedy_for
from .resend import ResendingWindow

__all__ = ["RepeatableWindow"]


class RepeatableWindow(ResendingWindow):
    """A window for idempotent commands, in a load with a checkpoint.

    A command that is refused because of the server's state, such as a full memory, ends the load.
    The checkpoint stays before the row of this command, so a resumed load resends the command and
    all later commands. Until then, the later commands are in doubt.
    """

    # Why the load can't continue, and the index of the first reply not to acknowledge.
    refused_at = None
    # The indexes of later error replies, which do not count, since their commands will be resent.
    _not_counted: frozenset[int] = frozenset()

    @property
    def refused(self) -> int:
        return super().refused + len(self._not_counted)

    def filter_errors(self, errors: list[tuple[int, bytes, int]]) -> None:
        super().filter_errors(errors)
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
