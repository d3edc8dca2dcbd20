"""The page as one file of HTML: styles and charts are in it, and there is no script."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from html import escape

from .charts import STYLE, Chart, svg
from .data import (
    Cell,
    Group,
    Results,
    Row,
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

__all__ = ["html"]

BESIDE = 6


def html(results: Results, groups: Sequence[Group], chart: Chart | None = None) -> str:
    """Write the page; ``chart`` is the first thing on it."""
    return "\n".join(_lines(results, groups, chart)) + "\n"


def inline(text: str) -> str:
    """Return text as HTML: code in backticks, emphasis between asterisks."""
    made = re.sub(r"`([^`]+)`", r"<code>\1</code>", escape(text, quote=False))
    return re.sub(r"(?<!\w)\*([^*]+)\*(?!\w)", r"<em>\1</em>", made)


def _lines(results: Results, groups: Sequence[Group], chart: Chart | None) -> Iterator[str]:
    yield '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">'
    yield '<meta name="viewport" content="width=device-width, initial-scale=1">'
    yield '<meta name="color-scheme" content="light dark">'
    yield "<title>fastresp: benchmarks</title>"
    # A browser would ask the server for an icon.
    yield '<link rel="icon" href="data:,">'
    yield f"<style>\n{STYLE.read_text()}</style>\n</head>\n<body>\n<main>"
    yield "<header>\n<h1>fastresp: benchmarks</h1>"
    if chart:
        yield f"<figure>\n{svg(chart, 'first')}\n</figure>"
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
    yield '<li><a href="#goals">Goals and results</a></li>'
    yield '<li><a href="#machine">How it was measured</a></li>'
    for group in groups:
        yield f'<li><a href="#{group.slug}">{inline(group.title)}</a></li>'
    yield "</ul>\n</nav>"


def _goals(results: Results) -> Iterator[str]:
    judged = verdicts(results)
    yield '<section id="goals">\n<h2>Goals and results</h2>'
    yield f'<p class="about">{inline(summary(judged))} {RATIOS}</p>'
    yield from _table(goals_table(judged), "Goals and results", "goals")
    yield '<p class="about">Goals that are not figures, and the test that checks each:</p>'
    yield from _table(held_table(), "Checked by tests", "held")
    yield "</section>"


def _machine(results: Results) -> Iterator[str]:
    yield '<section id="machine">\n<h2>How it was measured</h2>'
    if facts := machine_facts(results):
        yield "<dl>"
        for name, text in facts:
            yield f"<div><dt>{escape(name)}</dt><dd>{inline(text)}</dd></div>"
        yield "</dl>"
    yield f'<p class="about">{inline(noise(results))}</p>'
    yield '<p class="about"><code>python bench/run.py</code> measures everything;'
    yield "<code>python bench/report.py</code> writes this page.</p>\n</section>"


def _section(section: Section, results: Results) -> Iterator[str]:
    chart = section.chart(results) if section.chart else None
    yield f'<article id="{section.slug}">\n<h3>{inline(section.title)}</h3>'
    table = section.shown(results)
    # A table of few columns has room beside its chart.
    wide = " wide" if len(table.headings) > BESIDE else ""
    yield f'<div class="pair{wide}">' if chart else f'<div class="{wide.strip()}">'
    yield '<div class="words">'
    if section.about:
        yield f"<p>{inline(section.about)}</p>"
    for name in section.files:
        words = "Made by" if name in results else "Not run yet:"
        yield f'<p class="command">{words} <code>{escape(results.command(name))}</code></p>'
    yield "</div>"
    if chart:
        yield f"<figure>\n{svg(chart, section.slug)}\n</figure>"
    if table.rows:
        yield from _table(table, section.title)
    elif any(name in results for name in section.files):
        yield '<p class="about">These results have no such rows.</p>'
    yield "</div>\n</article>"


def _table(table: Table, title: str, kind: str = "") -> Iterator[str]:
    """Yield a table that scrolls on its own where it is too wide."""
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
