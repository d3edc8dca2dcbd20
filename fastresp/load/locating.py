"""Name the files of rows that failed, and the physical lines that a person looks for in them.

A file is read a second time for that, once, and only up to the last of these rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any

from ..outcome.places import Placed
from ..sources.files import Table
from ..sources.files.input import Watch
from ..sources.files.resp import RespFile
from ..sources.source import place_of
from ..transports.driver import Blocking, Steps

__all__ = ["line_numbers", "locating", "naming_place"]


def line_numbers(data: Any, rows: Iterable[int], stopped: Watch) -> dict[int, int]:
    """Return the line of each row in its file, where it is known; it is never an error.

    Args:
        data: the source, which was read up to these rows.
        rows: rows of the whole load.
        stopped: ends the search when it is set.
    """
    if isinstance(data, (Table, RespFile)):
        with suppress(Exception):
            return data.line_numbers(rows, stopped)
    return {}


def locate(data: Any, errors: Iterable[BaseException], stopped: Watch) -> None:
    """Set the file and the line of each error for a row that does not have them."""
    placed = [(each.row, each) for each in errors if isinstance(each, Placed)]
    known = [(row, each) for row, each in placed if row is not None and each.line is None]
    place = place_of(data)
    if place is None or not known:
        return
    for row, each in known:
        if each.file is None:
            with suppress(LookupError):
                each.place_in(*place(row))
    lines = line_numbers(data, {row for row, _ in known}, stopped)
    for row, each in known:
        if row in lines:
            each.place_at(lines[row])


def locating(data: Any, errors: Iterable[BaseException]) -> Steps[None]:
    """Do what ``locate()`` does in a core, without blocking an event loop."""
    stopped = Watch()
    yield Blocking(partial(locate, data, errors, stopped), stopped.set)


@contextmanager
def naming_place(data: Any) -> Iterator[None]:
    """Set the file and the line of an exception for a row that can't be encoded."""
    try:
        yield
    except Exception as error:
        locate(data, [error], Watch())
        raise
