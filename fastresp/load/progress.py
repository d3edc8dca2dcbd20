"""Progress of a load, as a bar on the terminal or through a callable."""

from __future__ import annotations

import operator
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from ..outcome.report import Report
from ..server.forks import is_own, own
from ..server.options import Progress

__all__ = ["counting", "fraction_read", "known_rows", "reporting"]

# How often the bar moves. The speed is that of its last 1,000 moves, or of 30 seconds.
SHOWN_SECONDS = 0.1


@contextmanager
def reporting(progress: Progress, data: Any) -> Iterator[Callable[[Report], object] | None]:
    """Give the function to call with the report so far, or None where none is wanted.

    Args:
        progress: True for a bar on the terminal, or a callable that takes the Report so far.
        data: the source. What is done, and the time left, come from the rows that were answered
            and how many ``rows`` it has, or its length, or else ``fraction(rows)``: which part of
            it these rows are.
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


def fraction_done(data: Any, total: int | None, report: Report) -> float | None:
    """How much of a source the server has answered, from 0 to 1; None where nobody knows.

    What has been read, or even sent, is no measure of it: a source is read megabytes ahead.

    Args:
        total: how many rows it has, where that is known.
    """
    rows = rows_done(report)
    if total:
        return min(1.0, rows / total)
    part: float | None = data.fraction(rows) if hasattr(type(data), "fraction") else None
    return part


def rows_done(report: Report) -> int:
    """How many rows the server has answered; those that were sent where redis-cli carries them."""
    if not report.replies or not report.commands:
        return 0 if report.transport == "socket" else report.rows
    return report.rows * report.replies // report.commands


@contextmanager
def _bar(data: Any) -> Iterator[Callable[[Report], object]]:
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        Progress,
        TaskProgressColumn,
        TextColumn,
        TimeRemainingColumn,
    )

    columns = (
        TextColumn("{task.fields[rows]} rows"),
        BarColumn(),
        TaskProgressColumn(),
        TextColumn("{task.fields[rates]}"),
        TimeRemainingColumn(),
    )
    total = known_rows(data)
    last: Report | None = None
    shown = 0.0
    # On stderr: a load's output may be piped somewhere.
    bar = Progress(*columns, console=Console(stderr=True), refresh_per_second=5)
    own(bar)
    bar.start()
    try:
        task = bar.add_task("load", total=None, rows="0", rates="")

        def update(report: Report) -> None:
            nonlocal last, shown
            last = report
            if time.monotonic() - shown < SHOWN_SECONDS:
                return
            shown = time.monotonic()
            part = fraction_done(data, total, report)
            bar.update(
                task,
                total=None if part is None else 1.0,
                completed=part,
                rows=f"{rows_done(report):,}",
                rates=f"{report.commands_per_second:,.0f} commands/s  "
                f"{report.bytes_per_second / 1e6:,.1f} MB/s  {report.failed:,} errors",
            )

        yield update
        if last is not None and is_own(bar):
            shown = 0.0
            update(last)  # what has come in since the last chunk
    finally:
        # Its thread is not in a child, and may have held a lock when that was forked.
        if is_own(bar):
            bar.stop()
