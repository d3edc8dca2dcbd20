"""The report as GitHub-flavoured Markdown."""

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

# Markdown on GitHub has no colours.
MARKS = {"reached": "🟢 {}", "missed": "🔴 **{}**", "open": "⚪ {}"}


def markdown(results: Results, groups: Sequence[Group]) -> str:
    """Write the report."""
    return "\n".join(_lines(results, groups)).rstrip() + "\n"


def _lines(results: Results, groups: Sequence[Group]) -> Iterator[str]:
    judged = verdicts(results)
    yield from ("# Benchmarks", "", *(f"- {found}" for found in findings(results)), "")
    if said := in_short(results):
        yield from (said, "")
    yield from ("## Goal and measured", "", summary(judged), "")
    yield "Ratios are medians, of ratios taken round by round where contenders took turns; the"
    yield "range is from the least to the greatest of them, and otherwise that of the middle half."
    yield ""
    yield from _table(goals_table(judged))
    yield from ("", "What is no figure is held by tests:", "")
    yield from _table(held_table())
    yield from ("", "## How it was measured", "")
    yield from (f"- {name}: {text}" for name, text in machine_facts(results))
    yield from ("", noise(results), "")
    yield "`python bench/run.py` measures all, `python bench/report.py` writes this page, and one"
    yield "with charts beside the results."
    yield from ("", "Contents:", "")
    yield from (f"- [{group.title}](#{group.slug})" for group in groups)
    for group in groups:
        yield from ("", f"## {group.title}", "", f"{group.about} {sources(group)}".rstrip())
        for section in group.sections:
            yield from _section(section, results)


def _section(section: Section, results: Results) -> Iterator[str]:
    yield from ("", f"### {section.title}", "")
    if section.about:
        yield from (section.about, "")
    for name in section.files:
        said = "Made by" if name in results else "**Not run yet:**"
        yield f"{said} `{results.command(name)}`"
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
