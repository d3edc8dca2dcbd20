"""What the benchmarks share: the commands, how they are timed, and how ratios are shown."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from statistics import median, quantiles
from time import perf_counter
from typing import Any

import pyperf
from rich.console import Console
from rich.table import Table

from fastresp.generators import PAYLOAD
from fastresp.stage import Comparison

__all__ = ["KINDS", "as_benchmarks", "commands", "print_ratios", "spread", "timed"]

KINDS = ("SET", "LPUSH")


def commands(kind: str, count: int) -> list[tuple[str, str, str]]:
    """Ready commands with the report's payload: SET with distinct keys, or LPUSH with one key."""
    if kind == "SET":
        return [("SET", f"key:{index:08}", PAYLOAD) for index in range(count)]
    return [("LPUSH", "key", PAYLOAD)] * count


def spread(values: Sequence[float]) -> str:
    """Median, least and greatest of some ratios."""
    return f"{median(values):.3f}x ({min(values):.3f} to {max(values):.3f})"


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


def as_benchmarks(title: str, comparison: Comparison) -> list[pyperf.Benchmark]:
    """The timings of a comparison as pyperf keeps them: a run for each value."""
    return [
        pyperf.Benchmark(
            [
                pyperf.Run(
                    [timing.seconds],
                    metadata={
                        "name": f"{title} {method}",
                        "unit": "second",
                        "loops": 1,
                        "commands": comparison.commands,
                        "round": index + 1,
                        "server": comparison.server,
                        "server_cpu": timing.server_seconds,
                        "client_cpu": timing.client_seconds,
                    },
                )
                for index, timing in enumerate(timings)
            ]
        )
        for method, timings in comparison.timings.items()
    ]
