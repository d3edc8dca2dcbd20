"""Figures computed from results, for goals and claims.

A function with ``@measure`` is called without results, and returns a function of results.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from statistics import median
from typing import Concatenate, ParamSpec, TypeAlias

from results import Result

from .data import NotMeasured, Results


@dataclass(frozen=True)
class Measured:
    """A figure, its minimum and its maximum.

    Attributes:
        operations: number of operations of the measurement; 0 if irrelevant.
    """

    figure: float
    low: float
    high: float
    operations: int = 0


Measure: TypeAlias = Callable[[Results], Measured]
P = ParamSpec("P")


def measure(compute: Callable[Concatenate[Results, P], Measured]) -> Callable[P, Measure]:
    """Return a function of the other arguments, which returns a function of the results."""
    return lambda *args, **named: lambda results: compute(results, *args, **named)


def of_values(values: list[float], operations: int = 0) -> Measured:
    if not values:
        raise NotMeasured("the results do not have the values it is computed from")
    return Measured(median(values), min(values), max(values), operations)


def quotient(above: Result, below: Result, detail: str = "") -> Measured:
    """Divide the values of one row by the values of another.

    A ratio is computed for each round in which both rows have a value.
    """
    over, under = above.by_round(detail), below.by_round(detail)
    return of_values([over[number] / under[number] for number in over if under.get(number)])


def per_operation(row: Result) -> Result:
    """Return the row with the time per operation, since contenders may do different numbers."""
    values = [value / row.operations for value in row.values]
    aside = [(value / row.operations, details) for value, details in row.aside]
    return replace(row, operations=1, values=values, aside=aside)


def _scale(results: Results, table: str, *names: str) -> list[Result]:
    return [results.find("scale", name, table=f"scale {table}") for name in names]


@measure
def faster(results: Results, file: str, ours: str, other: str, table: str = "") -> Measured:
    """Compute fastresp's rate / another row's rate: the other's time / fastresp's."""
    rows = [results.find(file, row, table=table) for row in (other, ours)]
    return replace(quotient(*map(per_operation, rows)), operations=rows[1].operations)


@measure
def cpu_ratio(
    results: Results, file: str, ours: str, other: str, table: str = "", detail: str = "server_cpu"
) -> Measured:
    """Compute the CPU time of the server, or of the client, for a load / for another load."""
    rows = [results.find(file, row, table=table) for row in (ours, other)]
    return replace(quotient(*rows, detail), operations=rows[0].operations)


@measure
def peak(results: Results, file: str, row: str, detail: str = "") -> Measured:
    """Find the maximum of all rounds in MiB, of the values or of a detail."""
    found = results.find(file, row)
    sizes = [x / 2**20 for x in (found.by_round(detail).values() if detail else found.values)]
    return replace(of_values(sizes, found.operations), figure=max(sizes))


@measure
def by_server_cpu(results: Results, file: str, row: str, detail: str = "") -> Measured:
    """Compute wall time, or a detail such as the client's CPU time, / server CPU time."""
    found = results.find(file, row)
    above = found.of(detail) if detail else found.values
    pairs = zip(above, found.of("server_cpu"), strict=True)
    return of_values([value / cpu for value, cpu in pairs], found.operations)


@measure
def beyond_engine(results: Results, row: str, dropped: str) -> Measured:
    """Compute wall time / (CPU time of the servers + time of a dropping sink)."""
    found, others = (results.find("engines", name) for name in (row, dropped))
    times, servers, drops = found.by_round(), found.by_round("server_cpu"), others.by_round()
    ratios = [times[n] / (servers[n] + drops[n]) for n in times if n in drops]
    return of_values(ratios, found.operations)


@measure
def rate(results: Results, file: str, row: str, table: str = "", scale: float = 1) -> Measured:
    found = results.find(file, row, table=table)
    return of_values([each * scale for each in found.rates()], found.operations)


@measure
def each(results: Results, file: str, row: str, scale: float = 1) -> Measured:
    """Compute the time of an operation in seconds, multiplied by a number."""
    found = results.find(file, row)
    return of_values([value / found.operations * scale for value in found.values])


@measure
def whole(results: Results, file: str, row: str, table: str) -> Measured:
    return of_values(results.find(file, row, table=table).values)


@measure
def megabytes(results: Results, file: str, row: str) -> Measured:
    """Compute the MB/s at which a file is written."""
    found = results.find(file, row)
    pairs = zip(found.of("bytes"), found.values, strict=True)
    return of_values([size / 1e6 / value for size, value in pairs], found.operations)


@measure
def by_rdb_file(results: Results) -> Measured:
    """Compute the time of a live load / the time to write an RDB file and read it at start."""
    written, read, live = (
        results.find("rdb", row) for row in ("written", "read at start", "live load")
    )
    rounds = zip(*(row.by_round().values() for row in (live, written, read)), strict=True)
    return of_values([live / (written + read) for live, written, read in rounds], live.operations)


@measure
def cost_of_more(results: Results, more: str, few: str) -> Measured:
    """Compute the time per command of a large load / the time per command of a small load."""
    return quotient(*map(per_operation, _scale(results, "commands", more, few)))


@measure
def more_time(results: Results, row: str, other: str) -> Measured:
    """Compute how much longer an operation takes than another, in nanoseconds."""
    rows = _scale(results, "slots", row, other)
    with_it, without = (found.by_round() for found in rows)
    scale = 1e9 / rows[0].operations
    return of_values([(with_it[n] - without[n]) * scale for n in with_it if n in without])


@measure
def growth(results: Results, more: str, few: str) -> Measured:
    """Compute how much more memory a large load needs than a small load, in MiB."""
    above, below = (row.by_round("peak") for row in _scale(results, "commands", more, few))
    return of_values([(above[n] - below[n]) / 2**20 for n in above if n in below])


@measure
def whole_cluster(results: Results, ours: str, others: str) -> Measured:
    """Compute the time of a load of a cluster / its lower bound.

    The lower bound is the larger of two times: the CPU time of the slowest node, and the time of
    contenders that load the nodes directly.
    """
    row, direct = _scale(results, "cluster", ours, others)
    times, node, other = row.by_round(), row.by_round("node_cpu"), direct.by_round()
    ratios = [times[n] / max(node[n], other[n]) for n in times if n in other]
    return of_values(ratios, row.operations)
