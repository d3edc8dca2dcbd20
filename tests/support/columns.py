"""Columns for tests: conversion to rows, encoding, and a source that counts releases."""

from __future__ import annotations

import ctypes as c
import errno
import io
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import types

import fastresp
from fastresp.encode.columns.arrow import ArrowStream
from fastresp.encode.columns.column_writer import ColumnWriter
from fastresp.encode.template import Template


def as_python(kind: pa.DataType, value: Any, form: str = "text") -> Any:
    """Return the Python value that is sent with the same bytes as a column's value.

    Args:
        value: the value from ``to_pylist()``.
        form: the form in which the value is sent: "text", "json" or "vector".
    """
    if types.is_dictionary(kind) or types.is_run_end_encoded(kind):
        return as_python(kind.value_type, value, form)
    if value is None:
        return None
    if types.is_boolean(kind):
        return value if form == "json" else int(value)
    if types.is_floating(kind) and kind.bit_width < 64 and form != "vector":
        return float(str(np.dtype(f"f{kind.bit_width // 8}").type(value)))
    if types.is_map(kind):
        pairs = [
            (as_python(kind.key_type, key, "text"), as_python(kind.item_type, item, form))
            for key, item in value
        ]
        return dict(pairs)
    if types.is_struct(kind):
        return {field.name: as_python(field.type, value[field.name], form) for field in kind}
    if types.is_nested(kind):
        return [as_python(kind.value_type, item, form) for item in value]
    return value


def as_rows(table: Any, forms: dict[str, str] | None = None) -> list[dict[str, Any]]:
    """Return a table as dicts; ``forms`` has a form for each column, or "*" for all."""
    forms = forms or {}
    everywhere = forms.get("*", "text")
    columns = {
        field.name: [
            as_python(field.type, value, forms.get(field.name, everywhere))
            for value in table[field.name].to_pylist()
        ]
        for field in table.schema
    }
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def outcome(
    data: Any, template: str, nulls: Any = "error"
) -> tuple[bytes, tuple[type[Exception], Any, Any, Any] | None]:
    """Return the bytes written, and the type and position of the error."""
    file = io.BytesIO()
    try:
        fastresp.dump(data, template, file, nulls=nulls)
    except fastresp.EncodeError as error:
        # The file has only whole chunks; written() also returns the commands after them.
        return written(data, template, nulls), (
            type(error), error.row, error.command, error.argument
        )  # fmt: skip
    return file.getvalue(), None


def written(data: Any, template: str, nulls: Any = "error", **options: Any) -> bytes:
    """Return all whole commands, up to the first error."""
    writer: Any
    if hasattr(data, "__arrow_c_stream__") or hasattr(data, "__arrow_c_array__"):
        source: Any = ArrowStream(data)
        writer = ColumnWriter(Template(template), source, nulls=nulls, **options)
    else:
        source = iter(data)
        writer = fastresp.Writer(Template(template), nulls=nulls, **options)
    out = bytearray()
    try:
        for chunk in writer.chunks(source):
            out += chunk
    except fastresp.EncodeError:
        rest = writer.take()
        out += rest or b""
    return bytes(out)


def dumped(data: Any, template: str, **options: Any) -> bytes:
    file = io.BytesIO()
    fastresp.dump(data, template, file, **options)
    return file.getvalue()


class Stream:
    """An object with only ``__arrow_c_stream__``."""

    def __init__(self, data: Any) -> None:
        self.data = data

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        return self.data.__arrow_c_stream__(requested_schema)


class Array:
    """An object with only ``__arrow_c_array__``."""

    def __init__(self, data: Any) -> None:
        self.data = data

    def __arrow_c_array__(self, requested_schema: Any = None) -> Any:
        return self.data.__arrow_c_array__(requested_schema)


RELEASE = c.CFUNCTYPE(None, c.c_void_p)
GET = c.CFUNCTYPE(c.c_int, c.c_void_p, c.c_void_p)
# A capsule holds no reference to its name.
CAPSULE_NAMES: dict[bytes, bytes] = {}
LAST_ERROR = c.CFUNCTYPE(c.c_void_p, c.c_void_p)


class CSchema(c.Structure):
    _fields_ = [
        ("format", c.c_char_p), ("name", c.c_char_p), ("metadata", c.c_char_p),
        ("flags", c.c_int64), ("n_children", c.c_int64), ("children", c.c_void_p),
        ("dictionary", c.c_void_p), ("release", c.c_void_p), ("private_data", c.c_void_p),
    ]  # fmt: skip


class CArray(c.Structure):
    _fields_ = [
        ("length", c.c_int64), ("null_count", c.c_int64), ("offset", c.c_int64),
        ("n_buffers", c.c_int64), ("n_children", c.c_int64), ("buffers", c.c_void_p),
        ("children", c.c_void_p), ("dictionary", c.c_void_p), ("release", c.c_void_p),
        ("private_data", c.c_void_p),
    ]  # fmt: skip


class CStream(c.Structure):
    _fields_ = [
        ("get_schema", GET), ("get_next", GET), ("get_last_error", LAST_ERROR),
        ("release", c.c_void_p), ("private_data", c.c_void_p),
    ]  # fmt: skip


def pointer_in(capsule: Any, name: bytes) -> int:
    get = c.pythonapi.PyCapsule_GetPointer
    get.restype, get.argtypes = c.c_void_p, [c.py_object, c.c_char_p]
    return get(capsule, name)  # type: ignore[no-any-return]


def capsule_of(pointer: int, name: bytes) -> Any:
    make = c.pythonapi.PyCapsule_New
    make.restype, make.argtypes = c.py_object, [c.c_void_p, c.c_char_p, c.c_void_p]
    return make(pointer, CAPSULE_NAMES.setdefault(name, name), None)


class Counted:
    """A stream of batches that counts its exported and its released structs.

    Args:
        batches: batches of one schema.
        fail_at: index of the batch that fails; -1 for the schema.
        on_batch: called before each batch, with its index.
    """

    def __init__(
        self,
        batches: Iterable[Any],
        fail_at: int | None = None,
        on_batch: Callable[[int], None] | None = None,
    ) -> None:
        self.batches = list(batches)
        self.fail_at = fail_at
        self.on_batch = on_batch
        self.given = self.released = self.streams = self.streams_released = self.schemas = 0
        self.schemas_released = 0
        self.kept: dict[int, tuple[int, int]] = {}
        self.words = c.create_string_buffer(b"the disk is \xff full")
        self.raw = CStream()
        self.callbacks = (
            RELEASE(self._release_stream), RELEASE(self._release_schema),
            RELEASE(self._release_array),
        )  # fmt: skip

    @property
    def open(self) -> int:
        """The number of exported structs that are not released."""
        return (
            self.given + self.streams + self.schemas
            - self.released - self.streams_released - self.schemas_released
        )  # fmt: skip

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        self.streams += 1
        self.next = 0
        self.raw.get_schema = GET(self._get_schema)
        self.raw.get_next = GET(self._get_next)
        self.raw.get_last_error = LAST_ERROR(lambda _: c.addressof(self.words))
        self.raw.release = c.cast(self.callbacks[0], c.c_void_p)
        return capsule_of(c.addressof(self.raw), b"arrow_array_stream")

    def _release_stream(self, pointer: int) -> None:
        self.streams_released += 1
        CStream.from_address(pointer).release = None

    def _get_schema(self, _: int, out: int) -> int:
        if self.fail_at == -1:
            return errno.EIO
        self.schemas += 1
        self._move(CSchema, self.batches[0].schema.__arrow_c_schema__(), b"arrow_schema", out, 1)
        return 0

    def _get_next(self, _: int, out: int) -> int:
        if self.on_batch is not None:
            self.on_batch(self.next)
        if self.next == self.fail_at:
            return errno.EIO
        if self.next == len(self.batches):
            CArray.from_address(out).release = None
            return 0
        self.given += 1
        capsule = self.batches[self.next].__arrow_c_array__()[1]
        self._move(CArray, capsule, b"arrow_array", out, 2)
        self.next += 1
        return 0

    def _move(self, kind: Any, capsule: Any, name: bytes, out: int, callback: int) -> None:
        """Move a struct out of a capsule, and wrap its release callback in one that counts."""
        at = pointer_in(capsule, name)
        c.memmove(out, at, c.sizeof(kind))
        kind.from_address(at).release = None
        moved = kind.from_address(out)
        key = len(self.kept) + 1
        self.kept[key] = (moved.release, moved.private_data)
        moved.release = c.cast(self.callbacks[callback], c.c_void_p)
        moved.private_data = key

    def _give_back(self, kind: Any, pointer: int) -> None:
        moved = kind.from_address(pointer)
        moved.release, moved.private_data = self.kept[moved.private_data]
        RELEASE(moved.release)(pointer)
        assert moved.release is None

    def _release_schema(self, pointer: int) -> None:
        self.schemas_released += 1
        self._give_back(CSchema, pointer)

    def _release_array(self, pointer: int) -> None:
        self.released += 1
        self._give_back(CArray, pointer)


def batches(count: int = 3, rows: int = 2) -> list[pa.RecordBatch]:
    return [
        pa.record_batch({"id": range(i * rows, i * rows + rows), "v": ["x" * 50] * rows})
        for i in range(count)
    ]
