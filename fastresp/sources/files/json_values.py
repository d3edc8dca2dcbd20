"""JSON lines as columns of JSON values, for a load: each batch has the columns of its rows.

A value keeps its own type and text, so keys and types may change from row to row. Fields of
objects, items of lists and vectors, which a template looks into, are columns of structs and lists.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

import pyarrow as pa

from ...outcome.errors import SourceError
from .json_columns import typed, typed_field
from .json_rows import (
    DOCUMENT,
    MOST_DEPTH,
    Rows,
    documents,
    options_of,
    parsed,
    read_marked,
)
from .json_text import mark_values
from .reading import Reading

__all__ = ["ValueRows"]

# The metadata of a column of strings that are JSON values: see encode/columns/numbers_and_strings.
VALUE = {b"ARROW:extension:name": b"fastresp.value"}
# With more columns than these, a batch has only those that its rows have.
FEW_COLUMNS = 256


class ValueRows(Rows):
    """Turn blocks of lines into batches of JSON values.

    Args:
        reading: how to read them.
        whole: whether the first block is the whole file.
    """

    def __init__(self, reading: Reading, *, whole: bool) -> None:
        super().__init__(reading)
        assert reading.wanted is not None
        self._wanted = wanted = reading.wanted
        self._known = reading.known
        self._unseen = reading.unseen
        self._typed = wanted.vectors | reading.folders
        self._named = wanted.named - reading.folders
        # In this file or a later one, a field may have its first value in any row.
        self._later = not (whole and reading.single)
        self._structured = b"\0" + b"".join(
            form + b"\0" for name in sorted(wanted.structured) for form in _quoted(name)
        )
        self._only = wanted.columns is not None and not (wanted.structured or reading.folders)
        for name in sorted(wanted.columns or ()) if self._only else ():
            self._known.setdefault(name, pa.string())

    def _batch(self, block: bytes) -> pa.RecordBatch | None:
        marked, objects, self._line_ends = mark_values(block, MOST_DEPTH, self._structured)
        if not objects:
            return None
        for name in [name for name in self._unseen if any(q in block for q in _quoted(name))]:
            self._unseen.discard(name)
        if self._unseen and not self._later:
            self._only = False  # all columns, so that an error can list them
        table = self._table(marked)
        if table.num_columns and table.num_rows != objects:
            raise SourceError("each line must be one JSON object; fix it")
        columns = [(name, table[name].chunk(0)) for name in self._names(table)]
        columns += [(name, _nulls(objects)) for name in self._missing(table)]
        fields, arrays = [], []
        for name, array in columns:
            if name in self._typed:
                field = typed_field(name, array, False)
                array = typed(array, field, name)
            else:
                array = _with_paths(array, [path for path in self._wanted.paths if path[0] == name])
                field, array = _labelled(name, array)
            fields.append(field)
            arrays.append(array)
        if self._wanted.document:
            fields.append(DOCUMENT)
            arrays.append(documents(block))
        return pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields))

    def _table(self, marked: memoryview) -> pa.Table:
        """Parse marked lines; add columns that are new to the known ones.

        Raises:
            SourceError: Arrow can't parse them, or a structured column has several types.
        """
        try:
            return self._parsed(marked)
        except SourceError:
            nested = [name for name in self._wanted.structured if name in self._known]
            if not nested:
                raise
            for name in nested:  # its type may differ from that of the rows before
                del self._known[name]
            return self._parsed(marked)

    def _parsed(self, marked: memoryview) -> pa.Table:
        other = "ignore" if self._only else "infer"
        while True:
            known = pa.schema(list(self._known.items()))
            table = read_marked(marked, options_of(known, other))
            # Arrow takes some strings for times.
            odd = {each.name: parsed(each.type) for each in table.schema if not _is_kept(each.type)}
            self._known.update((each.name, each.type) for each in table.schema)
            self._known.update(odd)
            if not odd:
                return table

    def _names(self, table: pa.Table) -> list[str]:
        """Return the columns of a batch."""
        names: list[str] = table.column_names
        wanted = self._wanted
        if wanted.columns is not None and self._only:
            return [name for name in names if name in wanted.columns and self._is_there(name)]
        if len(names) <= FEW_COLUMNS:
            return [name for name in names if self._is_there(name)]
        for name in names:
            if table[name].null_count == len(table) and name not in self._named:
                del self._known[name]
        return [name for name in names if name in self._known and self._is_there(name)]

    def _missing(self, table: pa.Table) -> Iterator[str]:
        """Yield the columns that the template names and no row has had so far."""
        return (
            name
            for name in sorted(self._named)
            if name not in table.column_names and self._is_there(name)
        )

    def _is_there(self, name: str) -> bool:
        """Return whether a column was seen, or may still come."""
        return self._later or name not in self._unseen


def _quoted(name: str) -> set[bytes]:
    """Return the forms that a name usually has in JSON."""
    return {json.dumps(name, ensure_ascii=escaped).encode() for escaped in (True, False)}


def _is_kept(kind: pa.DataType) -> bool:
    """Return whether a type has been inferred without a change of values."""
    if pa.types.is_struct(kind):
        return all(_is_kept(field.type) for field in kind)
    if pa.types.is_list(kind):
        return _is_kept(kind.value_type)
    return bool(pa.types.is_string(kind))


def _nulls(count: int) -> pa.Array:
    return pa.nulls(count, pa.string())


def _with_paths(array: pa.Array, paths: list[tuple[str, ...]]) -> pa.Array:
    """Add the fields that a template names, as nulls, to the objects that don't have them."""
    for _, *path in paths:
        array = _with_path(array, path)
    return array


def _with_path(array: pa.Array, path: list[str]) -> pa.Array:
    if not path or not (pa.types.is_struct(array.type) or array.null_count == len(array)):
        return array
    if pa.types.is_struct(array.type):
        fields = {field.name: array.field(at) for at, field in enumerate(array.type)}
        validity = array.buffers()[0]
    else:
        fields, validity = {}, pa.array([False] * len(array)).buffers()[1]
    name, *rest = path
    fields[name] = _with_path(fields.get(name, _nulls(len(array))), rest)
    kind = pa.struct([pa.field(each, child.type) for each, child in fields.items()])
    return pa.Array.from_buffers(kind, len(array), [validity], children=list(fields.values()))


def _labelled(name: str, array: pa.Array) -> tuple[pa.Field, pa.Array]:
    """Return a column and its field, which say that its strings are JSON values."""
    kind = array.type
    if pa.types.is_string(kind):
        return pa.field(name, kind, metadata=VALUE), array
    if pa.types.is_struct(kind):
        parts = [_labelled(each.name, array.field(at)) for at, each in enumerate(kind)]
        kind = pa.struct([field for field, _ in parts])
        children = [child for _, child in parts]
        return pa.field(name, kind), pa.Array.from_buffers(
            kind, len(array), array.buffers()[:1], children=children
        )
    field, values = _labelled("item", array.values)
    kind = pa.list_(field)
    return pa.field(name, kind), pa.Array.from_buffers(
        kind, len(array), array.buffers()[:2], children=[values]
    )
