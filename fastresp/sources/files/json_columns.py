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
    SHOWN,
    Fault,
    Parsed,
    Rows,
    options_of,
    parsed,
    read_marked,
    split_rows,
    strings_of,
    tried,
)
from .json_text import mark_numbers, unmark
from .reading import NUMBER, Need, Reading, Wanted

__all__ = [
    "TypedRows",
    "fitted",
    "nested_item",
    "typed",
    "typed_field",
]

EXACT_INTEGERS = 2**53
LARGE_INTEGERS = pa.decimal128(38, 0)
# Arrow's cast turns integers with more digits into other numbers, without an error.
FITS_LARGE = "^-?[0-9]{1,38}$"
SHOWN_DIGITS = 40


class TypedRows(Rows):
    """Turns blocks of lines into batches of columns with the types of the first block.

    Args:
        schema: the columns; None to take them from the first block.
        first: the first block.
        reading: how to read the lines.
    """

    def __init__(self, schema: pa.Schema | None, first: bytes, reading: Reading) -> None:
        super().__init__(reading)
        self.schema = schema = _columns(first, reading) if schema is None else schema
        self._document = DOCUMENT.name in schema.names and schema.field(-1).metadata is not None
        self._fields = list(schema)[:-1] if self._document else list(schema)
        kinds = pa.schema([pa.field(each.name, parsed(each.type)) for each in self._fields])
        self._options = options_of(kinds, "ignore" if _only(schema, reading.wanted) else "error")

    def _parsed(self, block: bytes) -> Parsed | None:
        """Parse whole lines as one batch; return None if all lines are empty."""
        marked, objects, self._line_ends = mark_numbers(block, MAX_DEPTH)
        if not objects:
            return None
        table = read_marked(marked, self._options)
        if len(self._fields) and table.num_rows != objects:
            raise SourceError("each line must be one JSON object; fix it")
        arrays = [
            typed(column.chunk(0), field, field.name)
            for column, field in zip(table.columns, self._fields, strict=True)
        ]
        if self._document:
            split = split_rows(block, [], known_only=True, documents=True)
            arrays += strings_of(split, 0, split.rows, [0])
        return Parsed(objects, iter([pa.RecordBatch.from_arrays(arrays, schema=self.schema)]))


# Types of the columns.


def _columns(block: bytes, reading: Reading) -> pa.Schema:
    """Return the wanted columns of the first lines."""
    table = _sample(block, reading)
    if table is None:
        return pa.schema([])
    wanted = reading.wanted
    fields = [
        typed_field(name, table[name].chunk(0), wanted is not None and name not in wanted.vectors)
        for name in table.column_names
    ]
    if wanted is None:
        return pa.schema(fields)
    chosen = [field for field in fields if wanted.columns and field.name in wanted.columns]
    if _only(pa.schema(chosen), wanted):
        fields = chosen
    return pa.schema([*fields, DOCUMENT] if wanted.document else fields)


def _sample(block: bytes, reading: Reading) -> pa.Table | None:
    """Return the first rows, with marked numbers; None if there are no rows.

    Raises:
        SourceError: no row can be read.
    """
    wanted = reading.wanted
    found = list(tried(block, _parsed_schema))
    if len(found) > 1 and wanted is not None and wanted.columns is not None:
        # The values of an unwanted column need not have one type.
        text = pa.schema([(name, pa.string()) for name in sorted(wanted.columns)])
        with suppress(SourceError):
            table = read_marked(_marked(block), options_of(text, "ignore"))
            shown = [name for name in text.names if table[name].null_count < len(table)]
            return table.select(shown)
    found_types = pa.schema([])
    for schema in found:
        if isinstance(schema, pa.Schema):
            with suppress(pa.ArrowException):  # an error means that these rows are bad
                found_types = pa.unify_schemas([found_types, schema], promote_options="permissive")
    read = tried(block, lambda lines: read_marked(_marked(lines), options_of(found_types, "error")))
    tables = [table for table in read if isinstance(table, pa.Table)]
    fault = next((each for each in found if isinstance(each, Fault)), None)
    if fault is not None and not tables and not reading.bad.skip:
        raise fault.error(0, 0)
    return pa.concat_tables(tables).combine_chunks() if tables else None


def _marked(lines: bytes) -> memoryview:
    return mark_numbers(lines, MAX_DEPTH)[0]


def _parsed_schema(lines: bytes) -> pa.Schema:
    """Return the columns found by Arrow, with types that keep numbers and times as text."""
    if not lines.strip():
        return pa.schema([])
    found = read_marked(_marked(lines)).schema
    return pa.schema([pa.field(each.name, parsed(each.type)) for each in found])


def _only(schema: pa.Schema, wanted: Wanted | None) -> bool:
    """Return whether exactly these columns are wanted, so that all other columns can be ignored.

    False if a column has objects, since all of their fields must be read.
    """
    fields = [field for field in schema if not field.equals(DOCUMENT)]
    return (
        wanted is not None
        and wanted.columns == frozenset(field.name for field in fields)
        and not any("struct" in str(field.type) for field in fields)
    )


def typed_field(name: str, array: pa.Array, exact: bool) -> pa.Field:
    """Return the name and the type of a column, from the column's first values.

    Args:
        name: the name of the column.
        array: the first values.
        exact: whether numbers keep their text.
    """
    kind = array.type
    if pa.types.is_struct(kind):
        fields = [typed_field(each.name, array.field(at), exact) for at, each in enumerate(kind)]
        return pa.field(name, pa.struct(fields))
    if pa.types.is_list(kind):
        return pa.field(name, pa.list_(typed_field("item", array.values, exact)))
    if not pa.types.is_string(kind):
        return pa.field(name, kind)
    marked, text = _unmarked(array)
    if not marked:
        return pa.field(name, kind)
    if marked < len(array) - array.null_count:
        # Numbers and strings are mixed: the first value decides the type of the column.
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


def typed(array: pa.Array, field: pa.Field, path: str, advice: str = SHOWN) -> pa.Array:
    """Convert the numbers of a column, as parsed by Arrow, to the field's type.

    Raises:
        SourceError: the column has both numbers and strings, or a number that the field's type
            can't represent.
    """
    kind = field.type
    if pa.types.is_struct(kind):
        fields = [
            typed(array.field(at), each, f"{path}/{each.name}", advice)
            for at, each in enumerate(kind)
        ]
        return pa.Array.from_buffers(kind, len(array), array.buffers()[:1], children=fields)
    if pa.types.is_list(kind):
        values = typed(array.values, kind.value_field, f"{path}/[]", advice)
        return pa.Array.from_buffers(kind, len(array), array.buffers()[:2], children=[values])
    if pa.types.is_boolean(kind):
        return array
    marked, text = _unmarked(array)
    numbers = field.metadata == NUMBER or not pa.types.is_string(kind)
    if marked != (len(array) - array.null_count if numbers else 0):
        types = ("number", "string") if numbers else ("string", "number")
        words = f"Column(/{path}) changed from {types[0]} to {types[1]}; "
        raise SourceError(Message(words, advice))
    return text if pa.types.is_string(kind) else _typed(text, kind, path, advice)


def _unmarked(array: pa.StringArray) -> tuple[int, pa.StringArray]:
    """Return how many strings were marked (the numbers), and the array without the marks."""
    validity, offsets, data = array.buffers()
    if not len(array) or data is None:
        return 0, array
    places = memoryview(offsets)[: 4 * (len(array) + 1)].cast("i")
    marked, ends, text = unmark(places, memoryview(data).cast("B"))
    if not marked:
        return 0, array
    buffers = [validity, pa.py_buffer(ends), pa.py_buffer(text)]
    return marked, pa.StringArray.from_buffers(len(array), buffers[1], buffers[2], validity)


def _typed(numbers: pa.StringArray, kind: pa.DataType, path: str, advice: str) -> pa.Array:
    """Cast numbers from text to a type.

    Raises:
        SourceError: the type can't represent one of the numbers.
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
        raise SourceError(Message(f"Column(/{path}): {words}; ", advice)) from error
    if pa.types.is_float64(kind):
        large = pc.greater_equal(pc.abs(typed), EXACT_INTEGERS)
        for number in numbers.filter(large).to_pylist():
            _check_float(number, path)
    return typed


def _check_float(number: str, path: str) -> None:
    """Refuse a number that would become infinite as a float, or an integer that would change.

    Raises:
        SourceError: the number would become infinite, or would change.
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


VECTOR = pa.list_(pa.float64())
Objects = Callable[[], pa.Array] | None


def fitted(array: pa.Array, need: Need, objects: Objects) -> pa.Array:
    """Convert the value that a placeholder looks into to a type that fits; return the new column.

    A missing field becomes a field of nulls.

    Args:
        array: a column of a block of rows, as Arrow has parsed it.
        need: the placeholder.
        objects: for ``{*name}``, returns the objects as maps; None to keep structs, since another
            placeholder looks into them.

    Raises:
        SourceError: a value of the block does not fit the placeholder.
    """
    finish = _vectors if need.vector else _items if need.items else _value
    return _within(array, need, 1, lambda found: finish(found, need, objects))


def _within(
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
        raise SourceError(f"{need} needs an object, but {before} is {_kind(array.type)}")
    name = need.path[depth]
    found = fields.get(name, pa.nulls(len(array), pa.string()))
    fields[name] = _within(found, need, depth + 1, finish)
    kind = pa.struct([pa.field(each, child.type) for each, child in fields.items()])
    return pa.Array.from_buffers(kind, len(array), [validity], children=list(fields.values()))


def _value(array: pa.Array, need: Need, objects: Objects) -> pa.Array:
    if pa.types.is_nested(array.type) and not need.convert:
        json = str(need).replace("}", "!json}")
        words = f"{need} needs a single value, but its value is {_kind(array.type)}"
        raise SourceError(f"{words}; write {json} for JSON")
    return array


def _items(array: pa.Array, need: Need, objects: Objects) -> pa.Array:
    kind = array.type
    if pa.types.is_map(kind):
        return array
    if not pa.types.is_nested(kind):
        if array.null_count == len(array):
            return pa.nulls(len(array), pa.list_(pa.string()))
        raise SourceError(f"{need} needs a list or an object, but its value is {_kind(kind)}")
    for inner in (kind.field(index).type for index in range(kind.num_fields)):
        if pa.types.is_nested(inner):
            raise nested_item(need, _kind(inner))
    # A struct would have every field in every row.
    return array if objects is None or not pa.types.is_struct(kind) else objects()


def nested_item(need: Need, kind: str) -> SourceError:
    """Return the error for an item that is an object or a list."""
    return SourceError(f"{need} needs items that are one argument each, but one is {kind}")


def _vectors(array: pa.Array, need: Need, objects: Objects) -> pa.Array:
    kind = array.type
    if array.null_count == len(array):
        return pa.nulls(len(array), VECTOR)
    if not pa.types.is_list(kind):
        raise SourceError(f"{need} needs a list of numbers, but its value is {_kind(kind)}")
    items = array.values
    if pa.types.is_integer(items.type) or pa.types.is_floating(items.type):
        return array
    if items.null_count < len(items) and not pa.types.is_decimal(items.type):
        raise SourceError(f"{need} needs a list of numbers, but an item in it is not a number")
    floats = pa.nulls(len(items), pa.float64())
    if items.null_count < len(items):
        floats = items.cast(pa.float64())
    return pa.Array.from_buffers(VECTOR, len(array), array.buffers()[:2], children=[floats])


def _kind(kind: pa.DataType) -> str:
    """Return the kind of a JSON value with this type, for messages."""
    if pa.types.is_struct(kind):
        return "an object"
    return "a list" if pa.types.is_list(kind) else "a single value"
