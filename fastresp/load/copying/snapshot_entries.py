"""The keys of an RDB file as the source of a copy."""

from __future__ import annotations

import logging
import os
from collections.abc import Generator
from contextlib import ExitStack
from typing import TypeGuard

from ...outcome.messages import Hint, Message, joined_names
from ...outcome.report import counted
from ...sources.entries import Entries, EntryRow
from ...sources.files.input import Input
from ...sources.files.paths import files_of, names_snapshot
from ...sources.files.rdb import TYPES, RdbReader
from ...sources.files.snapshot_summary import opened

__all__ = ["SnapshotEntries", "is_snapshot", "warn_of_functions"]


def is_snapshot(source: object) -> TypeGuard[str]:
    """Return whether the source of a copy is the path of an RDB file, not the URL of a server."""
    return isinstance(source, str) and names_snapshot(source)


def warn_of_functions(reader: RdbReader, source: object) -> None:
    """Log a warning if a snapshot has function libraries, which are not copied."""
    if reader.functions:
        count = counted(len(reader.functions), "function library", "function libraries")
        log = logging.getLogger("fastresp")
        log.warning("%s: %s not copied; load them with FUNCTION LOAD", source, count)


class SnapshotEntries(Entries):
    """The keys of database 0 of an RDB file.

    Args:
        path: the path or the URL of the file.
        match: the pattern of the keys; None for all keys.
        type: the type of the keys, from TYPES; None for any type.

    Raises:
        ValueError: the type is unknown.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        match: str | None,
        type: str | None,  # noqa: A002
    ) -> None:
        super().__init__()
        if type is not None and type not in TYPES:
            text = f" of keys in a file must be one of {joined_names(TYPES)}, not {type!r}"
            raise ValueError(Message(Hint("type"), text))
        self._path = path
        self._match = match
        self._type = type
        self._stack = ExitStack()
        self._input: Input

    def __repr__(self) -> str:
        return f"<snapshot {self._path}>"

    def open(self) -> None:
        """Open the file, and read its version.

        Raises:
            OSError: the file can't be opened.
            SourceError: it is not an RDB file.
        """
        [path] = files_of(self._path)
        self._input = self._stack.enter_context(opened(path))
        self._reader = RdbReader(
            self._input.read,
            name=self._input.name,
            match=self._match,
            type=self._type,
            database=0,
        )
        self.valkey = self._reader.valkey

    def _read(self) -> Generator[list[EntryRow], None, None]:
        reader = self._reader
        while (batch := reader.batch()) is not None:
            yield self.restorer.stored_rows(batch.values, batch.expires, batch.keys)
        log = logging.getLogger("fastresp")
        if reader.other_databases:
            keys = counted(reader.other_databases, "key")
            log.warning("%s: skipped %s of databases other than 0", self._path, keys)
        warn_of_functions(reader, self._path)

    def close(self) -> None:
        """Stop reading, and close the file."""
        super().close()
        self._stack.close()
