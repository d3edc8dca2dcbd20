"""The report as one page of HTML that needs nothing else: style and charts are in it, no script."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from html import escape

from .charts import STYLE, svg
from .data import (
    Cell,
    Group,
    Results,
    Row,
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

__all__ = ["html"]

BESIDE = 6


def html(results: Results, groups: Sequence[Group]) -> str:
    """Write the report."""
    return "\n".join(_lines(results, groups)) + "\n"


def inline(text: str) -> str:
    """Text of the report as HTML: code in backticks, emphasis between stars."""
    made = re.sub(r"`([^`]+)`", r"<code>\1</code>", escape(text, quote=False))
    return re.sub(r"(?<!\w)\*([^*]+)\*(?!\w)", r"<em>\1</em>", made)


def _lines(results: Results, groups: Sequence[Group]) -> Iterator[str]:
    yield '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">'
    yield '<meta name="viewport" content="width=device-width, initial-scale=1">'
    yield '<meta name="color-scheme" content="light dark">'
    yield "<title>fastresp: benchmarks</title>"
    # A browser would ask the server for an icon.
    yield '<link rel="icon" href="data:,">'
    yield f"<style>\n{STYLE.read_text()}</style>\n</head>\n<body>\n<main>"
    yield "<header>\n<h1>fastresp: benchmarks</h1>"
    yield '<ul class="lead">'
    yield from (f"<li>{inline(found)}</li>" for found in findings(results))
    yield "</ul>"
    yield f'<p class="about">{inline(in_short(results))}</p>\n</header>'
    yield from _contents(groups)
    yield from _goals(results)
    yield from _machine(results)
    for group in groups:
        yield f'<section id="{group.slug}">\n<h2>{inline(group.title)}</h2>'
        yield f'<p class="about">{inline(f"{group.about} {sources(group)}")}</p>'
        for section in group.sections:
            yield from _section(section, results)
        yield "</section>"
    yield "</main>\n</body>\n</html>"


def _contents(groups: Sequence[Group]) -> Iterator[str]:
    yield '<nav aria-label="Contents">\n<ul>'
    yield '<li><a href="#goals">Goal and measured</a></li>'
    yield '<li><a href="#machine">How it was measured</a></li>'
    for group in groups:
        yield f'<li><a href="#{group.slug}">{inline(group.title)}</a></li>'
    yield "</ul>\n</nav>"


def _goals(results: Results) -> Iterator[str]:
    judged = verdicts(results)
    yield '<section id="goals">\n<h2>Goal and measured</h2>'
    yield f'<p class="about">{inline(summary(judged))} Ratios are medians, of ratios taken round by'
    yield "round where contenders took turns; the range is from the least to the greatest of them,"
    yield "and otherwise that of the middle half.</p>"
    yield from _table(goals_table(judged), "Goal and measured", "goals")
    yield '<p class="about">What is no figure is held by tests:</p>'
    yield from _table(held_table(), "Held by tests", "held")
    yield "</section>"


def _machine(results: Results) -> Iterator[str]:
    yield '<section id="machine">\n<h2>How it was measured</h2>'
    if facts := machine_facts(results):
        yield "<dl>"
        for name, text in facts:
            yield f"<div><dt>{escape(name)}</dt><dd>{inline(text)}</dd></div>"
        yield "</dl>"
    yield f'<p class="about">{inline(noise(results))}</p>'
    yield '<p class="about"><code>python bench/run.py</code> measures all,'
    yield "<code>python bench/report.py</code> writes this page.</p>\n</section>"


def _section(section: Section, results: Results) -> Iterator[str]:
    chart = section.chart(results) if section.chart else None
    yield f'<article id="{section.slug}">\n<h3>{inline(section.title)}</h3>'
    table = section.shown(results)
    # Beside its chart a table of few columns has room.
    wide = " wide" if len(table.headings) > BESIDE else ""
    yield f'<div class="pair{wide}">' if chart else f'<div class="{wide.strip()}">'
    yield '<div class="words">'
    if section.about:
        yield f"<p>{inline(section.about)}</p>"
    for name in section.files:
        said = "Made by" if name in results else "Not run yet:"
        yield f'<p class="command">{said} <code>{escape(results.command(name))}</code></p>'
    yield "</div>"
    if chart:
        yield f"<figure>\n{svg(chart, section.slug)}\n</figure>"
    if table.rows:
        yield from _table(table, section.title)
    elif any(name in results for name in section.files):
        yield '<p class="about">These results have no such rows.</p>'
    yield "</div>\n</article>"


def _table(table: Table, title: str, kind: str = "") -> Iterator[str]:
    """A table that scrolls by itself where it is too wide."""
    label = f'aria-label="{escape(title)}, table"'
    yield f'<div class="scroll {kind}" role="region" tabindex="0" {label}>'
    yield "<table>\n<thead>\n<tr>"
    for index, heading in enumerate(table.headings):
        words = ' class="word"' if index < table.words else ""
        yield f'<th scope="col"{words}>{inline(heading)}</th>'
    yield "</tr>\n</thead>\n<tbody>"
    for row in table.rows:
        yield _row(row, len(table.headings))
    yield "</tbody>\n</table>\n</div>"


def _row(row: Row, width: int) -> str:
    head, *words = row.head
    cells = [f'<th scope="row">{inline(head)}</th>']
    cells += [f'<td class="word">{inline(text)}</td>' for text in words]
    cells += [_cell(cell) for cell in row.cells]
    if row.reason:
        rest = width - len(row.head) - len(row.cells)
        cells.append(f'<td class="reason" colspan="{rest}">{inline(row.reason)}</td>')
    opened = '<tr class="ours">' if row.ours else "<tr>"
    return f"{opened}{''.join(cells)}</tr>"


def _cell(cell: Cell) -> str:
    if cell.mark in ("reached", "missed", "open"):
        return f'<td class="verdict"><span class="{cell.mark}">{inline(cell.text)}</span></td>'
    mark = f' class="{cell.mark}"' if cell.mark else ""
    return f"<td{mark}>{inline(cell.text)}</td>"
