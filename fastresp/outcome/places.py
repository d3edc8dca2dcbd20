"""The location of an error's row: index, key, file and line."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

__all__ = ["Place", "Placed", "place_text"]

# If the source is files: receives the index of a row in the whole source; returns the row's file,
# and the index of the row in this file.
Place: TypeAlias = Callable[[int], tuple[str, int]]


class Placed:
    """The location of the row that an exception is about.

    Attributes:
        row: index of the source row in the whole load, counted from 0; None if unknown.
        file: the path of the row's file; None if unknown, or if the source is not files.
        row_in_file: the row's index in the file, counted from 0; None if ``file`` is None.
        line: the physical line in which the row begins, counted from 1, in the uncompressed text of
            the file; None if unknown.
        row_key: the placeholder in a key of the row, and the placeholder's value, such as
            ``id=17`` or ``{0}=17``, shortened to 40 characters. Empty if no key has exactly one
            placeholder.
    """

    row: int | None = None
    file: str | None = None
    row_in_file: int | None = None
    line: int | None = None
    row_key: str = ""

    def place_in(self, file: str, row: int) -> None:
        """Set the file of the row, and the row's index in that file."""
        self.file, self.row_in_file = file, row

    def place_at(self, line: int) -> None:
        """Set the line of the row in its file."""
        self.line = line

    def key_is(self, row_key: str) -> None:
        """Set ``row_key``."""
        self.row_key = row_key

    @property
    def place(self) -> str:
        """The row's location, such as ``row 3 (id=17), line 5 of users.csv``; empty if unknown."""
        if self.row is None:
            return self.file or ""
        row = self.row if self.row_in_file is None else self.row_in_file
        return place_text(row, self.file, self.line, self.row_key)


def place_text(row: int, file: str | None, line: int | None, key: str = "") -> str:
    """Describe the location of a row. If ``file`` is set, ``row`` is the index in this file."""
    where = f"row {row:,} ({key})" if key else f"row {row:,}"
    if line is not None:
        where += f", line {line:,}"
    return where if file is None else f"{where} of {file}"
