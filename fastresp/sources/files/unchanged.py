"""Notice that a file was replaced, truncated or appended to while it was read."""

from __future__ import annotations

import io
import os
import stat
from typing import Any, NamedTuple

from ...outcome.errors import SourceError
from .input import name_of
from .remote import RemotePath, current

__all__ = ["Unchanged"]


class State(NamedTuple):
    """A file's state, which changes with its contents; the version is an mtime or ETag."""

    device: int
    inode: int
    size: int
    version: int | str


class Unchanged:
    """The state of a file before it is read.

    Only regular files and files of URLs are compared. Files of /proc count as empty, and are not
    compared.

    Args:
        source: a path or a file object.
    """

    def __init__(self, source: Any) -> None:
        self._source = source
        self._before = state_of(source)  # for a URL, the state when it was found

    @property
    def holds(self) -> bool:
        """Whether the source is unchanged; False if it is empty, or its state is unknown."""
        before = self._before
        return before is not None and before.size > 0 and self._now() == before

    def _now(self) -> State | None:
        return state_of(current(self._source))

    def check(self) -> None:
        """Check that the state has not changed.

        Raises:
            SourceError: the state has changed, or a URL can no longer be requested.
        """
        before = self._before
        if before is None or not before.size:
            return
        now = self._now()
        if now == before:
            return
        if now is None or (now.device, now.inode) != (before.device, before.inode):
            words = "the file was replaced or removed"
        elif now.size != before.size:
            words = f"the size of the file changed from {before.size:,} to {now.size:,} bytes"
        else:
            words = "the file was written to"
        path = isinstance(self._source, str | os.PathLike)
        name = os.fspath(self._source) if path else name_of(self._source)
        raise SourceError(
            f"{name}: {words} while it was read; load it again once nothing writes to it (data "
            "from a pipe is not compared)"
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
