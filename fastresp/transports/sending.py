"""A chunk in a window: how much was sent, how fast, and where its commands are in the source."""

from __future__ import annotations

import bisect
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from ..encode.row_key import RowKeys
    from ..outcome.report import Report
    from ..resp.buffer import Chunk
    from ..server.options import Rate

__all__ = ["PORTION_S", "Pace", "Position", "ResumePoint", "Sending"]

# With a rate limit, data is sent in portions: each is what the limit allows in this many seconds.
PORTION_S = 0.01


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
        fence: if the source waits for the last reply to this chunk, the chunk to notify; otherwise
            None.
        fence_refused: whether the last command of a fence will be resent.
    """

    fence_refused = False

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
            self._rows_before = last.rows_up_to(last.chunk.commands)
            start = start or last.end
        self.start = start = start or Position()
        continued = chunk.first_command == start.of_writer
        self._row_base = start.first_row if continued else start.row
        self._base = start.command - chunk.first_command
        self.end_command: int = self.first_command + chunk.commands
        self.end_reply: int = self.first_reply + len(chunk.ends)
        self.written: list[int] = []
        self.fence = chunk if chunk.fence else None

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
        """Convert the index of a command in the chunk to its row in the source."""
        return self._row_base + self.chunk.rows[index]

    def source_index(self, index: int) -> int:
        """Convert the index of a command in the chunk to its index in the source."""
        return self._base + self.chunk.place(index)

    def covered_rows(self, commands: int) -> int:
        """Return how many source rows, even skipped ones, the first ``commands`` commands cover."""
        if not commands:
            return 0
        return self._row_base + self.chunk.rows_after(commands) - self.start.row

    @property
    def at(self) -> int:
        """Number of bytes of the chunk that were sent."""
        return sum(self.written)

    @property
    def whole(self) -> int:
        """Number of replies to the chunk's wholly sent commands, received or not."""
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
        return self.rows_up_to(commands), self.first_command + commands, self.first_byte + self.at

    def rows_up_to(self, commands: int) -> int:
        """Return how many rows the connection covers up to this number of the chunk's commands."""
        return self._rows_before + self.covered_rows(commands)

    def piece(self, max_bytes: int, replies: int | None = None) -> memoryview:
        """Return the next bytes to send, of commands that the first ``replies`` replies answer."""
        at = self.at
        end = min(at + max_bytes, self.size)
        if replies is not None and replies < len(self.chunk.ends):
            end = min(end, self.chunk.ends[replies - 1] if replies > 0 else 0)
        return self.chunk.piece(at, max(end, at))

    def whole_piece(self, max_bytes: int, replies: int | None = None) -> memoryview:
        """Like ``piece()``, but return whole commands that fit, or a part of a larger command."""
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

    def row_key(self, part: int, arguments: tuple[bytes, ...] | None, keys: RowKeys) -> str:
        """Describe the key of a command's row; ``arguments`` is None if the error omits them."""

        def arguments_of(other: int) -> tuple[bytes, ...]:
            if other == part:
                return arguments or ()
            return keys.split(self.command(self.chunk.within(other), other))

        return keys.of_row(part, self.chunk.commands, self.row, arguments_of)


class Pace:
    """Computes how many commands or bytes a rate limit allows.

    Attributes:
        in_bytes: whether the limit counts bytes instead of commands.
        start: when the first command may be sent.
    """

    def __init__(self, rate: Rate) -> None:
        self.rate = rate.per_second
        self.in_bytes = rate.in_bytes
        self.start = time.monotonic()

    def allowed(self, sent: int) -> int:
        """Return how many commands or bytes, in total, may have been sent by now.

        A pause of the source is not followed by a burst. ``sent`` is the number sent so far.
        """
        allowed = 1 + int((time.monotonic() - self.start) * self.rate)
        unused = allowed - sent - 1 - int(2 * PORTION_S * self.rate)
        if unused > 0:
            self.start += unused / self.rate
            allowed -= unused
        return allowed

    def piece(self, sending: Sending, max_bytes: int) -> memoryview:
        """Return the bytes of a chunk to send now; empty if the rate limit requires a pause.

        A large command is followed by a longer pause. Commands are sent whole, except commands
        larger than ``max_bytes``: these are sent in parts, without a pause between the parts.
        """
        whole = sending.whole
        replies = whole + 1 if sending.underway else self._replies(sending)
        if replies <= whole:
            return memoryview(b"")
        return sending.whole_piece(max_bytes, replies)

    def _replies(self, sending: Sending) -> int:
        """Return how far the rate limit lets ``sending.whole`` rise now, in replies."""
        _, commands, size = sending.totals()
        sent = size if self.in_bytes else commands
        left = self.allowed(sent) - sent
        if left <= 0:
            return sending.whole
        if self.in_bytes:
            most = bisect.bisect_right(sending.chunk.ends, sending.at + left)
        else:
            most = sending.chunk.within(commands + left - sending.first_command)
        return max(most, sending.whole + 1)
