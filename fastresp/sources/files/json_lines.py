"""Read JSON lines as columns, with numbers that keep their text; a JSON array becomes lines."""

from __future__ import annotations

import codecs
import math
import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain
from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import json

from ...outcome.errors import SourceError
from ...outcome.messages import Message, message_of
from .input import Input
from .json_text import ArrayLines, mark_numbers, unmark
from .reading import (
    BLOCK_BYTES,
    NUMBER,
    Batches,
    Converted,
    Reading,
    Wanted,
    line_blocks,
)

__all__ = ["open_json"]

# As in DuckDB and RedisJSON. Arrow's parser overflows its stack somewhere below 20,000.
MOST_DEPTH = 128
# The column with the whole rows, used only by {*!json}.
DOCUMENT = pa.field("document", pa.binary(), metadata={"ARROW:extension:name": "fastresp.document"})
BLANKS = b" \t\r"
EXACT_INTEGERS = 2**53
LARGE_INTEGERS = pa.decimal128(38, 0)
# Arrow's cast turns integers with more digits into other numbers, without an error.
FITS_LARGE = "^-?[0-9]{1,38}$"
SHOWN_DIGITS = 40
SHOWN = (
    f"columns and types are taken from the first {BLOCK_BYTES >> 20} MiB; move a row with this "
    "column or type to the beginning, or write all values of a column with one type"
)
MIXED = "write its numbers as strings, or load the rows from Python, for example with json.loads"
PARSE_ERROR = re.compile(r"(?:JSON parse error: )?(.*?)(?: in row \d+)?", re.DOTALL)

Result = TypeVar("Result")


def open_json(data: Input, reading: Reading, schema: pa.Schema | None) -> Batches:
    """Open JSON lines, or one JSON array.

    Args:
        data: the file.
        reading: how to read it.
        schema: the columns of the files before it; None for the first one.

    Raises:
        SourceError: the first block can't be read.
    """
    head = data.read(BLOCK_BYTES).removeprefix(codecs.BOM_UTF8)
    data.put_back(head)
    if head.lstrip()[:1] == b"[":
        array = ArrayLines()

        def finish() -> bytes:
            array.finish()
            return b""

        data = Input(Converted(data, array.feed, finish), data.stopped)
    blocks = line_blocks(data)
    first = _next(blocks, 0) or b""
    if schema is None:
        schema = _columns(first, reading)
    return Batches(schema, _Rows(schema, reading).batches(chain([first], blocks)))


class _Rows:
    """Turn blocks of lines into batches of columns.

    Args:
        schema: the columns.
        reading: how to read them.
    """

    def __init__(self, schema: pa.Schema, reading: Reading) -> None:
        self._schema = schema
        self._bad = reading.bad
        self._line_ends = 0  # in the last block
        self._document = DOCUMENT.name in schema.names and schema.field(-1).metadata is not None
        self._fields = list(schema)[:-1] if self._document else list(schema)
        parsed = pa.schema([pa.field(each.name, _parsed(each.type)) for each in self._fields])
        self._options = _options(parsed, ignore=_only(schema, reading.wanted))

    def batches(self, blocks: Iterator[bytes]) -> Iterator[pa.RecordBatch]:
        """Yield the batches of the blocks."""
        rows = lines = 0
        while (block := _next(blocks, rows)) is not None:
            results = list(_tried(block, self._batch))
            # If a row of a block is an error, no row of it is loaded.
            before = rows
            for found in results if not self._bad.skip else ():
                if isinstance(found, _Fault):
                    raise found.error(before, lines)
                before += 0 if found is None else found.num_rows
            for found in results:
                if isinstance(found, _Fault):
                    self._bad.add(found.text)
                elif found is not None:
                    rows += found.num_rows
                    yield found
            lines += self._line_ends if len(results) == 1 else block.count(b"\n")

    def _batch(self, block: bytes) -> pa.RecordBatch | None:
        """Parse whole lines as a batch; None if all are empty."""
        marked, objects, self._line_ends = mark_numbers(block, MOST_DEPTH)
        if not objects:
            return None
        table = _read(marked, self._options)
        if len(self._fields) and table.num_rows != objects:
            raise SourceError("each line must be one JSON object; fix it")
        arrays = [
            _converted(column.chunk(0), field, field.name)
            for column, field in zip(table.columns, self._fields, strict=True)
        ]
        if self._document:
            lines = (line.strip(BLANKS) for line in block.split(b"\n"))
            arrays.append(pa.array([line for line in lines if line], pa.binary()))
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)


def _next(blocks: Iterator[bytes], rows: int) -> bytes | None:
    try:
        return next(blocks, None)
    except SourceError as error:
        raise SourceError(Message(f"from row {rows:,} on: ", message_of(error))) from error


def _read(marked: Any, options: json.ParseOptions | None = None) -> pa.Table:
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
        advice = "fix it: each line must be one JSON object"
        if "was specified twice" in words:
            advice = "fix it: the keys of an object must be unique"
        elif words.startswith(("Column(/", "unexpected field")):
            advice = SHOWN
        raise SourceError(f"{words}; {advice}") from error


# Which lines are bad.


@dataclass
class _Fault:
    """A line that can't be read."""

    line: int
    text: bytes
    words: str

    def error(self, rows: int, lines: int) -> SourceError:
        """Return the error for this line, after ``rows`` rows and ``lines`` lines."""
        where = f"row {rows:,} (line {lines + self.line + 1:,}): "
        return SourceError(Message(where, self.words))


def _tried(
    block: bytes, attempt: Callable[[bytes], Result], line: int = 0
) -> Iterator[Result | _Fault]:
    """Yield the result for a block; if it fails, halve it until each bad line is alone."""
    try:
        yield attempt(block)
    except SourceError as error:
        middle = block.rfind(b"\n", 0, len(block) // 2) + 1 or block.find(b"\n") + 1
        if 0 < middle < len(block):
            yield from _tried(block[:middle], attempt, line)
            line += block.count(b"\n", 0, middle)
            yield from _tried(block[middle:], attempt, line)
        else:
            yield _Fault(line, block, message_of(error))


# What the columns are.


def _columns(block: bytes, reading: Reading) -> pa.Schema:
    """Return the columns of the first lines that are wanted."""
    table = _sample(block, reading)
    if table is None:
        return pa.schema([])
    wanted = reading.wanted
    fields = [
        _field(name, table[name].chunk(0), wanted is not None and name not in wanted.vectors)
        for name in table.column_names
    ]
    if wanted is None:
        return pa.schema(fields)
    chosen = [field for field in fields if wanted.columns and field.name in wanted.columns]
    if _only(pa.schema(chosen), wanted):
        fields = chosen
    return pa.schema([*fields, DOCUMENT] if wanted.document else fields)


def _sample(block: bytes, reading: Reading) -> pa.Table | None:
    """Return the first rows, with numbers marked; None if there are none.

    Raises:
        SourceError: none of them can be read.
    """
    wanted = reading.wanted
    found = list(_tried(block, _parsed_schema))
    if len(found) > 1 and wanted is not None and wanted.columns is not None:
        # Values of other columns need not have one type.
        text = pa.schema([(name, pa.string()) for name in sorted(wanted.columns)])
        with suppress(SourceError):
            table = _read(_marked(block), _options(text, ignore=True))
            shown = [name for name in text.names if table[name].null_count < len(table)]
            return table.select(shown)
    parsed = pa.schema([])
    for schema in found:
        if isinstance(schema, pa.Schema):
            with suppress(pa.ArrowException):  # these rows are the bad ones
                parsed = pa.unify_schemas([parsed, schema], promote_options="permissive")
    read = _tried(block, lambda lines: _read(_marked(lines), _options(parsed)))
    tables = [table for table in read if isinstance(table, pa.Table)]
    fault = next((each for each in found if isinstance(each, _Fault)), None)
    if fault is not None and not tables and not reading.bad.skip:
        raise fault.error(0, 0)
    return pa.concat_tables(tables).combine_chunks() if tables else None


def _options(schema: pa.Schema, *, ignore: bool = False) -> json.ParseOptions:
    """Return Arrow's options to read these columns; others are ignored, or an error."""
    other = "ignore" if ignore else "error"
    return json.ParseOptions(explicit_schema=schema, unexpected_field_behavior=other)


def _marked(lines: bytes) -> memoryview:
    return mark_numbers(lines, MOST_DEPTH)[0]


def _parsed_schema(lines: bytes) -> pa.Schema:
    """Return the columns that Arrow finds, with types that keep numbers and times as text."""
    if not lines.strip():
        return pa.schema([])
    found = _read(_marked(lines)).schema
    return pa.schema([pa.field(each.name, _parsed(each.type)) for each in found])


def _parsed(kind: pa.DataType) -> pa.DataType:
    """Return the type to parse a column as: text, unless JSON shows another type.

    A field that was always null is probably a string elsewhere.
    """
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(field.name, _parsed(field.type)) for field in kind])
    if pa.types.is_list(kind):
        return pa.list_(_parsed(kind.value_type))
    return kind if pa.types.is_boolean(kind) else pa.string()


def _only(schema: pa.Schema, wanted: Wanted | None) -> bool:
    """Return whether exactly these columns are wanted, so that others can be ignored.

    False if a column has objects, since all of their fields must be read.
    """
    fields = [field for field in schema if not field.equals(DOCUMENT)]
    return (
        wanted is not None
        and wanted.columns == frozenset(field.name for field in fields)
        and not any("struct" in str(field.type) for field in fields)
    )


def _field(name: str, array: pa.Array, exact: bool) -> pa.Field:
    """Return a column's field from its first values: numbers as text if ``exact``, else typed."""
    kind = array.type
    if pa.types.is_struct(kind):
        fields = [_field(each.name, array.field(at), exact) for at, each in enumerate(kind)]
        return pa.field(name, pa.struct(fields))
    if pa.types.is_list(kind):
        return pa.field(name, pa.list_(_field("item", array.values, exact)))
    if not pa.types.is_string(kind):
        return pa.field(name, kind)
    marked, text = _unmarked(array)
    if not marked:
        return pa.field(name, kind)
    if marked < len(array) - array.null_count:
        # Numbers and strings are mixed: the first value decides which the column has to be.
        first = array.drop_null().slice(0, 1)
        if not _unmarked(pa.concat_arrays([first]))[0]:
            return pa.field(name, kind)
    return pa.field(name, kind, metadata=NUMBER) if exact else pa.field(name, _type(text))


def _type(numbers: pa.StringArray) -> pa.DataType:
    """Return the type for numbers that need not keep their text."""
    if pc.any(pc.match_substring_regex(numbers, "[.eEIN]")).as_py():
        return pa.float64()
    with suppress(pa.ArrowException):
        numbers.cast(pa.int64())
        return pa.int64()
    return LARGE_INTEGERS


# The values of the columns.


def _converted(array: pa.Array, field: pa.Field, path: str) -> pa.Array:
    """Convert the numbers of a column, as parsed by Arrow, to the field's type.

    Raises:
        SourceError: it has both numbers and strings, or a number that its type can't hold.
    """
    kind = field.type
    if pa.types.is_struct(kind):
        fields = [
            _converted(array.field(at), each, f"{path}/{each.name}") for at, each in enumerate(kind)
        ]
        return pa.Array.from_buffers(kind, len(array), array.buffers()[:1], children=fields)
    if pa.types.is_list(kind):
        values = _converted(array.values, kind.value_field, f"{path}/[]")
        return pa.Array.from_buffers(kind, len(array), array.buffers()[:2], children=[values])
    if pa.types.is_boolean(kind):
        return array
    marked, text = _unmarked(array)
    numbers = field.metadata == NUMBER or not pa.types.is_string(kind)
    if marked != (len(array) - array.null_count if numbers else 0):
        types = ("number", "string") if numbers else ("string", "number")
        raise SourceError(f"Column(/{path}) changed from {types[0]} to {types[1]}; {MIXED}")
    return text if pa.types.is_string(kind) else _typed(text, kind, path)


def _unmarked(array: pa.StringArray) -> tuple[int, pa.StringArray]:
    """Return how many values are numbers, and the array with their text."""
    validity, offsets, data = array.buffers()
    if not len(array) or data is None:
        return 0, array
    places = memoryview(offsets)[: 4 * (len(array) + 1)].cast("i")
    marked, ends, text = unmark(places, memoryview(data).cast("B"))
    if not marked:
        return 0, array
    buffers = [validity, pa.py_buffer(ends), pa.py_buffer(text)]
    return marked, pa.StringArray.from_buffers(len(array), buffers[1], buffers[2], validity)


def _typed(numbers: pa.StringArray, kind: pa.DataType, path: str) -> pa.Array:
    """Cast numbers from text to a type.

    Raises:
        SourceError: the type can't hold one of them.
    """
    if kind == LARGE_INTEGERS:
        unfit = numbers.filter(pc.invert(pc.match_substring_regex(numbers, FITS_LARGE)))
        for number in unfit.drop_null().to_pylist():
            raise SourceError(
                f"Column(/{path}) has integers of up to 38 digits, and {_shown(number)} is not "
                "one; write it as a string"
            )
    try:
        typed = numbers.cast(kind)
    except pa.ArrowException as error:
        words = str(error).partition("\n")[0]
        raise SourceError(f"Column(/{path}): {words}; {SHOWN}") from error
    if pa.types.is_float64(kind):
        large = pc.greater_equal(pc.abs(typed), EXACT_INTEGERS)
        for number in numbers.filter(large).to_pylist():
            _check_float(number, path)
    return typed


def _check_float(number: str, path: str) -> None:
    """Refuse a number that would become infinite as a float, or an integer that would change.

    Raises:
        SourceError: it would.
    """
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
