"""Progress of a load, as a bar on the terminal or through a callable."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeAlias

from .forks import is_own, own
from .report import Report

__all__ = ["Progress", "counting", "fraction_read", "known_rows", "reporting"]

Progress: TypeAlias = bool | Callable[[Report], object] | None


@contextmanager
def reporting(progress: Progress, data: Any) -> Iterator[Callable[[Report], object] | None]:
    """Give the function to call with the report so far, or None where none is wanted.

    Args:
        progress: True for a bar on the terminal, or a callable that takes the Report so far.
        data: the source. The time left comes from how many ``rows`` it has, or from its length,
            or else from the ``fraction()`` of it that has been read.
    """
    if not progress:
        yield None
    elif progress is not True:
        yield progress
    else:
        with _bar(data) as update:
            yield update


@contextmanager
def counting(shown: bool) -> Iterator[Callable[[int, int], object]]:
    """Give the function to call with the rows and bytes so far, shown on the terminal or not."""
    if not shown:
        yield lambda rows, size: None
        return
    from rich.console import Console
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), refresh_per_second=5) as bar:
        task = bar.add_task("0 rows", total=None)
        yield lambda rows, size: bar.update(
            task, description=f"{rows:,} rows  {size / 1e6:,.1f} MB"
        )


def known_rows(data: Any) -> int | None:
    """How many rows a source has, where it knows; to be asked before any is taken."""
    # Of the type, for a column of a data frame may be called like that, too.
    rows = data.rows if hasattr(type(data), "rows") else None
    return rows if isinstance(rows, int) else operator.length_hint(data) or None


def fraction_read(data: Any) -> float | None:
    """How much of a source has been read, from 0 to 1; None where nobody knows."""
    fraction: float | None = data.fraction() if hasattr(type(data), "fraction") else None
    return fraction


def fraction_sent(data: Any, rows: int) -> float | None:
    """How much of a source was sent; what it has read is ahead of that."""
    part = fraction_read(data)
    read: int | None = getattr(data, "rows_read", None)
    return part * min(1.0, rows / read) if part is not None and read else part


@contextmanager
def _bar(data: Any) -> Iterator[Callable[[Report], object]]:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (
        TextColumn("{task.fields[rows]} rows"),
        BarColumn(),
        TextColumn("{task.fields[rates]}"),
        TimeRemainingColumn(),
    )
    total = known_rows(data)
    last: Report | None = None
    # On stderr: a load's output may be piped somewhere.
    bar = Progress(*columns, console=Console(stderr=True), refresh_per_second=5)
    own(bar)
    bar.start()
    try:
        task = bar.add_task("load", total=None, rows="0", rates="")

        def update(report: Report) -> None:
            nonlocal last
            last = report
            part = min(1.0, report.rows / total) if total else fraction_sent(data, report.rows)
            bar.update(
                task,
                total=None if part is None else 1.0,
                completed=part,
                rows=f"{report.rows:,}",
                rates=f"{report.commands_per_second:,.0f} commands/s  "
                f"{report.bytes_per_second / 1e6:,.1f} MB/s  {report.failed:,} errors",
            )

        yield update
        if last is not None and is_own(bar):
            update(last)  # what has come in since the last chunk
    finally:
        # Its thread is not in a child, and may have held a lock when that was forked.
        if is_own(bar):
            bar.stop()
