"""The table of verify.py: a verification beside the load of the same rows."""

from __future__ import annotations

from dataclasses import replace

from .beside import beside
from .data import Results, Section, Table
from .goals_of_loads import VERIFIED
from .tables import TURNS, listing

__all__ = ["VERIFICATION"]

PREFIX = "verify "


def _table(results: Results) -> Table:
    """Return one table of the rows that are in a table for each command."""
    joined = Results()
    for row in results:
        if row.table.startswith(PREFIX):
            name = f"{row.table.removeprefix(PREFIX)}, {row.row}"
            joined.add("verify", replace(row, table="verify", row=name))
    # Goals are computed from the results as they are.
    ratio = beside("rate / load", VERIFIED)(results)
    return listing("verify", ["verify"], [*TURNS, ratio], parser=False)(joined)


VERIFICATION = Section(
    "Verify a load",
    ("verify",),
    _table,
    "1,000,000 rows from Arrow columns are loaded, and then compared with the server. SET EX "
    "includes times to live; SADD, ZADD and RPUSH have 100 rows per key. First, `verify` has to "
    "find one altered byte.",
)
