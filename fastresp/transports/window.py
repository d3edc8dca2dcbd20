"""Commands in flight: which have gone, which were answered, and which one a reply belongs to."""

from __future__ import annotations

import bisect
from collections import deque
from typing import NamedTuple

from ..resp.buffer import Chunk

__all__ = ["WINDOW_BYTES", "WINDOW_COMMANDS", "Position", "Sending", "Window"]

# What is sent and not answered yet, in bytes. The buffers between two processes on one machine
# hold 0.4 MB (unix) to 6 MB (TCP); a network of 10 Gbit/s and 5 ms holds 6 MB.
WINDOW_BYTES = 8 << 20
# And in commands: each costs 16 bytes besides its own.
WINDOW_COMMANDS = 1 << 18


class Position(NamedTuple):
    """How far a source has come, whichever connections carry what it made."""

    command: int = 0  # how many commands it has made
    row: int = 0  # of how many rows
    first_row: int = 0  # which of them was the first of the latest Writer
    of_writer: int = 0  # how many of the commands that Writer has made


class Sending:
    """A chunk on its way out, and how much of it has gone.

    Args:
        chunk: whole commands.
        last: the chunk that goes before it over the same connection, or None.
        start: where in the source it begins; by default where the last one ends.

    Attributes:
        first_command: index of its first command in what the connection carries; that of the
            chunk itself begins at 0 again with each Writer.
        end_command: index of the command behind its last one.
        written: sizes of the pieces that have gone; to be appended to by who sends them.
    """

    def __init__(
        self, chunk: Chunk, last: Sending | None = None, start: Position | None = None
    ) -> None:
        self.chunk = chunk
        self.size = len(chunk)
        self.number = self.first_command = self.first_byte = self.memory_before = 0
        self._rows_before = 0
        if last is not None:
            self.number = last.number + 1
            self.first_command = last.end_command
            self.first_byte = last.end_byte
            self.memory_before = last.memory_before + last.chunk.memory
            self._rows_before = last._rows_before + last._rows(len(last.chunk.ends))
            start = start or last.end
        self.start = start = start or Position()
        continued = chunk.first_command == start.of_writer
        self._row_base = start.first_row if continued else start.row
        self.end_command: int = self.first_command + len(chunk.ends)
        self.written: list[int] = []

    @property
    def end_byte(self) -> int:
        """Offset in the stream of the byte behind its last one."""
        return self.first_byte + self.size

    @property
    def end(self) -> Position:
        """Where in the source it ends."""
        chunk, base = self.chunk, self._row_base
        count = len(chunk.ends)
        row = base + chunk.rows[count - 1] + 1
        return Position(self.start.command + count, row, base, chunk.first_command + count)

    def row(self, index: int) -> int:
        """The source row of one of the chunk's commands."""
        return self._row_base + self.chunk.rows[index]

    def source_index(self, index: int) -> int:
        """The index of one of the chunk's commands among those of all connections."""
        return self.start.command + index

    def _rows(self, commands: int) -> int:
        """How many source rows so many of its first commands are, those left out among them."""
        return self.row(commands - 1) + 1 - self.start.row if commands else 0

    @property
    def at(self) -> int:
        """Bytes of the chunk that have gone."""
        return sum(self.written)

    @property
    def done(self) -> bool:
        return self.at == self.size

    @property
    def whole(self) -> int:
        """Commands of the chunk that have gone as a whole."""
        return bisect.bisect_right(self.chunk.ends, self.at)

    @property
    def underway(self) -> int:
        """Size of the command of which a part has gone, or 0."""
        whole, ends = self.whole, self.chunk.ends
        start = ends[whole - 1] if whole else 0
        return ends[whole] - start if self.at > start else 0

    def totals(self) -> tuple[int, int, int]:
        """Rows, commands and bytes of the stream that have gone; of commands only whole ones."""
        whole = self.whole
        rows = self._rows_before + self._rows(whole)
        return rows, self.first_command + whole, self.first_byte + self.at

    def piece(self, most_bytes: int, commands: int | None = None) -> memoryview:
        """What goes next: at most so many bytes, and not beyond so many whole commands."""
        at = self.at
        end = min(at + most_bytes, self.size)
        if commands is not None and commands < len(self.chunk.ends):
            end = min(end, self.chunk.ends[commands - 1] if commands > 0 else 0)
        return self.chunk.piece(at, max(end, at))

    def whole_piece(self, most_bytes: int) -> memoryview:
        """What goes next: as many whole commands as fit, or a part of one that is larger."""
        at, ends = self.at, self.chunk.ends
        fitting = bisect.bisect_right(ends, at + most_bytes)
        end = ends[fitting - 1] if fitting and ends[fitting - 1] > at else at + most_bytes
        return self.chunk.piece(at, end)

    def command_size(self, index: int) -> int:
        """How many bytes one of the chunk's commands has."""
        return self.chunk.ends[index] - (self.chunk.ends[index - 1] if index else 0)

    def command(self, index: int) -> bytes:
        """The bytes of one of the chunk's commands."""
        at = self.chunk.ends[index] - self.command_size(index)
        pieces = []
        while at < self.chunk.ends[index]:
            pieces.append(self.chunk.piece(at, self.chunk.ends[index]))
            at += len(pieces[-1])
        return b"".join(pieces)


class Window:
    """Chunks from the moment they are made until the last of their replies has come.

    Does no I/O: whoever does takes a ``piece()``, notes in ``sending.written`` how much of it
    went, and calls ``acknowledge()`` with the number of replies that have come.

    Args:
        most_bytes: without room for more when so many bytes of memory are held.
        most_commands: without room when so many commands are.

    Attributes:
        acknowledged: commands whose reply has come. Replies come in the order of commands, so
            these are the first ones.
    """

    # What a chunk is held as.
    kind: type[Sending] = Sending

    def __init__(
        self, most_bytes: int = WINDOW_BYTES, most_commands: int = WINDOW_COMMANDS
    ) -> None:
        self.most_bytes = most_bytes
        self.most_commands = most_commands
        self.acknowledged = 0
        # All else is worked out from the chunks held, so that an interruption finds it right.
        self._held: deque[Sending] = deque()
        self._gone: Sending | None = None  # the last that was let go of
        self._next = 0  # no chunk with a lesser number is unsent

    @property
    def last(self) -> Sending | None:
        """The chunk that was added last; None before the first."""
        return self._held[-1] if self._held else self._gone

    @property
    def position(self) -> Position:
        """Where in the source the last chunk ends."""
        last = self.last
        return last.end if last else Position()

    @property
    def made(self) -> int:
        """Commands given to the window so far."""
        last = self.last
        return last.end_command if last else 0

    @property
    def has_room(self) -> bool:
        """Whether another chunk may be made; one larger than the window may, when it is empty."""
        if not self._held:
            return True
        first, last = self._held[0], self._held[-1]
        held = last.memory_before + last.chunk.memory - first.memory_before
        return held < self.most_bytes and self.made - self.acknowledged < self.most_commands

    @property
    def sending(self) -> Sending | None:
        """The chunk that goes next, or of which a part has gone."""
        while self._held:
            index = max(self._next - self._held[0].number, 0)
            if index >= len(self._held):
                return None
            sending = self._held[index]
            if sum(sending.written) < sending.size:  # as done, without calls
                return sending
            self._next = sending.number + 1
        return None

    def totals(self) -> tuple[int, int, int]:
        """Rows, commands and bytes that have gone; of commands only whole ones."""
        latest = self.sending or self.last
        return latest.totals() if latest else (0, 0, 0)

    @property
    def sent(self) -> int:
        """Commands that have gone as a whole."""
        sending = self.sending
        if sending is not None:
            return sending.first_command + sending.whole
        last = self.last
        return last.end_command if last else 0

    @property
    def begun(self) -> int:
        """Commands that have gone, or of which a part has."""
        sending = self.sending
        return self.sent + (1 if sending is not None and sending.underway else 0)

    @property
    def in_doubt(self) -> int:
        """Commands that have gone and were not answered: the server may have run them or not."""
        return self.sent - self.acknowledged

    @property
    def unsent(self) -> int:
        """Commands that have not gone, or not as a whole: the server has not run them."""
        return self.made - self.sent

    @property
    def unsent_bytes(self) -> int:
        """Bytes that have not gone."""
        last = self.last
        return last.end_byte - self.totals()[2] if last else 0

    def add(self, chunk: Chunk, start: Position | None = None) -> None:
        """Take the next chunk of the stream; ``start`` as for a Sending."""
        self._held.append(self.kind(chunk, self.last, start))

    def acknowledge(self, replies: int) -> None:
        """Note that so many replies have come in all, and let go of chunks that all have theirs."""
        self.acknowledged = replies
        while self._held and self._held[0].end_command <= replies:
            self._gone = self._held[0]
            self._held.popleft()

    def locate(self, index: int) -> tuple[Sending, int]:
        """The chunk that holds a command, and its place there.

        Raises:
            LookupError: it was acknowledged and let go of, or was never made.
        """
        # Of eight or so chunks; a search by halves would not be quicker.
        for held in self._held:
            if held.first_command <= index < held.end_command:
                return held, index - held.first_command
        raise LookupError(f"command {index:,} is not in flight")

    def command(self, index: int) -> tuple[range, bytes]:
        """The source rows and the bytes of a command that is held.

        Rows are a range, for one command may carry several.

        Raises:
            LookupError: as ``locate()``.
        """
        held, at = self.locate(index)
        return range(held.row(at), held.row(at) + 1), held.command(at)
