"""Shared by the encoding benchmarks: the commands, the clock, and the printed table."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import chain
from math import ceil
from pathlib import Path
from statistics import median
from time import perf_counter

from pages.measures import quotient
from pages.tables import times
from results import Result, save
from rich.console import Console
from rich.table import Table
from turns import print_goals

from fastresp.cli.demo.generators import PAYLOAD

__all__ = ["KINDS", "commands", "finish_encoding", "repeated"]

KINDS = ("SET", "LPUSH")
# The minimum duration of a turn: a fast contender repeats its work.
TURN_S = 0.1


def commands(kind: str, count: int) -> list[tuple[str, str, str]]:
    """Return ready commands with 129-byte values: SET with distinct keys, LPUSH with one key."""
    if kind == "SET":
        return [("SET", f"key:{index:08}", PAYLOAD) for index in range(count)]
    return [("LPUSH", "key", PAYLOAD)] * count


def repeated(work: Callable[[], object], operations: int) -> Callable[[], float]:
    """Return a contender that repeats its work for ``TURN_S`` and returns the time per operation.

    Args:
        work: the timed function.
        operations: number of operations in one call of ``work``.
    """
    loops = 0

    def run() -> float:
        nonlocal loops
        if not loops:
            work()  # fills the caches
            start = perf_counter()
            work()
            loops = ceil(TURN_S / (perf_counter() - start))
        start = perf_counter()
        for _ in range(loops):
            work()
        return (perf_counter() - start) / loops / operations

    return run


def print_ratios(title: str, results: Sequence[Result], base: Result) -> None:
    """Print the time of each contender, and its ratio to the base's time."""
    table = Table(title=title, title_justify="left", box=None, pad_edge=False)
    table.add_column("contender")
    for column in ("median ns", "ratio", "range"):
        table.add_column(column, justify="right")
    for result in results:
        ratio = quotient(result, base)
        spread = "" if result is base else f"{times(ratio.low)} to {times(ratio.high)}"
        nanoseconds = f"{median(result.values) * 1e9:,.1f}"
        table.add_row(result.row, nanoseconds, times(ratio.figure), spread)
    console = Console()
    console.print()
    console.print(table)


def finish_encoding(
    groups: Sequence[Sequence[Result]], operation: str, output: Path | None
) -> None:
    """Print a table for each group and the goals, and write the results on request.

    Args:
        groups: results that took turns; the first of each group is the base of its ratios.
        operation: the unit of the times, such as ``"command"``.
        output: the file to write.
    """
    for result in chain.from_iterable(groups):
        result.settle()
    for group in groups:
        print_ratios(f"{group[0].table}, ns per {operation}", group, group[0])
    results = [result for group in groups for result in group]
    print_goals(results)
    if output:
        save(output, results)
