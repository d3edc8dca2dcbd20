"""Read JSON lines, or a JSON array, as columns; in a load, as columns of JSON values.

In a load, a value keeps its own type and text, so keys and types may change from row to row. A
value that is not a JSON string begins with MARK: see json_text.pyx. A column has structs or lists
if the template reads fields of its objects, items of its lists, or vectors.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import lru_cache, partial
from itertools import chain, islice

import pyarrow as pa

from ...outcome.errors import SourceError
from .input import Input
from .json_rows import (
    DOCUMENT,
    KINDS_ADVICE,
    MAX_DEPTH,
    ParsedRows,
    Rows,
    TypedRows,
    convert_numbers,
    infer_field,
    next_block,
    parse_marked,
    parse_type,
    rebuilt,
    split_rows,
    strings_of,
)
from .json_split import Split, fields_of, names_of
from .json_text import ArrayLines, mark_numbers
from .reading import BLOCK_BYTES, Batches, Need, Reading, first_block, line_blocks

__all__ = ["ValueRows", "open_json"]


def open_json(data: Input, reading: Reading, schema: pa.Schema | None) -> Batches:
    """Open JSON lines, or one JSON array; ``schema`` has the columns of earlier files."""
    head = first_block(data)
    reading.has_lines = head.lstrip()[:1] != b"["
    if not reading.has_lines:
        data = data.converted(ArrayLines().feed)
    blocks = line_blocks(data, b"\n", reading.options.max_row_bytes)
    first = next_block(blocks, 0) or b""
    rows: Rows
    if reading.varies and reading.request is not None:
        rows = ValueRows(reading, single_block=len(head) < BLOCK_BYTES)
    else:
        rows = TypedRows(schema, first, reading)
    batches = rows.batches(chain([first], blocks))
    if rows.schema is None:
        begun = next((batch for batch in batches if batch.schema.names), None)
        if begun is None:
            return Batches(pa.schema([]), batches)
        return Batches(begun.schema, chain([begun], batches))
    return Batches(rows.schema, batches)


# The metadata of a column of strings that are JSON values: see encode/columns/text.
VALUE = {b"ARROW:extension:name": b"fastresp.value"}
# The fields of each row: see encode/columns/arrow_types. Names are indexes in a dictionary.
NAME = pa.field("key", pa.dictionary(pa.int32(), pa.string()), nullable=False)
FIELD = pa.field("value", pa.string(), metadata=VALUE)
FIELDS = pa.field(
    "fastresp.fields", pa.map_(NAME, FIELD), metadata={"ARROW:extension:name": "fastresp.fields"}
)
# ``{*name}`` is read as maps if the lines in this many bytes have only objects and nulls.
LOOK_BYTES = 1 << 12
# Maximum rows times columns of a batch, because even a null takes 4 bytes.
MAX_CELLS = 1 << 18
# Maximum number of names that are kept for an error.
MAX_KNOWN = 100
VECTOR = pa.list_(pa.float64())
Objects = Callable[[], pa.Array] | None


class ValueRows(Rows):
    """Turns blocks of lines into batches of JSON values.

    Each name in the template is a column. For {**}, one column contains the fields of each row, so
    that the time for a row depends only on the row's own fields.

    Args:
        reading: how to read the lines.
        single_block: whether the first block is the whole file.
    """

    def __init__(self, reading: Reading, *, single_block: bool) -> None:
        super().__init__(reading)
        assert reading.request is not None
        self._request = request = reading.request
        self._known = reading.known
        self._unseen = reading.unseen
        self._folders = reading.folders
        self._typed = request.vectors | reading.folders
        self._named = request.named - reading.folders
        # A field may have its first value in any row of this file or of a later file.
        self._later = not (single_block and reading.single)
        self._every = False
        self._has_fields = request.pairs
        self._columns = sorted(request.named | request.keys | reading.folders)

    def _parsed(self, block: bytes) -> ParsedRows | None:
        split = self._split(block)
        self._line_ends = split.line_ends
        if not split.rows:
            return None
        self._unseen.difference_update(split.names_in_rows())
        if self._unseen and not self._later and not self._every:
            self._every, self._has_fields = True, False  # so that an error can list all columns
            split = self._split(block)
        names = self._names(split)
        arrays = self._nested(split, names)
        nested = {name: array.type for name, array in arrays.items()}
        for name in names:
            if name in self._typed and name not in arrays:
                number = split.names.index(name) + 1
                arrays[name] = next(strings_of(split, 0, split.rows, [number]))
        for name in sorted(self._named.difference(names)) if self._later else ():
            arrays[name] = pa.nulls(split.rows, pa.string())
            names.append(name)
        ready = {name: self._fit(name, array, split) for name, array in arrays.items()}
        self._known.update(
            (name, kind) for name, kind in nested.items() if not pa.types.is_map(kind)
        )
        # Arrow's batches without columns have no rows. Folders' columns are added later.
        some = names or self._request.document or self._has_fields or self._folders
        return ParsedRows(split.rows if some else 0, self._batches(split, names, ready))

    def _split(self, block: bytes) -> Split:
        every = self._every or len(self._known) < self._request.positions
        return split_rows(
            block,
            list(self._known) if every else self._needed(),
            nested=self._request.structured,
            known_only=not (every or self._request.pairs or self._request.positions),
            all_names=every,
            fields=self._has_fields,
            documents=self._request.document,
            explain=not self._bad.skip,
        )

    def _needed(self) -> list[str]:
        """Return the columns needed by position, followed by those named in the template."""
        first = islice(self._known, self._request.positions)
        return list(dict.fromkeys([*first, *self._columns]))

    def _names(self, split: Split) -> list[str]:
        """Return the columns of the rows so far, and remember them for the next block."""
        first = len(self._known) < self._request.positions
        for name in split.names if self._every or first else split.names_in_rows():
            self._known.setdefault(name, pa.string())
        if self._every:
            return list(split.names)
        names = [name for name in self._needed() if name in self._known]
        if len(self._known) < MAX_KNOWN:
            for name in split.unknown_names(MAX_KNOWN):
                self._known.setdefault(name, pa.string())
        return names

    def _nested(self, split: Split, names: list[str]) -> dict[str, pa.Array]:
        """Return the columns with nested values that the template reads, by name."""
        found = [name for name in names if name in self._request.structured]
        if not found:
            return {}
        maps = {}
        for name, need in self._request.listed.items():
            array = _all_maps(split, need) if name in found else None
            if array is not None:
                maps[name] = array
        found = [name for name in found if name not in maps]
        if not found:
            return maps
        marked, *_ = mark_numbers(split.nested_lines(), MAX_DEPTH, literals=True)
        try:
            table = self._parse_nested(marked, {name: self._known.get(name) for name in found})
        except SourceError:
            table = self._parse_nested(marked, dict.fromkeys(found))
        return maps | {name: table[name].chunk(0) for name in found}

    def _parse_nested(self, marked: memoryview, kinds: dict[str, pa.DataType | None]) -> pa.Table:
        """Parse lines of nested values, with the types known so far."""
        while True:
            known = pa.schema([(name, kind) for name, kind in kinds.items() if kind is not None])
            table = parse_marked(marked, known, advice=KINDS_ADVICE)
            # Arrow parses some strings as times, and loses nulls at the beginning of a list if it
            # infers the list's type. So no inferred type is used.
            found = {each.name: parse_type(each.type) for each in table.schema}
            found.update((name, pa.string()) for name in kinds if name not in found)
            if found == kinds:
                return table
            kinds = found

    def _fit(self, name: str, array: pa.Array, split: Split) -> tuple[pa.Field, pa.Array]:
        """Return a column as a field and an array, with a type that fits its placeholders."""
        if name in self._typed:
            field = infer_field(name, array, False)
            array = convert_numbers(array, field, name, KINDS_ADVICE)
        for need in self._request.needs:
            if need.path[0] == name:
                shared = any(need.is_above(other) for other in self._request.needs)
                objects = None if shared else partial(_objects, split, need)
                array = fit_to_placeholder(array, need, objects)
        if name in self._typed:
            return field.with_type(array.type), array
        return _label_values(name, array)

    def _batches(
        self, split: Split, names: list[str], ready: dict[str, tuple[pa.Field, pa.Array]]
    ) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a block as batches; ``ready`` has the finished columns, by name."""
        number = {name: at for at, name in enumerate(split.names, 1)}
        columns = [number[name] for name in names if name not in ready]
        max_rows = max(1, MAX_CELLS // max(1, len(names)))
        for first in range(0, split.rows, max_rows):
            last = min(first + max_rows, split.rows)
            strings = strings_of(split, first, last, columns + [0] * self._request.document)
            fields, arrays = [], []
            for name in names:
                field, array = ready.get(name) or (_value_field(name), None)
                fields.append(field)
                arrays.append(next(strings) if array is None else array.slice(first, last - first))
            if self._has_fields:
                # Columns of folders are not fields of the row, so they come after FIELDS.
                in_folders = [at for at, name in enumerate(names) if name in self._folders]
                fields.append(FIELDS)
                arrays.append(_fields(split, first, last, [number[names[at]] for at in in_folders]))
                for at in reversed(in_folders):
                    fields.append(fields.pop(at))
                    arrays.append(arrays.pop(at))
            if self._request.document:
                fields.append(DOCUMENT)
                arrays.append(next(strings))
            if not fields and self._folders:
                fields, arrays = [FIELDS], [pa.nulls(last - first, FIELDS.type)]
            yield pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields))


def _fields(split: Split, first: int, last: int, left_out: list[int]) -> pa.Array:
    """Return the fields of some rows, except the columns whose numbers are in ``left_out``."""
    ends, text_of_names = map(pa.py_buffer, names_of(split))
    names = pa.Array.from_buffers(pa.string(), ends.size // 4 - 1, [None, ends, text_of_names])
    memory, (count, nulls, keys, bits, offsets, text, end) = fields_of(split, first, last, left_out)
    buffer = pa.py_buffer(memory)
    at = pa.Array.from_buffers(pa.int32(), count, [None, buffer.slice(keys, bits - keys)])
    strings = pa.Array.from_buffers(
        pa.string(),
        count,
        [
            buffer.slice(bits, offsets - bits) if nulls else None,
            buffer.slice(offsets, text - offsets),
            buffer.slice(text, end - text),
        ],
        nulls,
    )
    pairs = pa.StructArray.from_arrays(
        [pa.DictionaryArray.from_arrays(at, names, safe=False), strings], fields=[NAME, FIELD]
    )
    rows = [None, buffer.slice(0, keys)]
    return pa.Array.from_buffers(FIELDS.type, last - first, rows, 0, children=[pairs])


def _all_maps(split: Split, need: Need) -> pa.Array | None:
    """Return the values of ``{*name}`` as maps, if all values are objects or nulls.

    Return None if a longer block has a value of another kind in its first ``LOOK_BYTES``, or if
    all values of the block, except nulls, are of other kinds.

    Raises:
        SourceError: otherwise, if the block has objects and values of other kinds.
    """
    lines = split.nested_lines()
    for some in (lines[: lines.find(b"\n", LOOK_BYTES) + 1], lines):
        validity, texts = _field_values(some, need.path[0])
        others = [each for each in texts if each is not None and each[:2] != b"\xff{"]
        if others and (some is not lines or len(others) == len(texts) - texts.count(None)):
            return None
    if others:
        raise SourceError(f"{need} has objects and other values")  # in different rows
    return _maps(validity, texts, need)


def _objects(split: Split, need: Need) -> pa.Array:
    """Return a column of maps: each row's object at the placeholder's path, or null."""
    validity, texts = _field_values(split.nested_lines(), need.path[0])
    for name in need.path[1:]:
        validity, texts = _field_values(_joined(texts), name)
    return _maps(validity, texts, need)


def _maps(validity: pa.Buffer | None, objects: list[bytes | None], need: Need) -> pa.Array:
    split = split_rows(_joined(objects), [], fields=True)
    if split.has_objects or split.has_lists:
        raise nested_item_error(need, "an object" if split.has_objects else "a list")
    pairs = _fields(split, 0, split.rows, [])
    buffers = [validity, pairs.buffers()[1]]
    return pa.Array.from_buffers(FIELDS.type, len(pairs), buffers, children=[pairs.values])


def _joined(objects: list[bytes | None]) -> bytes:
    return b"\n".join(b"{}" if each is None else each[1:] for each in objects)


def _field_values(lines: bytes, name: str) -> tuple[pa.Buffer | None, list[bytes | None]]:
    """Return the validity bitmap and the values of a field; a missing or null value is None.

    A value that is not a JSON string begins with MARK.
    """
    split = split_rows(lines, [name], known_only=True)
    column = next(strings_of(split, 0, split.rows, [1]))
    marked = pa.Array.from_buffers(pa.binary(), len(column), column.buffers())
    return column.buffers()[0], marked.to_pylist()


@lru_cache(1024)
def _value_field(name: str) -> pa.Field:
    return pa.field(name, pa.string(), metadata=VALUE)


def _label_values(name: str, array: pa.Array) -> tuple[pa.Field, pa.Array]:
    """Return the Arrow field and the array of a column whose strings are JSON values."""
    kind = array.type
    if pa.types.is_string(kind):
        return _value_field(name), array
    if pa.types.is_map(kind):
        return pa.field(name, kind), array
    if pa.types.is_struct(kind):
        parts = [_label_values(each.name, array.field(at)) for at, each in enumerate(kind)]
        kind = pa.struct([field for field, _ in parts])
        return pa.field(name, kind), rebuilt(array, kind, *(child for _, child in parts))
    field, values = _label_values("item", array.values)
    kind = pa.list_(field)
    return pa.field(name, kind), rebuilt(array, kind, values)


# Nested values for placeholders.


def fit_to_placeholder(array: pa.Array, need: Need, objects: Objects, depth: int = 1) -> pa.Array:
    """Convert a column's nested value to a type that fits a placeholder; return the new column.

    A missing field becomes a field of nulls.

    Args:
        array: a column of a block of rows, as Arrow has parsed it.
        need: the placeholder.
        objects: for ``{*name}``, returns the objects as maps; None to keep structs, because
            another placeholder reads their fields.
        depth: the number of names in the placeholder's path that lead to the array.

    Raises:
        SourceError: a value of the block does not fit the placeholder.
    """
    if depth == len(need.path):
        if need.vector:
            return _vectors(array, need)
        return _items(array, need, objects) if need.items else _single_value(array, need)
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
    fields[name] = fit_to_placeholder(found, need, objects, depth + 1)
    kind = pa.struct([pa.field(each, child.type) for each, child in fields.items()])
    return pa.Array.from_buffers(kind, len(array), [validity], children=list(fields.values()))


def _single_value(array: pa.Array, need: Need) -> pa.Array:
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


def _vectors(array: pa.Array, need: Need) -> pa.Array:
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
