"""Complete writes and blocking reads, even on non-blocking files; a check of output files.

``write()`` of an unbuffered file may write only a part, for example when a disk becomes full. On a
non-blocking file, a read without data looks like the end of the file, and a write to a full pipe
looks like a success. Any process that shares a pipe or a terminal can make it non-blocking, at any
time.
"""

from __future__ import annotations

import errno
import io
import os
from datetime import date
from typing import TYPE_CHECKING, Any, TextIO

from .descriptors import POLLIN, POLLOUT, new_poll

if TYPE_CHECKING:
    from typing_extensions import Buffer

__all__ = [
    "EarlierOutput", "Output", "blocking_text", "check_unused", "read_now", "read_some",
    "wait_until", "write_all",
]  # fmt: skip


def write_all(file: Any, data: Buffer) -> None:
    """Write all of the data, in as many calls as needed."""
    rest = memoryview(data).cast("B")
    while rest:
        try:
            written: int | None = file.write(rest)
            if written is None and not isinstance(file, io.RawIOBase):
                return  # a file-like object that returns nothing
        except BlockingIOError as error:
            written = getattr(error, "characters_written", 0) or None
        if written is None:
            wait_until(file, POLLOUT)
        elif written == 0:
            raise OSError(errno.EIO, "the file accepts no more bytes: its write() returned 0")
        else:
            rest = rest[written:]


def read_some(file: Any, size: int) -> bytes:
    """Wait for data, and read 1 to ``size`` bytes; empty only at the end of the file."""
    while (piece := read_now(file, size)) is None:
        wait_until(file, POLLIN)
    return piece


def read_now(file: Any, size: int) -> bytes | None:
    """Read at most ``size`` bytes in one call; empty at the end, None if no data has arrived."""
    try:
        if isinstance(file, (io.BufferedReader, io.BufferedRWPair)) and not file.seekable():
            # Only readinto1() makes one read and distinguishes missing data from the end.
            block = bytearray(size)
            count = file.readinto1(block)
            return None if count is None else bytes(memoryview(block)[:count])
        piece: bytes | None = getattr(file, "read1", file.read)(size)
    except BlockingIOError:
        return None
    if isinstance(piece, str):
        raise TypeError("the file object is open for text; open it with 'rb', or pass its .buffer")
    return piece


def wait_until(file: Any, event: int) -> None:
    """Wait until a non-blocking file can be read (POLLIN) or written (POLLOUT)."""
    try:
        number = file.fileno()
    except (AttributeError, OSError) as error:
        raise BlockingIOError(
            errno.EAGAIN,
            "the file object is non-blocking and has no file descriptor to poll; pass a blocking "
            "one",
        ) from error
    poll = new_poll()
    poll.register(number, event)
    poll.poll()


class Output(io.BufferedIOBase):
    """A file object for a descriptor: ``write()`` writes all data; the descriptor stays open."""

    def __init__(self, number: int) -> None:
        self._file = io.FileIO(number, "wb", closefd=False)

    @property
    def name(self) -> Any:
        return self._file.name

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        return self._file.fileno()

    def isatty(self) -> bool:
        return self._file.isatty()

    def write(self, data: Buffer, /) -> int:
        write_all(self._file, data)
        return memoryview(data).nbytes


def blocking_text(stream: TextIO) -> TextIO:
    """Return a text stream to the same file that waits until all data is written."""
    try:
        number = stream.fileno()
    except (AttributeError, OSError):  # not a file
        return stream
    stream.flush()
    return io.TextIOWrapper(
        Output(number),
        encoding=stream.encoding,
        errors=stream.errors,
        # Also flush each line if Python runs unbuffered.
        line_buffering=getattr(stream, "line_buffering", False)
        or getattr(stream, "write_through", False),
    )


class EarlierOutput(FileExistsError):
    """An output file still contains the output of an earlier run."""


def check_unused(path: str | os.PathLike[str], contents: str, step: str = "look at them") -> None:
    """Refuse to overwrite a file that is not empty.

    Args:
        path: the file to write.
        contents: for the message, the earlier output that the file may contain.
        step: for the message, what to do with this output.

    Raises:
        EarlierOutput: the file is not empty.
    """
    if os.path.isfile(path) and os.path.getsize(path):
        stem, suffix = os.path.splitext(os.fspath(path))
        raise EarlierOutput(
            f"{os.fspath(path)} already exists, and may contain {contents}: {step}, then move the "
            f"file away; or name another file, such as {stem}-{date.today()}{suffix}"
        )
