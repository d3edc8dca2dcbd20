"""Turn blocks of JSON lines into batches, and find bad lines; shared by all readers of JSON."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

import pyarrow as pa
from pyarrow import json

from ...outcome.errors import SourceError
from ...outcome.messages import Hint, Message, message_of
from .json_split import Split, columns_of
from .json_text import WRONG_ENCODING, mark_numbers
from .reading import BLOCK_BYTES, Reading

__all__ = [
    "DOCUMENT", "MAX_DEPTH", "OBJECT_ADVICE", "TYPES_ADVICE", "KINDS_ADVICE", "BadLine",
    "ParsedRows", "Rows", "next_block", "parse_type", "parse_marked",
    "rebuilt", "split_rows", "strings_of", "parse_in_halves",
]  # fmt: skip

# Maximum nesting, as in DuckDB and RedisJSON. Arrow's parser overflows its stack at a depth of less
# than 20,000.
MAX_DEPTH = 128
# The column with the whole rows, used only by {*!json}.
DOCUMENT = pa.field("document", pa.binary(), metadata={"ARROW:extension:name": "fastresp.document"})
TYPES_ADVICE = Message(
    f"columns and types are taken from the first {BLOCK_BYTES >> 20} MiB, but a load without ",
    Hint("sort_by"), " and ", Hint("sql"), " lets each row have its own keys, and each value its "
    "own type and text: load the file that way, or write all values of a column with one type",
)  # fmt: skip
KINDS_ADVICE = (
    "where the template reads fields or items of a value, all items of a list must have one kind: "
    "write {name!json} for the whole value as JSON, or correct the row"
)
OBJECT_ADVICE = "fix it: each line must be one JSON object"
KEYS_ADVICE = "fix it: the keys of an object must be unique"
PARSE_ERROR = re.compile(r"(?:JSON parse error: )?(.*?)(?: in row \d+)?", re.DOTALL)

Result = TypeVar("Result")


class ParsedRows(NamedTuple):
    """Rows that can be read: their number, and their batches, which are made lazily."""

    rows: int
    batches: Iterator[pa.RecordBatch]


class Rows(ABC):
    """Turns blocks of lines into batches of columns.

    Attributes:
        schema: the columns of all batches; None if each batch has its own columns.
    """

    schema: pa.Schema | None = None

    def __init__(self, reading: Reading) -> None:
        self._bad = reading.bad
        self._has_lines = reading.has_lines
        self._line_ends = 0  # in the last block

    @abstractmethod
    def _parsed(self, block: bytes) -> ParsedRows | None:
        """Parse whole lines; return None if all lines are empty."""

    def batches(self, blocks: Iterator[bytes]) -> Iterator[pa.RecordBatch]:
        rows = lines = 0
        while (block := next_block(blocks, rows)) is not None:
            results = self._results(block, rows, lines)
            for found in results:
                if found is not None:
                    rows += found.rows
                    yield from found.batches
            lines += self._line_ends if len(results) == 1 else block.count(b"\n")

    def _results(self, block: bytes, rows: int, lines: int) -> list[ParsedRows | None]:
        """Parse a block, in parts if a line can't be read.

        Args:
            rows, lines: the number of rows, and of lines, before the block.
        """
        results: list[ParsedRows | None] = []
        parts: list[bytes] = []
        skipped = False
        for found in parse_in_halves(block, lambda part: (part, self._parsed(part))):
            if isinstance(found, BadLine):
                if not self._bad.skip:
                    raise found.error(rows, lines if self._has_lines else None)
                self._bad.add(found.text, rows)
                skipped = True
                continue
            part, result = found
            rows += 0 if result is None else result.rows
            if self._bad.skip:
                parts.append(part)
            if not skipped:
                results.append(result)
        if not skipped:
            return results
        # Parse the good lines again as one block: a batch for each row between two bad rows would
        # take 10 times as long.
        again = parse_in_halves(b"".join(parts), self._parsed)
        return [found for found in again if not isinstance(found, BadLine)]


def next_block(blocks: Iterator[bytes], rows: int) -> bytes | None:
    """Return the next block; None at the end. Errors name its first row, ``rows``."""
    try:
        return next(blocks, None)
    except SourceError as error:
        raise SourceError(Message(f"from row {rows:,} on: ", message_of(error))) from error


def parse_marked(
    marked: Any, schema: pa.Schema | None = None, other: str = "infer", advice: str = TYPES_ADVICE
) -> pa.Table:
    """Parse lines from ``mark_numbers()`` with Arrow.

    Args:
        schema: the columns to read.
        other: how to handle other columns: ``"error"``, ``"ignore"`` or ``"infer"``.
        advice: what the error advises if a column has values of several types.
    """
    options = json.ParseOptions(explicit_schema=schema, unexpected_field_behavior=other)
    whole = json.ReadOptions(block_size=len(marked) + 1, use_threads=False)
    try:
        return json.read_json(pa.BufferReader(pa.py_buffer(marked)), whole, options)
    except pa.ArrowException as error:
        found = PARSE_ERROR.fullmatch(str(error))
        message = (found[1] if found else str(error)).rstrip(".")
        if "was specified twice" in message:
            advice = KEYS_ADVICE
        elif not message.startswith(("Column(/", "unexpected field")):
            advice = OBJECT_ADVICE
        raise SourceError(Message(f"{message}; ", advice)) from error


def parse_type(kind: pa.DataType) -> pa.DataType:
    """Return the type for parsing a column: text, unless the column has booleans or is nested.

    A column with only nulls is parsed as text: later values are probably strings.
    """
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(field.name, parse_type(field.type)) for field in kind])
    if pa.types.is_list(kind):
        return pa.list_(parse_type(kind.value_type))
    return kind if pa.types.is_boolean(kind) else pa.string()


def rebuilt(array: pa.Array, kind: pa.DataType, *children: pa.Array) -> pa.Array:
    """Return a struct or list array with other children, and the same nulls and offsets."""
    own = array.buffers()[: 1 if pa.types.is_struct(kind) else 2]
    return pa.Array.from_buffers(kind, len(array), own, children=list(children))


# Rows as values.


def split_rows(block: bytes, known: list[str], *, explain: bool = True, **options: Any) -> Split:
    """Split rows into values; ``options`` are arguments of ``Split``.

    Args:
        explain: whether to find the reason for an error, by parsing all rows with Arrow.
    """
    split = Split(block, MAX_DEPTH, known, **options)
    if split.fault is None:
        return split
    if split.duplicate_key is not None:
        raise SourceError(f"the key {split.duplicate_key!r} is duplicated in an object; remove one")
    if explain and not split.fault:
        marked = mark_numbers(block, MAX_DEPTH)[0]
        parse_marked(marked, pa.schema([]), "ignore")  # raises its own error
    raise SourceError(split.fault or f"not valid JSON; {OBJECT_ADVICE}")


def strings_of(split: Split, first: int, last: int, columns: list[int]) -> Iterator[pa.Array]:
    """Yield columns of strings for some rows; column 0 has the whole rows."""
    rows = last - first
    memory, positions = columns_of(split, first, last, columns)
    buffer = pa.py_buffer(memory)
    for column, (nulls, bits, offsets, text, end) in zip(columns, positions, strict=True):
        validity = buffer.slice(bits, offsets - bits) if nulls else None
        kind = pa.binary() if column == 0 else pa.string()
        buffers = [validity, buffer.slice(offsets, text - offsets), buffer.slice(text, end - text)]
        yield pa.Array.from_buffers(kind, rows, buffers, nulls)


# Finding bad lines.


@dataclass
class BadLine:
    """A line that can't be read: its index in its block, its text, and the reason."""

    line: int
    text: bytes
    reason: SourceError

    def error(self, rows: int, lines: int | None) -> SourceError:
        """Return the error.

        Args:
            rows: number of rows before the line.
            lines: number of lines before the block; None if the error has no line number.
        """
        line = None if lines is None else lines + self.line + 1
        where = f"row {rows:,}" if line is None else f"row {rows:,}, line {line:,}"
        return SourceError(
            Message(where, ": ", message_of(self.reason)), row_in_file=rows, line=line
        )


def parse_in_halves(block: bytes, attempt: Callable[[bytes], Result]) -> Iterator[Result | BadLine]:
    """Yield the result of ``attempt`` for a block.

    If the attempt fails, the block is halved repeatedly: yield a result for each part without bad
    lines, and a BadLine for each bad line.
    """
    line, parts = 0, [block]
    while parts:
        part = parts.pop()
        try:
            found: Result | BadLine = attempt(part)
        except (SourceError, UnicodeDecodeError) as error:
            middle = part.rfind(b"\n", 0, len(part) // 2) + 1 or part.find(b"\n") + 1
            if 0 < middle < len(part):
                parts += [part[middle:], part[:middle]]
                continue
            if isinstance(error, UnicodeDecodeError):  # in a key
                error = SourceError(WRONG_ENCODING)
            found = BadLine(line, part, error.with_traceback(None))
        yield found
        line += part.count(b"\n") if parts else 0
