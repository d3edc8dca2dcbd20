"""The failed commands of a task, as a file of JSON lines in a folder or an object store."""

from __future__ import annotations

import os
from contextlib import ExitStack
from pathlib import Path
from typing import IO

from ..outcome.errors import CommandError
from ..transports.error_policy import reject_line

__all__ = ["RejectsOfTask"]


class RejectsOfTask:
    """Writes failed commands to ``FOLDER/TASK-ATTEMPT.jsonl``, which ``read_rejects()`` reads.

    The file is made with the first of them. An object store has it when the task has ended.

    Args:
        folder: a path, or a URL that fsspec knows, such as ``s3://bucket/rejects``.
        name: of the file, without its ending.
    """

    def __init__(self, folder: str | os.PathLike[str], name: str) -> None:
        self._folder = os.fspath(folder)
        self._name = f"{name}.jsonl"
        self._file: IO[str] | None = None
        self._open_files = ExitStack()

    def __call__(self, error: CommandError) -> None:
        """Write a command.

        Raises:
            OSError: that is not possible.
            ImportError: the folder is a URL, and fsspec is not installed.
        """
        if self._file is None:
            self._file = self._opened()
        self._file.write(reject_line(error))

    def _opened(self) -> IO[str]:
        if "://" in self._folder:
            import fsspec

            remote = fsspec.open(f"{self._folder.rstrip('/')}/{self._name}", "w")
            return self._open_files.enter_context(remote)
        folder = Path(self._folder)
        folder.mkdir(parents=True, exist_ok=True)
        return self._open_files.enter_context((folder / self._name).open("w"))

    def close(self) -> None:
        """Complete the file.

        Raises:
            OSError: that is not possible.
        """
        self._open_files.close()
