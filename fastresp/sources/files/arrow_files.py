"""File objects for Arrow, and the objects that its threads use."""

from __future__ import annotations

import mmap
import os
import tempfile
import time
import weakref
from collections.abc import Callable
from typing import Any

from ...outcome.errors import SourceError

__all__ = ["Block", "UnclosedFile", "BorrowedObjects", "MetadataOnly", "PrivateBytes"]

CLOSE_SECONDS = 1.0


class Block(bytearray):
    """Bytes that can be weakly referenced, unlike ``bytes`` objects."""


class BorrowedObjects:
    """Objects that Arrow's threads use.

    If a thread of Arrow calls into an interpreter that is shutting down, even only to release an
    object, the process is aborted. So closing a file waits for the threads.
    """

    def __init__(self) -> None:
        self._objects: list[weakref.ref[Any]] = []

    def add(self, what: Any, returned: Callable[[Any], object] | None = None) -> None:
        """Track an object; ``returned`` is called once Arrow has released the object."""
        self._objects = [ref for ref in self._objects if ref() is not None]
        self._objects.append(weakref.ref(what, returned))

    def wait(self) -> None:
        """Wait until Arrow has released all objects, for at most one second."""
        until = time.monotonic() + CLOSE_SECONDS
        while any(ref() is not None for ref in self._objects) and time.monotonic() < until:
            time.sleep(0.001)


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
