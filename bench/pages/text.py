"""The page's sentences, computed from the results: findings, machine, noise, goals."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from statistics import median
from typing import Any

from results import NOISY, Result, spread

from .data import (
    Cell,
    Group,
    NotMeasured,
    Results,
    Row,
    Table,
    clean,
)
from .goal import amount
from .goals import (
    GOALS,
    HELD,
    MARKS,
    Verdict,
    judge,
)
from .measures import Measured, by_server_cpu, quotient
from .source_figures import SOURCES
from .tables import ranged, speed, times

__all__ = [
    "RATIOS",
    "findings",
    "goals_table",
    "held_table",
    "in_short",
    "machine_facts",
    "noise",
    "sources",
    "summary",
    "verdicts",
]

# Percent of the processors.
BUSY = 10
RATIOS = "Contenders take turns; a ratio is the median of the ratios of each round, with its range."
GROUND_RULE = "Compare figures within one table, not with those of another year or machine."


def _times(above: Result, below: Result) -> str:
    """Format a ratio with its range."""
    return ranged(quotient(above, below), times)


def _rate(row: Result) -> str:
    """Format a rate for a sentence."""
    number = speed(row)
    return f"{number / 1e6:.2f} million" if number >= 1e6 else f"{number:,.0f}"


def _load(results: Results) -> str:
    ours = results.find("peers", "fastresp mass_insert, socket", table="peers SET")
    columns = results.find("peers", "fastresp mass_insert, columns", table="peers SET")
    pipeline = results.find("peers", "redis-py, pipeline of 1,000", "hiredis", "peers SET")
    return (
        f"`mass_insert` loads {_rate(ours)} SETs of 129 bytes per second from Python rows and "
        f"{_rate(columns)} from Arrow columns: {_times(pipeline, ours)} and "
        f"{_times(pipeline, columns)} the rate of a redis-py pipeline."
    )


def _file(results: Results) -> str:
    ours = results.find("push", "SET fastresp socket")
    file = results.find("push", "SET no generation")
    waits = by_server_cpu("push", "SET fastresp socket")(results).figure
    return (
        f"With {ours.operations:,} SETs it reaches {_times(file, ours)} the rate of `redis-cli "
        f"--pipe` reading a ready file; its wall time is {waits:.2f}x the server's CPU time."
    )


def _lists(results: Results) -> str:
    push = results.find("lists", "push fastresp push")
    many = results.find("lists", "push redis-py lpush *1000")
    pop = results.find("lists", "pop fastresp pop 10000")
    native = results.find("lists", "pop C lrange 10x1000")
    return (
        f"`ListBuffer` pushes {_rate(push)} items per second onto a list, {_times(many, push)} the "
        f"rate of redis-py's `lpush` of 1,000 at a time, and pops {_rate(pop)}, "
        f"{_times(native, pop)} the rate of a C client with as many requests in flight."
    )


def _encode(results: Results) -> str:
    ours = results.find("encode", "SET fastresp rows")
    substitution = results.find("encode", "SET substitution %")
    hiredis = results.find("encode", "SET hiredis.pack_command")
    return (
        f"Encoding a SET of 129 bytes takes {median(ours.values) * 1e9:.0f} ns; `%` formatting "
        f"takes {_times(substitution, ours)} as long, `hiredis.pack_command` "
        f"{_times(hiredis, ours)}."
    )


def findings(results: Results) -> list[str]:
    """Return the main results, a sentence each."""
    made = []
    finders: tuple[Callable[[Results], str], ...] = (_load, _file, _lists, _encode)
    for find in finders:
        try:
            made.append(find(results))
        except NotMeasured:
            continue
    return made or ["None of the main figures was measured."]


def machine_facts(results: Results) -> list[tuple[str, str]]:
    """Return the facts of the machine and the run; unknown ones are left out."""
    machine: dict[str, Any] = results.machine
    cores, memory = machine.get("cores"), machine.get("memory_gib")
    runs: list[dict[str, Any]] = list(machine.get("runs", {}).values())
    days = sorted(run["started"][:10] for run in runs)
    facts = {
        "Measured": " to ".join(dict.fromkeys(days[:1] + days[-1:])),
        "Processor": ", ".join(filter(None, (machine.get("cpu"), cores and f"{cores} cores"))),
        "Memory": f"{memory} GiB" if memory else "",
        "System": machine.get("os", ""),
        "Python": machine.get("python", ""),
        "Versions": _versions(runs),
        "Commit": ", ".join(dict.fromkeys(run["commit"] for run in runs)),
        "Other work before": _busy_before(machine.get("runs", {})),
        "Run": "quick, with fewer rounds" if machine.get("fast") else "",
    }
    return [(name, clean(str(text))) for name, text in facts.items() if text]


def _versions(runs: list[dict[str, Any]]) -> str:
    """List the versions; several of a package that changed between the scripts."""
    numbers: dict[str, dict[str, None]] = {}
    for run in runs:
        for name, number in run["versions"].items():
            # The package's name, "redis", could be the server's.
            numbers.setdefault("redis-py" if name == "redis" else name, {})[number] = None
    return ", ".join(f"{name} {' and '.join(found)}" for name, found in numbers.items())


def _busy_before(runs: dict[str, Any]) -> str:
    """Say how busy the processors were before the scripts, and before which they were too busy."""
    if not runs:
        return ""
    busy = {name: run["busy"] for name, run in runs.items()}
    said = f"{min(busy.values()):.0f}% to {max(busy.values()):.0f}% of the processors"
    noisy = [name for name, share in busy.items() if share > BUSY]
    return f"{said}; more than {BUSY}% before {', '.join(noisy)}" if noisy else said


def in_short(results: Results) -> str:
    """Return a caption for the top of the page: the date, the machine and the noise."""
    known = dict(machine_facts(results))
    facts = [known[name] for name in ("Measured", "Processor", "Memory", "System") if name in known]
    spreads = _spreads(results)
    if spreads:
        facts.append(f"median spread {median(spreads):.0%}")
    if "Run" in known:
        facts.append("a quick run")
    return f"Measured {', '.join(facts)}." if facts else ""


def _spreads(results: Results) -> list[float]:
    return [spread(row.values) for row in results if len(row.values) > 1]


def noise(results: Results) -> str:
    """Say how noisy the machine was."""
    spreads = _spreads(results)
    if not spreads:
        return "No row has more than one value, so the noise is unknown."
    noisy = sum(row.noisy for row in results)
    return (
        "Other work on the machine only adds time, for seconds at a stretch. So of six rounds or "
        "more the least time of each third is shown (every third round belongs to it). The spread "
        f"of a row is (worst - best) / median of what is shown; {median(spreads):.0%} for the "
        f"median row. {noisy} of {len(spreads)} rows have more than {NOISY:.0%} and are marked ▲: "
        "the machine did other work meanwhile, or the time is very short. Without `--fast` scripts "
        "with such rows run twice, and of those rows the quieter run is shown. Ratios use all "
        "rounds. " + GROUND_RULE
    )


def sources(group: Group) -> str:
    """Name the sources of others' figures in a group of tables."""
    made = []
    for key in group.sources:
        title, year, machine = SOURCES[key]
        made.append(f"*{title}* ({year}, {machine})")
    return f"The figures beside ours are from {'; '.join(made)}." if made else ""


def verdicts(results: Results) -> list[Verdict]:
    return [judge(goal, results) for goal in GOALS]


def summary(judged: list[Verdict]) -> str:
    """Say how many goals were reached, of those that have a bound."""
    counts = Counter(verdict.word for verdict in judged if verdict.goal.bound is not None)
    said = (
        f"{counts['reached']} of {counts.total()} goals reached, {counts['missed']} missed, "
        f"{counts['not measured']} not measured."
    )
    more = " Rows without a goal are not judged."
    return said + more if counts.total() < len(judged) else said


def held_table() -> Table:
    """Return the goals that are not figures, and the test that checks each."""
    return Table(("goal", "test"), [Row((what, f"`{test}`")) for what, test in HELD], 2)


def goals_table(judged: list[Verdict]) -> Table:
    """Return each goal with its verdict, what was measured, and its range."""
    rows = []
    for verdict in judged:
        goal, mark = verdict.goal, MARKS[verdict.word]
        cells = [Cell(verdict.word, mark), Cell(goal.wanted)]
        if verdict.measured:
            cells += _measured(verdict.measured, goal.unit)
        rows.append(Row((f"{goal.area}: {goal.what}",), tuple(cells), reason=verdict.reason))
    return Table(("figure", "verdict", "goal", "measured", "range"), rows, words=2)


def _measured(measured: Measured, unit: str) -> list[Cell]:
    low, high = (amount(each, unit) for each in (measured.low, measured.high))
    if low == high:
        return [Cell(amount(measured.figure, unit)), Cell("one value")]
    return [Cell(amount(measured.figure, unit)), Cell(f"{low} to {high}")]
