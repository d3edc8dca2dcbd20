"""The bytes of a file or a pipe, read from front to end, counted, and never waited for in vain."""

from __future__ import annotations

import io
import os
import select
from typing import Any

__all__ = ["Input"]

# How often a wait for a pipe looks whether it is still wanted.
POLL_MS = 100
FIRST_BYTES = 1 << 20
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
        head = self._head or first(FIRST_BYTES) or b""
        self.taken += len(head)
        if isinstance(head, str):
            raise TypeError(f"{self.name} is open for text: open it with 'rb', or give its .buffer")
        while len(head) < MAGIC_BYTES and (piece := self._take(FIRST_BYTES)):
            head += piece
        self._head = head
        return head

    def put_back(self, head: bytes) -> None:
        """Give these bytes to the next reads."""
        self._head = head + self._head

    def read(self, size: int = -1) -> bytes:
        """Take up to ``size`` bytes, of a pipe what is there; none at the end."""
        if not self._head:
            return self._take(size)
        cut = len(self._head) if size < 0 else size
        piece, self._head = self._head[:cut], self._head[cut:]
        return piece

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
        piece = self._file.read(size) if self._poll is None else self._read_pipe(self._poll, size)
        self.taken += len(piece)
        return bytes(piece)

    def _read_pipe(self, poll: select.poll, size: int) -> bytes:
        # Not through the BufferedReader: it holds a lock while it waits, and an interpreter that
        # ends meanwhile is aborted for it.
        pieces: list[bytes] = []
        left = size if size >= 0 else FIRST_BYTES
        while left > 0 and not self._stopped:
            if not poll.poll(0 if pieces else POLL_MS):
                if pieces:
                    break
                continue
            piece = os.read(self._file.fileno(), left)
            if not piece:
                break
            pieces.append(piece)
            left -= len(piece)
        return b"".join(pieces)


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
