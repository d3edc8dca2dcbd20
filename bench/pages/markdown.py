"""The page of benchmarks: ``benchmarks.md`` beside this module, with tables made from results."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from statistics import median
from typing import Any

from results import NOISY, spread

from . import figures
from .claims import CLAIMS, FINDINGS
from .data import Cell, NotMeasured, Results, Row, Table
from .goals import GOALS, MARKS, Verdict, amount, judge
from .sections import TABLES

TEMPLATE = Path(__file__).with_name("benchmarks.md")
# A section up to the mark of its table; a mark of another text, which may have a name.
SECTION = re.compile(r"(?ms)^### ([^\n]+)(.*?)<!-- table -->")
MARK = re.compile(r"<!-- ([\w ]+)(?:: (\S+))? -->(\n*)")
# Percent of the processors.
BUSY = 10
# GitHub's Markdown has no colours.
COLOURS = {"reached": "🟢 {}", "missed": "🔴 **{}**", "open": "⚪ {}"}


def markdown(results: Results, charts: Mapping[str, str]) -> str:
    """Return the page; ``charts`` has the title of each chart by the name of its file."""

    def text(kind: str, name: str) -> str:
        if kind == "chart":
            return f"![{charts[name]}]({name})" if name in charts else ""
        with suppress(NotMeasured):
            return CLAIMS[name](results)
        return ""

    judged = [judge(goal, results) for goal in GOALS]
    texts = {
        "findings": _items(findings(results)),
        "goals reached": summary(judged),
        "goals": table_lines(goals_table(judged)),
        "machine": _items(f"{name}: {fact}" for name, fact in machine_facts(results)),
        "noise": noise(results),
    }

    def filled(found: re.Match[str]) -> str:
        kind, name, space = found.groups()
        made = text(kind, name) if name else texts[kind]
        return made + space if made else ""

    page = TEMPLATE.read_text(encoding="utf-8")
    page = SECTION.sub(lambda found: f"### {found[1]}{found[2]}{section(found[1], results)}", page)
    return MARK.sub(filled, page)


def _items(lines: Iterable[str]) -> str:
    return "\n".join(f"- {line}" for line in lines)


def section(title: str, results: Results) -> str:
    """Return the commands that make a table, and the table."""
    entry = TABLES[title]
    there = {name: name in results for name in entry.files}
    parts = [
        f"{'Made by' if made else '**Not run yet:**'} `{results.command(name)}`"
        for name, made in there.items()
    ]
    table = entry.shown(results)
    if table.rows:
        parts.append(table_lines(table))
    elif any(there.values()):
        parts.append("These results have no such rows.")
    return "\n\n".join(parts)


def table_lines(table: Table) -> str:
    lines = []
    for row in table.rows:
        head = [f"**{text}**" if text and row.ours else text for text in row.head]
        cells = [COLOURS.get(cell.mark, "{}").format(cell.text) for cell in row.cells]
        cells += [f"*{row.reason}*"] if row.reason else []
        cells += [""] * (len(table.headings) - len(head) - len(cells))
        lines.append([text.replace("|", "\\|") for text in head + cells])
    return figures.table(table.headings, lines, table.words)


def findings(results: Results) -> list[str]:
    """Return the main results, a sentence each."""
    made = []
    for name, sentence in FINDINGS.items():
        with suppress(NotMeasured):
            made.append(sentence.format(CLAIMS[name](results)))
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
        "Commit": _commits(machine.get("runs", {})),
        "Other work before": _busy_before(machine.get("runs", {})),
        "Run": "quick, with fewer rounds" if machine.get("fast") else "",
    }
    return [(name, str(text)) for name, text in facts.items() if text]


def _versions(runs: list[dict[str, Any]]) -> str:
    """List the versions; a package that changed between scripts has several."""
    numbers: dict[str, dict[str, None]] = {}
    for run in runs:
        for name, number in run["versions"].items():
            # "redis", the name of the package, could be mistaken for the server.
            numbers.setdefault("redis-py" if name == "redis" else name, {})[number] = None
    return ", ".join(f"{name} {' and '.join(found)}" for name, found in numbers.items())


def _commits(runs: dict[str, Any]) -> str:
    """Name the commit; if there are several, each with the scripts that ran at it."""
    scripts: dict[str, list[str]] = {}
    for name, run in runs.items():
        scripts.setdefault(run["commit"], []).append(name)
    if len(scripts) < 2:
        return "".join(scripts)
    return "; ".join(f"{commit} ({', '.join(names)})" for commit, names in scripts.items())


def _busy_before(runs: dict[str, Any]) -> str:
    """Say how busy the processors were before the scripts, and list scripts with too busy ones."""
    if not runs:
        return ""
    busy = {name: run["busy"] for name, run in runs.items()}
    said = f"{min(busy.values()):.0f}% to {max(busy.values()):.0f}% of the processors"
    noisy = [name for name, share in busy.items() if share > BUSY]
    return f"{said}; more than {BUSY}% before {', '.join(noisy)}" if noisy else said


def noise(results: Results) -> str:
    spreads = [spread(row.values) for row in results if len(row.values) > 1]
    if not spreads:
        return "No row has more than one value, so the noise is unknown."
    noisy = sum(row.noisy for row in results)
    return (
        "Other work on the machine only adds time, for seconds at a stretch. So with six rounds or "
        "more, the rounds are divided into three groups, and tables show the least time of each "
        "group. The spread of a row is (worst - best) / median of the shown times; for the median "
        f"row it is {median(spreads):.0%}. {noisy} of {len(spreads)} rows have more than "
        f"{NOISY:.0%} and are marked ▲: the machine did other work, or the time is very short. "
        "Without `--fast`, scripts with such rows run twice, and for each such row the run with "
        "the smaller spread is shown. Ratios use all rounds. Compare figures within a table, not "
        "across years or machines."
    )


def summary(judged: list[Verdict]) -> str:
    """Say how many of the goals with a bound were reached."""
    counts = Counter(verdict.word for verdict in judged if verdict.goal.bound is not None)
    said = (
        f"{counts['reached']} of {counts.total()} goals reached, {counts['missed']} missed, "
        f"{counts['not measured']} not measured."
    )
    more = " Rows without a goal are not judged."
    return said + more if counts.total() < len(judged) else said


def goals_table(judged: list[Verdict]) -> Table:
    """Return each goal with its verdict, the measured value, and its range."""
    rows = []
    for verdict in judged:
        goal, mark = verdict.goal, MARKS[verdict.word]
        cells = [Cell(verdict.word, mark), Cell(goal.wanted)]
        if verdict.measured:
            measured = verdict.measured
            figure, low, high = (
                amount(each, goal.unit) for each in (measured.figure, measured.low, measured.high)
            )
            cells += [Cell(figure), Cell("one value" if low == high else f"{low} to {high}")]
        rows.append(Row((f"{goal.area}: {goal.what}",), tuple(cells), reason=verdict.reason))
    return Table(("figure", "verdict", "goal", "measured", "range"), rows, words=2)
