"""The base class of sources of a copy: keys with their values as payloads, and their expiries."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import suppress
from itertools import chain
from typing import TYPE_CHECKING, TypeAlias

from ..outcome.errors import SourceError

if TYPE_CHECKING:
    from ..encode.payload.restorer import Restorer

__all__ = ["Entries", "EntryRow", "in_parts"]

# A list of rows ends at this many keys, or at this many bytes of payloads.
PART_KEYS = 2_000
PART_BYTES = 8 << 20

# A key, the time of its expiry in ms since 1970 (0 for none), and the payload of its value.
EntryRow: TypeAlias = tuple[bytes, int, bytes]


class Entries:
    """Keys with their values, as rows for RESTORE. Iterate once, after ``prepare()``.

    Reading may block, so an event loop reads in a thread.

    Attributes:
        restorer: adapts payloads to the target.
        rows: approximate number of keys; None if unknown.
        unchanged: number of keys left out because the target already has them.
        valkey: whether the source is Valkey, or a file of Valkey; set by ``open()``.
        databases: see ``databases_of()``; set by ``open()`` of a server, empty for a file.
    """

    restorer: Restorer
    valkey = False
    databases: frozenset[str] = frozenset()
    rows: int | None = None
    unchanged = 0

    def __init__(self) -> None:
        self._reading: Generator[list[EntryRow], None, None] | None = None
        self._note: Callable[[EntryRow], EntryRow] | None = None

    def open(self) -> None:
        """Check that the source can be read, before anything is sent; blocks."""

    def prepare(self, restorer: Restorer) -> None:
        """Set the restorer, once the target's version is known."""
        self.restorer = restorer

    def note(self, note: Callable[[EntryRow], EntryRow]) -> None:
        """Set a function that is called with each row, and must return the row."""
        self._note = note

    @property
    def watched(self) -> bool:
        """Whether ``note()`` was called."""
        return self._note is not None

    def watch(self, row: EntryRow) -> None:
        """Call ``note()``'s function with a row that is not yielded; its payload is a digest."""
        if self._note is not None:
            self._note(row)

    def __iter__(self) -> Iterator[EntryRow]:
        self._reading = self._checked()
        rows = chain.from_iterable(self._reading)
        return rows if self._note is None else map(self._note, rows)

    def _checked(self) -> Generator[list[EntryRow], None, None]:
        """Yield lists of rows; before raising the error of a bad key, yield all earlier rows."""
        for rows in self._read():
            yield rows
            if self.restorer.error is not None:
                raise self.restorer.error

    def _read(self) -> Iterator[list[EntryRow]]:
        """Yield lists of rows; the restorer is set when the first row is requested."""
        raise NotImplementedError

    def close(self) -> None:
        """Stop reading."""
        if self._reading is not None:
            with suppress(ValueError):  # another thread is reading a row
                self._reading.close()


def in_parts(rows: Iterable[EntryRow]) -> Generator[list[EntryRow], None, None]:
    """Yield rows in lists of limited size; yield all earlier rows before raising a SourceError."""
    part, size = list[EntryRow](), 0
    try:
        for row in rows:
            part.append(row)
            size += len(row[2])
            if len(part) >= PART_KEYS or size >= PART_BYTES:
                yield part
                part, size = [], 0
    except SourceError:
        yield part
        raise
    yield part
