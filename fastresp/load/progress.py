"""Progress of a load, as a bar on the terminal or through a callable."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from ..outcome.report import Report, counted
from ..server.forks import is_own, on_fork
from ..server.options import Progress
from ..sources.source import known_rows
from ..transports.driver import Steps
from .load import Feature, Load

__all__ = ["ShownProgress", "counting", "fraction_read", "reporting"]

# Interval between updates of the bar. rich computes the speed from the last 1,000 updates, or from
# the updates of the last 30 seconds.
SHOWN_SECONDS = 0.1
# The length of the bar.
WHOLE = 1_000_000


class ShownProgress(Feature):
    """Shows a load's progress as a bar, or calls a function with the live report."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._show: Callable[[Report], object] | None = None
        self._opened = ExitStack()

    def connected(self, load: Load) -> Steps[None]:
        yield from ()
        data = load.chunks.data
        self._show = self._opened.enter_context(reporting(self._progress, data))

    def idle(self, load: Load) -> Steps[None]:
        yield from ()
        if self._show is not None:
            self._show(load.progress)

    finishing = idle

    def ended(self, load: Load) -> Steps[None]:
        yield from ()
        self._opened.close()


@contextmanager
def reporting(progress: Progress, data: Any) -> Iterator[Callable[[Report], object] | None]:
    """Yield the function to call with the live report; None if there is no function.

    Args:
        progress: True for a bar on the terminal, or a callable that is called with the Report.
        data: the source. The share done and the time left are computed from the acknowledged rows
            and from the source's ``rows`` or length; if neither is known, from
            ``data.fraction(rows)``.
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
    """Yield a function that shows the numbers of rows and bytes.

    Args:
        shown: whether the function shows anything.
    """
    if not shown:
        yield lambda rows, size: None
        return
    from rich.console import Console
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), refresh_per_second=5) as bar:
        task = bar.add_task("0 rows", total=None)
        yield lambda rows, size: bar.update(
            task, description=f"{counted(rows, 'row')}  {size / 1e6:,.1f} MB"
        )


def fraction_read(data: Any) -> float | None:
    """Return the share of a source that has been read, from 0 to 1; None if unknown."""
    fraction: float | None = data.fraction() if hasattr(type(data), "fraction") else None
    return fraction


def fraction_done(data: Any, total: int | None, report: Report) -> float | None:
    """Return the share of a source's rows that were acknowledged, from 0 to 1; None if unknown.

    The share read or sent would be too high: a source is read megabytes ahead. The rows that a
    resumed load skips count as done.

    Args:
        total: the source's number of rows; None if unknown.
    """
    rows = report.resumed_at + rows_done(report)
    if total:
        return min(1.0, rows / total)
    part: float | None = data.fraction(rows) if hasattr(type(data), "fraction") else None
    return part


def rows_done(report: Report) -> int:
    """Return about how many rows were acknowledged; with redis-cli, how many were sent."""
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
        TextColumn("{task.fields[rows]}"),
        BarColumn(),
        TaskProgressColumn(),
        TextColumn("{task.fields[rates]}"),
        TimeRemainingColumn(),
    )
    total = known_rows(data)
    last: Report | None = None
    shown, begun = 0.0, False
    # On stderr, since stdout may be redirected.
    bar = Progress(*columns, console=Console(stderr=True), refresh_per_second=5)
    on_fork(bar)
    bar.start()
    try:
        task = bar.add_task("load", total=None, rows=counted(0, "row"), rates="")

        def update(report: Report) -> None:
            nonlocal last, shown, begun
            last = report
            if time.monotonic() - shown < SHOWN_SECONDS:
                return
            shown = time.monotonic()
            part = fraction_done(data, total, report)
            done = None if part is None else round(part * WHOLE)
            if not begun:  # the time left is computed from the rows of this load
                bar.reset(task, total=WHOLE, completed=done or 0)
                begun = True
            waiting = report.index_waiting
            bar.update(
                task,
                total=None if done is None else WHOLE,
                completed=done,
                rows=counted(report.resumed_at + rows_done(report), "row"),
                rates=f"{report.commands_per_second:,.0f} commands/s  "
                f"{report.bytes_per_second / 1e6:,.1f} MB/s  {counted(report.failed, 'error')}"
                + (f"  {counted(waiting, 'document')} not indexed yet" if waiting else "")
                + report.behind,
            )

        yield update
        if last is not None and is_own(bar):
            shown = 0.0
            update(last)  # count the replies since the last chunk
    finally:
        # Not in a forked child: the bar's thread does not exist there, and may have held a lock.
        if is_own(bar):
            bar.stop()
