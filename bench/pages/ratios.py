"""Tables that divide several results: the ratios that the sources compute from their own."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from statistics import mean
from typing import TypeAlias

from results import Result

from .data import (
    Cell,
    NotMeasured,
    Results,
    Row,
    Table,
)
from .measures import Measured, per_operation, quotient
from .source_figures import (
    CONNECTING,
    CUMULATIVE_GAIN,
    GENERATION_LOSS,
    PARSER_GAIN,
    PROFILES,
    PYTHON_TO_C,
    REUSED,
    SECTION_GAIN,
    WORKFLOW,
)
from .tables import (
    SERVER,
    SOURCE_LIKE,
    cells_of,
    is_ours,
    ranged,
    rate,
    seconds,
    spread_cell,
)

__all__ = [
    "connections_then",
    "generation",
    "of_redis_benchmark",
    "parser_gain",
    "ping_then",
    "profiles",
    "python_to_c",
    "redis_benchmark_name",
    "section_gain",
    "shares_of",
    "workflow",
]

# For each method of the source its rows: pushes, pops, both; empty where another method's row has
# the same work.
METHODS = {
    "naive": ("naive", "naive", "naive"),
    "pipelining": ("pipelining -P 1000", "pipelining", "pipelining -P 1000"),
    "LRANGE trick": ("", "LRANGE trick", "LRANGE trick"),
    "redis-cli": ("redis-cli, format", "", "redis-cli, format"),
}
READY = "redis-cli, no generation"
# The pushes of buffer.py, and the rows of push.py that do the same as one load.
LOADS = {
    "redis-cli, format": "LPUSH format",
    "redis-cli, concatenation +": "LPUSH concatenation +",
    "redis-cli, substitution %": "LPUSH substitution %",
    "fastresp redis-cli": "LPUSH fastresp redis-cli",
    "fastresp mass_insert": "LPUSH fastresp socket",
    READY: "LPUSH no generation",
}
PIPELINED = {"push": "pipelining -P 1000", "pop": "pipelining"}


def _percent(number: float) -> str:
    return f"{number:.0%}"


def _row(head: str, cells: Callable[[], list[str]], ours: bool = False) -> Row:
    """Make a row, or say why it cannot be computed."""
    try:
        return Row((head,), tuple(Cell(cell) for cell in cells()), ours)
    except NotMeasured as error:
        return Row((head,), ours=ours, reason=f"not measured: {error}")


def _ratio(above: Result, below: Result) -> Measured:
    """Return the rate of ``below`` / the rate of ``above``, per round."""
    return quotient(per_operation(above), per_operation(below))


def _less_one(ratio: Measured) -> str:
    """Format a gain: the ratio less one, with its range."""
    return ranged(Measured(ratio.figure - 1, ratio.low - 1, ratio.high - 1), _percent)


def python_to_c(results: Results) -> Table:
    """Return Python clients' rates, in percent of the C client's."""

    def find(kind: str, row: str, parser: str = "") -> Result:
        return results.find("buffer", row, parser, f"000 {kind}")

    def compared(kind: str, row: str) -> Callable[[], list[str]]:
        def cells() -> list[str]:
            native = find(kind, row, "hiredis (C)")
            shares = [
                ranged(_ratio(native, find(kind, row, parser)), _percent)
                for parser in ("PythonParser", "HiredisParser")
            ]
            return [*shares, "-", f"{PYTHON_TO_C[kind, row]:.2f}%"]

        return cells

    def ours(native: Callable[[], Result], row: Callable[[], Result]) -> Callable[[], list[str]]:
        def cells() -> list[str]:
            return ["-", "-", ranged(_ratio(native(), row()), _percent), "-"]

        return cells

    rows = [
        _row(f"{kind}, {name}", compared(kind, row))
        for kind in ("push", "pop")
        for name, row in (("naive", "naive"), ("pipelined", PIPELINED[kind]))
    ]
    # One load of all items: lists.py has the same in C, the 2018 report has not.
    load, native_load = (
        partial(results.find, "lists", f"push {name}")
        for name in ("fastresp mass_insert", "C lpush-pipeline")
    )
    head = "push, one load by fastresp mass_insert; in C pipelines of 1,000"
    rows.append(_row(head, ours(native_load, load), True))
    rows += [
        _row(
            f"{kind}, {name}; in C {native}",
            ours(partial(find, kind, native, "hiredis (C)"), partial(find, kind, name)),
            True,
        )
        for kind, name, native in (
            ("push", "fastresp ListBuffer", "1,000 per command"),
            ("pop", "fastresp ListBuffer.pop", "LRANGE trick"),
            ("pop", "fastresp ListBuffer.pop", "1,000 per command"),
        )
    ]
    headings = ("", "PythonParser / C", "HiredisParser / C", "fastresp / C", "2018")
    return Table(headings, rows)


def parser_gain(results: Results) -> Table:
    """Return how much faster redis-py is with hiredis."""

    def gain(kind: str, row: str) -> str:
        if not row:
            return "-"
        slow, fast = (
            results.find("buffer", row, parser, f"000 {kind}")
            for parser in ("PythonParser", "HiredisParser")
        )
        return _less_one(_ratio(slow, fast))

    shares = shares_of(results)

    def of_profile(name: str) -> str:
        # In section 2.5 of the source it writes with format.
        method = "redis-cli, format" if name == "redis-cli" else name
        return _gain_in_share(
            shares, *((method, parser) for parser in ("HiredisParser", "PythonParser"))
        )

    def cells(name: str) -> list[str]:
        kinds = zip(("push", "pop", "both"), METHODS[name], strict=True)
        gains = [gain(kind, row) for kind, row in kinds]
        return [*gains, of_profile(name), f"{PARSER_GAIN[name]:.2f}%"]

    rows = [_row(name, lambda name=name: cells(name)) for name in METHODS]
    headings = ("", "push", "pop", "both together", "from a profile", "2018, from a profile")
    return Table(headings, rows)


Shares: TypeAlias = dict[tuple[str, str], dict[str, float]]


def _gain_in_share(shares: Shares, one: tuple[str, str], other: tuple[str, str]) -> str:
    """Return the source's gain: one processing share / another's, less one."""
    above, below = (shares.get(key, {}).get("processing") for key in (one, other))
    return f"{above / below - 1:.2%}" if above and below else "-"


def section_gain(results: Results) -> Table:
    """Return what each method gains over the section before, as the source computes it."""
    shares = shares_of(results)
    methods = list(dict.fromkeys(method for method, _ in PROFILES))
    before = dict(zip(methods[1:], methods, strict=False))

    def by_rate(name: str, parser: str) -> str:
        # buffer.py names these rows by their pushes.
        rows = (METHODS.get(each, ("", "", each))[2] for each in (name, before[name]))
        try:
            fast, slow = (results.find("buffer", row, parser, "000 both") for row in rows)
            return _less_one(_ratio(slow, fast))
        except NotMeasured:
            return "-"

    rows = []
    for (name, parser), then in SECTION_GAIN.items():
        keys = (name, parser), (before[name], parser)
        cells = _gain_in_share(shares, *keys), f"{then:.2f}%", by_rate(name, parser)
        head = f"{name}, over {before[name]}", parser
        rows.append(Row(head, tuple(Cell(cell) for cell in cells)))
    headings = ("", "parser", "from a profile", "2018, from a profile", "rate, both together")
    return Table(headings, rows, words=2)


def generation(results: Results) -> Table:
    """Return how much slower generating is than a ready stream, and each step's gain."""

    def find(table: str, name: str) -> Result:
        parser = "" if name == "fastresp mass_insert" else "HiredisParser"
        return results.find("buffer", name, parser, table)

    def lost(ready: Result, other: Result) -> str:
        ratio = _ratio(ready, other)
        return ranged(Measured(1 - ratio.figure, 1 - ratio.high, 1 - ratio.low), _percent)

    def loss(table: str, name: str) -> str:
        return lost(find(table, READY), find(table, name))

    def of_load(name: str) -> str:
        return lost(*(results.find("push", LOADS[each]) for each in (READY, name)))

    def cells(name: str, above: str) -> list[str]:
        push = find("000 push", name)
        gain = _less_one(_ratio(find("000 push", above), push)) if above else "-"
        then = f"{GENERATION_LOSS[name]:.2f}%" if name in GENERATION_LOSS else "-"
        gain_then = f"{CUMULATIVE_GAIN[name]:.2f}%" if name in CUMULATIVE_GAIN else "-"
        losses = loss("000 push", name), loss("000 both", name), of_load(name)
        return [f"{rate(push):,.0f}", *losses, then, gain, gain_then]

    # Only the source's own methods form a series.
    series = [name for name in LOADS if name in CUMULATIVE_GAIN]
    before = dict(zip(series[1:], series, strict=False))
    rows = [
        _row(name, lambda name=name: cells(name, before.get(name, "")), "fastresp" in name)
        for name in LOADS
        if name != READY
    ]
    headings = (
        "", "pushes: op/s", "pushes: loss", "pushes and pops: loss", "a whole load: loss",
        "2018: loss", "pushes: gain over the row above", "2018: gain",
    )  # fmt: skip
    return Table(headings, rows)


def shares_of(results: Results) -> Shares:
    """Return the measured shares of CPU time in percent: by method and parser, by class."""
    found: Shares = {}
    for row in results.rows("000 shares", "shares"):
        method, _, name = row.row.partition(": ")
        if shares := row.of("share"):
            # shares.py uses redis-py's name, the tables of 2018 their own.
            parser = "HiredisParser" if row.parser == "hiredis" else row.parser
            found.setdefault((method, parser), {})[name] = mean(shares)
    return found


def profiles(results: Results) -> Table:
    """Return the shares of CPU time by class, beside the source's."""
    ours = shares_of(results)
    classes = list(dict.fromkeys(name for shares in ours.values() for name in shares))
    headings = ["method", "parser"]
    for name in classes:
        headings += [name, "2018"]
    rows = []
    for (method, parser), shares in ours.items():
        then = PROFILES.get((method, parser), {})
        cells = []
        for name in classes:
            cells.append(Cell(f"{shares[name]:.2f}%" if name in shares else "-"))
            cells.append(Cell(f"{then[name]:.2f}%" if name in then else "-"))
        rows.append(Row((method, parser), tuple(cells), "fastresp" in method))
    for row in results.rows("000 shares", "shares"):
        if not row.values:
            rows.append(Row((row.row, row.parser), reason=f"not measured: {row.reason}"))
    return Table(tuple(headings), rows, words=2)


def redis_benchmark_name(name: str) -> str:
    """Return the source's name of a command from redis-benchmark's, of now or then."""
    upper = name.upper()
    # Until 2021 LRANGE_500 read the first 450.
    if found := re.search(r"FIRST (\d+)", upper) or re.search(r"LRANGE\D*(\d+)", upper):
        return f"LRANGE_{found[1]}"
    if "AGAIN" in upper or "NEEDED" in upper:
        return "LPUSH (AGAIN)"
    if upper.startswith("PING"):
        return "PING_INLINE" if "INLINE" in upper else "PING"
    return re.split(r"[ (]", upper)[0]


def _way(name: str, parser: str = "") -> str:
    """Return which of the source's two ways a row is: one by one, or in a pipeline."""
    text = f"{name} {parser}".lower()
    if "fastresp" in text:
        return ""
    if "without" in text or "pipe" not in text:
        return "naive"
    return "pipelined"


def workflow(results: Results) -> Table:
    """Return the steps of 10,000 users; the source has the best of its rounds."""
    columns = [*SOURCE_LIKE, *SERVER]
    rows = []
    for step, then in WORKFLOW.items():
        for row in results.rows(f"004 {step}", "workflow"):
            head = (step, ", ".join(filter(None, (row.row, row.parser))))
            if not row.values:
                rows.append(Row(head, reason=f"not measured: {row.reason}"))
                continue
            known = then.get(_way(row.row, row.parser))
            shown = cells_of(row, columns)
            shown += (Cell(seconds(known) if known else "-"), spread_cell(row))
            rows.append(Row(head, shown, is_ours(row)))
    headings = ("", "by", *(each.heading for each in columns), "2012: best s", "spread")
    return Table(headings, rows, words=2)


def ping_then(row: Result, figures: dict[str, float]) -> str:
    """Return a source's seconds for 10,000 pings, for the rows of redis-py."""
    known = figures.get(row.row) if row.parser in ("PythonParser", "hiredis") else None
    return seconds(known) if known else "-"


def of_redis_benchmark(results: Results, row: Result) -> Result | None:
    """Return redis-benchmark's row for the same command, over one connection."""
    name = re.sub("a (connection|client) per command", "one connection", row.row)
    return next(
        (
            each
            for each in results.rows(row.table, "redis_benchmark")
            if each.row == name and each.parser == "redis-benchmark"
        ),
        None,
    )


def connections_then(row: Result) -> str:
    """Return the source's rule: redis-py's rate / redis-benchmark's over one connection."""
    if row.parser == "redis-benchmark":
        return "-"
    return REUSED if ", one connection" in row.row else CONNECTING
