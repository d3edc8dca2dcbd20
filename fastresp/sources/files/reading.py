"""How files are to be read: what a user says of them, and what a load needs of them."""

from __future__ import annotations

import codecs
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import IO, Any, NamedTuple

from ...outcome.errors import SourceError
from ...outcome.messages import Hint, Message
from .input import Input, Watch

__all__ = [
    "AS_IT_IS",
    "BLOCK_BYTES",
    "BadRows",
    "Batches",
    "Converted",
    "FileOptions",
    "NAMES",
    "Reading",
    "Wanted",
    "line_blocks",
    "unfit",
]

# A row of CSV or JSON lines has to fit into a block. Flights as CSV: a process that reads them
# peaks at 126 MiB with blocks of 1 MiB, 129 MiB with 2, 155 MiB with 4; the rate is the same.
BLOCK_BYTES = 2 << 20

NAMES = {
    "csv": "CSV",
    "tsv": "TSV",
    "jsonl": "JSON lines",
    "lines": "lines",
    "parquet": "Parquet",
    "arrow": "Arrow IPC",
}


@dataclass(frozen=True)
class FileOptions:
    """What a user says of files of text.

    Attributes:
        delimiter: between the fields of CSV, where that is no comma; what ends each of lines.
        header: whether the first line of CSV names the columns.
        columns: their names, where no line has them.
        encoding: of the text, where that is not UTF-8.
        null_values: fields of CSV that are nulls, besides empty ones.
        bad_rows: ``"error"``, ``"skip"``, or the path of the file that takes them.
    """

    delimiter: str | None = None
    header: bool = True
    columns: tuple[str, ...] | None = None
    encoding: str | None = None
    null_values: tuple[str, ...] = ()
    bad_rows: str | os.PathLike[str] = "error"

    @property
    def only_ours(self) -> bool:
        """Whether they say what DuckDB's own readers are not told."""
        return self != FileOptions(delimiter=self.delimiter)


AS_IT_IS = FileOptions()


def unfit(kind: str, options: FileOptions) -> Message | None:
    """Say which option is not for files of this format; None where all are."""
    delimited = ("csv", "tsv")
    fits = {
        "delimiter": ("csv", "lines"),
        "columns": delimited,  # which mean that there is no header
        "header": delimited,
        "null_values": delimited,
        "encoding": (*delimited, "jsonl", "lines"),
        "bad_rows": (*delimited, "jsonl"),
    }
    for name, kinds in fits.items():
        if kind not in kinds and getattr(options, name) != getattr(AS_IT_IS, name):
            named = [NAMES[each] for each in kinds]
            formats = " and ".join(filter(None, [", ".join(named[:-1]), named[-1]]))
            words = f" is for {formats}, and this is {NAMES[kind]}; leave it out"
            return Message(Hint(name, ...), words)
    return None


@dataclass(frozen=True)
class Wanted:
    """What a template takes of each row.

    Attributes:
        columns: the names of the columns; None for all.
        vectors: those of vectors.
        document: whether it takes the whole row as JSON.
    """

    columns: frozenset[str] | None
    vectors: frozenset[str]
    document: bool


class BadRows:
    """The rows that can't be read: an error each, or counted, left out and maybe kept.

    Args:
        policy: ``"error"``, ``"skip"``, or the path of the file that takes them.
        encoding: of the source, which that file gets, too; None for UTF-8.

    Attributes:
        count: how many were left out.
    """

    def __init__(self, policy: str | os.PathLike[str], encoding: str | None = None) -> None:
        # One for all rows: UTF-16 begins with a mark.
        self._encoder = codecs.getincrementalencoder(encoding)() if encoding else None
        self.skip = policy != "error"
        self.count = 0
        self._file: IO[bytes] | None = None
        if self.skip and policy != "skip":
            self._file = open(policy, "wb")  # noqa: SIM115

    def add(self, row: bytes) -> None:
        """Leave out a row."""
        self.count += 1
        if self._file is not None:
            line = row.rstrip(b"\r\n") + b"\n"
            self._file.write(line if self._encoder is None else self._encoder.encode(line.decode()))

    def close(self) -> None:
        """Close the file of them."""
        if self._file is not None:
            self._file.close()


@dataclass
class Reading:
    """One reading of files.

    Attributes:
        options: what the user says of them.
        wanted: what a load takes of them; None for anybody else, who gets columns with types.
        stopped: set when nothing more is wanted.
        bad: takes the rows that can't be read.
    """

    options: FileOptions
    wanted: Wanted | None = None
    stopped: Watch = field(default_factory=Watch)
    bad: BadRows = field(init=False)

    def __post_init__(self) -> None:
        self.bad = BadRows(self.options.bad_rows, self.options.encoding)


class Batches(NamedTuple):
    """Batches of columns, what these are, and what lets go of where they come from."""

    schema: Any
    batches: Iterator[Any]
    close: Callable[[], object] = lambda: None


class Converted:
    """A binary file whose bytes are changed as they are read; an Input reads it.

    Args:
        data: the file.
        feed: what becomes of each block.
        finish: what comes at the end.
    """

    def __init__(
        self, data: Input, feed: Callable[[bytes], bytes], finish: Callable[[], bytes]
    ) -> None:
        self.name = data.name
        self._data = data
        self._feed = feed
        self._finish = finish
        self._ready = b""
        self._ended = False

    def read(self, size: int) -> bytes:
        while not self._ready and not self._ended:
            block = self._data.read(size)
            self._ended = not block
            if block or not self._data.stopped.is_set():
                self._ready = self._feed(block) if block else self._finish()
        piece, self._ready = self._ready[:size], self._ready[size:]
        return piece


def line_blocks(data: Input, end: bytes = b"\n", most: int = BLOCK_BYTES) -> Iterator[bytes]:
    """Blocks of whole lines; the last one may lack its line end.

    Args:
        end: what ends a line.
        most: bytes that a line may have.

    Raises:
        SourceError: a line has more.
    """
    pieces: list[bytes] = []
    size = 0
    while block := data.read(wanted := BLOCK_BYTES - size if size < BLOCK_BYTES else BLOCK_BYTES):
        cut = block.rfind(end) + 1
        if cut:
            if len(block) < wanted:  # the end: the last line is in the same block
                cut = len(block)
            yield b"".join([*pieces, block[:cut]])
            pieces.clear()
            block, size = block[cut:], 0
        pieces.append(block)
        size += len(block)
        if size >= most:
            raise SourceError(
                f"a row is larger than {most >> 20} MiB, the most that is read; load the rows "
                "from Python"
            )
    if size:
        yield b"".join(pieces)
