"""Progress of a load, as a bar on the terminal or through a callable."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeAlias

from .report import Report

__all__ = ["Progress", "reporting"]

Progress: TypeAlias = bool | Callable[[Report], object] | None


@contextmanager
def reporting(progress: Progress, data: Any) -> Iterator[Callable[[Report], object] | None]:
    """Give the function to call with the report so far, or None where none is wanted.

    Args:
        progress: True for a bar on the terminal, or a callable that takes the Report so far.
        data: the source; its length, where it has one, is the bar's total.
    """
    if not progress:
        yield None
    elif progress is not True:
        yield progress
    else:
        with _bar(operator.length_hint(data) or None) as update:
            yield update


@contextmanager
def _bar(total: int | None) -> Iterator[Callable[[Report], object]]:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (
        TextColumn("{task.completed:,.0f} rows"),
        BarColumn(),
        TextColumn("{task.fields[numbers]}"),
        TimeRemainingColumn(),
    )
    # On stderr: a load's output may be piped somewhere.
    with Progress(*columns, console=Console(stderr=True), refresh_per_second=5) as bar:
        task = bar.add_task("load", total=total, numbers="")

        def update(report: Report) -> None:
            numbers = (
                f"{report.commands:,} commands  {report.commands_per_second:,.0f}/s  "
                f"{report.bytes_sent / 1e6:,.0f} MB  {report.failed:,} errors"
            )
            bar.update(task, completed=report.rows, numbers=numbers)

        yield update
