"""Whole writes and patient reads, also of files that do not block.

``write()`` of an unbuffered file may write a part, as where a disk becomes full. A file that does
not block reports that there is nothing to read, or no room, in a way that looks like the end or
like success; and any process that shares a pipe or a terminal can set it so, at any time.
"""

from __future__ import annotations

import errno
import io
import select
from typing import TYPE_CHECKING, Any, TextIO

if TYPE_CHECKING:
    from typing_extensions import Buffer

__all__ = ["Output", "blocking_text", "read_now", "read_some", "wait_until", "write_all"]


def write_all(file: Any, data: Buffer) -> None:
    """Write all of the data, in as many calls as it takes.

    Args:
        file: a file object open for writing bytes.
        data: bytes, or a contiguous buffer.

    Raises:
        OSError: the file can't be written; BlockingIOError if it does not block and can't be
            waited for.
    """
    rest = memoryview(data).cast("B")
    while rest:
        written = _written(file, rest)
        if written is None:
            wait_until(file, select.POLLOUT)
        elif written == 0:
            raise OSError(errno.EIO, "the file takes no more bytes: its write() returned 0")
        else:
            rest = rest[written:]


def _written(file: Any, data: memoryview) -> int | None:
    """How many bytes one call of write() took; None where there is no room at the moment."""
    try:
        written: int | None = file.write(data)
    except BlockingIOError as error:
        return getattr(error, "characters_written", 0) or None
    if written is None and not isinstance(file, io.RawIOBase):
        return len(data)  # a file-like object that returns nothing
    return written


def read_some(file: Any, size: int) -> bytes:
    """Read at least one byte and at most ``size``, and wait for the first; empty at the end only.

    Args:
        file: a file object open for reading bytes.

    Raises:
        OSError: as for ``write_all``.
    """
    while (piece := read_now(file, size)) is None:
        wait_until(file, select.POLLIN)
    return piece


def read_now(file: Any, size: int) -> bytes | None:
    """Read at most ``size`` bytes with one call; empty at the end, None if there is nothing yet."""
    try:
        if isinstance(file, (io.BufferedReader, io.BufferedRWPair)) and not file.seekable():
            # Of the methods that do one read, only this one tells nothing yet from the end.
            block = bytearray(size)
            count = file.readinto1(block)
            return None if count is None else bytes(memoryview(block)[:count])
        piece: bytes | None = getattr(file, "read1", file.read)(size)
    except BlockingIOError:
        return None
    if isinstance(piece, str):
        raise TypeError("the file object is open for text: open it with 'rb', or give its .buffer")
    return piece


def wait_until(file: Any, event: int) -> None:
    """Wait until a file that does not block can be read (POLLIN) or written (POLLOUT).

    Raises:
        BlockingIOError: it has no descriptor to wait for.
    """
    try:
        number = file.fileno()
    except (AttributeError, OSError) as error:
        raise BlockingIOError(
            errno.EAGAIN,
            "the file object does not block, and has no descriptor to wait for; give one that "
            "blocks",
        ) from error
    poll = select.poll()
    poll.register(number, event)
    poll.poll()


class Output(io.BufferedIOBase):
    """A descriptor as a file whose ``write()`` writes all of its data; it is not closed."""

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
    """The same stream of text, with writes that are whole."""
    try:
        number = stream.fileno()
    except (AttributeError, OSError):  # it is no file
        return stream
    stream.flush()
    return io.TextIOWrapper(
        Output(number),
        encoding=stream.encoding,
        errors=stream.errors,
        # Also where Python was told not to buffer at all.
        line_buffering=getattr(stream, "line_buffering", False)
        or getattr(stream, "write_through", False),
    )
