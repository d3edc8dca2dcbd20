"""The charts at the top of the benchmarks' page, as SVG files.

They are legible at the width of a phone, on light and on dark pages.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape

from .claims import MERGED, WAYS, against_file
from .data import Results
from .figures import formatted
from .measures import Measure, Measured, each, rate

# Units of the drawing; a phone shows them at 0.9 CSS pixels, a desktop at 1.28.
WIDTH, MARGIN = 360, 12
# From the top of a bar's label to the top of the next one's; the bar is below its label.
STEP, LABEL, THICK = 38, 19, 11
# Room for the value behind the longest bar.
VALUE = 62
DISPLAYED_PX = 460

STYLE = """\
svg {
  --paper: #fff; --ink: #1f2328; --muted: #59636e; --ours: #d9480f;
  --other: #98a4b0;
}
@media (prefers-color-scheme: dark) {
  svg {
    --paper: #171b21; --ink: #e6edf3; --muted: #a3afbb; --ours: #ff8142;
    --other: #68737f;
  }
}
text { font: 13px system-ui, sans-serif; fill: var(--ink); }
.title, .ours { font-weight: 600; }
.about { fill: var(--muted); font-size: 12px; }
.range { stroke: var(--ink); stroke-width: 1.5; }
.level { stroke: var(--ink); stroke-dasharray: 3 2; }"""


@dataclass(frozen=True)
class Bar:
    """A bar: its label, its figure with the range, and the figure as text."""

    label: str
    figure: Measured
    text: str
    ours: bool = False


@dataclass(frozen=True)
class Chart:
    """Bars below one another, in groups.

    Attributes:
        title: its heading.
        about: lines of text that say what the bars show.
        groups: headings, which may be empty, and the bars below each heading.
        level: the value of a dashed line, such as the rate that others are compared with.
    """

    title: str
    about: Sequence[str]
    groups: Sequence[tuple[str, Sequence[Bar]]]
    level: float | None = None

    @property
    def words(self) -> str:
        """The chart as a sentence, for readers who can't see it."""
        bars = [bar for _, group in self.groups for bar in group]
        return f"{self.title}: " + "; ".join(f"{bar.label} {bar.text}" for bar in bars)


def drawn(chart: Chart) -> str:
    """Return the text of an SVG file."""
    y = 24
    elements = [_text(MARGIN, y, chart.title, "title")]
    for about in chart.about:
        y += 17
        elements.append(_text(MARGIN, y, about, "about"))
    y += 12
    highest = max(bar.figure.high for _, group in chart.groups for bar in group)
    scale = (WIDTH - 2 * MARGIN - VALUE) / highest
    for heading, group in chart.groups:
        if heading:
            y += 22
            elements.append(_text(MARGIN, y, heading, "title"))
            y += 10
        for bar in group:
            elements += _bar(bar, y, scale, chart.level)
            y += STEP
    height = y + MARGIN
    size = f'width="{DISPLAYED_PX}" height="{height * DISPLAYED_PX // WIDTH}"'
    lines = "\n".join(elements)
    return f"""\
<svg xmlns="http://www.w3.org/2000/svg" {size} viewBox="0 0 {WIDTH} {height}" role="img">
<title>{escape(chart.words)}</title>
<style>
{STYLE}
</style>
<rect width="{WIDTH}" height="{height}" rx="6" fill="var(--paper)"/>
{lines}
</svg>
"""


def _bar(bar: Bar, y: int, scale: float, level: float | None) -> Iterator[str]:
    kind = "ours" if bar.ours else "other"
    top, middle = y + LABEL, y + LABEL + THICK / 2
    low, value, high = (
        each * scale for each in (bar.figure.low, bar.figure.figure, bar.figure.high)
    )
    yield _text(MARGIN, top - 5, bar.label, kind)
    yield (
        f'<rect x="{MARGIN}" y="{top}" width="{value:.1f}" height="{THICK}" fill="var(--{kind})"/>'
    )
    if level is not None:
        yield _line("level", level * scale, top - 2, level * scale, top + THICK + 2)
    if high > low:
        yield _line("range", low, middle, high, middle)
    yield _text(MARGIN + max(value, high) + 6, middle + 4.5, bar.text, kind)


def _line(kind: str, x1: float, y1: float, x2: float, y2: float) -> str:
    places = f'x1="{MARGIN + x1:.1f}" y1="{y1:g}" x2="{MARGIN + x2:.1f}" y2="{y2:g}"'
    return f'<line class="{kind}" {places}/>'


def _text(x: float, y: float, text: str, kind: str) -> str:
    return f'<text class="{kind}" x="{x:.1f}" y="{y:g}">{escape(text)}</text>'


# The bars of the charts: what their labels name.
SOME_MERGED = {kind: MERGED[kind] for kind in ("RPUSH", "HSET", "SET", "SADD")}
SERIALISED = {
    "hashes of 10": "200,000 hashes of 10 fields",
    "hashes of 30": "200,000 hashes of 30 fields",
    "HSET": "one hash of 1,000,000 fields",
    "ZADD": "one sorted set of 1,000,000",
}
ENCODERS = {
    "fastresp rows": "fastresp, from tuples",
    "fastresp template, dicts": "fastresp, template over dicts",
    "hiredis.pack_command": "hiredis.pack_command",
    "substitution %": "formatting with %",
    "format": "str.format",
}


def _past(mode: str, kinds: dict[str, str]) -> dict[str, Measure]:
    return {words: against_file(kind, f"{mode}, columns") for kind, words in kinds.items()}


# By file: the title and the lines below it, the format of the figures, and the measures by heading
# and label.
CHARTS: dict[str, tuple[tuple[str, str, str], str, dict[str, dict[str, Measure]]]] = {
    "benchmarks.svg": (
        (
            "Load rows into Redis",
            "300,000 SETs of 129 bytes over a unix socket:",
            "rows per second, with the range",
        ),
        "k",
        {
            "": {
                words.replace("`", "").strip("*"): rate("ways", f"SET {way}")
                for way, words in WAYS.items()
            }
        },
    ),
    "benchmarks-merged.svg": (
        (
            "Faster than single commands",
            "Rate from Arrow columns / redis-cli --pipe with",
            "a ready-made file (dashed), with the range",
        ),
        "plain",
        {"Merged": _past("merged", SOME_MERGED), "Serialised": _past("serialised", SERIALISED)},
    ),
    "benchmarks-encode.svg": (
        (
            "Encode a command",
            "Time per SET of 129 bytes, without a server:",
            "less is better",
        ),
        "ns",
        {"": {words: each("encode", f"SET {row}") for row, words in ENCODERS.items()}},
    ),
}


def pictures(results: Results) -> dict[str, Chart]:
    """Return the charts by the names of their files.

    Raises:
        NotMeasured: a bar is not in the results.
    """
    return {name: _chart(results, *parts) for name, parts in CHARTS.items()}


def _chart(
    results: Results,
    words: tuple[str, str, str],
    kind: str,
    measures: dict[str, dict[str, Measure]],
) -> Chart:
    title, *about = words
    # All bars of ratios are fastresp's; the level is the ratio of what they are compared with.
    level = 1 if kind == "plain" else None

    def bar(label: str, measure: Measure) -> Bar:
        figure = measure(results)
        return Bar(label, figure, formatted(figure, kind), bool(level) or "fastresp" in label)

    groups = [
        (heading, [bar(label, measure) for label, measure in group.items()])
        for heading, group in measures.items()
    ]
    return Chart(title, about, groups, level)
