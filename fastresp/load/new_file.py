"""Write a temporary file, and rename it to its path when it is complete."""

from __future__ import annotations

import errno
import io
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from ..encode.payload.format import checksum
from ..server.file_io import write_all
from ..server.forks import Inherited, is_own, on_fork

if TYPE_CHECKING:
    from typing_extensions import Buffer

__all__ = ["NewFile", "TargetPath", "naming_file", "new_file", "replacing"]

# After each BEGUN_BYTES written, the system is asked to write these bytes back to disk, so that the
# final fsync() has little to wait for.
BEGUN_BYTES = 8 << 20
NO_SPACE = (errno.ENOSPC, errno.EDQUOT)


class Displaced(FileExistsError):
    """The file at the target path was created or changed while the new file was written.

    The new file is complete, and keeps its temporary name.
    """


class TargetPath:
    """The path that a new file will get, and the state of the file that exists there.

    Args:
        path: path of the file; a symbolic link is kept, and its target is replaced.
        beginnings: byte strings; an existing file is replaced only if it is empty or starts with
            one of them. Without byte strings, any file is replaced.
        what: the kind of file that starts with these byte strings, for messages.

    Raises:
        FileExistsError: the existing file starts with different bytes.
        ValueError: the path is not a file.
    """

    def __init__(
        self, path: str | os.PathLike[str], beginnings: tuple[bytes, ...] = (), what: str = ""
    ) -> None:
        self.path = os.path.realpath(os.fsdecode(path))
        self._beginnings = beginnings
        self._what = what
        found = self._look()
        if found is not None and not stat.S_ISREG(found.st_mode):
            raise ValueError(
                f"{self.path} is not a file, and can't be replaced by one; choose another path"
            )
        self.mode = None if found is None else stat.S_IMODE(found.st_mode)
        self._before = None if found is None else version(found)
        self._check_beginning()

    def _look(self) -> os.stat_result | None:
        try:
            return os.lstat(self.path)
        except FileNotFoundError:
            return None

    def check(self, new: str) -> None:
        """Check that the file now at the path may be replaced.

        Args:
            new: path of the new file, for messages.

        Raises:
            Displaced: there are no ``beginnings``, and the file was created or changed since this
                TargetPath was created.
            FileExistsError: there are ``beginnings``, and the file starts with different bytes or
                has become a symbolic link.
        """
        found = self._look()
        ours = found is None or stat.S_ISREG(found.st_mode)
        ours = ours and os.path.realpath(self.path) == self.path
        if self._beginnings:
            if not ours:
                raise self._refusal("has become a symbolic link, or is no longer a file")
            self._check_beginning()
        elif not ours or (found is not None and version(found) != self._before):
            raise Displaced(
                f"{self.path!r} was replaced meanwhile, and is left unchanged; the new file is "
                f"{new}"
            )

    def _check_beginning(self) -> None:
        if not self._beginnings or self._look() is None:
            return
        with open(os.open(self.path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb") as file:
            beginning = file.read(max(map(len, self._beginnings)))
        if beginning and not beginning.startswith(self._beginnings):
            raise self._refusal(f"is not a {self._what} file")

    def _refusal(self, why: str) -> FileExistsError:
        words = "was not replaced; move it, or name another file"
        return FileExistsError(f"{self.path!r} {why}, and {words}")


def version(found: os.stat_result) -> tuple[int, ...]:
    """Return values that identify a file and its content; an inode alone may be reused."""
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns


@contextmanager
def new_file(
    path: str | os.PathLike[str] | TargetPath, *, durable: bool = True
) -> Iterator[NewFile]:
    """Open a file that atomically replaces ``path`` when it is closed.

    After an exception, the new file is removed, unless the exception is ``Displaced``. A symbolic
    link is kept, and its target is replaced. If a file was created or changed at the path while
    the new file was written, it is not replaced: ``Displaced`` is raised, and the new file keeps
    its temporary name. But if ``path`` is a TargetPath with ``beginnings``, a changed file is
    replaced if it is empty or starts with one of them.

    Args:
        path: the final path of the new file.
        durable: whether the replacement survives a crash of the machine, which costs two fsync().

    Raises:
        FileExistsError: the file at the path must not be replaced; ``Displaced`` if it was created
            or changed since the start.
        OSError: the file can't be created or written.
        ValueError: the path is not a file.
    """
    with replacing(path, durable=durable) as (file, place):
        yield NewFile(file, place)


@contextmanager
def replacing(
    path: str | os.PathLike[str] | TargetPath, *, durable: bool = False
) -> Iterator[tuple[io.FileIO, str]]:
    """Like ``new_file()``, but yield the raw file and its final path."""
    place = path if isinstance(path, TargetPath) else TargetPath(path)
    folder = os.path.dirname(place.path)
    temporary = os.path.join(folder, f".fastresp-{os.urandom(8).hex()}")
    file: io.FileIO | None = None
    try:
        with naming_file(place.path):
            file = io.FileIO(temporary, "x")
            on_fork(file, io.FileIO.close)
            if place.mode is not None:
                os.fchmod(file.fileno(), place.mode)
        with file:
            yield file, place.path
            if durable:
                with naming_file(place.path):
                    os.fsync(file.fileno())
        place.check(temporary)
        with naming_file(place.path):
            os.replace(temporary, place.path)
    except Displaced:
        raise
    except BaseException:
        if file is None or is_own(file):
            with suppress(OSError):
                os.unlink(temporary)
        raise
    if durable:
        _sync_folder(folder)


class NewFile:
    """A new file, with a checksum of the bytes written, which an RDB file needs.

    Attributes:
        place: final path of the file.
        size: number of bytes written.
        crc: checksum of the written bytes.
    """

    def __init__(self, file: io.FileIO, place: str) -> None:
        self.place = place
        self.size = 0
        self.crc = 0
        self._file = file
        self._begun = 0

    def add(self, data: Buffer) -> None:
        """Append data to the file."""
        if not is_own(self._file):
            raise OSError(str(Inherited("file")))
        self.crc = checksum(data, self.crc)
        with naming_file(self.place):
            write_all(self._file, data)
        self.size += memoryview(data).nbytes
        fresh = self.size - self._begun
        if fresh >= BEGUN_BYTES and hasattr(os, "posix_fadvise"):
            # DONTNEED drops only clean pages; Linux starts to write dirty pages back to disk.
            with suppress(OSError):
                os.posix_fadvise(self._file.fileno(), self._begun, fresh, os.POSIX_FADV_DONTNEED)
            self._begun = self.size

    def patch(self, at: int, data: bytes) -> None:
        """Overwrite the bytes at offset ``at``, without updating the checksum."""
        with naming_file(self.place):
            os.pwrite(self._file.fileno(), data, at)


@contextmanager
def naming_file(place: str) -> Iterator[None]:
    """Reword an OSError: name the file's path, and say that no file was written."""
    try:
        yield
    except OSError as error:
        words = f"{error.strerror}; no file was written"
        if error.errno in NO_SPACE:
            words += "; free space, or choose another folder"
        raise OSError(error.errno, words, place) from error


def _sync_folder(folder: str) -> None:
    """Sync the folder's entries to disk, if the file system supports that."""
    with suppress(OSError):
        number = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(number)
        finally:
            os.close(number)
