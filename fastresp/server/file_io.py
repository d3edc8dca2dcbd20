"""File I/O: complete writes, blocking reads, waits, and errors if no file descriptor is free.

``write()`` of an unbuffered file may write only a part, for example when a disk becomes full. On a
non-blocking file, a read without data looks like the end of the file, and a write to a full pipe
looks like a success. Any process that shares a pipe or a terminal can make it non-blocking, at any
time.
"""

from __future__ import annotations

import errno
import io
import os
import select
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import date
from types import BuiltinFunctionType
from typing import TYPE_CHECKING, Any, TextIO

if TYPE_CHECKING:
    from typing_extensions import Buffer

__all__ = [
    "ADVICE", "EarlierOutput", "Output", "POLLIN", "POLLOUT", "are_exhausted", "blocking_text",
    "check_unused", "is_patched", "needed_for", "new_poll", "read_now", "read_some", "wait_until",
    "write_all",
]  # fmt: skip

EXHAUSTED = (errno.EMFILE, errno.ENFILE)
ADVICE = (
    "this process, or the system, is out of file descriptors: raise the limit, for example with "
    "'ulimit -n 4096', or close files and connections"
)
# The values of poll(2). Eventlet removes these names from ``select``.
POLLIN, POLLOUT = 1, 4


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


def are_exhausted(error: BaseException | None) -> bool:
    """Return whether an exception or one of its causes is due to a lack of file descriptors."""
    while error is not None:
        # Without free descriptors, imports and looking up a host or a folder fail with an
        # unrelated error.
        if isinstance(error, OSError | ImportError) and (
            getattr(error, "errno", None) in EXHAUSTED or not _one_is_left()
        ):
            return True
        error = error.__cause__ or error.__context__
    return False


def _one_is_left() -> bool:
    try:
        os.close(os.open(os.devnull, os.O_RDONLY))
    except OSError as error:
        return error.errno not in EXHAUSTED
    return True


@contextmanager
def needed_for(what: str) -> Iterator[None]:
    """If no file descriptor is free, convert an error in the block to a TransportError.

    ``what`` is the failed action, such as ``"redis-cli can't be started"``.
    """
    try:
        yield
    except (OSError, ImportError) as error:
        from ..outcome.errors import TransportError  # not at the start: --help does not need it

        if isinstance(error, TransportError) or not are_exhausted(error):
            raise
        why = getattr(error, "strerror", None) or error
        raise TransportError(f"{what}: {why} ({ADVICE})") from error


def is_patched() -> bool:
    """Return whether a library such as gevent has patched poll(); if so, all waits must use it."""
    return not isinstance(getattr(select, "poll", None), BuiltinFunctionType)


def new_poll() -> Any:
    """Return a poll object; where poll() does not exist, a substitute based on select()."""
    poll = getattr(select, "poll", None)
    return SelectPoll() if poll is None else poll()


class SelectPoll:
    """The methods of ``select.poll()`` that we use, implemented with ``select.select()``."""

    def __init__(self) -> None:
        self._events: dict[int, int] = {}

    def register(self, file: Any, events: int = POLLIN) -> None:
        self._events[file if isinstance(file, int) else file.fileno()] = events

    def unregister(self, file: Any) -> None:
        del self._events[file if isinstance(file, int) else file.fileno()]

    def poll(self, milliseconds: float | None = None) -> list[tuple[int, int]]:
        reading = [number for number, events in self._events.items() if events & POLLIN]
        writing = [number for number, events in self._events.items() if events & POLLOUT]
        seconds = None if milliseconds is None or milliseconds < 0 else milliseconds / 1000
        readable, writable, _ = select.select(reading, writing, [], seconds)
        found = dict.fromkeys(readable, POLLIN)
        for number in writable:
            found[number] = found.get(number, 0) | POLLOUT
        return list(found.items())
