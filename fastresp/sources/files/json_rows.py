"""Turn blocks of JSON lines into batches, find bad lines, and read columns of one type each.

For typed columns, numbers are parsed as marked strings, which begin with MARK (see json_text.pyx),
to keep their text.
"""

from __future__ import annotations

import math
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import json

from ...outcome.errors import SourceError
from ...outcome.messages import Hint, Message, message_of
from .json_split import Split, columns_of
from .json_text import WRONG_ENCODING, mark_numbers, unmark
from .reading import BLOCK_BYTES, NUMBER, ColumnRequest, Reading

__all__ = [
    "DOCUMENT", "KINDS_ADVICE", "MAX_DEPTH", "ParsedRows", "Rows", "TypedRows", "convert_numbers",
    "infer_field", "next_block", "parse_marked", "parse_type", "rebuilt", "split_rows",
    "strings_of",
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
EXACT_INTEGERS = 2**53
LARGE_INTEGERS = pa.decimal128(38, 0)
# Arrow's cast turns integers with more digits into other numbers, without an error.
FITS_LARGE = "^-?[0-9]{1,38}$"
SHOWN_DIGITS = 40

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
        parse_marked(_marked(block), pa.schema([]), "ignore")  # raises its own error
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


# Columns with one type from the first row to the last.


class TypedRows(Rows):
    """Turns blocks of lines into batches of columns with the types of the first block."""

    def __init__(self, schema: pa.Schema | None, first: bytes, reading: Reading) -> None:
        super().__init__(reading)
        self.schema = schema = _columns(first, reading) if schema is None else schema
        self._document = DOCUMENT.name in schema.names and schema.field(-1).metadata is not None
        self._fields = list(schema)[:-1] if self._document else list(schema)
        self._kinds = pa.schema([(each.name, parse_type(each.type)) for each in self._fields])
        self._other = "ignore" if _only(schema, reading.request) else "error"

    def _parsed(self, block: bytes) -> ParsedRows | None:
        """Parse whole lines as one batch; return None if all lines are empty."""
        marked, objects, self._line_ends = mark_numbers(block, MAX_DEPTH)
        if not objects:
            return None
        table = parse_marked(marked, self._kinds, self._other)
        if len(self._fields) and table.num_rows != objects:
            raise SourceError("each line must be one JSON object; fix it")
        arrays = [
            convert_numbers(column.chunk(0), field, field.name)
            for column, field in zip(table.columns, self._fields, strict=True)
        ]
        if self._document:
            split = split_rows(block, [], known_only=True, documents=True)
            arrays += strings_of(split, 0, split.rows, [0])
        return ParsedRows(objects, iter([pa.RecordBatch.from_arrays(arrays, schema=self.schema)]))


# Types of the columns.


def _columns(block: bytes, reading: Reading) -> pa.Schema:
    """Return the wanted columns of the first lines."""
    table = _sample(block, reading)
    if table is None:
        return pa.schema([])
    request = reading.request
    fields = [
        infer_field(name, table[name].chunk(0), request is not None and name not in request.vectors)
        for name in table.column_names
    ]
    if request is None:
        return pa.schema(fields)
    chosen = [field for field in fields if request.columns and field.name in request.columns]
    if _only(pa.schema(chosen), request):
        fields = chosen
    return pa.schema([*fields, DOCUMENT] if request.document else fields)


def _sample(block: bytes, reading: Reading) -> pa.Table | None:
    """Return the first rows, with marked numbers; None if there are no rows."""
    request = reading.request
    found = list(parse_in_halves(block, _parsed_schema))
    if len(found) > 1 and request is not None and request.columns is not None:
        # The values of an unwanted column need not have one type.
        text = pa.schema([(name, pa.string()) for name in sorted(request.columns)])
        with suppress(SourceError):
            table = parse_marked(_marked(block), text, "ignore")
            shown = [name for name in text.names if table[name].null_count < len(table)]
            return table.select(shown)
    found_types = pa.schema([])
    for schema in found:
        if isinstance(schema, pa.Schema):
            with suppress(pa.ArrowException):  # an error means that these rows are bad
                found_types = pa.unify_schemas([found_types, schema], promote_options="permissive")
    read = parse_in_halves(block, lambda lines: parse_marked(_marked(lines), found_types, "error"))
    tables = [table for table in read if isinstance(table, pa.Table)]
    fault = next((each for each in found if isinstance(each, BadLine)), None)
    if fault is not None and not tables and not reading.bad.skip:
        raise fault.error(0, 0)
    return pa.concat_tables(tables).combine_chunks() if tables else None


def _marked(lines: bytes) -> memoryview:
    return mark_numbers(lines, MAX_DEPTH)[0]


def _parsed_schema(lines: bytes) -> pa.Schema:
    """Return the columns found by Arrow, with types that keep numbers and times as text."""
    if not lines.strip():
        return pa.schema([])
    found = parse_marked(_marked(lines)).schema
    return pa.schema([pa.field(each.name, parse_type(each.type)) for each in found])


def _only(schema: pa.Schema, request: ColumnRequest | None) -> bool:
    """Return whether a load wants exactly a schema's columns; if so, ignore all other columns.

    Return False if a column has objects, because all of their fields must be read.
    """
    fields = [field for field in schema if not field.equals(DOCUMENT)]
    return (
        request is not None
        and request.columns == frozenset(field.name for field in fields)
        and not any("struct" in str(field.type) for field in fields)
    )


def infer_field(name: str, array: pa.Array, exact: bool) -> pa.Field:
    """Return a column's name and type, from its first values; ``exact`` keeps numbers as text."""
    kind = array.type
    if pa.types.is_struct(kind):
        fields = [infer_field(each.name, array.field(at), exact) for at, each in enumerate(kind)]
        return pa.field(name, pa.struct(fields))
    if pa.types.is_list(kind):
        return pa.field(name, pa.list_(infer_field("item", array.values, exact)))
    if not pa.types.is_string(kind):
        return pa.field(name, kind)
    marked, text = _unmarked(array)
    if not marked:
        return pa.field(name, kind)
    # If numbers and strings are mixed, the first value decides the type of the column.
    if not _unmarked(pa.concat_arrays([array.drop_null().slice(0, 1)]))[0]:
        return pa.field(name, kind)
    return pa.field(name, kind, metadata=NUMBER) if exact else pa.field(name, _number_type(text))


def _number_type(numbers: pa.StringArray) -> pa.DataType:
    if pc.any(pc.match_substring_regex(numbers, "[.eEIN]")).as_py():
        return pa.float64()
    with suppress(pa.ArrowException):
        numbers.cast(pa.int64())
        return pa.int64()
    return LARGE_INTEGERS


# The values of the columns.


def convert_numbers(
    array: pa.Array, field: pa.Field, path: str, advice: str = TYPES_ADVICE
) -> pa.Array:
    """Convert the numbers of a column, as parsed by Arrow, to the field's type."""
    kind = field.type
    if pa.types.is_struct(kind):
        fields = [
            convert_numbers(array.field(at), each, f"{path}/{each.name}", advice)
            for at, each in enumerate(kind)
        ]
        return rebuilt(array, kind, *fields)
    if pa.types.is_list(kind):
        values = convert_numbers(array.values, kind.value_field, f"{path}/[]", advice)
        return rebuilt(array, kind, values)
    if pa.types.is_boolean(kind):
        return array
    marked, text = _unmarked(array)
    numbers = field.metadata == NUMBER or not pa.types.is_string(kind)
    if marked != (len(array) - array.null_count if numbers else 0):
        types = ("number", "string") if numbers else ("string", "number")
        message = f"Column(/{path}) changed from {types[0]} to {types[1]}; "
        raise SourceError(Message(message, advice))
    return text if pa.types.is_string(kind) else _cast_numbers(text, kind, path, advice)


def _unmarked(array: pa.StringArray) -> tuple[int, pa.StringArray]:
    """Return (number of strings with MARK, the array without MARK)."""
    validity, offsets, data = array.buffers()
    if not len(array) or data is None:
        return 0, array
    places = memoryview(offsets)[: 4 * (len(array) + 1)].cast("i")
    marked, ends, text = unmark(places, memoryview(data).cast("B"))
    if not marked:
        return 0, array
    buffers = [validity, pa.py_buffer(ends), pa.py_buffer(text)]
    return marked, pa.StringArray.from_buffers(len(array), buffers[1], buffers[2], validity)


def _cast_numbers(numbers: pa.StringArray, kind: pa.DataType, path: str, advice: str) -> pa.Array:
    if kind == LARGE_INTEGERS:
        unfit = numbers.filter(pc.invert(pc.match_substring_regex(numbers, FITS_LARGE)))
        for number in unfit.drop_null().to_pylist():
            raise SourceError(
                f"Column(/{path}) has integers of up to 38 digits, and {_shown(number)} is not "
                "one; write it as a string"
            )
    try:
        values = numbers.cast(kind)
    except pa.ArrowException as error:
        message = str(error).partition("\n")[0]
        raise SourceError(Message(f"Column(/{path}): {message}; ", advice)) from error
    if pa.types.is_float64(kind):
        large = pc.greater_equal(pc.abs(values), EXACT_INTEGERS)
        for number in numbers.filter(large).to_pylist():
            _check_float(number, path)
    return values


def _check_float(number: str, path: str) -> None:
    """Refuse a number that would become infinite as a float, or an integer that would change."""
    if math.isinf(float(number)):
        if "I" not in number:
            raise SourceError(
                f"Column(/{path}) has floats, and {_shown(number)} is too large for a float; "
                "write it as a string"
            )
    elif number.lstrip("-").isdigit() and int(number) != int(float(number)):
        raise SourceError(
            f"Column(/{path}) also has fractions, and a float can't represent {_shown(number)}; "
            "write it as a string"
        )


def _shown(number: str) -> str:
    """Return a number for an error message; only its beginning if it is long."""
    if len(number) <= SHOWN_DIGITS:
        return number
    return f"{number[:SHOWN_DIGITS]}... ({len(number):,} characters)"
