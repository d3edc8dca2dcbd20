"""Explain errors from running out of file descriptors."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager

from ..outcome.errors import TransportError

__all__ = ["ADVICE", "are_exhausted", "needed_for"]

EXHAUSTED = (errno.EMFILE, errno.ENFILE)
ADVICE = (
    "this process, or the system, is out of file descriptors: raise the limit, for example with "
    "'ulimit -n 4096', or close files and connections"
)


def are_exhausted(error: BaseException | None) -> bool:
    """Return whether an exception or one of its causes is due to a lack of file descriptors."""
    while error is not None:
        # Without free descriptors, looking up a host or a folder fails with an unrelated error.
        if isinstance(error, OSError) and (error.errno in EXHAUSTED or not _one_is_left()):
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
    """If no file descriptor is free, convert an OSError of the block to a TransportError.

    Args:
        what: the failed action, such as ``"redis-cli can't be started"``.
    """
    try:
        yield
    except TransportError:
        raise
    except OSError as error:
        if not are_exhausted(error):
            raise
        raise TransportError(f"{what}: {error.strerror} ({ADVICE})") from error
