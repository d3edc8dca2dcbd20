"""JSON lines as columns of JSON values, for a load: each batch has the columns of its rows.

A value keeps its own type and text, so keys and types may change from row to row. Fields of
objects, items of lists and vectors, which a template looks into, are columns of structs and lists.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

import pyarrow as pa

from ...outcome.errors import SourceError
from .json_arrays import end_of_batch
from .json_columns import typed, typed_field
from .json_fitted import fitted
from .json_rows import (
    DOCUMENT,
    MOST_DEPTH,
    WITHIN,
    Parsed,
    Rows,
    options_of,
    parsed,
    read_marked,
    split_rows,
    strings_of,
)
from .json_split import Split
from .json_text import mark_numbers
from .reading import Reading

__all__ = ["ValueRows"]

# The metadata of a column of strings that are JSON values: see encode/columns/numbers_and_strings.
VALUE = {b"ARROW:extension:name": b"fastresp.value"}
# With more columns than these, a batch has only those that its rows have.
FEW_COLUMNS = 256
# The most rows times columns of a batch, since also a null takes 4 bytes.
MOST_CELLS = 1 << 18


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
        self._only = wanted.columns is not None and not (wanted.structured or reading.folders)
        for name in sorted(wanted.columns or ()) if self._only else ():
            self._known.setdefault(name, pa.string())

    def _parsed(self, block: bytes) -> Parsed | None:
        split = self._split(block)
        self._line_ends = split.line_ends
        if not split.rows:
            return None
        self._unseen.difference_update(split.seen())
        if self._unseen and self._only and not self._later:
            self._only = False  # all columns, so that an error can list them
            split = self._split(block)
        names = [name for name in self._names(split) if self._is_there(name)]
        arrays = self._nested(split, names)
        nested = {name: array.type for name, array in arrays.items()}
        for name in names:
            if name in self._typed and name not in arrays:
                number = split.names.index(name) + 1
                arrays[name] = next(strings_of(split, 0, split.rows, [number]))
        missing = sorted(name for name in self._named if name not in names)
        for name in filter(self._is_there, missing):
            arrays[name] = pa.nulls(split.rows, pa.string())
            names.append(name)
        ready = {name: self._finished(name, array) for name, array in arrays.items()}
        self._known.update(nested)
        # Arrow's batches have no rows if they have no columns.
        rows = split.rows if names or self._wanted.document else 0
        return Parsed(rows, self._batches(split, names, ready))

    def _split(self, block: bytes) -> Split:
        """Split rows into values.

        Raises:
            SourceError: a row can't be read.
        """
        return split_rows(
            block,
            list(self._known),
            nested=self._wanted.structured,
            only=self._only,
            documents=self._wanted.document,
        )

    def _names(self, split: Split) -> list[str]:
        """Return the columns of a block's batches, and remember them for the next block."""
        if self._only:
            return [name for name in split.names if name in (self._wanted.columns or ())]
        names = split.names
        if len(names) > FEW_COLUMNS:
            kept = self._named.union(split.filled())
            names = [name for name in names if name in kept]
            for name in self._known.keys() - kept:
                del self._known[name]
        for name in names:
            self._known.setdefault(name, pa.string())
        return names

    def _is_there(self, name: str) -> bool:
        """Return whether a column was seen, or may still come."""
        return self._later or name not in self._unseen

    def _nested(self, split: Split, names: list[str]) -> dict[str, pa.Array]:
        """Return the columns that a template looks into; their types may change between blocks.

        Raises:
            SourceError: Arrow can't parse them, or a column has several types in this block.
        """
        found = [name for name in names if name in self._wanted.structured]
        if not found:
            return {}
        marked, *_ = mark_numbers(split.nested_lines(), MOST_DEPTH, literals=True)
        try:
            table = self._table(marked, {name: self._known.get(name) for name in found})
        except SourceError:
            table = self._table(marked, dict.fromkeys(found))
        return {name: table[name].chunk(0) for name in found}

    def _table(self, marked: memoryview, kinds: dict[str, pa.DataType | None]) -> pa.Table:
        """Parse lines of nested values, with types as they are known."""
        while True:
            known = pa.schema([(name, kind) for name, kind in kinds.items() if kind is not None])
            table = read_marked(marked, options_of(known, "infer"), WITHIN)
            # Arrow takes some strings for times, and loses nulls at the beginning of a list whose
            # type it infers. So nothing that it has inferred is used.
            found = {each.name: parsed(each.type) for each in table.schema}
            found.update((name, pa.string()) for name in kinds if name not in found)
            if found == kinds:
                return table
            kinds = found

    def _finished(self, name: str, array: pa.Array) -> tuple[pa.Field, pa.Array]:
        """Return a column that a template looks into, or that folders name, as it is sent."""
        if name in self._typed:
            field = typed_field(name, array, False)
            array = typed(array, field, name, WITHIN)
        for need in self._wanted.needs:
            if need.path[0] == name:
                array = fitted(array, need)
        return (
            (field.with_type(array.type), array) if name in self._typed else _labelled(name, array)
        )

    def _batches(
        self, split: Split, names: list[str], ready: dict[str, tuple[pa.Field, pa.Array]]
    ) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a block; ``ready``: columns of all rows."""
        wide = not self._only and len(split.names) > FEW_COLUMNS
        number = {name: at for at, name in enumerate(split.names, 1)}
        always = {
            number[name] for name in self._named.union(ready) if name in names and name in number
        }
        added = [name for name in names if name not in number]
        most = max(1, MOST_CELLS // max(1, len(names)))
        first = 0
        while first < split.rows:
            last, chosen = min(first + most, split.rows), names
            if wide:
                last, used = end_of_batch(split, first, MOST_CELLS)
                chosen = [split.names[at - 1] for at in sorted(always.union(used) - {0})] + added
                chosen = chosen or names[:1]
            columns = [number[name] for name in chosen if name not in ready]
            strings = strings_of(split, first, last, columns + [0] * self._wanted.document)
            fields, arrays = [], []
            for name in chosen:
                field, array = ready.get(name) or (_value(name), None)
                fields.append(field)
                arrays.append(next(strings) if array is None else array.slice(first, last - first))
            if self._wanted.document:
                fields.append(DOCUMENT)
                arrays.append(next(strings))
            yield pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields))
            first = last


@lru_cache(1024)
def _value(name: str) -> pa.Field:
    """Return the field of strings that are JSON values."""
    return pa.field(name, pa.string(), metadata=VALUE)


def _labelled(name: str, array: pa.Array) -> tuple[pa.Field, pa.Array]:
    """Return a column and its field, which say that its strings are JSON values."""
    kind = array.type
    if pa.types.is_string(kind):
        return _value(name), array
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
