"""Bytes that one thread receives and another reads, in temporary files meanwhile."""

from __future__ import annotations

import os
import tempfile
from collections import deque
from threading import Condition
from typing import IO

from ..blocking import write_all

__all__ = ["TICK_S", "Spool"]

# A file is closed once it has this size and was read.
FILE_BYTES = 64 << 20
# Maximum seconds of one wait, so that Ctrl-C ends it.
TICK_S = 0.2


class _File:
    """A file without a name, which vanishes when it is closed."""

    def __init__(self) -> None:
        self.file: IO[bytes] = tempfile.TemporaryFile(buffering=0)  # noqa: SIM115
        self.written = self.read = 0

    @property
    def done(self) -> bool:
        return self.read == self.written >= FILE_BYTES


class Spool:
    """A queue of bytes in files of the temporary folder, which TMPDIR chooses.

    The writer never waits for the reader: a slow target does not make the source keep data for us.
    Memory stays bounded, and the disk holds only what was not read yet.

    Attributes:
        ended: whether no more bytes will be written.
        written: number of bytes written.
        unread: number of these that were not read.
    """

    def __init__(self) -> None:
        self.ended = False
        self.written = self.unread = 0
        self._error: BaseException | None = None
        self._changed = Condition()
        self._files: deque[_File] = deque()

    def write(self, data: bytes) -> None:
        """Add bytes; after ``end()`` or ``close()``, drop them. Raises OSError for a full disk."""
        with self._changed:
            if self.ended:
                return
            if not self._files or self._files[-1].written >= FILE_BYTES:
                self._files.append(_File())
            last = self._files[-1]
            write_all(last.file, data)
            last.written += len(data)
            self.written += len(data)
            self.unread += len(data)
            self._changed.notify_all()

    def end(self, error: BaseException | None = None) -> None:
        """End the bytes; a reader that needs more of them raises ``error``, if any."""
        with self._changed:
            if not self.ended:
                self.ended, self._error = True, error
            self._changed.notify_all()

    def take(self, size: int, seconds: float = TICK_S) -> bytes | None:
        """Return 1 to ``size`` bytes; b"" at the end, None if none arrive within ``seconds``."""
        with self._changed:
            if not self.unread and not self.ended:
                self._changed.wait(seconds)
            if not self.unread:
                if self._error is not None:
                    raise self._error
                return b"" if self.ended else None
            first = self._files[0]
            data = os.pread(first.file.fileno(), min(size, first.written - first.read), first.read)
            first.read += len(data)
            self.unread -= len(data)
            if first.done:
                self._files.popleft().file.close()
            return data

    def close(self) -> None:
        """Drop all bytes."""
        with self._changed:
            self.ended, self.unread = True, 0
            while self._files:
                self._files.pop().file.close()
            self._changed.notify_all()
