"""Builders of tables: a row for each result, or a column for each parser."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import floor, log10
from statistics import mean, median

from results import Result, spread

from .data import Cell, Entry, NotMeasured, Results, Row, Table
from .measures import Measured, per_operation, quotient
from .source_figures import Figure


@dataclass(frozen=True)
class Column:
    """A column: its heading, and the function that makes a cell from a row of results."""

    heading: str
    cell: Callable[[Result], Cell | str]


# Where the system counts CPU time in ticks, fewer ticks than this are too imprecise.
TICK_S, MIN_TICKS = 0.01, 10
# Tables in which every row that does not name redis-py is fastresp's.
OURS = ("users", "memory", "load", "scale lanes", "scale commands")


def is_ours(row: Result) -> bool:
    return "fastresp" in row.row or (row.table in OURS and "redis-py" not in row.row)


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
    """Return the server's CPU times; none if they are clock ticks, and too few to be precise."""
    used = row.of("server_cpu")
    ticks = all(abs(each - round(each / TICK_S) * TICK_S) < 1e-9 for each in used)
    return [] if ticks and sum(used) < MIN_TICKS * TICK_S else used


def _cpu_columns(middle: Statistic) -> list[Column]:
    """Return columns: CPU times of server and client, and ratios to the server's CPU time."""

    def shown(used: list[float]) -> str:
        return seconds(middle(used)) if used else "-"

    def by_server(row: Result) -> str:
        used = _server_cpu(row)
        if not used or not all(used):
            return "-"
        return f"{middle([wall / cpu for wall, cpu in zip(row.values, used, strict=True)]):.2f}"

    def at_most(row: Result) -> str:
        return f"{most:,.0f}" if (most := ceiling(row, middle)) else "-"

    return [
        Column("server CPU s", lambda row: shown(_server_cpu(row))),
        Column("op / server CPU s", at_most),
        Column("wall / server CPU", by_server),
        Column("client CPU s", lambda row: shown(row.of("client_cpu"))),
    ]


def median_time(scale: float, unit: str, digits: int = 1, per_operation: bool = True) -> Column:
    """Return a column of median times, per operation or as measured."""

    def cell(row: Result) -> str:
        divisor = row.operations if per_operation else 1
        return f"{median(row.values) / divisor * scale:,.{digits}f}"

    return Column(unit, cell)


def source_like(unit: str = "s", time: Callable[[float], str] = seconds) -> list[Column]:
    """Return the columns of the 2018 tables."""
    return [
        Column(f"worst {unit}", lambda row: time(max(row.values))),
        Column(f"best {unit}", lambda row: time(min(row.values))),
        Column(f"average {unit}", lambda row: time(mean(row.values))),
        Column("worst op/s", lambda row: f"{min(row.rates()):,.0f}"),
        Column("best op/s", lambda row: f"{max(row.rates()):,.0f}"),
        Column("average op/s", lambda row: f"{rate(row):,.0f}"),
    ]


_OPERATIONS = Column("operations", lambda row: f"{row.operations:,}")
SPREAD = Column("spread", spread_cell)
SOURCE_LIKE = source_like()
# Averages, for tables with the source's columns.
SERVER, (WAITING, CLIENT_CPU) = _cpu_columns(mean)[:2], _cpu_columns(mean)[2:]
# Medians, for loads that took turns.
TURNS = [
    median_time(1, "median s", 3, per_operation=False),
    Column("op/s", lambda row: f"{speed(row):,.0f}"),
    *_cpu_columns(median),
]


def in_order(rows: Sequence[Result], expected: Sequence[tuple[str, str]]) -> list[Result]:
    """Sort rows in the source's order; a row that the source lacks follows rows with its name."""
    place = {key: index for index, key in enumerate(expected)}
    first = {name: place[name, by] for name, by in reversed(expected)}
    last = len(place)
    return sorted(
        rows, key=lambda row: (first.get(row.row, last), place.get((row.row, row.parser), last))
    )


def source_columns(figures: Mapping[tuple[str, str], Figure]) -> list[Column]:
    """Return the columns of the 2018 tables: first the measured figures, then the source's."""

    def of(row: Result) -> Figure | None:
        # The source's rows of redis-cli also name a parser.
        return figures.get((row.row, row.parser or "HiredisParser"))

    return [
        *SOURCE_LIKE,
        Column("2018: average s", lambda row: f"{f.seconds:.2f}" if (f := of(row)) else "-"),
        Column("2018: average op/s", lambda row: f"{f.rate:,}" if (f := of(row)) else "-"),
    ]


def ranged(ratio: Measured, show: Callable[[float], str]) -> str:
    """Format a ratio with its range."""
    if ratio.low == ratio.high:
        return show(ratio.figure)
    return f"{show(ratio.figure)} ({show(ratio.low)} to {show(ratio.high)})"


def times(number: float) -> str:
    """Format a ratio, such as ``18.4x``."""
    return f"{figure(number)}x"


def as_percent(number: float) -> str:
    return f"{number:.0%}"


def against(
    heading: str,
    base: str | Callable[[Results, Result], Result | None],
    *,
    time: bool = False,
    percent: bool = False,
) -> Callable[[Results], Column]:
    """Return a column of each row's rate / the base's rate.

    Args:
        heading: of the column.
        base: the row of the same table to compare with, or a function that finds it.
        time: divide the times instead, so that a larger ratio means slower.
        percent: show percent.
    """

    def named(results: Results, row: Result) -> Result | None:
        rows = results.rows(row.table, row.table.partition(" ")[0])
        return next((each for each in rows if (each.table, each.row) == (row.table, base)), None)

    find = named if isinstance(base, str) else base

    def column(results: Results) -> Column:
        def cell(row: Result) -> str:
            other = find(results, row)
            if other is None or other is row or not other.values:
                return "-"
            pair = per_operation(other), per_operation(row)
            try:
                ratio = quotient(*(reversed(pair) if time else pair))
            except NotMeasured:
                return "-"
            return ranged(ratio, as_percent if percent else times)

        return Column(heading, cell)

    return column


def figure(number: float) -> str:
    """Format a ratio with three significant digits."""
    return f"{number:,.0f}" if abs(number) >= 100 else f"{number:.3g}"


def listing(
    files: str,
    columns: Sequence[Column | Callable[[Results], Column]],
    *,
    table: str = "",
    prefix: str = "",
    expected: Sequence[tuple[str, str]] = (),
) -> Entry:
    """Return a table with a row for each result, its parser if any, and the spread.

    If the numbers of operations differ, the table has a column for them.

    Args:
        files: names of the files of results that have its rows, the main one first.
        columns: the columns, or functions that make them from all results.
        table: the name in the results, if it differs from the name of the file.
        prefix: show only rows whose name starts with this prefix, and remove the prefix.
        expected: rows that the table must have, in this order; the table names missing ones.
    """
    names = tuple(files.split())

    def build(results: Results) -> Table:
        shown = [made if isinstance(made, Column) else made(results) for made in columns]
        if SPREAD not in shown:
            shown.append(SPREAD)
        found = results.rows(table or names[0], *names)
        rows = in_order([row for row in found if row.row.startswith(prefix)], expected)
        if len({row.operations for row in rows if row.values}) > 1:
            shown.insert(0, _OPERATIONS)
        parsers = any((*(row.parser for row in rows), *dict(expected).values()))
        made = [
            row_of(row, (row.row.removeprefix(prefix), row.parser)[: 1 + parsers], shown)
            for row in rows
        ]
        # The source names a parser for redis-cli, which has no parser here.
        there = {(row.row, row.parser) for row in rows}
        there |= {(row.row, "HiredisParser") for row in rows if row.row.startswith("redis-cli")}
        if names[0] in results:  # otherwise the section says so
            made += [
                Row(key, reason="not measured: not in the results")
                for key in expected
                if key not in there
            ]
        headings = ["", *["parser"] * parsers, *(column.heading for column in shown)]
        return Table(tuple(headings), made, words=1 + parsers)

    return Entry(names, build)


def row_of(row: Result, head: tuple[str, ...], columns: Sequence[Column]) -> Row:
    """Return a row with these cells, or with the reason why it was not measured."""
    if not row.values:
        return Row(head, ours=is_ours(row), reason=f"not measured: {row.reason}")
    made = (column.cell(row) for column in columns)
    cells = tuple(cell if isinstance(cell, Cell) else Cell(cell) for cell in made)
    return Row(head, cells, is_ours(row))


def pivot(
    file: str,
    table: str,
    first: str,
    *,
    base: str = "",
    extra: Sequence[tuple[str, Callable[[str], str]]] = (),
    prefix: str = "",
) -> Entry:
    """Return a table of operations per second (median times), with a column for each parser.

    Args:
        file, table: the file of results, and the table in it.
        first: the heading of the first column.
        base: the parser whose rate is 100%.
        extra: more columns: a heading, and a function of the row's name.
        prefix: the start of all rows' names, which is not shown.
    """

    def build(results: Results) -> Table:
        by_row: dict[str, dict[str, Result]] = {}
        for row in results.rows(table, file):
            by_row.setdefault(row.row, {})[row.parser] = row
        parsers = list(dict.fromkeys(by for rows in by_row.values() for by in rows if by))
        made = []
        for title, rows in by_row.items():
            head = (title.removeprefix(prefix),)
            if not any(row.values for row in rows.values()):
                reason = "; ".join(dict.fromkeys(row.reason for row in rows.values()))
                made.append(Row(head, reason=f"not measured: {reason}"))
            elif alone := rows.get(""):
                # The row has no parser: its figure replaces the cells.
                made.append(Row(head, (), is_ours(alone), f"{speed(alone):,.0f} op/s"))
            else:
                shown = [_rate_cell(rows.get(parser), rows.get(base)) for parser in parsers]
                made.append(Row(head, (*shown, *(Cell(cell(title)) for _, cell in extra))))
        headings = [f"{parser}, op/s" for parser in parsers]
        return Table((first, *headings, *(heading for heading, _ in extra)), made)

    return Entry((file,), build)


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
