"""RESP files as ``dump`` writes them: checked as a whole, then sent unchanged."""

from __future__ import annotations

import io
import os
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import IO, Any

from ...outcome.errors import EncodeError, ProtocolError, SourceError
from ...outcome.messages import Hint, Message
from ...outcome.report import counted
from ...outcome.tracebacks import public
from ...resp.buffer import Chunk
from ...resp.shown import HEAD_BYTES, shown_command
from ...resp.split import CommandSplitter
from ...server.file_io import read_some
from ...server.forks import Inherited, is_own, on_fork
from .input import StopEvent, name_of
from .line_numbers import lines_of_commands, lines_of_resp
from .paths import InitialState

__all__ = ["CommandSource", "RespEncoder", "RespFile", "RespSummary"]

BLOCK_BYTES = 1 << 20


@dataclass
class RespSummary:
    """The contents of a RESP file.

    Attributes:
        commands: number of whole commands before the end or the first fault.
        size: number of bytes up to the end of the last whole command.
        names: number of commands by name, in capitals.
        largest: number of bytes of the largest argument.
        largest_command: index of the command with that argument.
        last: the last whole command, as redis-cli would show it; empty if there is none.
        last_offset: the offset in bytes at which the last whole command begins.
        fault: the first error in the file; None if there is no error.
        truncated: whether the file ends inside a command and has no other fault.
    """

    commands: int = 0
    size: int = 0
    names: dict[str, int] = field(default_factory=dict)
    largest: int = 0
    largest_command: int = 0
    last: str = ""
    last_offset: int = 0
    fault: ProtocolError | EncodeError | None = None
    truncated: bool = False


class CommandSource:
    """A source of commands in one file: each row is a command."""

    name: str
    _initial: InitialState

    def arguments(self) -> dict[str, Any] | None:
        """Return arguments of ``read`` that read the same commands again; None if there are none.

        For a rejects file, ``format`` is ``"rejects"``.
        """
        return None

    def place(self, row: int) -> tuple[str, int]:
        """Return the file of a row, and the row's index in the file."""
        return self.name, row

    def line_numbers(self, rows: Iterable[int], stopped: StopEvent) -> dict[int, int]:
        """Return the line numbers of rows, as ``Table.line_numbers()`` does."""
        in_order = sorted(set(rows))
        lines = self._lines(in_order, stopped) if self._initial.unchanged else []
        return dict(zip(in_order, lines, strict=False)) if self._initial.unchanged else {}

    def _lines(self, rows: list[int], stopped: StopEvent) -> list[int]:
        return lines_of_commands(self.name, rows, stopped)


@public
class RespFile(CommandSource):
    """A RESP file to load unchanged: a source for ``mass_insert``, without a template.

    Each command is a row of the load. The whole file is checked before anything is sent. But a
    source that can't be read twice, such as a pipe, is checked while it is sent, so the commands
    before an error are sent.

    Args:
        source: a path, or a file object open for reading bytes.
        limit: load at most this many commands from the beginning; None for all.
        skip_truncated: if the file ends inside a command, for example because its writer was
            killed, load the commands before it instead of raising an error.

    Attributes:
        name: the path, or the name of the file object.
        limit: as passed.
        skip_truncated: as passed.

    Raises:
        OSError: the file does not exist, or is a directory.
        SourceError: the file object is closed.
        TypeError: the file object is open for text.
    """

    _format = "resp"
    _is_resp = True  # False if commands are converted, so that their size is unknown

    def __init__(
        self,
        source: str | os.PathLike[str] | IO[bytes],
        *,
        limit: int | None = None,
        skip_truncated: bool = False,
    ) -> None:
        if isinstance(source, io.TextIOBase):
            raise TypeError("RESP is binary: open the file with mode 'rb'")
        self._source = source
        self._start: int | None = None  # where the source begins; None if it can be read only once
        self._size: int | None = None
        if isinstance(source, (str, os.PathLike)):
            self.name = os.fspath(source)
            if os.path.isdir(source):
                raise IsADirectoryError(f"{self.name} is a directory; name a file in it")
            if stat.S_ISREG((status := os.stat(source)).st_mode):
                self._start, self._size = 0, status.st_size
        else:
            self.name = name_of(source)
            if getattr(source, "closed", False):
                raise SourceError(f"{self.name} is closed; open it again")
            if source.seekable():
                self._start = source.tell()
                self._size = source.seek(0, os.SEEK_END) - self._start
        if not self._is_resp:
            self._size = None
        self.limit = limit
        self.skip_truncated = skip_truncated
        self._read = 0
        self._summary: RespSummary | None = None
        self._initial = InitialState(source)

    def __repr__(self) -> str:
        return f"<fastresp.RespFile of {self.name}>"

    def arguments(self) -> dict[str, Any] | None:
        if self._start is None or not isinstance(self._source, (str, os.PathLike)):
            return None
        given = {"source": os.path.abspath(os.fsdecode(self.name)), "format": self._format}
        limit = {} if self.limit is None else {"limit": self.limit}
        return given | limit | ({"skip_truncated": True} if self.skip_truncated else {})

    @property
    def rows(self) -> int | None:
        """The number of commands to send; None if unknown, as for a pipe."""
        return self._summary.commands if self._summary and self._start is not None else None

    def _lines(self, rows: list[int], stopped: StopEvent) -> list[int]:
        if not isinstance(self._source, str | os.PathLike):
            return []  # a pipe, a URL or a file object
        return (lines_of_resp if self._is_resp else lines_of_commands)(self.name, rows, stopped)

    def fraction(self, rows: int | None = None) -> float | None:
        """Return the share of the file that was read, or that the first ``rows`` commands make up.

        Return None if the share is unknown.
        """
        if rows is not None and self.rows:
            return min(1.0, rows / self.rows)
        if self._size is None:
            return None
        size = self._summary.size if self._summary else self._size
        return min(1.0, self._read / size) if size else 1.0

    def check(self) -> RespSummary | None:
        """Read the whole file once, check that it can be sent, and return a summary of it.

        For a pipe, read nothing and return None.

        Raises:
            ProtocolError: the file does not consist of whole commands only.
            EncodeError: a command changes the reply stream.
        """
        if self._start is None:
            return None
        if self._summary is None:
            self._initial = InitialState(self._source)
            self._summary = self.summary()
        summary = self._summary
        if summary.fault is not None and not (summary.truncated and self.skip_truncated):
            raise summary.fault
        return summary

    def summary(self) -> RespSummary:
        """Read the file to its end or the first fault, and return a summary of its contents."""
        splitter = CommandSplitter(limit=self.limit, count_names=True, only_look=True)
        summary = RespSummary()
        for block in self._blocks(self._size):
            try:
                chunk = splitter.feed(block)
            except (EncodeError, ProtocolError):
                break
            if chunk is not None:
                _record_last(chunk, splitter, summary)
            # Stop if a header announces more bytes than the file has: all would be stored in
            # memory.
            beyond = self._size is not None and splitter.missing > self._size - self._read
            if splitter.fault is not None or beyond:
                break
        summary.commands = splitter.commands
        summary.names = splitter.names
        summary.largest, summary.largest_command = splitter.largest, splitter.largest_command
        summary.truncated = splitter.fault is None and splitter.pending > 0
        summary.fault = _fault_error(splitter.fault, self.name, summary)
        return summary

    def blocks(self, max_bytes: int = BLOCK_BYTES) -> Iterator[bytes]:
        """Check the file, unless it is a pipe; return its blocks of at most ``max_bytes`` bytes."""
        summary = self.check()
        return self._blocks(summary.size if summary else None, max_bytes)

    def _blocks(self, size: int | None, max_bytes: int = BLOCK_BYTES) -> Iterator[bytes]:
        """Yield blocks of the first ``size`` bytes, or of all bytes if ``size`` is None."""
        self._read = 0
        on_fork(self)
        with self._opened() as file:
            while size is None or self._read < size:
                if not is_own(self):
                    # Parent and child share one file position.
                    raise SourceError(str(Inherited("file")))
                # Read only the available bytes of a pipe, so that the server need not wait for a
                # block.
                left = max_bytes if size is None else min(max_bytes, size - self._read)
                block = read_some(file, left)
                if not block:
                    break
                self._read += len(block)
                yield block
        if size is not None and self._read < size:
            raise SourceError(
                f"{self.name}: the file was truncated while it was read; load it again once it is "
                "complete"
            )
        if self._summary is not None:
            self._initial.check()

    @contextmanager
    def _opened(self) -> Iterator[IO[bytes]]:
        if isinstance(self._source, (str, os.PathLike)):
            with open(self._source, "rb", buffering=0) as file:
                yield file
        else:
            if self._start is not None:
                self._source.seek(self._start)
            yield self._source


class RespEncoder:
    """The Encoder for a RESP file: returns its commands as chunks."""

    skipped = nulls_skipped = 0  # RESP has no nulls

    def __init__(self, file: RespFile) -> None:
        self.max_bulk_bytes: int | None = None
        self._file = file
        self._splitter = CommandSplitter(limit=file.limit)
        self._chunk: Chunk | None = None
        self._sent = RespSummary()

    @property
    def rows(self) -> int:
        return self._splitter.commands

    commands = rows

    def chunks(self, rows: Iterable[bytes]) -> Iterator[Chunk]:
        """Yield the commands in the blocks of ``RespFile.blocks()`` as chunks."""
        source, more = iter(rows), True
        while more:
            more = self.fill(source)
            if (chunk := self.take()) is not None:
                yield chunk

    def fill(self, source: Iterator[bytes]) -> bool:
        """Read one more block; return False at the end."""
        splitter, file = self._splitter, self._file
        if splitter.fault is not None:
            raise _fault_error(splitter.fault, file.name, self._sent) or splitter.fault
        splitter.max_bulk_bytes = self.max_bulk_bytes
        self._check_largest()
        block = None if splitter.commands == file.limit else next(source, None)
        if block is not None:
            self._chunk = splitter.feed(block)
            if self._chunk is not None:
                _record_last(self._chunk, splitter, self._sent)
            return True
        if splitter.pending and not file.skip_truncated:
            self._sent.truncated = True
            self._sent.commands = splitter.commands
            fault = _fault_error(None, file.name, self._sent)
            assert fault is not None
            raise fault
        return False

    def take(self) -> Chunk | None:
        """Return the whole commands of the last block; None if there are none."""
        chunk, self._chunk = self._chunk, None
        return chunk

    def _check_largest(self) -> None:
        """Before anything is sent, refuse a file with an argument too large for the server."""
        summary = self._file.check() if self._splitter.commands == 0 else None
        if summary and self.max_bulk_bytes is not None and summary.largest > self.max_bulk_bytes:
            raise EncodeError(
                f"{self._file.name}, command {summary.largest_command:,}: an argument of "
                f"{summary.largest:,} bytes is more than the {self.max_bulk_bytes:,} that the "
                "server accepts; raise its proto-max-bulk-len (nothing was sent)",
                command=summary.largest_command,
                row=summary.largest_command,
            )


def _record_last(chunk: Chunk, splitter: CommandSplitter, summary: RespSummary) -> None:
    """Remember the last whole command, shortened for display, and its offset."""
    ends = chunk.ends
    start = ends[-2] if len(ends) > 1 else 0
    summary.last = shown_command(bytes(chunk.piece(start, min(start + HEAD_BYTES, ends[-1]))))
    summary.last_offset, summary.size = splitter.last, splitter.whole
    summary.commands = chunk.first_command + len(ends)


def _fault_error(
    fault: Exception | None, name: str, summary: RespSummary
) -> ProtocolError | EncodeError | None:
    """Return the error for a fault or a truncated file; None if there is neither.

    A ProtocolError also names the last whole command before the fault.
    """
    if isinstance(fault, EncodeError):
        return EncodeError(f"{name}: {fault}", command=fault.command, row=fault.row)
    before = "no whole command before it"
    if summary.commands:
        before = (
            f"{counted(summary.commands, 'whole command')} before it, the last one (command "
            f"{summary.commands - 1:,}, at byte {summary.last_offset:,}): {summary.last}"
        )
    if isinstance(fault, ProtocolError):
        message = Message(f"{name}: ", fault.args[0])
        if not summary.commands and not fault.offset and "expected '*'" in fault.args[0]:
            advice = "; if its lines are commands as for redis-cli, use "
            message = Message(message, advice, Hint("format", "commands"))
        return ProtocolError(message, fault.offset, before)
    if not summary.truncated:
        return None
    return ProtocolError(
        Message(
            f"{name} is truncated: its last command is incomplete; ",
            Hint("skip_truncated", True),
            " sends the commands before it",
        ),
        summary.size,
        before,
    )
