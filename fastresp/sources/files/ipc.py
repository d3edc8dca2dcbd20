"""Read Arrow IPC: streams, and files, which end with an index."""

from __future__ import annotations

import mmap
from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from ...outcome.errors import SourceError
from .arrow_files import Lent, NotRead, OwnBytes
from .input import Input
from .reading import Batches

__all__ = ["IPC_FILE", "IpcFile", "ipc_stream"]

IPC_FILE = b"ARROW1\0\0"


class IpcFile:
    """An open Arrow IPC file.

    Args:
        path: the path of the file.

    Attributes:
        schema: the columns of the batches.
        rows: number of rows.

    Raises:
        pa.ArrowException: the file is damaged.
        OSError: the file can't be opened or read.
    """

    def __init__(self, path: str) -> None:
        self._lent = Lent()
        self._reader: Any = None
        self._file = open(path, "rb", buffering=0)  # noqa: SIM115
        try:
            self._reader = self._opened(NotRead)
            batches = range(self._reader.num_record_batches)
            self.rows: int = sum(self._reader.get_batch(index).num_rows for index in batches)
            self._reader = self._opened(OwnBytes)
            self.schema: pa.Schema = self._reader.schema
        except BaseException:
            self.close()
            raise

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the batches in order."""
        # Never keep the reader in a local variable: the traceback of an error would keep it alive.
        for index in range(self._reader.num_record_batches):
            yield self._reader.get_batch(index)

    def close(self) -> None:
        """Close the file once Arrow's threads, which read the index, have released the file."""
        self._reader = None
        try:
            self._lent.wait()
        finally:
            self._file.close()

    def _opened(self, kind: type[OwnBytes]) -> Any:
        own = kind(self._file, self._lent)
        try:
            return pa.ipc.open_file(pa.PythonFile(own, "r"))
        except Exception as error:
            error.__traceback__ = None  # its frames, including this one, would keep the file alive
            raise
        finally:
            own.opened()
            del own


class StreamBytes(OwnBytes):
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
    own = StreamBytes(data.handed())
    reader = pa.ipc.open_stream(pa.PythonFile(own, "r"))
    return Batches(reader.schema, _until_marker(reader, own, data))


def _until_marker(
    reader: pa.RecordBatchReader, own: StreamBytes, data: Input
) -> Iterator[pa.RecordBatch]:
    """Yield the batches of a stream.

    Raises:
        SourceError: the stream has no end-of-stream marker.
    """
    yield from reader
    if own.short and not data.unwanted:
        raise SourceError(
            "it ends without an end-of-stream marker: it is truncated, or its writer was not "
            "closed; write it again, or pass pyarrow.ipc.open_stream(...) if it is complete"
        )
