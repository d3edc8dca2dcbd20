"""Open Parquet files, Arrow IPC streams, and Arrow IPC files, which end with an index."""

from __future__ import annotations

import mmap
import os
from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from ...outcome.errors import SourceError
from .arrow_files import BorrowedObjects, MetadataOnly, PrivateBytes, UnclosedFile
from .input import Input
from .reading import Batches
from .remote import RemotePath, open_remote

__all__ = ["IPC_FILE", "IpcFile", "has_checksums", "ipc_stream", "open_parquet"]

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
    return Batches(reader.schema, _complete_batches(reader, file, data))


def _complete_batches(
    reader: pa.RecordBatchReader, file: StreamBytes, data: Input
) -> Iterator[pa.RecordBatch]:
    yield from reader
    if file.short and not data.unwanted:
        raise SourceError(
            "it ends without an end-of-stream marker: it is truncated, or its writer was not "
            "closed; write it again, or pass pyarrow.ipc.open_stream(...) if it is complete"
        )


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
