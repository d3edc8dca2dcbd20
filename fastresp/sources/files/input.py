"""Read a file or a pipe from start to end, and count the bytes; other threads can end a wait.

The snapshot of a server is a file as well, named ``redis+psync://host:port``.
"""

from __future__ import annotations

import errno
import io
import os
import re
import stat
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from queue import Empty, SimpleQueue
from typing import Any

from ...outcome.errors import SourceError
from ...outcome.messages import Message
from ...server.file_io import POLLIN, new_poll, read_now, wait_until
from .remote import RemoteFile, RemotePath, open_remote

__all__ = [
    "BorrowedObjects", "Input", "LineSearch", "ReplicaFile", "StopEvent", "from_start",
    "name_of", "start_of",
]  # fmt: skip

# How often a wait for a pipe checks whether its data is still wanted, in milliseconds.
POLL_MS = 100
# Bytes to read if no size is given: a block of CSV.
READ_BYTES = 2 << 20
# Maximum number of blocks that Arrow may read ahead of parsing; by default, Arrow reads up to 32.
AHEAD_BLOCKS = 3
# Maximum time to find the line numbers of errors: enough for 7 GB of CSV, or 4 GB of JSON lines.
SEARCH_S = 10.0
# How many seconds close() waits for Arrow's threads.
CLOSE_SECONDS = 1.0
# Enough to detect any format or compression.
MAGIC_BYTES = 16


class StopEvent(threading.Event):
    """An event that is set when no more data is wanted, shared by the inputs of one pass.

    A pass reads all files once.

    Attributes:
        first: the input that reads the file itself; other inputs decompress or convert its bytes.
        block_ends: for each block that Arrow read ahead, the number of bytes of the file read up to
            the end of the block.
    """

    def __init__(self) -> None:
        super().__init__()
        self.reset()

    def reset(self) -> None:
        self.first: Input | None = None
        self.block_ends: list[int] = []

    def position(self, batch: int) -> int | None:
        """Return how many bytes of the file had been read at the end of a batch.

        Each batch is one block. If Arrow does not read ahead, return the number of all bytes read;
        if no input has read the file, return None.
        """
        if self.first is None:
            return None
        ends = self.block_ends
        return ends[min(batch, len(ends) - 1)] if ends else self.first.consumed


class LineSearch(StopEvent):
    """A StopEvent for a second pass, which finds line numbers; set after ``SEARCH_S`` seconds."""

    def __init__(self, within: StopEvent | None = None) -> None:
        super().__init__()
        self._within = within
        self._end = time.monotonic() + SEARCH_S

    def is_set(self) -> bool:
        outer = self._within is not None and self._within.is_set()
        return outer or super().is_set() or time.monotonic() > self._end


class Input:
    """A binary file that is read once, from start to end.

    Args:
        source: a path, or a file object open for reading bytes, which ``close()`` leaves open.
        stopped: set by another thread when no more data is wanted: reads then return no bytes.

    Attributes:
        name: the path, or the name of the file object.
        size: total number of bytes; None if unknown, as for a pipe.
        taken: number of bytes read so far.
    """

    def __init__(self, source: Any, stopped: StopEvent) -> None:
        self.stopped = stopped
        stopped.first = stopped.first or self
        self.taken = 0
        self._head = b""
        self._ended_early = False
        # Never read after the end: a terminal would wait for a second Ctrl-D.
        self._ended = False
        self._borrowed = BorrowedObjects()
        self._owns_file = isinstance(source, str | ReplicaFile)
        self._file: Any = source
        if isinstance(source, RemotePath):
            self._file = open_remote(source)
        elif isinstance(source, str):
            self._file = open(source, "rb", buffering=0, opener=_opened)  # noqa: SIM115
        self.name = name_of(source)
        if getattr(source, "closed", False):
            raise SourceError(f"{self.name} is closed; open it again")
        self.seekable = _seekable(self._file)
        self.size = _size(self._file) if self.seekable else None
        if self.size is None and isinstance(self._file, RemoteFile):
            self.size = self._file.total
        self._poll: Any = None
        # A BufferedReader may have buffered bytes, which poll() does not see, until its first read.
        self._may_have_buffer = isinstance(self._file, io.BufferedReader)
        if not self.seekable and isinstance(self._file, (io.FileIO, io.BufferedReader)):
            self._poll = new_poll()
            self._poll.register(self._file, POLLIN)

    def peek(self) -> bytes:
        """Return the next bytes without consuming them: MAGIC_BYTES or more, fewer at the end."""
        head = self._head
        while len(head) < MAGIC_BYTES and (piece := self.take(READ_BYTES)):
            head += piece
        self._head = head
        return head

    def put_back(self, head: bytes) -> None:
        self._head = head + self._head

    def read(self, size: int = -1) -> bytes:
        """Read ``size`` bytes; fewer only at the end.

        Arrow would treat a short read from a pipe as a whole block, and reject a row larger than
        that block.
        """
        if self.unwanted:
            return b""
        left = size if size >= 0 else sys.maxsize
        head, self._head = self._head[:left], self._head[left:]
        left -= len(head)
        pieces = [head] if head else []  # a single piece is joined without a copy
        while left > 0 and (piece := self.take(min(left, READ_BYTES))):
            pieces.append(piece)
            left -= len(piece)
        return b"".join(pieces)

    def rewound(self) -> Any:
        """Return the file object, moved back to the position before ``peek()``."""
        self._file.seek(-len(self._head), os.SEEK_CUR)
        self._head = b""
        return self._file

    def stop(self) -> None:
        """Make all further reads return no bytes."""
        self._ended_early = True

    def converted(self, convert: Callable[[bytes], bytes]) -> Input:
        """Return an input with the bytes that ``convert`` returns: see ConvertedFile."""
        return Input(ConvertedFile(self, convert), self.stopped)

    def arrow_file(self, *, ahead: bool = False) -> ArrowFile:
        """Return a file object for Arrow; if ``ahead``, Arrow reads in its own threads."""
        file = ArrowFile(self, self._borrowed if ahead else None)
        if ahead:
            self._borrowed.add(file)
        return file

    def close(self) -> None:
        """Stop reading, wait until Arrow's threads have released their objects, and close the file.

        A file object that the caller passed stays open.
        """
        self._ended_early = True
        try:
            self._borrowed.wait()
        finally:
            if self._owns_file:
                self._file.close()

    @property
    def consumed(self) -> int:
        """The number of bytes read, without bytes that were only peeked at or put back."""
        return max(0, self.taken - len(self._head))

    @property
    def unwanted(self) -> bool:
        return self._ended_early or self.stopped.is_set()

    def take(self, size: int) -> bytes:
        """Wait for data, and read 1 to ``size`` bytes; no bytes at the end, or if stopped."""
        piece: bytes | None = b"" if self._ended else None
        while piece is None:
            # Don't wait in the read() of a BufferedReader: it holds a lock, and an interpreter
            # that ends while the lock is held is aborted.
            while self._poll and not self._may_have_buffer and not self.unwanted:
                if self._poll.poll(POLL_MS):
                    break
            if self.unwanted:
                return b""
            piece = self._read(size)
        self._ended = not piece
        if self._ended and self.size is not None and self.taken < self.size:
            raise SourceError(
                "the file was truncated while it was read; load it again once it is complete"
            )
        self.taken += len(piece)
        return bytes(piece)

    def _read(self, size: int) -> bytes | None:
        """Read at most ``size`` bytes; None if no data is available yet."""
        if self._poll is not None and not self._may_have_buffer:
            try:
                return os.read(self._file.fileno(), size)
            except BlockingIOError:  # another process read the data
                return None
        self._may_have_buffer = False
        piece = read_now(self._file, size)
        if piece is None and self._poll is None:
            wait_until(self._file, POLLIN)
        return piece


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


class ArrowFile:
    """A binary file with the methods that Arrow needs."""

    closed = False

    def __init__(self, file: Input, borrowed: BorrowedObjects | None) -> None:
        self._file = file
        self._borrowed = borrowed
        # A SimpleQueue, because any code may release an object, which calls put().
        self._free_blocks: SimpleQueue[object] = SimpleQueue()
        for _ in range(AHEAD_BLOCKS):
            self._free_blocks.put(None)

    def read(self, size: int = -1) -> bytes | Block:
        if self._borrowed is None:
            return self._file.read(size)
        while not self._file.unwanted:
            with suppress(Empty):
                self._free_blocks.get(timeout=POLL_MS / 1000)
                break
        block = Block(self._file.read(size))
        stopped = self._file.stopped
        if stopped.first is not None:
            stopped.block_ends.append(stopped.first.consumed)
        self._borrowed.add(block, self._free_blocks.put)
        return block

    def close(self) -> None:
        """Do nothing: the opener of the file closes it."""


class ConvertedFile:
    """A binary file whose bytes are converted while they are read; the source of an Input.

    Args:
        convert: converts a block; at the end of the file, it receives an empty block.
    """

    def __init__(self, data: Input, convert: Callable[[bytes], bytes]) -> None:
        self.name = data.name
        self._data = data
        self._convert = convert
        self._ready = b""
        self._ended = False

    def read(self, size: int) -> bytes:
        while not self._ready and not self._ended:
            block = self._data.read(size)
            self._ended = not block
            if block or not self._data.stopped.is_set():
                self._ready = self._convert(block)
        piece, self._ready = self._ready[:size], self._ready[size:]
        return piece


def name_of(file: Any) -> str:
    """Return a name for messages: the path, or the name of the file object."""
    if isinstance(file, str | os.PathLike):
        return os.fspath(file)
    name = getattr(file, "name", None)
    if name == 0 or name == "<stdin>":
        return "standard input"
    return name if isinstance(name, str) else "the file object"


def _opened(path: str, flags: int) -> int:
    """Open a file. On Linux, don't wait for the writer of a named pipe: poll() does that later.

    On other systems, poll() may report the end of the file if there is no writer yet.
    """
    if sys.platform == "linux" and stat.S_ISFIFO(os.stat(path).st_mode):
        flags |= os.O_NONBLOCK
    return os.open(path, flags)


def _seekable(file: Any) -> bool:
    try:
        return bool(file.seekable())
    except AttributeError:
        return False


def start_of(source: Any) -> int | None:
    """Return the position of a file object that can be read again; None for paths and pipes."""
    if isinstance(source, str) or getattr(source, "closed", False) or not _seekable(source):
        return None
    return int(source.tell())


@contextmanager
def from_start(source: Any, start: int | None) -> Iterator[int]:
    """Move a file object to ``start``, and back when the context ends.

    If ``start`` is None, do nothing.

    Yields:
        The number of line ends before ``start``.
    """
    if start is None:
        yield 0
        return
    here = source.tell()
    source.seek(0)
    lines = 0
    try:
        while block := source.read(min(start - source.tell(), READ_BYTES)):
            lines += block.count(b"\n")
        yield lines
    finally:
        source.seek(here)


def _size(file: Any) -> int | None:
    """Return the number of bytes from the current position to the end; None for files of /proc."""
    here = int(file.tell())
    try:
        end = int(file.seek(0, os.SEEK_END))
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
        return None
    file.seek(here)
    return end - here


class ReplicaFile(io.RawIOBase):
    """A server's snapshot as an RDB file; the first ``read()`` requests it, as a replica does.

    Args:
        url: the URL of the server, with ``+psync`` after its scheme.

    Raises:
        ValueError: the URL can't be parsed, or names a database.
    """

    def __init__(self, url: str) -> None:
        from ...server.preflight import Requirements
        from ...server.settings import ASK_TIMEOUT_S, Server
        from ..replica_stream import ReplicaStream

        server = Server(re.sub(r"\+psync", "", url, count=1), Requirements(reading=True))
        if server.settings.get("db"):
            raise ValueError("a snapshot has all databases; choose one with db=, not in the URL")
        self.name = f"snapshot of {server}"
        instead = Message("use fastresp.unload() to read with SCAN")
        self._stream = ReplicaStream(server, 6 * ASK_TIMEOUT_S, instead=instead)
        self._begun = False

    def read(self, size: int = -1) -> bytes:
        """Return ``size`` bytes, fewer only at the end; raises as ``ReplicaStream`` does."""
        if not self._begun:
            self._begun = True
            self._stream.open()
        return self._stream.read(size)

    def close(self) -> None:
        self._stream.close()
        super().close()
