"""What the benchmarks of encoding share: the commands, the clock, and how ratios are shown."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from statistics import quantiles
from time import perf_counter
from typing import Any

import pyperf
from rich.console import Console
from rich.table import Table

from fastresp.cli.demo.generators import PAYLOAD

__all__ = ["KINDS", "commands", "print_ratios", "timed"]

KINDS = ("SET", "LPUSH")


def commands(kind: str, count: int) -> list[tuple[str, str, str]]:
    """Ready commands with the report's payload: SET with distinct keys, or LPUSH with one key."""
    if kind == "SET":
        return [("SET", f"key:{index:08}", PAYLOAD) for index in range(count)]
    return [("LPUSH", "key", PAYLOAD)] * count


def timed(loops: int, make: Callable[[], Iterable[Any]]) -> float:
    """Make all pieces so many times, and throw them away one by one."""
    make()  # what is made once and kept is made now
    start = perf_counter()
    for _ in range(loops):
        deque(make(), maxlen=0)
    return perf_counter() - start


def print_ratios(title: str, results: dict[str, pyperf.Benchmark], base: str) -> None:
    """Print each contender's time by that of the base."""
    table = Table(title=f"{title}, ns a command", title_justify="left", box=None, pad_edge=False)
    table.add_column("contender")
    for column in ("median", "ratio", "middle half"):
        table.add_column(column, justify="right")
    quartiles = {
        name: quantiles(values, n=4) if len(values := result.get_values()) > 1 else [values[0]] * 3
        for name, result in results.items()
    }
    base_low, base_median, base_high = quartiles[base]
    for name, (low, middle, high) in quartiles.items():
        spread = "" if name == base else f"{low / base_high:.1f} - {high / base_low:.1f}"
        table.add_row(name, f"{middle * 1e9:,.1f}", f"{middle / base_median:.1f}x", spread)
    console = Console()
    console.print()
    console.print(table)
