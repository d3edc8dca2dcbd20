"""Find the first difference between two values in the server's storage format."""

from __future__ import annotations

import time
from typing import Any, NamedTuple

from ...encode.payload.converter import Converter
from ...encode.payload.stored_values import elements, stream_nodes_end
from ...outcome.errors import SourceError
from ...sources.files.rdb import type_of

__all__ = ["Part", "different_part"]

# Types of stored values. Source: rdb.h of Redis and Valkey.
MODULE = 7
TIMED_HASHES = (22, 24, 25)


class Part(NamedTuple):
    """A part of a value that differs; the fields are as in Difference."""

    name: bytes | int | None
    kind: str
    wanted: bytes | int | None
    found: bytes | int | None


def different_part(source: bytes, target: bytes) -> Part | None:
    """Return the first part that differs between two values; None if they are equal.

    Args:
        source, target: the type byte and the bytes of each value.
    """
    types = type_of(source[0]), type_of(target[0])
    if types[0] != types[1]:
        return Part(None, "type", None, types[1].encode())
    other = Part(None, "value", None, None)
    if source[0] == MODULE:
        return other
    try:
        if types[0] == "stream":
            return None if stream_parts(source, target) == stream_parts(target, source) else other
        before, after = parts(source), parts(target)
    except SourceError:
        return other
    for name in before | after:
        wanted, found = before.get(name), after.get(name)
        if wanted is None or found is None:
            kind = "missing" if found is None else "extra"
            return Part(name, kind, *(each[0] if each else None for each in (wanted, found)))
        if wanted[0] != found[0]:
            return Part(name, "value", wanted[0], found[0])
        if wanted != found:
            return Part(name, "ttl", *(int(each[1]) for each in (wanted, found)))
    return None


def parts(value: bytes) -> dict[Any, tuple[bytes, ...]]:
    """Return the parts of a value by their names: fields, members, or indexes in a list."""
    items = elements(value[0], value[1:])
    pairs = zip(items[::2], items[1::2], strict=True)
    match type_of(value[0]):
        case "hash" if value[0] in TIMED_HASHES:
            now = time.time() * 1000
            fields = zip(items[::3], items[1::3], items[2::3], strict=True)
            return {name: (text, at) for name, text, at in fields if not 0 <= int(at) <= now}
        case "hash":
            return {name: (text, b"-1") for name, text in pairs}
        case "zset":
            return {name: (repr(float(score)).encode(),) for name, score in pairs}
        case "set":
            return {name: (name,) for name in items}
        case "string":
            return {None: (items[0],)}
    return {index: (item,) for index, item in enumerate(items)}


def stream_parts(value: bytes, other: bytes) -> tuple[list[bytes], bytes]:
    """Return the entries of a stream, and the bytes after them.

    If ``other`` has another RDB type, the stream is first converted to the oldest type, which lacks
    the metadata of later types.
    """
    kind, data = value[0], value[1:]
    if kind != other[0]:
        # 9 is the RDB version of Redis 6.2; every stream can be converted to it.
        oldest = Converter(9, valkey=False, source_valkey=False)
        converted = oldest.converted(kind, data)
        assert converted is not None
        kind, data = converted
    return elements(kind, data), data[stream_nodes_end(kind, data) :]
