"""Checks before and while files are read: first bytes, changes, outputs, address space."""

from __future__ import annotations

import codecs
import io
import os
import re
import stat
from collections.abc import Iterable
from contextlib import suppress
from typing import Any, NamedTuple

from ...outcome.errors import SourceError
from ...outcome.messages import Hint, Message
from .input import name_of
from .remote import RemotePath, current

__all__ = [
    "PACKED_BEGINNINGS", "InitialState", "binary_format", "check_address_space",
    "check_not_read", "check_text",
]  # fmt: skip

# Supported compressions. A Zstandard file may begin with a skippable frame (pzstd).
PACKED_BEGINNINGS = {
    "gzip": re.compile(rb"\x1f\x8b"),
    "zstd": re.compile(rb"\x28\xb5\x2f\xfd|[\x50-\x5f]\x2a\x4d\x18"),
    "bz2": re.compile(rb"BZh[1-9](1AY&SY|\x17rE8P\x90)"),
}
PACKED_NAMES = {"gzip": "gzip", "zstd": "Zstandard", "bz2": "bzip2"}
UNREAD_COMPRESSIONS = {b"\xfd7zXZ\0": "compressed with xz", b"\x04\x22\x4d\x18": "an LZ4 file"}
# In Parquet, Thrift field 1 (an integer) follows PAR1; a CSV header may also begin with PAR1.
PARQUET = b"PAR1\x15"
OTHERS = {
    b"PK\x03\x04": "a zip archive, as Excel writes it",
    b"7z\xbc\xaf\x27\x1c": "a 7-Zip archive",
    b"ARROW1\0\0": "Arrow IPC",
    b"SQLite format 3\0": "an SQLite database",
    b"Obj\x01": "Avro",
    b"\xd0\xcf\x11\xe0": "an old Excel file",
    PARQUET: "Parquet",
}


def binary_format(head: bytes) -> str | None:
    """Return a description of the binary format of a file, from its first bytes; None for text."""
    for name, pattern in PACKED_BEGINNINGS.items():
        if pattern.match(head):
            return f"compressed with {PACKED_NAMES[name]}"
    names = UNREAD_COMPRESSIONS | OTHERS
    return next((name for magic, name in names.items() if head.startswith(magic)), None)


def check_text(head: bytes, kind: str) -> None:
    """Refuse a text file whose first bytes, decompressed, are not of the expected format."""
    if any(map(head.startswith, UNREAD_COMPRESSIONS)):
        raise SourceError(
            f"it is {binary_format(head)}, which is not supported; decompress it first"
        )
    if kind == "lines":
        return
    if head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        raise SourceError(Message("it is UTF-16; use ", Hint("encoding", "utf-16")))
    first, second = head[:16:2], head[1:16:2]  # one has only NULs if the text is ASCII in UTF-16
    if second and any(first) != any(second):
        name = "utf-16-le" if any(first) else "utf-16-be"
        raise SourceError(Message("it is UTF-16; use ", Hint("encoding", name)))
    found = binary_format(head)
    if found == "Parquet":
        raise SourceError(Message("it is Parquet; use ", Hint("format", "parquet")))
    if found is not None:
        raise SourceError(f"it is {found}; convert it, or pass another file")


class State(NamedTuple):
    """A file's state, which changes with its contents; the version is an mtime or ETag."""

    device: int
    inode: int
    size: int
    version: int | str


class InitialState:
    """The state of a path or a file object before it is read.

    Only regular files, URLs and BytesIO objects are compared. Empty files are not compared, because
    files of /proc seem to be empty.
    """

    def __init__(self, source: Any) -> None:
        self._source = source
        self._before = state_of(source)  # for a URL, the state when it was found

    @property
    def unchanged(self) -> bool:
        """Whether the source is unchanged; False if it is empty, or its state is unknown."""
        before = self._before
        return before is not None and before.size > 0 and self._now() == before

    def _now(self) -> State | None:
        return state_of(current(self._source))

    def check(self) -> None:
        """Raise SourceError if the state has changed, or can no longer be read."""
        before = self._before
        if before is None or not before.size:
            return
        now = self._now()
        if now == before:
            return
        if now is None or (now.device, now.inode) != (before.device, before.inode):
            message = "the file was replaced or removed"
        elif now.size != before.size:
            message = f"the size of the file changed from {before.size:,} to {now.size:,} bytes"
        else:
            message = "the file was written to"
        raise SourceError(
            f"{name_of(self._source)}: {message} while it was read; load it again once nothing "
            "writes to it (data from a pipe is not compared)"
        )


def state_of(source: Any) -> State | None:
    """Return the state of a regular file, a remote file or a BytesIO; None for anything else."""
    try:
        if isinstance(source, RemotePath):
            return State(0, 0, source.state.size or 0, source.state.version)
        if isinstance(source, io.BytesIO):
            return State(0, 0, len(source.getbuffer()), 0)
        path = isinstance(source, str | os.PathLike)
        found = os.stat(source) if path else os.fstat(source.fileno())
    except (OSError, ValueError, AttributeError, TypeError):
        return None
    if not stat.S_ISREG(found.st_mode):
        return None
    return State(found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns)


def check_not_read(path: str | os.PathLike[str], files: Iterable[str]) -> None:
    """Refuse to write to ``path`` if it is one of the files to read."""
    for file in files if os.path.exists(path) else ():
        if os.path.exists(file) and os.path.samefile(path, file):
            raise ValueError(f"{os.fspath(path)} is also the source; write to another file")


# For a few blocks, and for Arrow's threads: each has a stack of 8 MiB and a heap of up to 64 MiB.
# With less, Arrow may wait forever for a thread that could not start, even at process exit.
MIN_FREE_BYTES = 256 << 20


def check_address_space() -> None:
    """Check that the limit of the address space (``ulimit -v``) is large enough to read files."""
    try:
        import resource
    except ImportError:  # Windows
        return
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    if limit == resource.RLIM_INFINITY:
        return
    used = 0
    # macOS has no such file.
    with suppress(OSError), open("/proc/self/statm", "rb") as file:
        used = int(file.read().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    free = max(limit - used, 0)
    if free < MIN_FREE_BYTES:
        raise SourceError(
            f"the limit of address space, {limit >> 20:,} MiB, leaves {free >> 20:,} MiB to read "
            f"files, and Arrow's threads need {MIN_FREE_BYTES >> 20}; raise it (ulimit -v), "
            "or limit the memory with a container or cgroup instead"
        )
