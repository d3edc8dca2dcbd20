"""The bytes of a file or a pipe, read from front to end, counted, and never waited for in vain."""

from __future__ import annotations

import io
import os
import select
import sys
from typing import Any

__all__ = ["Input"]

# How often a wait for a pipe looks whether it is still wanted.
POLL_MS = 100
# Taken at once where nobody says how much: a block of CSV.
TAKEN_BYTES = 2 << 20
# Enough to tell any format or compression.
MAGIC_BYTES = 16


class Input:
    """A binary file that is read once, as far as pyarrow needs one.

    Args:
        source: a path, or a file object open for reading bytes, which stays open.

    Attributes:
        name: the path, or the name of the file object.
        size: bytes in all, or None where that is not known, as of a pipe.
        taken: bytes read so far.
        closed: whether nothing more can be read.
    """

    def __init__(self, source: Any) -> None:
        self.taken = 0
        self.closed = False
        self._head = b""
        self._stopped = False
        self._ours = isinstance(source, str)
        self._file: Any = open(source, "rb", buffering=0) if self._ours else source  # noqa: SIM115
        name = source if self._ours else getattr(source, "name", None)
        self.name = name if isinstance(name, str) else "the file object"
        self.seekable = _seekable(self._file)
        self.size = _size(self._file) if self.seekable else None
        self._poll: select.poll | None = None
        if not self.seekable and isinstance(self._file, (io.FileIO, io.BufferedReader)):
            self._poll = select.poll()
            self._poll.register(self._file, select.POLLIN)

    def peek(self) -> bytes:
        """The first bytes, without taking them; fewer than ``MAGIC_BYTES`` of a file that ends."""
        # What a BufferedReader already holds comes first, and leaves its buffer empty.
        first = getattr(self._file, "read1", self._file.read)
        head = self._head or first(TAKEN_BYTES) or b""
        self.taken += len(head)
        if isinstance(head, str):
            raise TypeError(f"{self.name} is open for text: open it with 'rb', or give its .buffer")
        while len(head) < MAGIC_BYTES and (piece := self._take(TAKEN_BYTES)):
            head += piece
        self._head = head
        return head

    def put_back(self, head: bytes) -> None:
        """Give these bytes to the next reads."""
        self._head = head + self._head

    def read(self, size: int = -1) -> bytes:
        """Take ``size`` bytes; fewer at the end, and only there.

        Arrow takes what a pipe has at the moment for a block, and a row larger than that for one
        that does not fit.
        """
        left = size if size >= 0 else sys.maxsize
        pieces = [self._head[:left]]
        self._head = self._head[left:]
        left -= len(pieces[0])
        while left > 0 and (piece := self._take(min(left, TAKEN_BYTES))):
            pieces.append(piece)
            left -= len(piece)
        return b"".join(pieces)

    def rewound(self) -> Any:
        """The file object as it was before ``peek()``."""
        self._file.seek(-len(self._head), os.SEEK_CUR)
        self._head = b""
        return self._file

    def stop(self) -> None:
        """Let a read that waits for a pipe, in another thread, come to its end."""
        self._stopped = True

    def close(self) -> None:
        """Read no more."""
        self.closed = True
        if self._ours:
            self._file.close()

    def _take(self, size: int) -> bytes:
        """Take up to ``size`` bytes from the file."""
        if self._poll is None:
            piece = self._file.read(size)
        else:
            # Not through a BufferedReader: it holds a lock while it waits, and an interpreter that
            # ends meanwhile is aborted for it.
            while not self._stopped and not self._poll.poll(POLL_MS):
                pass
            piece = b"" if self._stopped else os.read(self._file.fileno(), size)
        self.taken += len(piece)
        return bytes(piece)


def _seekable(file: Any) -> bool:
    try:
        return bool(file.seekable())
    except AttributeError:
        return False


def _size(file: Any) -> int:
    """Bytes from here to the end."""
    here = int(file.tell())
    end = int(file.seek(0, os.SEEK_END))
    file.seek(here)
    return end - here
