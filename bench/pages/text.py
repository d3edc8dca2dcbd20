"""What the report says in words, of any results: findings, the machine, the noise, the goals."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from statistics import median
from typing import Any

from results import Result

from .data import (
    NOISY,
    Cell,
    Group,
    NotMeasured,
    Results,
    Row,
    Table,
    clean,
    spread,
)
from .goals import (
    GOALS,
    HELD,
    Measured,
    Verdict,
    by_server_cpu,
    judge,
    quotient,
)
from .source_figures import SOURCES
from .tables import figure

__all__ = [
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
GROUND_RULE = (
    "Compare figures of one table with each other, and not with those of another year or machine."
)


def _times(above: Result, below: Result) -> str:
    """How many times the rate of another, in words."""
    return f"{figure(quotient(above, below).figure)} times"


def _millions(number: float) -> str:
    return f"{number / 1e6:.2f} million" if number >= 1e6 else f"{number:,.0f}"


def _push(results: Results) -> str:
    ours = results.find("lists", "push fastresp push")
    many = results.find("lists", "push redis-py lpush *1000")
    single = results.find("lists", "push redis-py pipeline")
    return (
        f"A list takes {_millions(ours.operations / median(ours.values))} items a second from "
        f"`ListBuffer.push`, a thousand with each command: {_times(many, ours)} the rate of the "
        f"same commands by redis-py, {_times(single, ours)} that of its pipeline of single ones."
    )


def _load(results: Results) -> str:
    ours = results.find("push", "SET fastresp socket")
    file = results.find("push", "SET no generation")
    waits = by_server_cpu("push", "SET fastresp socket")(results).figure
    return (
        f"`mass_insert` loads {_millions(ours.operations / median(ours.values))} SET commands a "
        f"second, {_times(file, ours)} the rate of `redis-cli --pipe` with a file that was ready "
        f"beforehand. It takes {waits:.2f} times the CPU time that the server itself needs for it."
    )


def _pop(results: Results) -> str:
    ours = results.find("lists", "pop fastresp pop 10000")
    single = results.find("lists", "pop fastresp pop")
    native = results.find("lists", "pop C lrange 1000")
    return (
        f"A list is emptied at {_millions(ours.operations / median(ours.values))} items a second "
        f"with ten requests of 1,000 in flight, {_times(native, ours)} the rate of a C client "
        f"that waits for each; with one in flight, as that, it is {_times(native, single)}."
    )


def _encode(results: Results) -> str:
    ours = results.find("encode", "SET fastresp rows")
    return (
        f"To encode a SET of 129 bytes takes {median(ours.values) * 1e9:.0f} ns; `%`, the fastest "
        "of the 2018 report's three ways in Python, takes "
        f"{_times(results.find('encode', 'SET substitution %'), ours)} as long."
    )


def findings(results: Results) -> list[str]:
    """The main ones, of what there is."""
    made = []
    finders: tuple[Callable[[Results], str], ...] = (_load, _push, _pop, _encode)
    for find in finders:
        try:
            made.append(find(results))
        except NotMeasured:
            continue
    return made or ["The results hold none of the main figures."]


def machine_facts(results: Results) -> list[tuple[str, str]]:
    """What the figures are from; what is not known is left out."""
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
        "Run": "a quick one, of fewer values" if machine.get("fast") else "",
    }
    return [(name, clean(str(text))) for name, text in facts.items() if text]


def _versions(runs: list[dict[str, Any]]) -> str:
    """Of what took part; more than one of what was changed between the scripts."""
    numbers: dict[str, dict[str, None]] = {}
    for run in runs:
        for name, number in run["versions"].items():
            # Among servers and clients the package's own name says too little.
            numbers.setdefault("redis-py" if name == "redis" else name, {})[number] = None
    return ", ".join(f"{name} {' and '.join(found)}" for name, found in numbers.items())


def _busy_before(runs: dict[str, Any]) -> str:
    """How busy the processors were before the benchmarks, in percent, and before which too much."""
    if not runs:
        return ""
    busy = {name: run["busy"] for name, run in runs.items()}
    said = f"{min(busy.values()):.0f}% to {max(busy.values()):.0f}% of the processors"
    noisy = [name for name, share in busy.items() if share > BUSY]
    return f"{said}; more than {BUSY}% before {', '.join(noisy)}" if noisy else said


def in_short(results: Results) -> str:
    """The machine, the date and the noise in a sentence, for the top of the page."""
    known = dict(machine_facts(results))
    facts = [known[name] for name in ("Measured", "Processor", "Memory", "System") if name in known]
    spreads = _spreads(results)
    if spreads:
        facts.append(f"median spread of the rows {median(spreads):.0%}")
    if "Run" in known:
        facts.append("a quick run")
    return f"Measured: {', '.join(facts)}." if facts else ""


def _spreads(results: Results) -> list[float]:
    return [spread(row.values) for row in results if len(row.values) > 1]


def noise(results: Results) -> str:
    """How noisy the machine was."""
    spreads = _spreads(results)
    if not spreads:
        return "No row has more than one value: nothing can be said of the noise."
    noisy = sum(each > NOISY for each in spreads)
    return (
        "The spread of a row is the difference of its worst and best value, by the median. It is "
        f"{median(spreads):.0%} for the median row. {noisy} of {len(spreads)} rows have more than "
        f"{NOISY:.0%} and are marked ▲: the machine did other work meanwhile, or what was timed is "
        f"too short; trust their order, not their last digits. {GROUND_RULE}"
    )


def sources(group: Group) -> str:
    """Where the figures of others are from, in a group of tables."""
    made = []
    for key in group.sources:
        title, year, machine = SOURCES[key]
        made.append(f"*{title}*, {year}, measured on {machine}")
    return f"Beside ours are the figures of {'; '.join(made)}." if made else ""


def verdicts(results: Results) -> list[Verdict]:
    return [judge(goal, results) for goal in GOALS]


def summary(judged: list[Verdict]) -> str:
    """How many goals were reached, of those that have a bound."""
    counts = Counter(verdict.word for verdict in judged if verdict.goal.bound is not None)
    said = (
        f"Of {counts.total()} goals {counts['reached']} were reached, {counts['missed']} missed "
        f"and {counts['not measured']} not measured."
    )
    more = " What is beyond them was not asked for, and is not judged."
    return said + more if counts.total() < len(judged) else said


MARKS = {"reached": "reached", "missed": "missed", "not measured": "open", "beyond": ""}


def held_table() -> Table:
    """What was asked for and is no figure, and the test that holds it."""
    return Table(("asked for", "held by"), [Row((what, f"`{test}`")) for what, test in HELD], 2)


def goals_table(judged: list[Verdict]) -> Table:
    """Goal and measured: in brackets is the range of the ratios, round by round."""
    rows = []
    for verdict in judged:
        goal, mark = verdict.goal, MARKS[verdict.word]
        sign = "≤" if goal.at_most else "≥"
        wanted = "-" if goal.bound is None else f"{sign} {goal.bound:g}{_unit(goal.unit)}"
        cells = [Cell(verdict.word, mark), Cell(wanted)]
        if verdict.measured:
            cells += _measured(verdict.measured, goal.unit)
        rows.append(Row((f"{goal.area}: {goal.what}",), tuple(cells), reason=verdict.reason))
    return Table(("goal", "verdict", "wanted", "measured", "range"), rows, words=2)


def _measured(measured: Measured, unit: str) -> list[Cell]:
    low, high = (_amount(each, unit) for each in (measured.low, measured.high))
    if low == high:
        return [Cell(_amount(measured.figure, unit)), Cell("one value")]
    return [Cell(_amount(measured.figure, unit)), Cell(f"{low} to {high}")]


def _amount(number: float, unit: str) -> str:
    # Close to one the third digit after the point can decide.
    digits = 3 if number < 2 else 2 if number < 10 else 1 if number < 100 else 0
    return f"{number:.{digits}f}{_unit(unit)}"


def _unit(unit: str) -> str:
    return unit if unit == "x" else f" {unit}"
