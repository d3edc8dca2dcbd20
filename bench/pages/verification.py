"""The table of verify.py: a verification beside the load of the same rows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

from .beside import beside
from .data import Results, Section, Table
from .goals_of_loads import VERIFIED
from .plots import bars
from .tables import TURNS, listing, speed

__all__ = ["VERIFICATION"]

Made = TypeVar("Made")
TITLE = "Verify a load"
PREFIX = "verify "


def in_one_table(make: Callable[[Results], Made]) -> Callable[[Results], Made]:
    """Return what makes something of the results, whose rows are in a table for each command."""

    def made(results: Results) -> Made:
        joined = Results()
        for row in results:
            if row.table.startswith(PREFIX):
                name = f"{row.table.removeprefix(PREFIX)}, {row.row}"
                joined.add("verify", replace(row, table="verify", row=name))
        return make(joined)

    return made


def _table(results: Results) -> Table:
    """Return the table; the goals are computed from the results as they are."""
    ratio = beside("rate / load", VERIFIED)(results)
    return in_one_table(listing("verify", ["verify"], [*TURNS, ratio], parser=False))(results)


VERIFICATION = Section(
    TITLE,
    ("verify",),
    _table,
    in_one_table(
        bars(TITLE, "verify", ("verify",), axis="rows per second", value=speed, server=True)
    ),
    "1,000,000 rows from Arrow columns are loaded, and then compared with what is in the server. "
    "SET EX compares the times to live as well; SADD, ZADD and RPUSH have 100 rows per key. Before "
    "that, one altered byte has to be found.",
)
