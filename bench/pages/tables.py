"""Builders of tables: a row for each result, or a column for each parser."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import floor, log10
from statistics import mean, median

from results import Result, spread

from .data import (
    Cell,
    NotMeasured,
    Results,
    Row,
    Table,
)
from .measures import Measured, per_operation, quotient
from .source_figures import Figure

__all__ = [
    "CLIENT_CPU",
    "SERVER",
    "SOURCE_LIKE",
    "TURNS",
    "WAITING",
    "Column",
    "against",
    "ceiling",
    "cells_of",
    "in_order",
    "is_ours",
    "listing",
    "median_time",
    "pivot",
    "ranged",
    "rate",
    "seconds",
    "source_columns",
    "source_figure",
    "source_like",
    "speed",
    "spread_cell",
    "times",
]


@dataclass(frozen=True)
class Column:
    """A column: its heading, and the function that makes a cell from a row of results."""

    heading: str
    cell: Callable[[Result], Cell | str]


# Where the system counts CPU time in ticks, fewer than these say nothing.
TICK_S, MIN_TICKS = 0.01, 10
# Tables in which every row that does not name redis-py is fastresp's.
OURS = ("users", "memory", "load", "scale lanes", "scale commands")


def is_ours(row: Result) -> bool:
    """Return whether a row is fastresp's."""
    return "fastresp" in row.name or (row.table in OURS and "redis-py" not in row.name)


def spread_cell(row: Result) -> Cell:
    """Return the spread of a row, marked if it is noisy."""
    if len(row.values) < 2:
        return Cell("one value")
    share = f"{spread(row.values):.0%}"
    return Cell(f"{share} ▲", "noisy") if row.noisy else Cell(share)


def rate(row: Result) -> float:
    """Return operations per second, from the average time as in the 2018 report."""
    return row.operations / mean(row.values)


def speed(row: Result) -> float:
    """Return operations per second, from the median time."""
    return row.operations / median(row.values)


def seconds(number: float) -> str:
    """Format a time with three significant digits, at least three after the point."""
    digits = 2 - floor(log10(number)) if number > 0 else 0
    return f"{number:.{max(3, digits)}f}"


Statistic = Callable[[Iterable[float]], float]


def ceiling(row: Result, middle: Statistic = mean) -> float | None:
    """Return operations / server CPU time: the rate if the server never waited."""
    return row.operations / middle(used) if (used := _server_cpu(row)) else None


def _server_cpu(row: Result) -> list[float]:
    """Return the server's CPU times; none if they are clock ticks, and too few to say anything."""
    used = row.of("server_cpu")
    ticks = all(abs(each - round(each / TICK_S) * TICK_S) < 1e-9 for each in used)
    return [] if ticks and sum(used) < MIN_TICKS * TICK_S else used


def _cpu(detail: str, middle: Statistic) -> Callable[[Result], str]:
    def cell(row: Result) -> str:
        used = _server_cpu(row) if detail == "server_cpu" else row.of(detail)
        return seconds(middle(used)) if used else "-"

    return cell


def _ceiling(middle: Statistic) -> Callable[[Result], str]:
    return lambda row: f"{most:,.0f}" if (most := ceiling(row, middle)) else "-"


def _by_server(middle: Statistic) -> Callable[[Result], str]:
    """Return what computes wall time / server CPU time, for each value."""

    def cell(row: Result) -> str:
        used = _server_cpu(row)
        if not used or not all(used):
            return "-"
        return f"{middle([wall / cpu for wall, cpu in zip(row.values, used, strict=True)]):.2f}"

    return cell


def median_time(scale: float, unit: str, digits: int = 1, per_operation: bool = True) -> Column:
    """Return a column of median times, per operation or as measured."""

    def cell(row: Result) -> str:
        divisor = row.operations if per_operation else 1
        return f"{median(row.values) / divisor * scale:,.{digits}f}"

    return Column(unit, cell)


def source_like(unit: str = "s", time: Callable[[float], str] = seconds) -> list[Column]:
    """Return the columns of the 2018 tables."""
    made = [
        Column(f"worst {unit}", lambda row: time(max(row.values))),
        Column(f"best {unit}", lambda row: time(min(row.values))),
        Column(f"average {unit}", lambda row: time(mean(row.values))),
    ]
    return [
        *made,
        Column("worst op/s", lambda row: f"{min(row.rates()):,.0f}"),
        Column("best op/s", lambda row: f"{max(row.rates()):,.0f}"),
        Column("average op/s", lambda row: f"{rate(row):,.0f}"),
    ]


_OPERATIONS = Column("operations", lambda row: f"{row.operations:,}")
_SPREAD = Column("spread", spread_cell)
SOURCE_LIKE = source_like()
# Beside them, averages.
SERVER = [
    Column("server CPU s", _cpu("server_cpu", mean)),
    Column("op / server CPU s", _ceiling(mean)),
]
WAITING = Column("wall / server CPU", _by_server(mean))
CLIENT_CPU = Column("client CPU s", _cpu("client_cpu", mean))
# For loads that took turns: medians.
TURNS = [
    median_time(1, "median s", 3, per_operation=False),
    Column("op/s", lambda row: f"{speed(row):,.0f}"),
    Column("server CPU s", _cpu("server_cpu", median)),
    Column("op / server CPU s", _ceiling(median)),
    Column("wall / server CPU", _by_server(median)),
    Column("client CPU s", _cpu("client_cpu", median)),
]


def source_figure(figures: Mapping[tuple[str, str], Figure], row: Result) -> Figure | None:
    """Return the source's figure for a row; its rows of redis-cli also name a parser."""
    return figures.get((row.row, row.parser or "HiredisParser"))


def in_order(rows: Sequence[Result], expected: Sequence[tuple[str, str]]) -> list[Result]:
    """Sort rows in the source's order; rows it lacks follow rows of the same name."""
    place = {key: index for index, key in enumerate(expected)}
    first = {name: place[name, by] for name, by in reversed(expected)}
    last = len(place)
    return sorted(
        rows, key=lambda row: (first.get(row.row, last), place.get((row.row, row.parser), last))
    )


def source_columns(
    figures: Mapping[tuple[str, str], Figure], year: str, server: bool
) -> list[Column]:
    """Return the columns of 2018, the source's averages, the server's ceiling, the spread."""

    def of(row: Result) -> Figure | None:
        return source_figure(figures, row)

    return [
        *SOURCE_LIKE,
        Column(f"{year}: average s", lambda row: f"{f.seconds:.2f}" if (f := of(row)) else "-"),
        Column(f"{year}: average op/s", lambda row: f"{f.rate:,}" if (f := of(row)) else "-"),
        *(SERVER if server else []),
        _SPREAD,
    ]


def ranged(ratio: Measured, show: Callable[[float], str]) -> str:
    """Format a ratio with its range."""
    if ratio.low == ratio.high:
        return show(ratio.figure)
    return f"{show(ratio.figure)} ({show(ratio.low)} to {show(ratio.high)})"


def times(number: float) -> str:
    """Format a ratio, such as ``18.4x``."""
    return f"{figure(number)}x"


def _percent(number: float) -> str:
    return f"{number:.0%}"


def against(
    heading: str,
    base: Callable[[Results, Result], Result | None],
    *,
    time: bool = False,
    percent: bool = False,
) -> Callable[[Results], Column]:
    """Return a column of each row's rate / the base's rate.

    Args:
        heading: of the column.
        base: finds the row to compare with.
        time: divide the times instead, so that a larger ratio is slower.
        percent: show percent.
    """

    def column(results: Results) -> Column:
        def cell(row: Result) -> str:
            other = base(results, row)
            if other is None or other is row or not other.values:
                return "-"
            pair = per_operation(other), per_operation(row)
            try:
                ratio = quotient(*(reversed(pair) if time else pair))
            except NotMeasured:
                return "-"
            return ranged(ratio, _percent if percent else times)

        return Column(heading, cell)

    return column


def figure(number: float) -> str:
    """Format a ratio with three significant digits."""
    return f"{number:,.0f}" if abs(number) >= 100 else f"{number:.3g}"


def listing(
    table: str,
    files: Sequence[str],
    columns: Sequence[Column | Callable[[Results], Column]],
    *,
    prefix: str = "",
    parser: bool = True,
    expected: Sequence[tuple[str, str]] = (),
    spread: bool = True,
) -> Callable[[Results], Table]:
    """Return a table with a row for each result, and a column of operations if they differ.

    Args:
        table: the name in the results.
        files: names of the files of results that have its rows.
        columns: the columns, or functions that make them from all results.
        prefix: show only rows whose name starts with this, and remove it.
        parser: add a column for the parser.
        expected: rows that must be in the table, in this order; a missing one says so.
        spread: add a last column for the spread.
    """

    def build(results: Results) -> Table:
        shown = [made if isinstance(made, Column) else made(results) for made in columns]
        if spread and _SPREAD not in shown:
            shown.append(_SPREAD)
        rows = [row for row in results.rows(table, *files) if row.row.startswith(prefix)]
        rows = in_order(rows, expected)
        if len({row.operations for row in rows if row.values}) > 1:
            shown.insert(0, _OPERATIONS)
        named = parser and any(
            by for by in (*(row.parser for row in rows), *dict(expected).values())
        )
        made = [_row(row, shown, row.row.removeprefix(prefix), named) for row in rows]
        made += _absent(results, files, rows, expected, named)
        headings = ["", *(["parser"] if named else []), *(column.heading for column in shown)]
        return Table(tuple(headings), made, words=2 if named else 1)

    return build


def _row(row: Result, columns: Sequence[Column], name: str, parser: bool) -> Row:
    head = (name, row.parser) if parser else (", ".join(filter(None, (name, row.parser))),)
    if not row.values:
        return Row(head, ours=is_ours(row), reason=f"not measured: {row.reason}")
    return Row(head, cells_of(row, columns), is_ours(row))


def cells_of(row: Result, columns: Sequence[Column]) -> tuple[Cell, ...]:
    """Return the cells of a row."""
    return tuple(
        made if isinstance(made := column.cell(row), Cell) else Cell(made) for column in columns
    )


def _absent(
    results: Results,
    files: Sequence[str],
    rows: Sequence[Result],
    expected: Sequence[tuple[str, str]],
    parser: bool,
) -> list[Row]:
    """Return a row for each expected one that has neither values nor a reason."""
    there = {(row.row, row.parser) for row in rows}
    # The source names a parser for redis-cli, which has no parser here.
    there |= {(row.row, "HiredisParser") for row in rows if row.row.startswith("redis-cli")}
    if files[0] not in results:
        return []  # the section says so
    return [
        Row((name, by) if parser else (name,), reason="not measured: not in the results")
        for name, by in expected
        if (name, by) not in there
    ]


def pivot(
    table: str,
    files: Sequence[str],
    *,
    first: str,
    base: str = "",
    extra: Sequence[tuple[str, Callable[[str], str]]] = (),
    name: Callable[[str], str] = str,
) -> Callable[[Results], Table]:
    """Return a table of operations per second (median times), with a column for each parser.

    Args:
        table: the name in the results.
        files: names of the files of results.
        first: the heading of the first column.
        base: the parser whose rate the others are compared with, in percent.
        extra: more columns: a heading, and a function of the row's name.
        name: shortens a row's name.
    """

    def build(results: Results) -> Table:
        by_row: dict[str, dict[str, Result]] = {}
        for row in results.rows(table, *files):
            by_row.setdefault(row.row, {})[row.parser] = row
        parsers = list(dict.fromkeys(by for rows in by_row.values() for by in rows if by))
        made = []
        for title, rows in by_row.items():
            if not any(row.values for row in rows.values()):
                reason = "; ".join(dict.fromkeys(row.reason for row in rows.values()))
                made.append(Row((name(title),), reason=f"not measured: {reason}"))
                continue
            if alone := rows.get(""):
                # It has no parser: its figure stands below the columns of the others.
                said = f"{speed(alone):,.0f} op/s"
                made.append(Row((name(title),), ours=is_ours(alone), reason=said))
                continue
            shown = [_rate_cell(rows.get(parser), rows.get(base)) for parser in parsers]
            shown += [Cell(cell(title)) for _, cell in extra]
            made.append(Row((name(title),), tuple(shown)))
        headings = [f"{parser}, op/s" for parser in parsers]
        return Table((first, *headings, *(heading for heading, _ in extra)), made)

    return build


def _rate_cell(row: Result | None, base: Result | None) -> Cell:
    if row is None:
        return Cell("-")
    if not row.values:
        # The reason would widen the column; the full table has it.
        return Cell("not measured")
    text = f"{speed(row):,.0f}"
    if base is not None and base is not row and base.values:
        text += f" ({quotient(base, row).figure:.0%})"
    return Cell(f"{text} ▲", "noisy") if row.noisy else Cell(text)
