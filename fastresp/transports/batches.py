"""A window of transactions that advance a checkpoint.

Each transaction sets a marker: a key that stores how many rows have run.
"""

from __future__ import annotations

import bisect

from ..outcome.report import counted
from ..resp.split import arguments
from ..resp.transactions import BatchedChunk
from .causes import TAKEN_OVER, NotMarked, NotRun, TakenOver, remedy_for
from .resend import ResendingWindow
from .retries import REFUSED
from .window import Sending

__all__ = ["BatchedWindow"]

FAILED = b"ERR wrong number of arguments for '%s' command"


class BatchedWindow(ResendingWindow):
    """A window of transactions, each of which may run only after its predecessor has run.

    The predecessor is the previous transaction with the same marker. An EXEC is sent only after the
    reply to the predecessor's EXEC; until then, the server already queues the commands of the
    transaction. A script is sent immediately, since it checks the marker itself. A refused
    transaction ends the load.
    """

    batched = True
    # Why the load can't continue, and the index of the first reply not to acknowledge.
    refused_at = None
    # Number of replies whose errors all end the load; and the index of the last reply with an error
    # that does not.
    _noted = 0
    _with_others = -1
    # Number of received replies, whether or not the commands are confirmed to be durable.
    _came = 0

    @property
    def refused(self) -> int:
        return super().refused + self._noted

    def gate(self) -> int | None:
        unanswered = False  # whether an earlier EXEC has no reply yet
        for held in self._held:
            chunk = held.chunk
            if not isinstance(chunk, BatchedChunk):
                continue
            first = 0
            if not unanswered:
                at = bisect.bisect_left(chunk.execs, self._came - held.first_reply)
                if at == len(chunk.execs):
                    continue
                unanswered = True
                first = bisect.bisect_right(chunk.waits, chunk.execs[at])
            if first < len(chunk.waits):
                return held.first_reply + chunk.waits[first]
        return None

    def failing(self, index: int, nested: int) -> range:
        held, at = self.locate(index)
        chunk = held.chunk
        if not nested or not isinstance(chunk, BatchedChunk):
            return super().failing(index, nested)
        elements, number = chunk.elements(at), nested - chunk.opening
        if not 0 < number <= len(elements):
            return range(0)
        return chunk.inner.parts(elements[number - 1])

    def filter_errors(self, errors: list[tuple[int, bytes, int]]) -> None:
        errors[:] = [self._named(*each) for each in errors if not self._is_noted(*each)]
        super().filter_errors(errors)

    def _is_noted(self, index: int, words: bytes, nested: int) -> bool:
        """Return whether an error ends the load; if so, count its reply."""
        if not self._note(index, words, nested):
            self._with_others = index
            return False
        self._noted += index != self._with_others
        return True

    def _named(self, index: int, words: bytes, nested: int) -> tuple[int, bytes, int]:
        """Return an error; if an HSET replaced the failed command, name the original command."""
        parts = self.failing(index, nested) if nested and words == FAILED % b"hset" else ()
        for part in parts[:1]:
            held, at = self.locate(index)
            assert isinstance(held.chunk, BatchedChunk)
            command = arguments(held.command(at, part))
            if len(command) <= held.chunk.lacking.get(command[0].upper(), 0):
                words = FAILED % command[0].lower()
        return index, words, nested

    def _note(self, index: int, words: bytes, nested: int) -> bool:
        """Return whether an error ends the load; note the first such error."""
        held, at = self.locate(index)
        chunk = held.chunk
        if not isinstance(chunk, BatchedChunk):
            return False
        number = bisect.bisect_left(chunk.execs, at)
        rows = self._rows(held, chunk, number)
        text = words.decode(errors="replace")
        where = "the server" if self.node is None else f"the node at {self.node}"
        advice = remedy_for(words) or "fix the cause"
        if REFUSED.match(words):
            advice = "wait until the slots have moved"
        if nested - chunk.opening > len(chunk.elements(at)):
            cause: Exception = NotMarked(
                f"{rows} ran, but the checkpoint could not be written: {text} "
                f"(a resume would run them again, unless you run {self._marking(chunk, at)})"
            )
            end = held.first_reply + at + 1
        elif not nested:
            kind = TakenOver if words.startswith(TAKEN_OVER) else NotRun
            cause = kind(
                f"{where} refused {rows}, and ran none of them: {text} ({advice}, then resume "
                "the load)"
            )
            end = held.first_reply + (chunk.execs[number - 1] + 1 if number else 0)
        else:
            return False
        if self.refused_at is None:
            self.refused_at = cause, end
        return True

    @staticmethod
    def _marking(chunk: BatchedChunk, at: int) -> str:
        """Return the command that sets the marker in a transaction, as text for messages."""
        words = arguments(bytes(chunk.piece(chunk.ends[at - 2], chunk.ends[at - 1])))
        return b" ".join(words).decode(errors="replace")

    @staticmethod
    def _rows(held: Sending, chunk: BatchedChunk, number: int) -> str:
        """Return the rows of a transaction, for messages."""
        parts = chunk.parts(chunk.execs[number])
        first, last = held.row(parts[0]), held.row(parts[-1])
        text = f"rows {first:,} to {last:,}"
        if chunk.lane >= 0:  # other connections have the rows between these rows
            text = f"{counted(len(parts), 'command')} of {text}"
        return text

    def acknowledge(self, replies: int) -> None:
        if self.refused_at is not None:
            replies = min(replies, self.refused_at[1])
        self._came = replies
        super().acknowledge(replies)

    @property
    def sent_commands(self) -> int:
        """Number of whole commands sent, or to acknowledge if the load can't continue."""
        if self.refused_at is None:
            return super().sent_commands
        return self._up_to(self.refused_at[1])[1]

    def totals(self) -> tuple[int, int, int]:
        rows, commands, size = super().totals()
        if self.refused_at is not None:
            rows, commands = self._up_to(self.refused_at[1])
        return rows, commands, size

    def _up_to(self, replies: int) -> tuple[int, int]:
        """Return the numbers of rows and of commands that the first ``replies`` replies answer."""
        for held in self._held:
            if replies < held.end_reply:
                done = held.chunk.covered(max(0, replies - held.first_reply))
                return held._rows_before + held.covered_rows(done), held.first_command + done
        last = self.last
        if last is None:
            return 0, 0
        return last._rows_before + last.covered_rows(last.chunk.commands), last.end_command
