"""Tables that divide several results: the ratios that the sources compute from their own."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from statistics import mean
from typing import TypeAlias

from results import Result

from . import source_figures as source
from .data import Cell, NotMeasured, Results, Row, Table
from .measures import Measured, per_operation, quotient
from .tables import SERVER, SOURCE_LIKE, SPREAD, Column, as_percent, ranged, rate, row_of, seconds

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
PARSERS, C = ("PythonParser", "HiredisParser"), "hiredis (C)"


def _row(head: str, cells: Callable[[], list[str]], ours: bool = False) -> Row:
    """Make a row, or say why it cannot be computed."""
    try:
        return Row((head,), tuple(map(Cell, cells())), ours)
    except NotMeasured as error:
        return Row((head,), ours=ours, reason=f"not measured: {error}")


def _ratio(above: Result, below: Result) -> Measured:
    """Return the rate of ``below`` / the rate of ``above``, per round."""
    return quotient(per_operation(above), per_operation(below))


def _less_one(ratio: Measured) -> str:
    """Format a gain: the ratio minus one, with its range."""
    return ranged(Measured(ratio.figure - 1, ratio.low - 1, ratio.high - 1), as_percent)


def python_to_c(results: Results) -> Table:
    """Return Python clients' rates, in percent of the C client's."""

    def of(kind: str, row: str, parser: str = "") -> tuple[str, ...]:
        return "buffer", row, parser, f"000 {kind}"

    def shares(native: tuple[str, ...], *others: tuple[str, ...]) -> list[str]:
        base = results.find(*native)
        return [ranged(_ratio(base, results.find(*other)), as_percent) for other in others]

    def of_redis_py(kind: str, row: str, then: float) -> list[str]:
        found = shares(of(kind, row, C), *(of(kind, row, parser) for parser in PARSERS))
        return [*found, "-", f"{then:.2f}%"]

    rows = []
    for (kind, row), then in source.PYTHON_TO_C.items():
        head = f"{kind}, {row if row == 'naive' else 'pipelined'}"
        rows.append(_row(head, partial(of_redis_py, kind, row, then)))
    ours = {
        # One load of all items: lists.py has the same in C, but the 2018 report does not.
        "push, one load by fastresp mass_insert; in C pipelines of 1,000": (
            ("lists", "push C lpush-pipeline"),
            ("lists", "push fastresp mass_insert"),
        )
    }
    for kind, name, native in (
        ("push", "fastresp ListBuffer", "1,000 per command"),
        ("pop", "fastresp ListBuffer.pop", "LRANGE trick"),
        ("pop", "fastresp ListBuffer.pop", "1,000 per command"),
    ):
        ours[f"{kind}, {name}; in C {native}"] = of(kind, native, C), of(kind, name)
    for head, pair in ours.items():
        rows.append(_row(head, lambda pair=pair: ["-", "-", *shares(*pair), "-"], True))
    headings = ("", "PythonParser / C", "HiredisParser / C", "fastresp / C", "2018")
    return Table(headings, rows)


def parser_gain(results: Results) -> Table:
    """Return how much faster redis-py is with hiredis."""

    def gain(kind: str, row: str) -> str:
        if not row:
            return "-"
        slow, fast = (results.find("buffer", row, parser, f"000 {kind}") for parser in PARSERS)
        return _less_one(_ratio(slow, fast))

    shares = shares_of(results)

    def of_profile(name: str) -> str:
        # In section 2.5 of the source it writes with format.
        method = "redis-cli, format" if name == "redis-cli" else name
        return _gain_in_share(shares, *((method, parser) for parser in reversed(PARSERS)))

    def cells(name: str) -> list[str]:
        kinds = zip(("push", "pop", "both"), METHODS[name], strict=True)
        gains = [gain(kind, row) for kind, row in kinds]
        return [*gains, of_profile(name), f"{source.PARSER_GAIN[name]:.2f}%"]

    rows = [_row(name, lambda name=name: cells(name)) for name in METHODS]
    headings = ("", "push", "pop", "both together", "from a profile", "2018, from a profile")
    return Table(headings, rows)


Shares: TypeAlias = dict[tuple[str, str], dict[str, float]]


def _gain_in_share(shares: Shares, one: tuple[str, str], other: tuple[str, str]) -> str:
    """Return the gain as the source computes it: processing share / another's share, minus one."""
    above, below = (shares.get(key, {}).get("processing") for key in (one, other))
    return f"{above / below - 1:.2%}" if above and below else "-"


def section_gain(results: Results) -> Table:
    """Return what each method gains over the section before, as the source computes it."""
    shares = shares_of(results)
    methods = list(dict.fromkeys(method for method, _ in source.PROFILES))
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
    for (name, parser), then in source.SECTION_GAIN.items():
        keys = (name, parser), (before[name], parser)
        cells = _gain_in_share(shares, *keys), f"{then:.2f}%", by_rate(name, parser)
        rows.append(Row((f"{name}, over {before[name]}", parser), tuple(map(Cell, cells))))
    headings = ("", "parser", "from a profile", "2018, from a profile", "rate, both together")
    return Table(headings, rows, words=2)


def generation(results: Results) -> Table:
    """Return how much slower generation is than commands made beforehand, and each step's gain."""

    def find(name: str, table: str) -> Result:
        if table == "push":
            return results.find("push", LOADS[name])
        parser = "" if name == "fastresp mass_insert" else "HiredisParser"
        return results.find("buffer", name, parser, table)

    def loss(name: str, table: str) -> str:
        ratio = _ratio(find(READY, table), find(name, table))
        return ranged(Measured(1 - ratio.figure, 1 - ratio.high, 1 - ratio.low), as_percent)

    def cells(name: str, above: str) -> list[str]:
        push = find(name, "000 push")
        gain = _less_one(_ratio(find(above, "000 push"), push)) if above else "-"
        then, gain_then = (
            f"{known[name]:.2f}%" if name in known else "-"
            for known in (source.GENERATION_LOSS, source.CUMULATIVE_GAIN)
        )
        losses = (loss(name, table) for table in ("000 push", "000 both", "push"))
        return [f"{rate(push):,.0f}", *losses, then, gain, gain_then]

    # Only the source's own methods form a series.
    series = [name for name in LOADS if name in source.CUMULATIVE_GAIN]
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
    """Return the shares of CPU time by class, next to the source's shares."""
    ours = shares_of(results)
    classes = list(dict.fromkeys(name for shares in ours.values() for name in shares))
    headings = ["method", "parser"]
    for name in classes:
        headings += [name, "2018"]
    rows = []
    for (method, parser), shares in ours.items():
        then = source.PROFILES.get((method, parser), {})
        cells = tuple(
            Cell(f"{known[name]:.2f}%" if name in known else "-")
            for name in classes
            for known in (shares, then)
        )
        rows.append(Row((method, parser), cells, "fastresp" in method))
    return Table(tuple(headings), rows, words=2)


def redis_benchmark_name(name: str) -> str:
    """Return the source's name of a command, from redis-benchmark's current or former name."""
    upper = name.upper()
    # Until 2021 LRANGE_500 read the first 450.
    if found := re.search(r"FIRST (\d+)", upper) or re.search(r"LRANGE\D*(\d+)", upper):
        return f"LRANGE_{found[1]}"
    if "AGAIN" in upper or "NEEDED" in upper:
        return "LPUSH (AGAIN)"
    if upper.startswith("PING"):
        return "PING_INLINE" if "INLINE" in upper else "PING"
    return re.split(r"[ (]", upper)[0]


def workflow(results: Results) -> Table:
    """Return the steps of 10,000 users; the source has the best of its rounds."""
    rows = []
    for step, then in source.WORKFLOW.items():
        shown = {way: seconds(best) for way, best in then.items()}
        best_then = Column("2012: best s", lambda row, shown=shown: shown.get(row.row, "-"))
        columns = [*SOURCE_LIKE, *SERVER, best_then, SPREAD]
        for row in results.rows(f"004 {step}", "workflow"):
            by = ", ".join(filter(None, (row.row, row.parser)))
            rows.append(row_of(row, (step, by), columns))
    return Table(("", "by", *(column.heading for column in columns)), rows, words=2)


def ping_then(row: Result, figures: dict[str, float]) -> str:
    """Return a source's seconds for 10,000 pings, for the rows of redis-py."""
    known = figures.get(row.row) if row.parser in ("PythonParser", "hiredis") else None
    return seconds(known) if known else "-"


def of_redis_benchmark(results: Results, row: Result) -> Result | None:
    """Return redis-benchmark's row for the same command, over one connection."""
    name = re.sub("a (connection|client) per command", "one connection", row.row)
    key = row.table, name, "redis-benchmark"
    return next((each for each in results if each.key == key), None)


def connections_then(row: Result) -> str:
    """Return the source's rule: redis-py's rate / redis-benchmark's over one connection."""
    if row.parser == "redis-benchmark":
        return "-"
    return source.REUSED if ", one connection" in row.row else source.CONNECTING
