"""Made-up benchmark results for the report's tests; the figures mean nothing."""

from __future__ import annotations

import sys

from places import BENCH

# Last, since bench has a columns.py.
sys.path.append(str(BENCH))

from results import Result


def result(
    table: str, row: str, values: list[float], parser: str = "", operations: int = 100_000
) -> Result:
    made = Result(table, row, parser, operations)
    for value in values:
        made.add(value, server_cpu=value / 2, client_cpu=value / 4)
    return made


def missing(table: str, row: str, reason: str) -> Result:
    return Result(table, row, reason=reason)


def shares(method: str, **percent: float) -> list[Result]:
    made = []
    for name, share in percent.items():
        row = Result("000 shares", f"{method}: {name}", "HiredisParser")
        row.add(1.0, share=share)
        made.append(row)
    return made
