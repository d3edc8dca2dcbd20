"""The page as GitHub-flavoured Markdown."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress

from .claims import CLAIMS
from .data import (
    Cell,
    Group,
    NotMeasured,
    Results,
    Section,
    Table,
)
from .text import (
    RATIOS,
    findings,
    goals_table,
    held_table,
    machine_facts,
    noise,
    sources,
    summary,
    verdicts,
)

__all__ = ["markdown"]

INTRODUCTION = (
    "The figures of this page, and the figures that other pages quote from it, are from one run of "
    "`python bench/run.py` on one machine, which may have been interrupted and resumed: "
    "[How it was measured](#how-it-was-measured) names the commit of each script. "
    "`bench/published` has the results, and `python bench/report.py` fills them in. Compare ratios "
    "between machines, not rates."
)

# GitHub's Markdown has no colours.
MARKS = {"reached": "🟢 {}", "missed": "🔴 **{}**", "open": "⚪ {}"}


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
    return MARKS.get(cell.mark, "{}").format(cell.text)


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"
