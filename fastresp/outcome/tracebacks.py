"""Tracebacks that show the user's code, and not the generators between it and the fault."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from types import TracebackType

from .error_reply import FastrespError

__all__ = ["shorten"]

# Their frames say nothing about the user's program.
OURS = ("fastresp",)
CONNECTING = ("fastresp", "redis", "valkey", "socket", "ssl", "contextlib")


def shorten(error: BaseException) -> None:
    """Remove internal frames from the traceback of an error that leaves a public function.

    Frames of the user's code stay, such as those of a generator of rows; causes stay, too, without
    internal frames. An error that fastresp itself may have caused keeps all frames, as does every
    error with ``python -X dev``.

    Args:
        error: caught, and then raised again by a ``raise`` without arguments.
    """
    if sys.flags.dev_mode or not _is_expected(error):
        return
    if isinstance(error, FastrespError):
        cause = error.__cause__
        error.__suppress_context__ = True
        seen: list[BaseException] = []
        while cause is not None and cause not in seen:
            seen.append(cause)
            if all(_within(each, CONNECTING) for each in _entries(cause.__traceback__)):
                cause.__traceback__, cause.__suppress_context__ = None, True
            else:
                cause.__traceback__ = _without(cause.__traceback__)
            cause = cause.__cause__
    error.__traceback__ = _without(error.__traceback__)


def _is_expected(error: BaseException) -> bool:
    """Return whether an error is no fault in the code of fastresp."""
    if not isinstance(error, Exception) or isinstance(error, (FastrespError, OSError)):
        return True
    *_, last = _entries(error.__traceback__)
    return not _within(last, OURS)


def _entries(traceback: TracebackType | None) -> Iterator[TracebackType]:
    while traceback is not None:
        yield traceback
        traceback = traceback.tb_next


def _within(entry: TracebackType, packages: tuple[str, ...]) -> bool:
    """Return whether a frame is in one of these packages."""
    name: str = entry.tb_frame.f_globals.get("__name__", "")
    return name.partition(".")[0] in packages


def _without(traceback: TracebackType | None) -> TracebackType | None:
    """Return a traceback without the frames of fastresp."""
    kept: TracebackType | None = None
    for each in reversed([*_entries(traceback)]):
        if not _within(each, OURS):
            kept = TracebackType(kept, each.tb_frame, each.tb_lasti, each.tb_lineno)
    return kept
