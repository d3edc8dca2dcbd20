"""The page as GitHub-flavoured Markdown: its sentences, computed from the results, and tables."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from statistics import median
from typing import Any

from results import NOISY, spread

from .claims import CLAIMS, FINDINGS
from .data import Cell, Group, NotMeasured, Results, Row, Section, Table
from .goal import MARKS, Verdict, amount, judge
from .goals import GOALS, HELD
from .measures import Measured
from .source_figures import SOURCES

__all__ = ["goals_table", "markdown", "summary"]

# Percent of the processors.
BUSY = 10
RATIOS = "Contenders take turns; a ratio is the median of the ratios of each round, with its range."
GROUND_RULE = "Compare figures within a table, not across years or machines."
INTRODUCTION = (
    "The figures of this page, and the figures that other pages quote from it, are from one run of "
    "`python bench/run.py` on one machine, which may have been interrupted and resumed: "
    "[How it was measured](#how-it-was-measured) names the commit of each script. "
    "`bench/published` has the results, and `python bench/report.py` fills them in. Compare ratios "
    "between machines, not rates."
)

# GitHub's Markdown has no colours.
COLOURS = {"reached": "🟢 {}", "missed": "🔴 **{}**", "open": "⚪ {}"}


def markdown(results: Results, groups: Sequence[Group], charts: Mapping[str, str]) -> str:
    """Write the page; ``charts`` are the titles of the charts by the names of their files."""
    return "\n".join(_lines(results, groups, charts)).rstrip() + "\n"


def _lines(results: Results, groups: Sequence[Group], charts: Mapping[str, str]) -> Iterator[str]:
    judged = verdicts(results)
    yield from ("# Benchmarks", "", INTRODUCTION, "")
    pictures = [f"![{title}]({name})" for name, title in charts.items()]
    yield from (*pictures[:1], "")
    for name in ("ways", "conditions"):
        with suppress(NotMeasured):
            yield from (CLAIMS[name](results), "")
    for picture in pictures[1:]:
        yield from (picture, "")
    yield from (*(f"- {found}" for found in findings(results)), "")
    yield from ("Every script, table and goal:", "")
    yield "- [Goals](#goals)"
    yield "- [How it was measured](#how-it-was-measured)"
    yield from (f"- [{group.title}](#{group.slug})" for group in groups)
    yield from ("", "## Goals", "", f"{summary(judged)} {RATIOS}", "")
    yield from _folded("Each goal, and what was measured", _table(goals_table(judged)))
    yield from _folded("Goals that tests check", _table(held_table()))
    yield from ("## How it was measured", "")
    yield from (f"- {name}: {text}" for name, text in machine_facts(results))
    yield from ("", noise(results))
    for group in groups:
        yield from ("", f"## {group.title}", "", f"{group.about} {sources(group)}".rstrip(), "")
        sections = (line for section in group.sections for line in _section(section, results))
        yield from _folded(f"Show the {len(group.sections)} tables", sections)


def _folded(title: str, lines: Iterable[str]) -> Iterator[str]:
    """Yield lines that are shown when a reader opens them."""
    yield from (f'<details markdown="1"><summary>{title}</summary>', "")
    yield from (*lines, "", "</details>", "")


def _section(section: Section, results: Results) -> Iterator[str]:
    yield from (f"### {section.title}", "")
    if section.about:
        yield from (section.about, "")
    for name in section.files:
        words = "Made by" if name in results else "**Not run yet:**"
        yield f"{words} `{results.command(name)}`"
        yield ""
    table = section.shown(results)
    if table.rows:
        yield from _table(table)
    elif any(name in results for name in section.files):
        yield "These results have no such rows."
    yield ""


def _table(table: Table) -> Iterator[str]:
    width = len(table.headings)
    yield _line(table.headings)
    yield _line(["---"] * table.words + ["---:"] * (width - table.words))
    for row in table.rows:
        head = [f"**{text}**" if text and row.ours else text for text in row.head]
        cells = [_cell(cell) for cell in row.cells] + ([f"*{row.reason}*"] if row.reason else [])
        yield _line(head + cells + [""] * (width - len(head) - len(cells)))


def _cell(cell: Cell) -> str:
    return COLOURS.get(cell.mark, "{}").format(cell.text)


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def findings(results: Results) -> list[str]:
    """Return the main results, a sentence each."""
    made = []
    for name, sentence in FINDINGS.items():
        try:
            made.append(sentence.format(CLAIMS[name](results)))
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
        "Commit": _commits(machine.get("runs", {})),
        "Other work before": _busy_before(machine.get("runs", {})),
        "Run": "quick, with fewer rounds" if machine.get("fast") else "",
    }
    return [(name, str(text)) for name, text in facts.items() if text]


def _versions(runs: list[dict[str, Any]]) -> str:
    """List the versions; several of a package that changed between the scripts."""
    numbers: dict[str, dict[str, None]] = {}
    for run in runs:
        for name, number in run["versions"].items():
            # The package's name, "redis", could be the server's.
            numbers.setdefault("redis-py" if name == "redis" else name, {})[number] = None
    return ", ".join(f"{name} {' and '.join(found)}" for name, found in numbers.items())


def _commits(runs: dict[str, Any]) -> str:
    """Name the commit; if there are several, with the scripts that ran at each."""
    scripts: dict[str, list[str]] = {}
    for name, run in runs.items():
        scripts.setdefault(run["commit"], []).append(name)
    if len(scripts) < 2:
        return "".join(scripts)
    return "; ".join(f"{commit} ({', '.join(names)})" for commit, names in scripts.items())


def _busy_before(runs: dict[str, Any]) -> str:
    """Say how busy the processors were before the scripts, and before which they were too busy."""
    if not runs:
        return ""
    busy = {name: run["busy"] for name, run in runs.items()}
    said = f"{min(busy.values()):.0f}% to {max(busy.values()):.0f}% of the processors"
    noisy = [name for name, share in busy.items() if share > BUSY]
    return f"{said}; more than {BUSY}% before {', '.join(noisy)}" if noisy else said


def _spreads(results: Results) -> list[float]:
    return [spread(row.values) for row in results if len(row.values) > 1]


def noise(results: Results) -> str:
    """Say how noisy the machine was."""
    spreads = _spreads(results)
    if not spreads:
        return "No row has more than one value, so the noise is unknown."
    noisy = sum(row.noisy for row in results)
    return (
        "Other work on the machine only adds time, for seconds at a stretch. So with six rounds or "
        "more, tables show the least time of each third of the rounds (every third round). The "
        f"spread of a row is (worst - best) / median of these; {median(spreads):.0%} for the "
        f"median row. {noisy} of {len(spreads)} rows have more than {NOISY:.0%} and are marked ▲: "
        "the machine did other work, or the time is very short. Without `--fast`, scripts with "
        "such rows run twice, and the quieter run of each row is shown. Ratios use all rounds. "
        + GROUND_RULE
    )


def sources(group: Group) -> str:
    """Name the sources of others' figures in a group of tables."""
    made = []
    for key in group.sources:
        title, year, machine = SOURCES[key]
        made.append(f"*{title}* ({year}, {machine})")
    return f"The sources: {'; '.join(made)}." if made else ""


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
