"""Commands in flight: which were sent and answered, and which command a reply answers.

A chunk contains encoded whole commands. A window holds the chunks of one connection until they are
answered. After a chunk that is a fence, the source waits for the replies to this chunk.
"""

from __future__ import annotations

import bisect
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from ..encode.row_key import RowKeys, words_of
from ..outcome.report import Report
from ..resp.buffer import Chunk

__all__ = ["WINDOW_BYTES", "WINDOW_COMMANDS", "Position", "ResumePoint", "Sending", "Window"]

# Maximum bytes in flight. The buffers between two processes on one machine hold 0.4 MB (unix) to
# 6 MB (TCP); a network of 10 Gbit/s and 5 ms holds 6 MB.
WINDOW_BYTES = 8 << 20
# Maximum commands in flight: each needs 16 bytes of memory in addition to RESP.
WINDOW_COMMANDS = 1 << 18


class Position(NamedTuple):
    """A position in a source, counted over all connections."""

    command: int = 0  # commands encoded so far
    row: int = 0  # rows encoded so far
    first_row: int = 0  # the first row of the current Writer
    of_writer: int = 0  # commands encoded by the current Writer


@dataclass(frozen=True)
class ResumePoint:
    """Where a load with a checkpoint starts.

    Attributes:
        row: the first source row to load.
        failed: number of commands that failed in earlier loads of the checkpoint.
        errors_unknown: (start, stop) of the rows that may have run in earlier loads, but whose
            errors are unknown; None if there are no such rows.
        batched: whether commands are sent in transactions that advance the checkpoint.
        stays: returns whether a reject of earlier loads, which is passed as a dict, stays in the
            rejects file; None if there were no earlier loads.
    """

    row: int
    failed: int
    errors_unknown: tuple[int, int] | None
    batched: bool
    stays: Callable[[dict[str, Any]], bool] | None

    def note_in(self, report: Report) -> None:
        """Store the progress of earlier loads in the report of this load."""
        report.resumed_at, report.failed_before = self.row, self.failed
        report.errors_unknown = self.errors_unknown


class Sending:
    """A chunk in a window, and how much of the chunk was sent.

    Args:
        chunk: whole commands.
        last: the previous chunk on the same connection, or None.
        start: the chunk's position in the source; by default, the end of the previous chunk.

    Attributes:
        first_command: index of the chunk's first command on the connection; the attribute
            ``first_command`` of the chunk itself restarts at 0 with each Writer.
        end_command: index after the last command.
        first_reply: index of the first reply; merged commands share a reply.
        end_reply: index after the last reply.
        written: list of the sizes of the sent pieces; the sender appends to this list.
    """

    def __init__(
        self, chunk: Chunk, last: Sending | None = None, start: Position | None = None
    ) -> None:
        self.chunk = chunk
        self.size = len(chunk)
        self.number = self.first_command = self.first_byte = self.memory_before = 0
        self.first_reply = 0
        self._rows_before = 0
        if last is not None:
            self.number = last.number + 1
            self.first_command = last.end_command
            self.first_reply = last.end_reply
            self.first_byte = last.end_byte
            self.memory_before = last.memory_before + last.chunk.memory
            self._rows_before = last._rows_before + last.covered_rows(last.chunk.commands)
            start = start or last.end
        self.start = start = start or Position()
        continued = chunk.first_command == start.of_writer
        self._row_base = start.first_row if continued else start.row
        self._base = start.command - chunk.first_command
        self.end_command: int = self.first_command + chunk.commands
        self.end_reply: int = self.first_reply + len(chunk.ends)
        self.written: list[int] = []

    @property
    def end_byte(self) -> int:
        """Offset of the end of the chunk among all bytes of the connection."""
        return self.first_byte + self.size

    @property
    def end(self) -> Position:
        """The position in the source after the chunk's last command."""
        chunk, base = self.chunk, self._row_base
        count = chunk.commands
        row = base + chunk.rows_after(count)
        return Position(self.start.command + count, row, base, chunk.first_command + count)

    def row(self, index: int) -> int:
        """Return the source row of the chunk's command with this index."""
        return self._row_base + self.chunk.rows[index]

    def source_index(self, index: int) -> int:
        """Return the index in the source of the chunk's command with this index."""
        return self._base + self.chunk.place(index)

    def covered_rows(self, commands: int) -> int:
        """Return how many source rows the first ``commands`` cover, including skipped rows."""
        if not commands:
            return 0
        return self._row_base + self.chunk.rows_after(commands) - self.start.row

    @property
    def at(self) -> int:
        """Number of bytes of the chunk that were sent."""
        return sum(self.written)

    @property
    def done(self) -> bool:
        return self.at == self.size

    @property
    def whole(self) -> int:
        """Number of replies that the chunk's wholly sent commands get, received or not."""
        return bisect.bisect_right(self.chunk.ends, self.at)

    @property
    def underway(self) -> int:
        """Size in bytes of the command that was partially sent; 0 if there is no such command."""
        whole, ends = self.whole, self.chunk.ends
        start = ends[whole - 1] if whole else 0
        return ends[whole] - start if self.at > start else 0

    def totals(self) -> tuple[int, int, int]:
        """Return the numbers of rows, whole commands and bytes sent, up to this chunk."""
        commands = self.chunk.covered(self.whole)
        rows = self._rows_before + self.covered_rows(commands)
        return rows, self.first_command + commands, self.first_byte + self.at

    def piece(self, max_bytes: int, replies: int | None = None) -> memoryview:
        """Return the next bytes to send.

        Args:
            max_bytes: maximum size.
            replies: send only the commands that the chunk's first ``replies`` replies answer.
        """
        at = self.at
        end = min(at + max_bytes, self.size)
        if replies is not None and replies < len(self.chunk.ends):
            end = min(end, self.chunk.ends[replies - 1] if replies > 0 else 0)
        return self.chunk.piece(at, max(end, at))

    def whole_piece(self, max_bytes: int, replies: int | None = None) -> memoryview:
        """Return the next bytes to send: whole commands that fit, or a part of a larger command.

        Args:
            max_bytes: maximum size.
            replies: as for ``piece()``.
        """
        at, ends = self.at, self.chunk.ends
        fitting = bisect.bisect_right(ends, at + max_bytes)
        if replies is not None:
            fitting = min(fitting, replies)
        end = ends[fitting - 1] if fitting and ends[fitting - 1] > at else at + max_bytes
        return self.chunk.piece(at, end)

    def size_of(self, at: int) -> int:
        """Return the size in bytes of the request that a reply answers."""
        return self.chunk.ends[at] - (self.chunk.ends[at - 1] if at else 0)

    def command(self, at: int, part: int) -> bytes:
        """Return the bytes of a command that a reply answers; see Chunk."""
        return self.chunk.command(at, part)

    def row_key(self, part: int, words: tuple[bytes, ...] | None, keys: RowKeys) -> str:
        """Describe the key of a command's row; ``words`` are the arguments, None if omitted."""

        def arguments(other: int) -> tuple[bytes, ...]:
            if other == part:
                return words or ()
            return words_of(self.command(self.chunk.within(other), other))

        return keys.of_row(part, self.chunk.commands, self.row, arguments)


class Window:
    """Holds chunks from encoding until their last reply arrives.

    Does no I/O: the sender sends a ``sending.piece()``, appends the number of sent bytes to
    ``sending.written``, and calls ``acknowledge()`` with the number of received replies.

    Numbers count replies, since merged commands share a reply, unless a name says "commands".

    Args:
        max_bytes: the window is full if the held chunks use at least this much memory.
        max_commands: the window is full if at least this number of replies is missing.

    Attributes:
        acknowledged: number of received replies, which arrive in the order of the commands.
    """

    # The cluster node that receives the commands, for messages.
    node: str | None = None
    # Whether commands are sent in transactions that advance a checkpoint; see BatchedWindow.
    batched = False
    # The class that wraps a chunk.
    kind: type[Sending] = Sending

    def __init__(self, max_bytes: int = WINDOW_BYTES, max_commands: int = WINDOW_COMMANDS) -> None:
        self.max_bytes = max_bytes
        self.max_commands = max_commands
        self.acknowledged = 0
        # All counts are computed from the held chunks, so that they are consistent after an
        # interruption.
        self._held: deque[Sending] = deque()
        self._gone: Sending | None = None  # the last chunk released
        self._next = 0  # all chunks with a lower number were sent
        self._plain = True  # whether each reply answers one command

    @property
    def last(self) -> Sending | None:
        """The last chunk that was added; None if no chunk was added."""
        return self._held[-1] if self._held else self._gone

    @property
    def position(self) -> Position:
        """The position in the source after the last chunk."""
        last = self.last
        return last.end if last else Position()

    @property
    def made(self) -> int:
        """Number of replies that all commands added to the window get, received or not."""
        last = self.last
        return last.end_reply if last else 0

    @property
    def fenced(self) -> bool:
        """Whether all connections must wait for the replies to a fence before sending more."""
        return self._fence is not None

    @property
    def _fence(self) -> Sending | None:
        """The last fence in this window; None if there is no fence."""
        return next((held for held in reversed(self._held) if held.chunk.fence), None)

    @property
    def has_room(self) -> bool:
        """Whether another chunk may be added. An empty window accepts a chunk of any size."""
        in_flight = self.made - self.acknowledged
        return self.held_bytes < self.max_bytes and in_flight < self.max_commands

    @property
    def held_bytes(self) -> int:
        """Memory of the held chunks, in bytes."""
        if not self._held:
            return 0
        first, last = self._held[0], self._held[-1]
        return last.memory_before + last.chunk.memory - first.memory_before

    @property
    def sending(self) -> Sending | None:
        """The chunk to send next, which may be partially sent; None if all chunks were sent."""
        while self._held:
            index = max(self._next - self._held[0].number, 0)
            if index >= len(self._held):
                return None
            sending = self._held[index]
            if sum(sending.written) < sending.size:  # the same as ``not done``, but faster
                return sending
            self._next = sending.number + 1
        return None

    def totals(self) -> tuple[int, int, int]:
        """Return the numbers of rows, whole commands and bytes sent."""
        latest = self.sending or self.last
        return latest.totals() if latest else (0, 0, 0)

    @property
    def sent(self) -> int:
        """Number of replies that all wholly sent commands get, received or not."""
        sending = self.sending
        if sending is not None:
            return sending.first_reply + sending.whole
        last = self.last
        return last.end_reply if last else 0

    @property
    def sent_commands(self) -> int:
        """Number of whole commands sent."""
        sending = self.sending
        if sending is not None:
            return sending.first_command + sending.chunk.covered(sending.whole)
        last = self.last
        return last.end_command if last else 0

    @property
    def _answered_commands(self) -> int:
        # After an interruption, answered chunks may still be held.
        for held in self._held:
            if self.acknowledged < held.end_reply:
                replies = max(0, self.acknowledged - held.first_reply)
                return held.first_command + held.chunk.covered(replies)
        last = self.last
        return last.end_command if last else 0

    def answered_row(self, start: int) -> int:
        """Return how many leading source rows are answered; ``start`` if there are no chunks."""
        for held in self._held:
            if self.acknowledged < held.end_reply:
                replies = max(0, self.acknowledged - held.first_reply)
                return held.start.row + held.covered_rows(held.chunk.covered(replies))
        last = self.last
        return last.end.row if last else start

    @property
    def begun(self) -> int:
        """Like ``sent``, but including the reply to a partially sent command."""
        sending = self.sending
        return self.sent + (1 if sending is not None and sending.underway else 0)

    @property
    def in_doubt(self) -> int:
        """Number of commands sent but not answered: the server may or may not have run them."""
        return self.sent_commands - self._answered_commands

    @property
    def unsent(self) -> int:
        """Number of commands not or only partially sent: the server has not run them."""
        last = self.last
        return last.end_command - self.sent_commands if last else 0

    @property
    def unsent_bytes(self) -> int:
        """Number of bytes not sent yet."""
        last = self.last
        return last.end_byte - self.totals()[2] if last else 0

    def add(self, chunk: Chunk, start: Position | None = None) -> None:
        """Add a chunk; ``start`` as for Sending."""
        self._plain = self._plain and chunk.commands == len(chunk.ends)
        self._held.append(self.kind(chunk, self.last, start))

    def acknowledge(self, replies: int) -> None:
        """Set the total number of received replies, and release fully answered chunks."""
        self.acknowledged = replies
        while self._held and self._held[0].end_reply <= replies:
            self._gone = self._held[0]
            self._gone.chunk.answered = not self._aside(self._gone)
            self._held.popleft()

    def _aside(self, held: Sending) -> bool:
        """Return whether the last command of a chunk will be resent."""
        return False

    def locate(self, index: int) -> tuple[Sending, int]:
        """Return the chunk that a reply answers, and the index of the reply in the chunk.

        Raises:
            LookupError: the chunk was released, or never existed.
        """
        # With about eight chunks, a binary search would not be faster.
        for held in self._held:
            if held.first_reply <= index < held.end_reply:
                return held, index - held.first_reply
        raise LookupError(f"reply {index:,} answers nothing in flight")

    def note_error(self, index: int, *, existed: bool) -> None:
        """Note an error reply in the chunk, if the source waits for this reply.

        Args:
            index: index of the reply.
            existed: whether the error is that the key exists.
        """
        fence = self._fence
        if fence is not None and index == fence.end_reply - 1:
            fence.chunk.refused = True
            fence.chunk.existed = existed

    def answered(self, index: int) -> int:
        """Return the number of commands that a reply answers."""
        if self._plain:
            return 1
        held, at = self.locate(index)
        return len(held.chunk.parts(at))

    def failing(self, index: int, nested: int) -> range:
        """Return the indexes, in their chunk, of the commands that failed with an error.

        Args:
            index: index of the reply.
            nested: number of the reply's element that is or contains the error, counted from 1; 0
                if the whole reply is an error.
        """
        held, at = self.locate(index)
        return held.chunk.parts(at)

    @property
    def first_unanswered(self) -> int | None:
        """The source row of the first unanswered command; None if all are answered."""
        for held in self._held:
            for at in range(max(0, self.acknowledged - held.first_reply), len(held.chunk.ends)):
                parts = held.chunk.parts(at)
                if parts:
                    return held.row(parts[0])
        return None

    def within(self, commands: int) -> int:
        """Return how many leading replies answer at most this many commands."""
        for held in self._held:
            if commands < held.end_command:
                return held.first_reply + held.chunk.within(commands - held.first_command)
        return self.made

    def command(self, index: int) -> tuple[range, bytes]:
        """Return the source rows and the bytes of a command in flight.

        The command must not be merged. The rows are a range of one row.

        Raises:
            LookupError: as for ``locate()``.
        """
        held, at = self.locate(index)
        return range(held.row(at), held.row(at) + 1), held.command(at, at)
