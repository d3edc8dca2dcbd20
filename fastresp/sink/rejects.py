"""Write the failed commands of a task as JSON Lines in a folder or an object store."""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import ExitStack, suppress
from itertools import chain, count
from pathlib import Path
from typing import IO, Any
from urllib.parse import quote

from ..outcome.errors import CommandError
from ..server.descriptors import needed_for
from ..transports.error_policy import reject_line

__all__ = ["RejectsOfTask", "check_folder"]


def check_folder(folder: str) -> None:
    """Check that the packages to write rejects to a folder are installed; connects to nothing.

    Raises:
        ImportError: the folder is a URL, and fsspec or the package for the scheme is not installed.
        ValueError: fsspec does not know the URL's scheme.
    """
    if "://" in folder:
        _fsspec().get_filesystem_class(folder.partition("://")[0])


def _fsspec() -> Any:
    try:
        import fsspec
    except ImportError:
        raise ImportError(
            "rejects at a URL need fsspec, which is not installed: pip install fsspec"
        ) from None
    return fsspec


class RejectsOfTask:
    """Writes failed commands to ``FOLDER/TASK-ATTEMPT.jsonl``, which ``read_rejects()`` reads.

    The file is created for the first failed command. If the name exists, the name of the new file
    ends with a number. The existing file is kept: its rejects may be of rows that this attempt
    skips, since an earlier attempt has loaded them. In an object store, the file appears when the
    task has ended.

    Args:
        folder: a path, or a URL that fsspec knows, such as ``s3://bucket/rejects``.
        name: name of the file, without its extension. Characters other than letters, digits and
            ``_.-~`` are percent-encoded.
    """

    def __init__(self, folder: str | os.PathLike[str], name: str) -> None:
        self._folder = os.fspath(folder)
        self._name = quote(name, safe="")
        self._file: IO[str] | None = None
        self._open_files = ExitStack()

    def __call__(self, error: CommandError) -> None:
        """Write a failed command.

        Raises:
            OSError: writing failed.
            ImportError: the folder is a URL, and fsspec is not installed.
        """
        if self._file is None:
            self._file = self._opened()
        self._file.write(reject_line(error))

    def _opened(self) -> IO[str]:
        names = chain([self._name], (f"{self._name}-{number}" for number in count(2)))
        if "://" in self._folder:
            return self._remote(names)
        folder = Path(self._folder)
        with needed_for(f"can't write rejects to {self._folder!r}"):
            folder.mkdir(parents=True, exist_ok=True)
            for name in names:
                with suppress(FileExistsError):
                    # Write each line immediately, since a later attempt may skip the row.
                    file = (folder / f"{name}.jsonl").open("x", buffering=1)
                    return self._open_files.enter_context(file)
        raise AssertionError

    def _remote(self, names: Iterable[str]) -> IO[str]:
        system, path = _fsspec().url_to_fs(self._folder)
        system.makedirs(path, exist_ok=True)
        paths = (f"{path.rstrip('/')}/{name}.jsonl" for name in names)
        free = next(each for each in paths if not system.exists(each))
        return self._open_files.enter_context(system.open(free, "w"))

    def close(self) -> None:
        """Complete the file, if it was created.

        Raises:
            OSError: writing failed.
        """
        self._open_files.close()
