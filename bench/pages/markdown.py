"""The page as GitHub-flavoured Markdown."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from .data import (
    Cell,
    Group,
    Results,
    Section,
    Table,
)
from .text import (
    RATIOS,
    findings,
    goals_table,
    held_table,
    in_short,
    machine_facts,
    noise,
    sources,
    summary,
    verdicts,
)

__all__ = ["markdown"]

# GitHub's Markdown has no colours.
MARKS = {"reached": "🟢 {}", "missed": "🔴 **{}**", "open": "⚪ {}"}


def markdown(results: Results, groups: Sequence[Group], picture: str = "") -> str:
    """Write the page; ``picture`` is the description of ``benchmarks.svg``, if there is one."""
    return "\n".join(_lines(results, groups, picture)).rstrip() + "\n"


def _lines(results: Results, groups: Sequence[Group], picture: str) -> Iterator[str]:
    judged = verdicts(results)
    yield from ("# Benchmarks", "")
    if picture:
        yield from (f"![{picture}](benchmarks.svg)", "")
    yield from (*(f"- {found}" for found in findings(results)), "")
    if caption := in_short(results):
        yield from (f"*{caption}*", "")
    yield from ("Contents:", "")
    yield "- [Goals and results](#goals-and-results)"
    yield "- [How it was measured](#how-it-was-measured)"
    yield from (f"- [{group.title}](#{group.slug})" for group in groups)
    yield from ("", "## Goals and results", "", f"{summary(judged)} {RATIOS}", "")
    yield from _table(goals_table(judged))
    yield from ("", "Goals that are not figures, and the test that checks each:", "")
    yield from _table(held_table())
    yield from ("", "## How it was measured", "")
    yield from (f"- {name}: {text}" for name, text in machine_facts(results))
    yield from ("", noise(results), "")
    yield "`python bench/run.py` measures everything. `python bench/report.py` writes this page,"
    yield "and one with all charts beside the results."
    for group in groups:
        yield from ("", f"## {group.title}", "", f"{group.about} {sources(group)}".rstrip())
        for section in group.sections:
            yield from _section(section, results)


def _section(section: Section, results: Results) -> Iterator[str]:
    yield from ("", f"### {section.title}", "")
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
