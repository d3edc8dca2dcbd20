"""The keys of an RDB file as the source of a copy."""

from __future__ import annotations

import logging
import os
from collections import deque
from collections.abc import Generator
from contextlib import ExitStack
from typing import TypeGuard

from ...encode.payload.restorer import Restorer
from ...outcome.errors import SourceError
from ...outcome.messages import Hint, Message, joined_names
from ...outcome.report import counted
from ...sources.entries import Entries, EntryRow
from ...sources.files.paths import files_of, names_snapshot
from ...sources.files.rdb import TYPES, RdbReader
from ...sources.files.snapshot_summary import opened

__all__ = ["SnapshotEntries", "is_snapshot", "rows_of"]


def is_snapshot(source: object) -> TypeGuard[str]:
    """Return whether the source of a copy is the path of an RDB file, not the URL of a server."""
    return isinstance(source, str) and (names_snapshot(source) or os.path.exists(source))


def rows_of(
    reader: RdbReader, database: int, restorer: Restorer
) -> Generator[list[EntryRow], None, None]:
    """Yield the rows of a snapshot; then log what is in the snapshot but is not copied."""
    while (batch := reader.batch()) is not None:
        yield restorer.stored_rows(batch.values, batch.expires, batch.keys)
    log = logging.getLogger("fastresp")
    if reader.other_databases:
        keys = counted(reader.other_databases, "key")
        advice = "to copy another database, pass db=N (--db N)"
        text = "%s: skipped %s of databases other than %d; %s"
        log.warning(text, reader.name, keys, database, advice)
    if reader.functions:
        count = counted(len(reader.functions), "function library", "function libraries")
        log.warning("%s: %s not copied; load them with FUNCTION LOAD", reader.name, count)


class SnapshotEntries(Entries):
    """The keys of a database in RDB files.

    Args:
        path: the path or the URL of a file; or a pattern that matches several files, such as the
            files of all nodes of a cluster.
        match: the pattern of the keys; None for all keys.
        type: the type of the keys, from TYPES; None for any type.
        db: the database.

    Raises:
        ValueError: the type is unknown.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        match: str | None,
        type: str | None,  # noqa: A002
        db: int = 0,
    ) -> None:
        super().__init__()
        if type is not None and type not in TYPES:
            text = f" of keys in a file must be one of {joined_names(TYPES)}, not {type!r}"
            raise ValueError(Message(Hint("type"), text))
        self._path = path
        self._match = match
        self._type = type
        self._database = db
        self._stack = ExitStack()
        self._files: deque[str] = deque()
        self._reader: RdbReader

    def __repr__(self) -> str:
        return f"<snapshot {self._path}>"

    def open(self) -> None:
        """Open the first file, and read its version.

        Raises:
            OSError: the file can't be opened.
            SourceError: the file is not an RDB file.
        """
        self._files = deque(files_of(self._path))
        self._reader = self._opened(self._files.popleft())
        self.valkey = self._reader.valkey

    def _opened(self, path: str) -> RdbReader:
        self._stack.close()  # the previous file
        data = self._stack.enter_context(opened(path))
        return RdbReader(
            data.read,
            name=data.name,
            match=self._match,
            type=self._type,
            database=self._database,
        )

    def _read(self) -> Generator[list[EntryRow], None, None]:
        reader = self._reader
        while True:
            yield from rows_of(reader, self._database, self.restorer)
            if not self._files:
                return
            reader = self._opened(self._files.popleft())
            if reader.valkey != self.valkey:
                raise SourceError(
                    f"{reader.name} is a file of {'Valkey' if reader.valkey else 'Redis'}, but the "
                    "files before it are not; copy them one by one"
                )

    def close(self) -> None:
        """Stop reading, and close the file."""
        super().close()
        self._stack.close()
