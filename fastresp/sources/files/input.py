"""The bytes of a file or a pipe, read from front to end, counted, and never waited for in vain."""

from __future__ import annotations

import io
import os
import select
import stat
import sys
import threading
from collections.abc import Iterable
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import Any

from ...outcome.errors import SourceError
from ..blocking import read_now, wait_until
from .lent import Block, Lent

__all__ = ["Input", "Watch", "check_not_read", "name_of"]

# How often a wait for a pipe looks whether it is still wanted.
POLL_MS = 100
# Taken at once where nobody says how much: a block of CSV.
TAKEN_BYTES = 2 << 20
# Blocks of CSV or JSON lines that Arrow has and has not parsed: of itself it would take 32.
AHEAD_BLOCKS = 3
# Enough to tell any format or compression.
MAGIC_BYTES = 16


class Watch(threading.Event):
    """What the inputs of one reading have in common; it is set when nothing more is wanted.

    Attributes:
        first: the input whose bytes are those of the file, where others unpack or convert them.
        marks: how many bytes it had given with each block that Arrow read ahead.
    """

    def __init__(self) -> None:
        super().__init__()
        self.begin()

    def begin(self) -> None:
        """Begin with another file."""
        self.first: Input | None = None
        self.marks: list[int] = []

    def position(self, batch: int) -> int | None:
        """How many bytes of the file its first batches hold, a batch being a block of it."""
        if self.first is None:
            return None
        return self.marks[min(batch, len(self.marks) - 1)] if self.marks else self.first.given


class Input:
    """A binary file that is read once, from front to end.

    Args:
        source: a path, or a file object open for reading bytes, which stays open.
        stopped: set by another thread when nothing more is wanted: the bytes come to their end.

    Attributes:
        name: the path, or the name of the file object.
        size: bytes in all, or None where that is not known, as of a pipe.
        taken: bytes read so far.
    """

    def __init__(self, source: Any, stopped: Watch) -> None:
        self.stopped = stopped
        stopped.first = stopped.first or self
        self.taken = 0
        self._head = b""
        self._over = False
        # A terminal would go on after its end, and ask for a second Ctrl-D.
        self._ended = False
        self._lent = Lent()
        self._ours = isinstance(source, str)
        self._file: Any = source
        if self._ours:
            self._file = open(source, "rb", buffering=0, opener=_opened)  # noqa: SIM115
        self.name = source if self._ours else name_of(source)
        self.seekable = _seekable(self._file)
        self.size = _size(self._file) if self.seekable else None
        self._poll: select.poll | None = None
        # A BufferedReader holds bytes that poll() does not know of, until it was read once.
        self._held = isinstance(self._file, io.BufferedReader)
        if not self.seekable and isinstance(self._file, (io.FileIO, io.BufferedReader)):
            self._poll = select.poll()
            self._poll.register(self._file, select.POLLIN)

    def peek(self) -> bytes:
        """The first bytes, without taking them; fewer than ``MAGIC_BYTES`` of a file that ends."""
        head = self._head
        while len(head) < MAGIC_BYTES and (piece := self.take(TAKEN_BYTES)):
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
        if self.unwanted:
            return b""
        left = size if size >= 0 else sys.maxsize
        # A single piece is joined without a copy.
        pieces = [self._head[:left]] if self._head else []
        left -= len(pieces[0]) if pieces else 0
        self._head = self._head[size:] if size >= 0 else b""
        while left > 0 and (piece := self.take(min(left, TAKEN_BYTES))):
            pieces.append(piece)
            left -= len(piece)
        return b"".join(pieces)

    def rewound(self) -> Any:
        """The file object as it was before ``peek()``."""
        self._file.seek(-len(self._head), os.SEEK_CUR)
        self._head = b""
        return self._file

    def stop(self) -> None:
        """Come to the end of the bytes."""
        self._over = True

    def handed(self, *, ahead: bool = False) -> Handed:
        """What Arrow takes the bytes from; ``ahead`` where it does so in threads of its own."""
        handed = Handed(self, self._lent if ahead else None)
        if ahead:
            self._lent.add(handed)
        return handed

    def close(self) -> None:
        """Read no more, and wait until Arrow, which reads ahead, has let go of what it has."""
        self._over = True
        try:
            self._lent.wait()
        finally:
            if self._ours:
                self._file.close()

    @property
    def given(self) -> int:
        """How many bytes were read, without those that were put back."""
        return max(0, self.taken - len(self._head))

    @property
    def unwanted(self) -> bool:
        """Whether nothing more is to be read."""
        return self._over or self.stopped.is_set()

    def take(self, size: int) -> bytes:
        """Take at most ``size`` bytes, as soon as there is one; empty at the end only."""
        piece: bytes | None = b"" if self._ended else None
        while piece is None:
            # Not in the read of a BufferedReader: it holds a lock meanwhile, and an interpreter
            # that ends while it is held is aborted.
            while self._poll and not self._held and not self.unwanted:
                if self._poll.poll(POLL_MS):
                    break
            if self.unwanted:
                return b""
            piece = self._read(size)
        self._ended = not piece
        if self._ended and self.size is not None and self.taken < self.size:
            raise SourceError("it was cut short while it was read; load it again when it is whole")
        self.taken += len(piece)
        return bytes(piece)

    def _read(self, size: int) -> bytes | None:
        """Read at most ``size`` bytes; None if there is nothing yet."""
        if self._poll is not None and not self._held:
            try:
                return os.read(self._file.fileno(), size)
            except BlockingIOError:  # another process took it
                return None
        self._held = False
        piece = read_now(self._file, size)
        if piece is None and self._poll is None:
            wait_until(self._file, select.POLLIN)
        return piece


class Handed:
    """A binary file as far as Arrow needs one."""

    closed = False

    def __init__(self, file: Input, lent: Lent | None) -> None:
        self._file = file
        self._lent = lent
        # Its put() may be called whenever an object is released, in any code.
        self._room: SimpleQueue[object] = SimpleQueue()
        for _ in range(AHEAD_BLOCKS):
            self._room.put(None)

    def read(self, size: int = -1) -> bytes | Block:
        if self._lent is None:
            return self._file.read(size)
        while not self._file.unwanted:
            with suppress(Empty):
                self._room.get(timeout=POLL_MS / 1000)
                break
        block = Block(self._file.read(size))
        watch = self._file.stopped
        if watch.first is not None:
            watch.marks.append(watch.first.given)
        self._lent.add(block, self._room.put)
        return block

    def close(self) -> None:
        """Leave the file open: it is closed by who opened it."""


def check_not_read(path: str | os.PathLike[str], files: Iterable[str]) -> None:
    """Refuse to write over a file that is read.

    Args:
        path: of the file to write.
        files: the names of those that are read.

    Raises:
        ValueError: it is one of them.
    """
    for file in files if os.path.exists(path) else ():
        if os.path.exists(file) and os.path.samefile(path, file):
            raise ValueError(f"{os.fspath(path)} is what is read; write to another file")


def name_of(file: Any) -> str:
    """What a file object is called in messages."""
    name = getattr(file, "name", None)
    if name == 0 or name == "<stdin>":
        return "standard input"
    return name if isinstance(name, str) else "the file object"


def _opened(path: str, flags: int) -> int:
    """Open a file; a named pipe without waiting for its writer, for whom poll() waits, too.

    So Linux has it: poll() says nothing before there was a writer. Others may tell an end.
    """
    if sys.platform == "linux" and stat.S_ISFIFO(os.stat(path).st_mode):
        flags |= os.O_NONBLOCK
    return os.open(path, flags)


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
