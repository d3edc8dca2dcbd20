"""The page's charts, made from the results."""

from __future__ import annotations

from collections.abc import Callable
from statistics import mean, median

from results import Result

from .charts import (
    Bar,
    BarChart,
    GroupedChart,
    Line,
    LineChart,
    StackedChart,
)
from .data import Results
from .ratios import shares_of
from .source_figures import Figure
from .tables import (
    ceiling,
    in_order,
    is_ours,
    rate,
    source_figure,
    speed,
)

__all__ = ["bars", "commands_chart", "depth_chart", "mebibytes", "shares_chart"]

Figures = dict[tuple[str, str], Figure]


def bars(
    title: str,
    table: str,
    files: tuple[str, ...],
    *,
    prefix: str = "",
    axis: str = "operations per second",
    value: Callable[[Result], float] = rate,
    figures: Figures | None = None,
    then: str = "",
    server: bool = False,
    skip: str = " alone",
) -> Callable[[Results], BarChart | None]:
    """Return a chart with a bar for each result, fastresp's in their own colour."""
    known = figures or {}

    def draw(results: Results) -> BarChart | None:
        made = []
        for row in in_order(results.rows(table, *files), list(known)):
            if not row.values or not row.row.startswith(prefix) or row.row.endswith(skip):
                continue
            label = ", ".join(filter(None, (row.row.removeprefix(prefix), row.parser)))
            figure = source_figure(known, row)
            middle = median if value is speed else mean
            most = ceiling(row, middle) if server else None
            then_rate = float(figure.rate) if figure else None
            made.append(Bar(label, value(row), is_ours(row), then_rate, most))
        return BarChart(title, axis, made, then) if made else None

    return draw


def depth_chart(title: str, table: str) -> Callable[[Results], LineChart | None]:
    """Return a chart of the rate over the depth of the pipeline, a curve for each client."""

    def draw(results: Results) -> LineChart | None:
        curves: dict[str, list[tuple[float, float]]] = {}
        levels = []
        for row in results.rows(table, "pipelining"):
            name, _, depth = row.row.partition("depth ")
            if row.values and not name and depth.replace(",", "").isdigit():
                place = float(depth.replace(",", "")), speed(row)
                curves.setdefault(row.parser, []).append(place)
            elif row.values:
                levels.append(Line(row.row, (), (speed(row),), is_ours(row)))
        lines = []
        for name, places in curves.items():
            x, y = zip(*sorted(places), strict=True)
            lines.append(Line(name, x, y, "fastresp" in name))
        lines += levels
        return LineChart(title, "operations/s", "commands in a pipeline", lines) if lines else None

    return draw


def commands_chart(results: Results) -> GroupedChart | None:
    """Return a chart of redis-benchmark's commands, by client."""
    groups: dict[str, dict[str, float]] = {}
    for row in results.rows("001 redis-benchmark", "redis_benchmark"):
        if row.values:
            groups.setdefault(row.row, {})[row.parser] = speed(row)
    title = "redis-benchmark and redis-py, command by command"
    return GroupedChart(title, "requests per second", groups) if groups else None


def shares_chart(results: Results) -> StackedChart | None:
    shares = shares_of(results)
    named = {", ".join(filter(None, key)): value for key, value in shares.items()}
    return StackedChart("Where a Python client's CPU time goes", named) if named else None


def mebibytes(size: float) -> float:
    """Convert bytes to MiB."""
    return size / 2**20
