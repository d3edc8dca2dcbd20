"""What all readers of JSON lines share: a block becomes a batch, and bad lines are found."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

import pyarrow as pa
from pyarrow import json

from ...outcome.errors import SourceError
from ...outcome.messages import Message, message_of
from .reading import BLOCK_BYTES, Reading

__all__ = [
    "DOCUMENT",
    "MOST_DEPTH",
    "ONE_OBJECT",
    "SHOWN",
    "UNIQUE",
    "Fault",
    "Parsed",
    "Rows",
    "documents",
    "next_block",
    "options_of",
    "parsed",
    "read_marked",
    "tried",
]

# As in DuckDB and RedisJSON. Arrow's parser overflows its stack somewhere below 20,000.
MOST_DEPTH = 128
# The column with the whole rows, used only by {*!json}.
DOCUMENT = pa.field("document", pa.binary(), metadata={"ARROW:extension:name": "fastresp.document"})
BLANKS = b" \t\r"
SHOWN = (
    f"outside of a plain load, columns and types are taken from the first {BLOCK_BYTES >> 20} MiB; "
    "let DuckDB read all rows first, with sql=\"FROM read_json('FILE', sample_size=-1)\", or write "
    "all values of a column with one type"
)
ONE_OBJECT = "fix it: each line must be one JSON object"
UNIQUE = "fix it: the keys of an object must be unique"
PARSE_ERROR = re.compile(r"(?:JSON parse error: )?(.*?)(?: in row \d+)?", re.DOTALL)

Result = TypeVar("Result")


class Parsed(NamedTuple):
    """Rows that can be read: their number, and their batches, which are made when they are used."""

    rows: int
    batches: Iterator[pa.RecordBatch]


class Rows(ABC):
    """Turn blocks of lines into batches of columns.

    Args:
        reading: how to read them.

    Attributes:
        schema: the columns of all batches; None if each has its own.
    """

    schema: pa.Schema | None = None

    def __init__(self, reading: Reading) -> None:
        self._bad = reading.bad
        self._has_lines = reading.has_lines
        self._line_ends = 0  # in the last block

    @abstractmethod
    def _parsed(self, block: bytes) -> Parsed | None:
        """Parse whole lines; None if all are empty.

        Raises:
            SourceError: a line can't be read.
        """

    def batches(self, blocks: Iterator[bytes]) -> Iterator[pa.RecordBatch]:
        """Yield the batches of the blocks."""
        rows = lines = 0
        while (block := next_block(blocks, rows)) is not None:
            results = list(tried(block, self._parsed))
            # If a row of a block is an error, no row of it is loaded.
            before = rows
            for found in results if not self._bad.skip else ():
                if isinstance(found, Fault):
                    raise found.error(before, lines if self._has_lines else None)
                before += 0 if found is None else found.rows
            for found in results:
                if isinstance(found, Fault):
                    self._bad.add(found.text, rows)
                elif found is not None:
                    rows += found.rows
                    yield from found.batches
            lines += self._line_ends if len(results) == 1 else block.count(b"\n")


def next_block(blocks: Iterator[bytes], rows: int) -> bytes | None:
    """Return the next block, after these rows; None at the end.

    Raises:
        SourceError: it can't be read.
    """
    try:
        return next(blocks, None)
    except SourceError as error:
        raise SourceError(Message(f"from row {rows:,} on: ", message_of(error))) from error


def read_marked(marked: Any, options: json.ParseOptions | None = None) -> pa.Table:
    """Parse lines with Arrow.

    Raises:
        SourceError: Arrow can't parse them.
    """
    whole = json.ReadOptions(block_size=len(marked) + 1, use_threads=False)
    try:
        return json.read_json(pa.BufferReader(pa.py_buffer(marked)), whole, options)
    except pa.ArrowException as error:
        found = PARSE_ERROR.fullmatch(str(error))
        words = (found[1] if found else str(error)).rstrip(".")
        advice = ONE_OBJECT
        if "was specified twice" in words:
            advice = UNIQUE
        elif words.startswith(("Column(/", "unexpected field")):
            advice = SHOWN
        raise SourceError(f"{words}; {advice}") from error


def options_of(schema: pa.Schema, other: str) -> json.ParseOptions:
    """Return Arrow's options to read these columns; ``other``: what to do with others."""
    return json.ParseOptions(explicit_schema=schema, unexpected_field_behavior=other)


def parsed(kind: pa.DataType) -> pa.DataType:
    """Return the type to parse a column as: text, unless JSON shows another type.

    A field that was always null is probably a string elsewhere.
    """
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(field.name, parsed(field.type)) for field in kind])
    if pa.types.is_list(kind):
        return pa.list_(parsed(kind.value_type))
    return kind if pa.types.is_boolean(kind) else pa.string()


def documents(block: bytes) -> pa.Array:
    """Return the lines that are not empty."""
    lines = (line.strip(BLANKS) for line in block.split(b"\n"))
    return pa.array([line for line in lines if line], pa.binary())


# Which lines are bad.


@dataclass
class Fault:
    """A line that can't be read."""

    line: int
    text: bytes
    words: str

    def error(self, rows: int, lines: int | None) -> SourceError:
        """Return the error for this line, after ``rows`` rows and ``lines`` lines if it has any."""
        line = None if lines is None else lines + self.line + 1
        where = f"row {rows:,}" if line is None else f"row {rows:,}, line {line:,}"
        return SourceError(Message(where, ": ", self.words), row_in_file=rows, line=line)


def tried(
    block: bytes, attempt: Callable[[bytes], Result], line: int = 0
) -> Iterator[Result | Fault]:
    """Yield the result for a block; if it fails, halve it until each bad line is alone."""
    try:
        yield attempt(block)
    except SourceError as error:
        middle = block.rfind(b"\n", 0, len(block) // 2) + 1 or block.find(b"\n") + 1
        if 0 < middle < len(block):
            yield from tried(block[:middle], attempt, line)
            line += block.count(b"\n", 0, middle)
            yield from tried(block[middle:], attempt, line)
        else:
            yield Fault(line, block, message_of(error))
