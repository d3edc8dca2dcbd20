"""Find the files and the physical lines of rows that failed.

Each file is read again, up to the last failed row, for at most ``SEARCH_S`` seconds.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any

from ..outcome.errors import RowLocation, RowLocator
from ..sources.files.input import LineSearch, StopEvent
from ..sources.files.resp import CommandSource
from ..sources.files.table import Table
from ..transports.driver import Blocking, Steps

__all__ = ["finding_lines", "locating", "naming_place", "place_of"]


def place_of(data: Any) -> RowLocator | None:
    """Return a function that finds the file of a row, and the row's index in the file.

    None if the files of the rows are unknown.
    """
    known = data.has_places if isinstance(data, Table) else isinstance(data, CommandSource)
    return data.place if known else None


def line_numbers(data: Any, rows: Iterable[int], stopped: StopEvent) -> dict[int, int]:
    """Return the line number of each row in its file, if it can be found; never raises.

    Args:
        data: the source, which has been read up to the last of these rows.
        rows: indexes of rows in the whole load.
        stopped: ends the search when another thread sets it.
    """
    if isinstance(data, Table | CommandSource):
        with suppress(Exception):
            return data.line_numbers(rows, stopped)
    return {}


def finding_lines(data: Any, rows: Iterable[int]) -> Steps[dict[int, int]]:
    """Run ``line_numbers()`` in a core, without blocking an event loop.

    Ctrl-C ends only the search: the load has already ended.
    """
    stopped = LineSearch()
    found: dict[int, int] = {}
    with suppress(KeyboardInterrupt):
        found = yield Blocking(partial(line_numbers, data, rows, stopped), stopped.set)
    return found


def locating(data: Any, errors: Iterable[BaseException]) -> Steps[None]:
    """Find the file and the line of each error about a row, unless they are known."""
    unknown = unplaced(data, errors)
    if unknown:
        set_lines(unknown, (yield from finding_lines(data, rows_of(unknown))))


@contextmanager
def naming_place(data: Any) -> Iterator[None]:
    """Add the file and the line to an exception about a row that can't be encoded."""
    try:
        yield
    except Exception as error:
        unknown, lines = unplaced(data, [error]), {}
        with suppress(KeyboardInterrupt):
            lines = line_numbers(data, rows_of(unknown), LineSearch())
        set_lines(unknown, lines)
        raise


def unplaced(data: Any, errors: Iterable[BaseException]) -> list[RowLocation]:
    """Set the file of each error about a row; return the errors whose line is unknown."""
    place = place_of(data)
    if place is None:
        return []
    found: list[RowLocation] = []
    for each in errors:
        if isinstance(each, RowLocation) and each.row is not None and each.line is None:
            found.append(each)
            if each.file is None:
                with suppress(LookupError):
                    each.set_file(*place(each.row))
    return found


def rows_of(errors: Iterable[RowLocation]) -> set[int]:
    return {each.row for each in errors if each.row is not None}


def set_lines(errors: Iterable[RowLocation], lines: dict[int, int]) -> None:
    """Set the line of each error whose row is in ``lines``."""
    for each in errors:
        if each.row in lines:
            each.set_line(lines[each.row])
