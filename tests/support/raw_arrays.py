"""Arrow arrays from buffers with any content, exported as a buggy library could do."""

from __future__ import annotations

import ctypes as c
import struct
from collections.abc import Sequence
from copy import copy
from typing import Any

from columns import RELEASE, CArray, CSchema, capsule_of

# Keeps the memory of C pointers alive; a test process is short.
KEPT: list[Any] = []


def int32(*numbers: int) -> bytes:
    return struct.pack(f"<{len(numbers)}i", *numbers)


def int64(*numbers: int) -> bytes:
    return struct.pack(f"<{len(numbers)}q", *numbers)


def view(size: int, buffer: int = 0, start: int = 0) -> bytes:
    """Return a string view: up to 12 bytes inline, otherwise a reference to a buffer."""
    rest = b"abcd" + int32(buffer, start) if size > 12 else b"abcdefghijkl"
    return int32(size) + rest


class Raw:
    """An array whose buffers are not validated.

    Args:
        format: the type's format string in the C data interface.
        length: length of the array.
        buffers: buffers to export; None for a null pointer.
    """

    def __init__(
        self,
        format: str,  # noqa: A002
        length: int,
        *buffers: bytes | None,
        children: Sequence[Raw] = (),
        dictionary: Raw | None = None,
        name: str = "",
        offset: int = 0,
    ) -> None:
        self.format, self.length, self.buffers = format, length, buffers
        self.children, self.dictionary = list(children), dictionary
        self.name, self.offset = name, offset
        # Unknown if the array has a validity bitmap.
        self.null_count = -1 if buffers and buffers[0] is not None else 0

    def named(self, name: str) -> Raw:
        other = copy(self)
        other.name = name
        return other

    def schema(self) -> CSchema:
        found = CSchema()
        found.format, found.name, found.flags = self.format.encode(), self.name.encode(), 2
        found.n_children = len(self.children)
        found.children = pointers([child.schema() for child in self.children])
        if self.dictionary is not None:
            found.dictionary = address(self.dictionary.schema())
        found.release = c.cast(RELEASE_SCHEMA, c.c_void_p)
        return found

    def array(self) -> CArray:
        found = CArray()
        found.length, found.offset = self.length, self.offset
        found.null_count = self.null_count
        found.n_buffers = len(self.buffers)
        places = [None if part is None else c.create_string_buffer(part) for part in self.buffers]
        KEPT.append(places)
        found.buffers = table([None if part is None else c.addressof(part) for part in places])
        found.n_children = len(self.children)
        found.children = pointers([child.array() for child in self.children])
        if self.dictionary is not None:
            found.dictionary = address(self.dictionary.array())
        found.release = c.cast(RELEASE_ARRAY, c.c_void_p)
        return found

    def __arrow_c_array__(self, requested_schema: Any = None) -> Any:
        return (
            capsule_of(address(self.schema()), b"arrow_schema"),
            capsule_of(address(self.array()), b"arrow_array"),
        )


def frame(length: int, offset: int = 0, **columns: Raw) -> Raw:
    """Return columns as the batch of a table."""
    fields = [column.named(name) for name, column in columns.items()]
    return Raw("+s", length, None, children=fields, offset=offset)


def strings(*offsets: int, data: bytes | None, kind: str = "u") -> Raw:
    pack = int64 if kind in "UZ" else int32
    return Raw(kind, len(offsets) - 1, None, pack(*offsets), data)


def address(thing: Any) -> int:
    KEPT.append(thing)
    return c.addressof(thing)


def table(addresses: Sequence[int | None]) -> int:
    return address((c.c_void_p * max(1, len(addresses)))(*addresses))


def pointers(things: Sequence[Any]) -> int:
    return table([address(thing) for thing in things])


def _release_schema(pointer: int) -> None:
    CSchema.from_address(pointer).release = None


def _release_array(pointer: int) -> None:
    CArray.from_address(pointer).release = None


RELEASE_SCHEMA, RELEASE_ARRAY = RELEASE(_release_schema), RELEASE(_release_array)
