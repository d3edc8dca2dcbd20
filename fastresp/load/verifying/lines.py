"""Write differences as JSON Lines."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from inspect import iscoroutinefunction
from types import TracebackType
from typing import IO, Self, TypeAlias

from ...outcome.messages import Hint, Message
from ...server.descriptors import needed_for
from ...sources.blocking import write_all
from ...sources.files.checks import check_unused
from .report import Difference

__all__ = ["DifferenceLines", "Differences", "difference_line"]

Differences: TypeAlias = str | os.PathLike[str] | Callable[[Difference], object] | None


class DifferenceLines:
    """Writes differences to a file, or passes them to a callable; a context manager.

    Args:
        target: the path of a new file, a callable, or None.

    Raises:
        TypeError: the target is not a path, a callable or None.
        OSError: the file can't be opened, or is not empty.
    """

    def __init__(self, target: Differences) -> None:
        if iscoroutinefunction(target):
            words = " must be a path or a plain function, not an async one"
            raise TypeError(Message(Hint("differences"), words))
        if not (target is None or isinstance(target, str | os.PathLike) or callable(target)):
            words = f" must be a path or a callable, not a {type(target).__name__}"
            raise TypeError(Message(Hint("differences"), words))
        self._target = target
        self._file: IO[bytes] | None = None

    def __enter__(self) -> Self:
        path = self._target
        if isinstance(path, (str, os.PathLike)):
            check_unused(path, "the differences of an earlier comparison")
            with needed_for(f"can't open {os.fspath(path)!r} for the differences"):
                self._file = open(path, "wb", buffering=0)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: object, traceback: TracebackType | None
    ) -> None:
        if self._file is not None:
            self._file.close()

    def write(self, difference: Difference) -> None:
        """Write a difference.

        Raises:
            OSError: the file can't be written.
            Exception: the callable raised it.
        """
        if self._file is not None:
            try:
                write_all(self._file, difference_line(difference).encode())
            except OSError as error:
                words = f"{error.strerror}; the remaining differences were not written"
                raise OSError(error.errno, words, str(self._target)) from error
        elif callable(self._target):
            self._target(difference)


def difference_line(difference: Difference) -> str:
    """Return a difference as a line of JSON."""
    return json.dumps(difference.as_json()) + "\n"
