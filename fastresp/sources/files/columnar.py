"""Open Parquet and Arrow IPC files; find common types of their columns, cast and check columns."""

from __future__ import annotations

import mmap
import os
import tempfile
from collections.abc import Iterable, Iterator
from typing import Any

import pyarrow as pa
from pyarrow import types

from ...outcome.errors import SourceError
from ...outcome.messages import Hint, Message
from .input import Block, BorrowedObjects, Input
from .reading import Batches
from .remote import RemotePath, open_remote

__all__ = [
    "IPC_FILE", "IpcFile", "as_bytes", "cast", "cast_column", "has_checksums", "ipc_stream",
    "one_schema", "one_type", "open_parquet", "same_schema", "validated",
]  # fmt: skip

# Measured with 5,000,000 rows of 10 columns in row groups of 1,000,000, in a process that needs 62
# MiB after importing pyarrow: with this buffer, reading batches of a ParquetFile peaks at 138 MiB,
# at 5.4 M rows/s. The peak is 238 MiB without the buffer, 383 MiB with pre_buffer, 385 MiB with the
# file mapped into memory, and 426 MiB with a dataset.Scanner (622 MiB with pre_buffer); none of
# these is faster. jemalloc and the system's malloc need only 11 MiB less, so the memory pool is not
# changed.
BUFFER_BYTES = 256 << 10
# The header of the next field of a Thrift struct, if the field is a 32-bit integer.
INTEGER = b"\x15"
IPC_FILE = b"ARROW1\0\0"
TEXT = (types.is_string, types.is_large_string, types.is_string_view)
BYTES = (types.is_binary, types.is_large_binary, types.is_binary_view)
LISTS = (types.is_list, types.is_large_list)
# Larger reads are copied to a temporary file. A batch of 65,536 rows of 10 columns has 10 MB, and
# three batches are in memory at a time.
MAX_IN_MEMORY = 64 << 20
COPIED_BYTES = 1 << 20


class UnclosedFile:
    """A file object for Arrow, whose ``close()`` leaves the underlying file object open."""

    closed = False

    def __init__(self, file: Any) -> None:
        self._file = file

    def seek(self, offset: int, whence: int = 0) -> int:
        return int(self._file.seek(offset, whence))

    def tell(self) -> int:
        return int(self._file.tell())

    def close(self) -> None:
        """Do nothing: the opener of the file closes it."""


class PrivateBytes(UnclosedFile):
    """A binary file for Arrow IPC; its reads return copies that no other process can change.

    The file itself is not mapped into memory: if another process truncated the file, SIGBUS would
    kill this process, and if another process changed the file, unchecked bytes would be used. Large
    reads, for example of a file with a single batch, are copied to a temporary file, which is
    mapped, so that the system can page the bytes out.

    Args:
        file: a file object whose ``read()`` returns fewer bytes only at the end of the file.
            ``seek()`` and ``tell()`` are needed only if Arrow's reader calls them.
        borrowed: tracks objects used by Arrow's threads: this file, and data read while opening.
    """

    def __init__(self, file: Any, borrowed: BorrowedObjects | None = None) -> None:
        super().__init__(file)
        self._objects = borrowed
        if borrowed is not None:
            borrowed.add(self)

    def release_objects(self) -> None:
        """Stop tracking: from now on, Arrow reads only in the thread that requests a batch."""
        self._objects = None

    def read(self, size: int = -1) -> bytes | Block | mmap.mmap:
        piece = self._piece(size)
        if self._objects is None:
            return piece
        block = piece if isinstance(piece, mmap.mmap) else Block(piece)
        self._objects.add(block)
        return block

    def _piece(self, size: int) -> bytes | mmap.mmap:
        if size <= MAX_IN_MEMORY:
            piece: bytes = self._file.read(size)
            return piece
        try:
            return self._mapped(size)
        except OSError as error:
            raise SourceError(
                f"a batch of {size >> 20:,} MiB can't be stored in {tempfile.gettempdir()}: "
                f"{error.strerror}; set TMPDIR to a folder with more space, or write smaller "
                "batches"
            ) from error

    def _mapped(self, size: int) -> bytes | mmap.mmap:
        """Read ``size`` bytes, and return a copy that is mapped from an unnamed temporary file."""
        left = size
        with tempfile.TemporaryFile() as file:
            while left and (piece := self._file.read(min(left, COPIED_BYTES))):
                file.write(piece)
                left -= len(piece)
            if left == size:
                return b""
            file.flush()
            return mmap.mmap(file.fileno(), size - left, access=mmap.ACCESS_READ)


class MetadataOnly(PrivateBytes):
    """A file of which only the metadata is needed.

    Only the start of a large batch, which contains the metadata, is read; zeros replace the rest.
    """

    def _mapped(self, size: int) -> mmap.mmap:
        head = self._file.read(MAX_IN_MEMORY)
        left = os.fstat(self._file.fileno()).st_size - self.tell()
        # All other bytes are zeros, which use no memory until they are read.
        found = mmap.mmap(-1, len(head) + min(size - len(head), max(left, 0)))
        found.write(head)
        return found


class IpcFile:
    """An open Arrow IPC file: its columns, and its number of rows."""

    def __init__(self, path: str) -> None:
        self._borrowed = BorrowedObjects()
        self._reader: Any = None
        self._file = open(path, "rb", buffering=0)  # noqa: SIM115
        try:
            self._reader = self._open_reader(MetadataOnly)
            batches = range(self._reader.num_record_batches)
            self.rows: int = sum(self._reader.get_batch(index).num_rows for index in batches)
            self._reader = self._open_reader(PrivateBytes)
            self.schema: pa.Schema = self._reader.schema
        except BaseException:
            self.close()
            raise

    def batches(self) -> Iterator[pa.RecordBatch]:
        # Never keep the reader in a local variable: the traceback of an error would keep it alive.
        for index in range(self._reader.num_record_batches):
            yield self._reader.get_batch(index)

    def close(self) -> None:
        """Close the file once Arrow's threads, which read its index, have released it."""
        self._reader = None
        try:
            self._borrowed.wait()
        finally:
            self._file.close()

    def _open_reader(self, kind: type[PrivateBytes]) -> Any:
        file = kind(self._file, self._borrowed)
        try:
            return pa.ipc.open_file(pa.PythonFile(file, "r"))
        except Exception as error:
            error.__traceback__ = None  # its frames, including this one, would keep the file alive
            raise
        finally:
            file.release_objects()
            del file


class StreamBytes(PrivateBytes):
    """The bytes of an Arrow IPC stream.

    Attributes:
        short: whether the last read found the end of the file. Arrow mistakes the end of the file
            for the end of the stream, and accepts a stream truncated between two batches.
    """

    short = False

    def _piece(self, size: int) -> bytes | mmap.mmap:
        piece = super()._piece(size)
        self.short = len(piece) < size
        return piece


def ipc_stream(data: Input) -> Batches:
    """Open an IPC stream, or the stream in an IPC file, which follows the file's magic number."""
    if data.peek().startswith(IPC_FILE):
        data.read(len(IPC_FILE))
    file = StreamBytes(data.arrow_file())
    reader = pa.ipc.open_stream(pa.PythonFile(file, "r"))

    def complete_batches() -> Iterator[pa.RecordBatch]:
        yield from reader
        if file.short and not data.unwanted:
            raise SourceError(
                "it ends without an end-of-stream marker: it is truncated, or its writer was not "
                "closed; write it again, or pass pyarrow.ipc.open_stream(...) if it is complete"
            )

    return Batches(reader.schema, complete_batches())


def open_parquet(source: Any) -> Any:
    """Open a Parquet file: a path, a RemotePath, or a file object, which the caller closes.

    Returns:
        A pyarrow.parquet.ParquetFile that returns every value unchanged.
    """
    from pyarrow import parquet  # takes 20 ms

    if isinstance(source, RemotePath):
        source = open_remote(source, ranges=True)
    return parquet.ParquetFile(
        source if isinstance(source, str | os.PathLike) else WholeReads(source),
        buffer_size=BUFFER_BYTES,
        pre_buffer=False,
        # By default INT96 becomes nanoseconds, which cover only the years 1677 to 2262; other years
        # wrap.
        coerce_int96_timestamp_unit="us",
        # By default the checksums of pages are not compared.
        page_checksum_verification=True,
    )


def has_checksums(path: str) -> bool:
    """Return whether the first page of a Parquet file has a checksum.

    A page begins with its header in Thrift's compact protocol: its type, two sizes, and then the
    checksum, if present. Source:
    https://github.com/apache/parquet-format/blob/master/src/main/thrift/parquet.thrift
    """
    with open_parquet(path) as file:
        if not file.metadata.num_row_groups or not file.metadata.num_columns:
            return False
        column = file.metadata.row_group(0).column(0)
        start = column.dictionary_page_offset or column.data_page_offset
    with open(path, "rb") as bytes_of:
        bytes_of.seek(start)
        head = bytes_of.read(40)
    at = 0
    for _ in range(3):
        at += 1  # the header of the field
        while head[at : at + 1] >= b"\x80":  # a varint, with 7 bits per byte
            at += 1
        at += 1
    return head[at : at + 1] == INTEGER


class WholeReads(UnclosedFile):
    """A file object whose ``read()`` returns fewer bytes only at the end, as Arrow expects.

    A raw file may return fewer bytes at any time.
    """

    def read(self, size: int = -1) -> bytes:
        pieces = []
        while size and (piece := self._file.read(size)):
            pieces.append(piece)
            size -= len(piece) if size > 0 else 0
        return b"".join(pieces)


def one_schema(
    files: Iterable[tuple[str, pa.Schema]], used: frozenset[str] | None = None
) -> pa.Schema:
    """Return the columns of all files, with types that can represent the values of every file.

    Args:
        files: the name and the columns of each file; a file may lack columns.
        used: the names of the used columns; None for all. An unused column without a common type is
            left out.

    Raises:
        SourceError: the types of a column have no common type, as with numbers and text.
    """
    (first, wanted), *others = files
    if all(schema == wanted for _, schema in others):
        return wanted  # even if two columns have the same name
    fields = {field.name: (first, field) for field in wanted}
    left_out = set()
    for file, schema in others:
        for field in schema:
            first, known = fields.setdefault(field.name, (file, field))
            kind = one_type(known.type, field.type)
            if kind is None and (used is None or field.name in used):
                raise differing(field.name, (known.type, first), (field.type, file))
            if kind is None:
                left_out.add(field.name)
                continue
            fields[field.name] = first, known.with_type(kind)
    return pa.schema([field for _, field in fields.values() if field.name not in left_out])


def same_schema(wanted: tuple[str, pa.Schema], found: tuple[str, pa.Schema]) -> pa.Schema:
    """Return the columns of ``wanted``, if their types represent all values of ``found``.

    Raises:
        SourceError: a type does not represent all values.
    """
    for field, wider in zip(wanted[1], one_schema((wanted, found)), strict=True):
        if wider.type != field.type:
            other = found[1].field(field.name).type
            raise differing(field.name, (field.type, wanted[0]), (other, found[0]))
    return wanted[1]


def differing(
    name: str, one: tuple[pa.DataType, str], other: tuple[pa.DataType, str]
) -> SourceError:
    (kind, first), (found, file) = one, other
    return SourceError(
        Message(
            f"column {name!r} is {kind} in {first} and {found} in {file}; write the files with "
            "one type, or load them without ",
            Hint("sort_by"),
            " and ",
            Hint("sql"),
            ": then each file keeps its own",
        )
    )


def one_type(kind: pa.DataType, other: pa.DataType) -> pa.DataType | None:
    """Return a type that represents all values of two types; None if there is no such type."""
    if kind == other or types.is_null(other):
        return kind
    if types.is_null(kind):
        return other
    for encoded, plain in ((kind, other), (other, kind)):
        if types.is_dictionary(encoded):
            return one_type(encoded.value_type, plain)
    for group in (TEXT, BYTES):
        if all(any(is_it(each) for is_it in group) for each in (kind, other)):
            return kind
    if types.is_integer(kind) and types.is_integer(other):
        return one_integer(kind, other)
    for is_list in LISTS:
        if is_list(kind) and is_list(other):
            inner = one_type(kind.value_type, other.value_type)
            make = pa.list_ if is_list is types.is_list else pa.large_list
            return None if inner is None else make(inner)
    return None


def one_integer(kind: pa.DataType, other: pa.DataType) -> pa.DataType | None:
    """Return the wider of two integer types; None if that type can't represent both types."""
    narrow, wide = sorted((kind, other), key=lambda each: each.bit_width)
    if types.is_signed_integer(narrow) == types.is_signed_integer(wide):
        return wide
    fits = types.is_signed_integer(wide) and narrow.bit_width < wide.bit_width
    return wide if fits else None


def cast(batch: Any, schema: pa.Schema) -> Any:
    """Return a RecordBatch or Table with the types of a schema, in the same column order."""
    if batch.schema.types == schema.types:
        return batch
    columns = list(map(cast_column, batch.columns, schema.types))
    return type(batch).from_arrays(columns, schema=schema)


def cast_column(column: Any, kind: pa.DataType) -> Any:
    """Cast a column, but only if its type differs.

    pyarrow's cast can damage nested columns of a slice.
    """
    return column if column.type == kind else column.cast(kind)


# Redis accepts any bytes, so text need not be UTF-8. Without the UTF-8 check, validation takes a
# tenth of the time.
AS_BYTES = {
    pa.string(): pa.binary(),
    pa.large_string(): pa.large_binary(),
    pa.string_view(): pa.binary_view(),
}


def validated(batch: pa.RecordBatch, rows: int) -> pa.RecordBatch:
    """Return the batch if no offset, length or index points outside the batch's memory.

    Arrow does not check these numbers when it reads IPC or Parquet files. The check takes 1.2 ms
    for 1,000,000 rows of two columns of strings.

    Args:
        rows: number of rows before the batch, for the error.
    """
    for index, field in enumerate(batch.schema):
        kind = as_bytes(field.type)
        try:
            # pyarrow has no Array of some types, such as intervals of months.
            as_is = kind == field.type
            (batch.select([index]) if as_is else batch.column(index).view(kind)).validate(full=True)
        except pa.ArrowException as error:
            raise SourceError(
                f"from row {rows:,} on, column {field.name!r} is damaged: "
                f"{str(error).splitlines()[0]}; write the file again"
            ) from error
    return batch


def as_bytes(kind: pa.DataType) -> pa.DataType:
    """Return the type with text replaced by bytes, without the metadata of nested fields."""
    if kind in AS_BYTES:
        return AS_BYTES[kind]
    if types.is_struct(kind):
        return pa.struct(
            [field.with_type(as_bytes(field.type)).remove_metadata() for field in kind]
        )
    if types.is_list(kind) or types.is_large_list(kind):
        make = pa.list_ if types.is_list(kind) else pa.large_list
        return make(kind.value_field.with_type(as_bytes(kind.value_type)).remove_metadata())
    return kind
