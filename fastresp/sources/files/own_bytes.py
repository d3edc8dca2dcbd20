"""Bytes that nobody else can change while they are used, and of which few are in memory."""

from __future__ import annotations

import mmap
import os
import tempfile
from typing import Any

from ...outcome.errors import SourceError
from .lent import Block, Lent

__all__ = ["NotRead", "OwnBytes"]

# Three batches are held at a time. One of 65,536 rows of 10 columns has 10 MB.
MOST_IN_MEMORY = 64 << 20
COPIED_BYTES = 1 << 20


class OwnBytes:
    """A binary file as Arrow IPC reads it: what it takes at once becomes ours.

    The file itself is not mapped into memory: if it was cut short meanwhile, the process would be
    ended by SIGBUS, and if it was changed, it would be used as it was never checked. What is
    large, as a file that is a single batch, goes into a temporary file, which is mapped: the
    system can take its pages out of memory.

    Args:
        file: with ``read()``, which returns fewer bytes at the end only; and with ``seek()`` and
            ``tell()`` where the reader needs them.
        lent: notes what Arrow's threads hold: this file, and what is read until it is opened.
    """

    closed = False

    def __init__(self, file: Any, lent: Lent | None = None) -> None:
        self._file = file
        self._lent = lent
        if lent is not None:
            lent.add(self)

    def opened(self) -> None:
        """From here on Arrow reads in the thread that asks it for a batch."""
        self._lent = None

    def read(self, size: int = -1) -> bytes | Block | mmap.mmap:
        piece = self._piece(size)
        if self._lent is None:
            return piece
        lent = piece if isinstance(piece, mmap.mmap) else Block(piece)
        self._lent.add(lent)
        return lent

    def _piece(self, size: int) -> bytes | mmap.mmap:
        if size <= MOST_IN_MEMORY:
            piece: bytes = self._file.read(size)
            return piece
        try:
            return self._mapped(size)
        except OSError as error:
            raise SourceError(
                f"a batch of {size >> 20:,} MiB can't be kept in {tempfile.gettempdir()}: "
                f"{error.strerror}; set TMPDIR to a folder with more room, or write batches of "
                "fewer rows"
            ) from error

    def _mapped(self, size: int) -> bytes | mmap.mmap:
        """A copy in a file that only this process knows."""
        left = size
        with tempfile.TemporaryFile() as file:
            while left and (piece := self._file.read(min(left, COPIED_BYTES))):
                file.write(piece)
                left -= len(piece)
            if left == size:
                return b""
            file.flush()
            return mmap.mmap(file.fileno(), size - left, access=mmap.ACCESS_READ)

    def seek(self, offset: int, whence: int = 0) -> int:
        place: int = self._file.seek(offset, whence)
        return place

    def tell(self) -> int:
        place: int = self._file.tell()
        return place

    def close(self) -> None:
        """Leave the file open: it is closed by who opened it."""


class NotRead(OwnBytes):
    """A file of which only the metadata are wanted: a large batch begins with them."""

    def _mapped(self, size: int) -> mmap.mmap:
        head = self._file.read(MOST_IN_MEMORY)
        left = os.fstat(self._file.fileno()).st_size - self.tell()
        # The rest is zeros, which take no memory as long as nobody looks at them.
        found = mmap.mmap(-1, len(head) + min(size - len(head), max(left, 0)))
        found.write(head)
        return found
