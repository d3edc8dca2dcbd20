"""Check that values of JSON fit the placeholders that look into them."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa

from ...outcome.errors import SourceError
from .reading import Need

__all__ = ["fitted", "nested_item"]

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
