"""What goals are about: figures computed from results."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from statistics import median

from results import Result

from .data import NotMeasured, Results

__all__ = [
    "Measured",
    "beyond_engine",
    "by_rdb_file",
    "by_server_cpu",
    "client_cpu",
    "cost_of_more",
    "cpu_ratio",
    "faster",
    "growth",
    "longer",
    "megabytes",
    "more_time",
    "nanoseconds",
    "of_server_cpu",
    "of_values",
    "peak",
    "per_operation",
    "quotient",
    "rate",
    "whole_cluster",
]


@dataclass(frozen=True)
class Measured:
    """A figure, its least and its greatest value.

    Attributes:
        operations: how many it was measured with, where that matters.
    """

    figure: float
    low: float
    high: float
    operations: int = 0


def of_values(values: list[float], operations: int = 0) -> Measured:
    if not values:
        raise NotMeasured("the results do not have the values it is computed from")
    return Measured(median(values), min(values), max(values), operations)


def quotient(above: Result, below: Result, detail: str = "") -> Measured:
    """Divide the values of one row by the values of another.

    A ratio is taken in each round that both took part in.
    """
    over, under = above.by_round(detail), below.by_round(detail)
    return of_values([over[number] / under[number] for number in over if under.get(number)])


def per_operation(row: Result) -> Result:
    """Return the row with the time per operation, since contenders may do different numbers."""
    values = [value / row.operations for value in row.values]
    aside = [(value / row.operations, details) for value, details in row.aside]
    return replace(row, operations=1, values=values, aside=aside)


def faster(
    file: str, ours: str, other: str, table: str = "", parser: str = ""
) -> Callable[[Results], Measured]:
    """Return what computes our rate / another's rate; the parser is that of our row."""

    def measure(results: Results) -> Measured:
        rows = [results.find(file, other, "", table), results.find(file, ours, parser, table)]
        return replace(quotient(*map(per_operation, rows)), operations=rows[1].operations)

    return measure


def longer(file: str, table: str, ours: str, other: str) -> Callable[[Results], Measured]:
    """Return what computes our time / another's time."""
    return lambda results: quotient(
        results.find(file, ours, table=table), results.find(file, other, table=table)
    )


def peak(file: str, row: str, detail: str = "") -> Callable[[Results], Measured]:
    """Return what finds the greatest of all rounds, in MiB: of the values or of a detail."""

    def measure(results: Results) -> Measured:
        found = results.find(file, row)
        sizes = [x / 2**20 for x in (found.by_round(detail).values() if detail else found.values)]
        return replace(of_values(sizes, found.operations), figure=max(sizes))

    return measure


def by_server_cpu(file: str, row: str) -> Callable[[Results], Measured]:
    """Return what computes wall time / server CPU time."""

    def measure(results: Results) -> Measured:
        found = results.find(file, row)
        pairs = zip(found.values, found.of("server_cpu"), strict=True)
        return of_values([value / cpu for value, cpu in pairs], found.operations)

    return measure


def beyond_engine(row: str, dropped: str) -> Callable[[Results], Measured]:
    """Return what computes wall time / (CPU time of the servers + that of a dropping sink)."""

    def measure(results: Results) -> Measured:
        found, others = (results.find("engines", name) for name in (row, dropped))
        times, servers, drops = found.by_round(), found.by_round("server_cpu"), others.by_round()
        ratios = [times[n] / (servers[n] + drops[n]) for n in times if n in drops]
        return of_values(ratios, found.operations)

    return measure


def nanoseconds(file: str, row: str) -> Callable[[Results], Measured]:
    """Return what computes the time per operation."""
    return lambda results: of_values([x * 1e9 for x in results.find(file, row).values])


def cpu_ratio(
    file: str, ours: str, other: str, table: str = "", detail: str = "server_cpu"
) -> Callable[[Results], Measured]:
    """Return what computes the server's CPU time for our load / for another."""

    def measure(results: Results) -> Measured:
        rows = [results.find(file, row, table=table) for row in (ours, other)]
        return replace(quotient(*rows, detail), operations=rows[0].operations)

    return measure


def client_cpu(file: str, ours: str, other: str, table: str = "") -> Callable[[Results], Measured]:
    """Return what computes our CPU time / another's."""
    return cpu_ratio(file, ours, other, table, "client_cpu")


def of_server_cpu(file: str, row: str) -> Callable[[Results], Measured]:
    """Return what computes client CPU time / server CPU time."""

    def measure(results: Results) -> Measured:
        found = results.find(file, row)
        pairs = zip(found.of("client_cpu"), found.of("server_cpu"), strict=True)
        return of_values([client / server for client, server in pairs], found.operations)

    return measure


def megabytes(results: Results) -> Measured:
    """Compute the MB/s at which an RDB file is written."""
    row = results.find("rdb", "written")
    pairs = zip(row.of("bytes"), row.values, strict=True)
    return of_values([size / 1e6 / value for size, value in pairs], row.operations)


def by_rdb_file(results: Results) -> Measured:
    """Compute the time of a live load / that of writing an RDB file and reading it at start."""
    written, read, live = (
        results.find("rdb", row) for row in ("written", "read at start", "live load")
    )
    rounds = zip(*(row.by_round().items() for row in (live, written, read)), strict=True)
    ratios = [live / (written + read) for (_, live), (_, written), (_, read) in rounds]
    return of_values(ratios, live.operations)


def rate(file: str, table: str, row: str) -> Callable[[Results], Measured]:
    """Return what computes millions of operations per second."""

    def measure(results: Results) -> Measured:
        found = results.find(file, row, table=table)
        rates = [each / 1e6 for each in found.rates()]
        return of_values(rates, found.operations)

    return measure


def cost_of_more(more: str, few: str) -> Callable[[Results], Measured]:
    """Return what computes the time per command of a large load / that of a small one."""

    def measure(results: Results) -> Measured:
        rows = [results.find("scale", row, table="scale commands") for row in (more, few)]
        return quotient(*map(per_operation, rows))

    return measure


def more_time(row: str, other: str) -> Callable[[Results], Measured]:
    """Return what computes how much longer an operation takes than another, in nanoseconds."""

    def measure(results: Results) -> Measured:
        rows = [results.find("scale", name, table="scale slots") for name in (row, other)]
        with_it, without = (found.by_round() for found in rows)
        each = 1e9 / rows[0].operations
        return of_values([(with_it[n] - without[n]) * each for n in with_it if n in without])

    return measure


def growth(more: str, few: str) -> Callable[[Results], Measured]:
    """Return what computes how much more memory a large load needs than a small one, in MiB."""

    def measure(results: Results) -> Measured:
        rows = [results.find("scale", row, table="scale commands") for row in (more, few)]
        above, below = (row.by_round("peak") for row in rows)
        return of_values([(above[n] - below[n]) / 2**20 for n in above if n in below])

    return measure


def whole_cluster(ours: str, others: str) -> Callable[[Results], Measured]:
    """Return what computes the time of a load of a cluster / the least that it can take.

    That is the CPU time of the slowest node or the time of others that load the nodes directly,
    whichever is larger.
    """

    def measure(results: Results) -> Measured:
        row, direct = (
            results.find("scale", name, table="scale cluster") for name in (ours, others)
        )
        node, other = row.by_round("node_cpu"), direct.by_round()
        ratios = [
            value / max(node[number], other[number])
            for number, value in row.by_round().items()
            if number in other
        ]
        return of_values(ratios, row.operations)

    return measure
