"""Write a file beside its place, and put it there when it is complete."""

from __future__ import annotations

import errno
import io
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from ..encode.payload.crc64 import checksum
from ..server.forks import Inherited, is_own, own
from ..sources.blocking import write_all

if TYPE_CHECKING:
    from typing_extensions import Buffer

__all__ = ["Output", "new_file", "told"]

# The system is asked to begin writing to the disk whenever it has this many bytes, so that the end
# does not wait for all of them.
BEGUN_BYTES = 8 << 20
NO_SPACE = (errno.ENOSPC, errno.EDQUOT)


@contextmanager
def new_file(path: str | os.PathLike[str], *, durable: bool = True) -> Iterator[Output]:
    """Open a file that takes the place of ``path`` at the end, or is removed after an exception.

    At each moment there is the old file or the whole new one at the path. A symbolic link stays,
    and what it points to is replaced.

    Args:
        path: where the file will be.
        durable: whether that holds after a crash of the machine, too, which costs two fsync().

    Raises:
        OSError: the file can't be created or written.
        ValueError: there is something else than a file at the path.
    """
    place = os.path.realpath(os.fsdecode(path))
    folder = os.path.dirname(place)
    temporary = os.path.join(folder, f".fastresp-{os.urandom(8).hex()}")
    mode = _mode_of(place)
    file: io.FileIO | None = None
    try:
        with told(place):
            file = io.FileIO(temporary, "x")
            own(file, io.FileIO.close)
            if mode is not None:
                os.fchmod(file.fileno(), mode)
        with file:
            yield Output(file, place)
            if durable:
                with told(place):
                    os.fsync(file.fileno())
        with told(place):
            os.replace(temporary, place)
    except BaseException:
        if file is None or is_own(file):
            with suppress(OSError):
                os.unlink(temporary)
        raise
    if durable:
        _sync_folder(folder)


class Output:
    """A new file, with the checksum of an RDB file.

    Attributes:
        place: where the file will be.
        size: bytes so far.
        crc: their checksum.
    """

    def __init__(self, file: io.FileIO, place: str) -> None:
        self.place = place
        self.size = 0
        self.crc = 0
        self._file = file
        self._begun = 0

    def add(self, data: Buffer) -> None:
        """Write data at the end."""
        if not is_own(self._file):
            raise OSError(str(Inherited("file")))
        self.crc = checksum(data, self.crc)
        with told(self.place):
            write_all(self._file, data)
        self.size += memoryview(data).nbytes
        fresh = self.size - self._begun
        if fresh >= BEGUN_BYTES and hasattr(os, "posix_fadvise"):
            # Linux begins to write what is not on the disk yet, and forgets only what is.
            with suppress(OSError):
                os.posix_fadvise(self._file.fileno(), self._begun, fresh, os.POSIX_FADV_DONTNEED)
            self._begun = self.size

    def patch(self, at: int, data: bytes) -> None:
        """Replace bytes; the checksum is not changed."""
        with told(self.place):
            os.pwrite(self._file.fileno(), data, at)


def _mode_of(place: str) -> int | None:
    """Return the permissions of the file that is replaced; None if there is none.

    Raises:
        ValueError: it is not a file.
    """
    try:
        found = os.stat(place)
    except FileNotFoundError:
        return None
    if not stat.S_ISREG(found.st_mode):
        raise ValueError(f"{place} is not a file, and can't be replaced by one; choose another")
    return stat.S_IMODE(found.st_mode)


@contextmanager
def told(place: str) -> Iterator[None]:
    """Say in an OSError which file can't be written, and that nothing is left of it."""
    try:
        yield
    except OSError as error:
        words = f"{error.strerror}; no file was written"
        if error.errno in NO_SPACE:
            words += "; free space, or choose another folder"
        raise OSError(error.errno, words, place) from error


def _sync_folder(folder: str) -> None:
    """Have the folder's entries on the disk, too; some file systems have no such call."""
    with suppress(OSError):
        number = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(number)
        finally:
            os.close(number)
