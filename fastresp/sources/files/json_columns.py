"""JSON lines as typed columns, which have one type from the first row to the last.

Numbers are parsed as marked strings, which begin with MARK (see json_text.pyx), to keep their text.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import suppress

import pyarrow as pa
import pyarrow.compute as pc

from ...outcome.errors import SourceError
from ...outcome.messages import Message
from .json_rows import (
    DOCUMENT,
    MAX_DEPTH,
    TYPES_ADVICE,
    BadLine,
    ParsedRows,
    Rows,
    parse_in_halves,
    parse_marked,
    parse_type,
    rebuilt,
    split_rows,
    strings_of,
)
from .json_text import MARK, mark_numbers
from .reading import NUMBER, ColumnRequest, Need, Reading

__all__ = ["TypedRows", "fit_to_placeholder", "nested_item_error", "convert_numbers", "infer_field"]

EXACT_INTEGERS = 2**53
LARGE_INTEGERS = pa.decimal128(38, 0)
# Arrow's cast turns integers with more digits into other numbers, without an error.
FITS_LARGE = "^-?[0-9]{1,38}$"
SHOWN_DIGITS = 40


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
    if not _unmarked(array.drop_null().slice(0, 1))[0]:
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
    texts = array.view(pa.binary())
    marked = pc.starts_with(texts, MARK)
    if not marked.true_count:
        return 0, array
    unmarked = pc.if_else(marked, pc.binary_replace_slice(texts, 0, 1, b""), texts)
    return marked.true_count, unmarked.view(pa.string())


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


VECTOR = pa.list_(pa.float64())
Objects = Callable[[], pa.Array] | None


def fit_to_placeholder(array: pa.Array, need: Need, objects: Objects) -> pa.Array:
    """Convert a column's nested value to a type that fits a placeholder; return the new column.

    A missing field becomes a field of nulls.

    Args:
        array: a column of a block of rows, as Arrow has parsed it.
        need: the placeholder.
        objects: for ``{*name}``, returns the objects as maps; None to keep structs, because
            another placeholder reads their fields.

    Raises:
        SourceError: a value of the block does not fit the placeholder.
    """
    finish = _vectors if need.vector else _items if need.items else _single_value
    return _replace_nested(array, need, 1, lambda found: finish(found, need, objects))


def _replace_nested(
    array: pa.Array, need: Need, depth: int, finish: Callable[[pa.Array], pa.Array]
) -> pa.Array:
    if depth == len(need.path):
        return finish(array)
    fields: dict[str, pa.Array] = {}
    validity = array.buffers()[0]
    if pa.types.is_struct(array.type):
        fields = {field.name: array.field(at) for at, field in enumerate(array.type)}
    elif array.null_count == len(array):
        validity = pa.array([False] * len(array)).buffers()[1]
    else:
        before = ".".join(need.path[:depth])
        raise SourceError(f"{need} needs an object, but {before} is {_kind_name(array.type)}")
    name = need.path[depth]
    found = fields.get(name, pa.nulls(len(array), pa.string()))
    fields[name] = _replace_nested(found, need, depth + 1, finish)
    kind = pa.struct([pa.field(each, child.type) for each, child in fields.items()])
    return pa.Array.from_buffers(kind, len(array), [validity], children=list(fields.values()))


def _single_value(array: pa.Array, need: Need, objects: Objects) -> pa.Array:
    if pa.types.is_nested(array.type) and not need.convert:
        json = str(need).replace("}", "!json}")
        message = f"{need} needs a single value, but its value is {_kind_name(array.type)}"
        raise SourceError(f"{message}; write {json} for JSON")
    return array


def _items(array: pa.Array, need: Need, objects: Objects) -> pa.Array:
    kind = array.type
    if pa.types.is_map(kind):
        return array
    if not pa.types.is_nested(kind):
        if array.null_count == len(array):
            return pa.nulls(len(array), pa.list_(pa.string()))
        raise SourceError(f"{need} needs a list or an object, but its value is {_kind_name(kind)}")
    for inner in (kind.field(index).type for index in range(kind.num_fields)):
        if pa.types.is_nested(inner):
            raise nested_item_error(need, _kind_name(inner))
    # A struct would have every field in every row.
    return array if objects is None or not pa.types.is_struct(kind) else objects()


def nested_item_error(need: Need, kind: str) -> SourceError:
    return SourceError(f"{need} needs items that are one argument each, but one is {kind}")


def _vectors(array: pa.Array, need: Need, objects: Objects) -> pa.Array:
    kind = array.type
    if array.null_count == len(array):
        return pa.nulls(len(array), VECTOR)
    if not pa.types.is_list(kind):
        raise SourceError(f"{need} needs a list of numbers, but its value is {_kind_name(kind)}")
    items = array.values
    if pa.types.is_integer(items.type) or pa.types.is_floating(items.type):
        return array
    if items.null_count == len(items):
        return rebuilt(array, VECTOR, pa.nulls(len(items), pa.float64()))
    if not pa.types.is_decimal(items.type):
        raise SourceError(f"{need} needs a list of numbers, but an item in it is not a number")
    return rebuilt(array, VECTOR, items.cast(pa.float64()))


def _kind_name(kind: pa.DataType) -> str:
    if pa.types.is_struct(kind):
        return "an object"
    return "a list" if pa.types.is_list(kind) else "a single value"
