"""The tables printed by ``scale.py``."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from statistics import median
from typing import TypeAlias

from results import Result
from rich.console import Console
from rich.table import Table

__all__ = ["print_tables"]

Cell: TypeAlias = Callable[[Result], str]


def middle(row: Result, detail: str = "") -> float:
    """Return the median of the values, or of a detail of them."""
    return median(row.of(detail) if detail else row.values)


def each_ns(detail: str) -> Cell:
    """Return a cell of a detail, in nanoseconds per command."""
    return lambda row: f"{middle(row, detail) / row.operations * 1e9:,.0f}"


def mebibytes(detail: str) -> Cell:
    """Return a cell of the greatest value of a detail, in MiB."""
    return lambda row: f"{max(row.of(detail)) / 2**20:,.1f}" if row.of(detail) else "-"


def seconds(detail: str) -> Cell:
    return lambda row: f"{middle(row, detail):.3f}"


COLUMNS: Mapping[str, tuple[str, Mapping[str, Cell]]] = {
    "scale slots": (
        "encoding with key slots and without",
        {"CPU ns per command": each_ns("client_cpu")},
    ),
    "scale lanes": (
        "one loader process into sinks",
        {
            "commands/s": lambda row: f"{row.operations / middle(row):,.0f}",
            "MB/s": lambda row: (
                f"{row.operations * middle(row, 'command_bytes') / middle(row) / 1e6:,.0f}"
            ),
            "CPU ns per command: loader": each_ns("client_cpu"),
            "all sinks": each_ns("all_cpu"),
            "commands per CPU second of the loader": lambda row: (
                f"{row.operations / middle(row, 'client_cpu'):,.0f}"
            ),
        },
    ),
    "scale commands": (
        "cost of more commands, from columns",
        {
            "CPU ns per command: loader": each_ns("client_cpu"),
            "server": each_ns("server_cpu"),
            "wall ns per command": each_ns("seconds"),
            "memory at start, MiB": mebibytes("start"),
            "greatest, MiB": mebibytes("peak"),
        },
    ),
    "scale cluster": (
        "a whole cluster on this machine",
        {
            "seconds": lambda row: f"{middle(row):.3f}",
            "commands/s": lambda row: f"{row.operations / middle(row):,.0f}",
            "CPU s: slowest node": seconds("node_cpu"),
            "nodes of the busiest core": seconds("server_cpu"),
            "clients": seconds("client_cpu"),
            "bytes of a key": lambda row: f"{middle(row, 'key_bytes'):,.0f}",
            "time / CPU of that core": lambda row: (
                f"{middle(row) / middle(row, 'server_cpu'):.2f}x"
            ),
        },
    ),
}


def print_tables(results: Sequence[Result]) -> None:
    """Print the medians of each row, and the reasons of missing rows."""
    console = Console(width=None if sys.stdout.isatty() else 140)
    for name, (title, columns) in COLUMNS.items():
        rows = [row for row in results if row.table == name]
        if not rows:
            continue
        table = Table(title=title, title_justify="left", box=None, pad_edge=False)
        table.add_column("")
        for column in columns:
            table.add_column(column, justify="right")
        for row in rows:
            if row.values:
                table.add_row(row.row, *(cell(row) for cell in columns.values()))
        console.print()
        console.print(table)
        for row in rows:
            if not row.values:
                words = f"{row.row}: not available: {row.reason}"
                console.print(words, highlight=False, markup=False, soft_wrap=True)
