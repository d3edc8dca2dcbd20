"""Read Arrow IPC: streams, and files, which end with an index."""

from __future__ import annotations

import mmap
from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from ...outcome.errors import SourceError
from .arrow_files import BorrowedObjects, MetadataOnly, PrivateBytes
from .input import Input
from .reading import Batches

__all__ = ["IPC_FILE", "IpcFile", "ipc_stream"]

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
        """Close the file once Arrow's threads, which read the index, have released the file."""
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
