"""Charts as SVG that follow the page's colours and are readable on a phone.

Matplotlib draws with placeholder colours, which become variables of the page's style sheet, so one
chart works in light and dark. A chart is 330 units wide, about the width of a phone; its text
stays text.
"""

from __future__ import annotations

import io
import re
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from pathlib import Path

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Rectangle
from matplotlib.ticker import FuncFormatter, MaxNLocator, NullLocator

__all__ = [
    "STYLE",
    "Bar",
    "BarChart",
    "Chart",
    "GroupedChart",
    "Line",
    "LineChart",
    "StackedChart",
    "picture",
    "short",
    "svg",
]

STYLE = Path(__file__).with_name("page.css")

WIDTH = 330
# The width of a chart that is a file of its own, in CSS pixels.
PICTURE_PX = 400
FONT = 12.5
SMALL = 12
# Placeholder colours, and the variables that replace them.
INK, MUTED, GRID, OURS, OTHER, TRACK, ON = (f"#0000{number:02x}" for number in range(1, 8))
SERIES = [f"#0000{number:02x}" for number in range(16, 24)]
VARIABLES = {
    INK: "--ink", MUTED: "--muted", GRID: "--grid", OURS: "--ours", OTHER: "--other",
    TRACK: "--track", ON: "--on-series",
} | {colour: f"--series-{index}" for index, colour in enumerate(SERIES, start=1)}  # fmt: skip
DASHES = ["-", (0, (5, 2)), (0, (1.5, 1.5)), (0, (6, 2, 1.5, 2)), (0, (8, 3))]
MARKERS = ["o", "s", "^", "D", "v", "P", "X", "*"]


@dataclass(frozen=True)
class Bar:
    """A bar; ``then`` is the source's figure, ``most`` the most that the server could do."""

    label: str
    value: float
    ours: bool = False
    then: float | None = None
    most: float | None = None


@dataclass(frozen=True)
class BarChart:
    """Bars below one another; ``then`` names the source in the legend."""

    title: str
    axis: str
    bars: Sequence[Bar]
    then: str = ""


@dataclass(frozen=True)
class StackedChart:
    """Bars of shares in percent, by class."""

    title: str
    bars: Mapping[str, Mapping[str, float]]


@dataclass(frozen=True)
class GroupedChart:
    """Several bars below each label, one per series."""

    title: str
    axis: str
    groups: Mapping[str, Mapping[str, float]]


@dataclass(frozen=True)
class Line:
    """A curve, or with a single point a level line."""

    label: str
    x: Sequence[float]
    y: Sequence[float]
    ours: bool = False


@dataclass(frozen=True)
class LineChart:
    """Curves over an axis of powers."""

    title: str
    axis: str
    over: str
    lines: Sequence[Line] = field(default_factory=list)


Chart = BarChart | GroupedChart | StackedChart | LineChart


def short(number: float) -> str:
    """Format a number for a label."""
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if number >= size:
            shown = number / size
            return f"{shown:.{0 if shown >= 100 else 1 if shown >= 10 else 2}f}{letter}"
    return f"{number:.3g}"


def _tick(number: float) -> str:
    """Format a round number: 1.5M, 200k."""
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if number >= size:
            return f"{number / size:g}{letter}"
    return f"{number:g}"


def svg(chart: Chart, name: str) -> str:
    """Draw a chart; ``name`` is a prefix for ids, which must be unique on a page."""
    settings = {
        "svg.fonttype": "none",
        "svg.hashsalt": name,
        "font.size": FONT,
        "axes.edgecolor": GRID,
        "axes.labelcolor": MUTED,
        "xtick.color": GRID,
        "ytick.color": GRID,
        "xtick.labelcolor": MUTED,
        "ytick.labelcolor": MUTED,
        "text.color": INK,
    }
    with mpl.rc_context(settings):
        drawn = DRAW[type(chart)](chart)
        file = io.StringIO()
        nothing = dict.fromkeys(("Date", "Creator", "Format", "Type"))
        drawn.savefig(file, format="svg", transparent=True, metadata=nothing)
    return _for_page(file.getvalue(), chart.title, name)


def picture(chart: Chart) -> str:
    """Draw a chart as a file of its own, with the page's light and dark colours."""
    # The part of the style sheet before the first rule for elements.
    colours = STYLE.read_text().partition("* {")[0]
    style = f"<style>\n{colours}text {{ font-family: system-ui, sans-serif; }}\n</style>\n"
    drawing = svg(chart, "picture")
    box = re.search(r'viewBox="0 0 ([\d.]+) ([\d.]+)"', drawing)
    assert box is not None
    # Without a size a browser makes it as wide as the text, and what follows is off the screen.
    size = f'<svg width="{PICTURE_PX}" height="{PICTURE_PX * float(box[2]) / float(box[1]):.0f}" '
    head, title, rest = drawing.replace("<svg ", size, 1).partition("<title>")
    return head + style + title + rest + "\n"


def _for_page(text: str, title: str, name: str) -> str:
    """Turn an SVG document into a part of a page."""
    text = text[text.index("<svg") :]
    dropped = r"<metadata>.*?</metadata>\s*|<!--.*?-->\s*|<defs>\s*<style.*?</style>\s*</defs>\s*"
    text = re.sub(dropped, "", text, flags=re.DOTALL)
    # Ids that are referred to must be unique on the page; the others are removed.
    used = set(re.findall(r'(?:url\(#|href="#)([^)"]+)', text))
    text = re.sub(r' id="([^"]+)"', lambda m: f' id="{name}-{m[1]}"' if m[1] in used else "", text)
    text = re.sub(r'(url\(#|href="#)', rf"\g<1>{name}-", text)
    for colour, variable in VARIABLES.items():
        text = text.replace(colour, f"var({variable})")
    # The typeface is the page's.
    text = re.sub(r"font: ((?:\w+ )?)([\d.]+)px [^;\"]+", _font, text)
    text = re.sub(r"font-family: [^;\"]+;? ?", "", text)
    head = re.match(r"<svg[^>]*>", text)
    assert head is not None
    box = re.search(r'viewBox="([^"]+)"', head[0])
    assert box is not None
    opened = (
        f'<svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink" '
        f'viewBox="{box[1]}" role="img" aria-label="{escape(title)}">\n'
        f"<title>{escape(title)}</title>"
    )
    return opened + text[head.end() :].rstrip()


def _font(found: re.Match[str]) -> str:
    """Keep the size and the weight of a CSS font."""
    weight = "; font-weight: 700" if found[1].startswith(("bold", "700")) else ""
    return f"font-size: {found[2]}px{weight}"


def _figure(height: float) -> Figure:
    figure = Figure(figsize=(WIDTH / 72, height / 72))
    FigureCanvasSVG(figure)
    return figure


def _plain_axes(figure: Figure, left: float, bottom: float, right: float, top: float) -> Axes:
    """Make axes with these margins, in units, and no frame."""
    height = figure.get_figheight() * 72
    axes = figure.add_axes(
        (left / WIDTH, bottom / height, 1 - (left + right) / WIDTH, 1 - (bottom + top) / height)
    )
    axes.spines[:].set_visible(False)
    axes.tick_params(length=0)
    axes.patch.set_visible(False)
    return axes


def _at(figure: Figure, x: float, y: float, text: str, **style: object) -> None:
    """Write at units from the left and from the top."""
    height = figure.get_figheight() * 72
    figure.text(x / WIDTH, 1 - y / height, text, va="center", **style)


def _box(figure: Figure, x: float, y: float, width: float, height: float, colour: str) -> None:
    """Fill a rectangle, at units from the left and from the top."""
    total = figure.get_figheight() * 72
    place = (x / WIDTH, 1 - (y + height) / total)
    size = (width / WIDTH, height / total)
    figure.add_artist(
        Rectangle(place, *size, transform=figure.transFigure, facecolor=colour, linewidth=0)
    )


# Heights: a bar with its label, the bar, the space above it, a further line of its label.
STEP, THICK, HEAD, LINE = 38.0, 13.0, 18.0, 15.0


def _bars(chart: BarChart) -> Figure:
    """Draw each label above its bar, each value at its end."""
    keys = []
    if any(bar.then for bar in chart.bars):
        keys.append((INK, f"the source, {chart.then}"))
    if any(bar.most for bar in chart.bars):
        keys.append((TRACK, "limit if the server never waited"))
    labels = [textwrap.fill(bar.label, 40 if bar.ours else 46) for bar in chart.bars]
    lines = [label.count("\n") for label in labels]
    top = 8 + 19 * len(keys)
    total = STEP * len(labels) + LINE * sum(lines)
    figure = _figure(top + total + 44)
    axes = _plain_axes(figure, 2, 40, 2, top)
    axes.set_ylim(total, 0)
    # Room for a value after the longest bar.
    longest = max(max(bar.value, bar.then or 0) for bar in chart.bars)
    limit = max(1.24 * longest, *(1.02 * (bar.most or 0) for bar in chart.bars)) or 1.0
    axes.set_xlim(0, limit)
    y = 0.0
    for bar, label, more in zip(chart.bars, labels, lines, strict=True):
        y += HEAD + LINE * more
        if bar.most:
            axes.barh(y + THICK / 2, bar.most, THICK, color=TRACK)
        axes.barh(y + THICK / 2, bar.value, THICK, color=OURS if bar.ours else OTHER)
        if bar.then:
            axes.plot([bar.then] * 2, [y - 2.5, y + THICK + 2.5], color=INK, linewidth=2)
        weight = "bold" if bar.ours else "normal"
        for line, text in enumerate(reversed(label.split("\n"))):
            axes.text(0, y - 9 - LINE * line, text, va="center", fontweight=weight)
        # The source's mark must not cross the number.
        clear = max(bar.value, bar.then or 0) if _close(bar, limit) else bar.value
        axes.text(
            clear + limit * 0.012, y + THICK / 2, short(bar.value), va="center_baseline",
            fontweight=weight, fontsize=SMALL,
        )  # fmt: skip
        y += STEP - HEAD
    _value_axis(axes, chart.axis)
    for index, (colour, text) in enumerate(keys):
        y = 9 + 19 * index
        _box(figure, *((7, y - 7, 2, 14) if colour == INK else (2, y - 6, 12, 12)), colour)
        _at(figure, 20, y, text, fontsize=SMALL, color=MUTED)
    return figure


def _close(bar: Bar, limit: float) -> bool:
    return bool(bar.then and bar.value <= bar.then < bar.value + 0.15 * limit)


def _value_axis(axes: Axes, text: str) -> None:
    axes.yaxis.set_major_locator(NullLocator())
    # The label of a tick at the edge would be cut off.
    limit = axes.get_xlim()[1]
    ticks = [tick for tick in MaxNLocator(4).tick_values(0, limit) if 0 <= tick <= 0.95 * limit]
    axes.set_xticks(ticks, [_tick(tick) for tick in ticks])
    axes.tick_params(axis="x", labelsize=SMALL)
    axes.grid(axis="x", color=GRID, linewidth=0.8)
    axes.set_axisbelow(True)
    axes.set_xlabel(text, fontsize=SMALL, labelpad=3)
    labels = axes.get_xticklabels()
    if labels:
        labels[0].set_horizontalalignment("left")


def _stacked(chart: StackedChart) -> Figure:
    """Draw bars of 100 percent, with the classes' shares where there is room."""
    classes = list(dict.fromkeys(name for shares in chart.bars.values() for name in shares))
    top = 10 + 19 * ((len(classes) + 1) // 2)
    figure = _figure(top + STEP * len(chart.bars) + 40)
    axes = _plain_axes(figure, 2, 38, 10, top)
    axes.set_ylim(STEP * len(chart.bars), 0)
    axes.set_xlim(0, max(100.0, *(sum(shares.values()) for shares in chart.bars.values())))
    colours = dict(zip(classes, SERIES, strict=False))
    for index, (label, shares) in enumerate(chart.bars.items()):
        y, start = index * STEP + HEAD, 0.0
        weight = "bold" if "fastresp" in label else "normal"
        axes.text(0, y - 9, label, va="center", fontweight=weight)
        for name, share in shares.items():
            axes.barh(y + THICK / 2 + 1, share, THICK + 2, left=start, color=colours[name])
            if share >= 9:
                axes.text(
                    start + share / 2, y + THICK / 2 + 1, f"{share:.0f}", ha="center",
                    va="center_baseline", fontsize=SMALL, color=ON,
                )  # fmt: skip
            start += share
    _value_axis(axes, "percent of the CPU time")
    _legend(figure, colours)
    return figure


def _grouped(chart: GroupedChart) -> Figure:
    """A label, and below it a bar for each series."""
    series = list(dict.fromkeys(name for values in chart.groups.values() for name in values))
    colours = dict(zip(series, SERIES, strict=False))
    top = 10 + 19 * ((len(series) + 1) // 2)
    step = HEAD + 13 * len(series) + 6
    figure = _figure(top + step * len(chart.groups) + 40)
    axes = _plain_axes(figure, 2, 38, 2, top)
    axes.set_ylim(step * len(chart.groups), 0)
    limit = 1.2 * max(value for values in chart.groups.values() for value in values.values())
    axes.set_xlim(0, limit)
    for index, (label, values) in enumerate(chart.groups.items()):
        axes.text(0, index * step + HEAD - 9, label, va="center")
        for place, name in enumerate(series):
            if name in values:
                y = index * step + HEAD + 13 * place + 5.5
                axes.barh(y, values[name], 11, color=colours[name])
                style = {"va": "center_baseline", "fontsize": SMALL}
                axes.text(values[name] + limit * 0.012, y, short(values[name]), **style)
    _value_axis(axes, chart.axis)
    _legend(figure, colours)
    return figure


def _legend(figure: Figure, colours: Mapping[str, str]) -> None:
    """Draw the legend of colours above a chart, two in a line."""
    for index, (name, colour) in enumerate(colours.items()):
        x, y = (2 + WIDTH / 2 * (index % 2)), 9 + 19 * (index // 2)
        _box(figure, x, y - 6, 12, 12, colour)
        _at(figure, x + 18, y, name, fontsize=SMALL, color=MUTED)


def _lines(chart: LineChart) -> Figure:
    """Draw curves that differ in colour, dash and marker, with a legend above."""
    top = 14 + 19 * len(chart.lines)
    figure = _figure(top + 290)
    axes = _plain_axes(figure, 46, 42, 12, top)
    points = [x for line in chart.lines if len(line.x) > 1 for x in line.x] or [1.0]
    height = figure.get_figheight() * 72
    axes.set_xscale("log")
    others = 0
    for index, line in enumerate(chart.lines):
        level = len(line.x) < 2
        colour = OURS if line.ours else SERIES[others % len(SERIES)]
        style = {
            "color": colour,
            "linewidth": 2.6 if line.ours else 1.8,
            "linestyle": (0, (6, 2)) if level else "-" if line.ours else DASHES[others % 5],
        }
        marker = "" if level else MARKERS[index % len(MARKERS)]
        x = [min(points), max(points)] if level else line.x
        axes.plot(x, [line.y[0]] * 2 if level else line.y, marker=marker, markersize=5, **style)
        y = 1 - (10 + 19 * index) / height
        key = Line2D(
            [4 / WIDTH, 17 / WIDTH, 30 / WIDTH], [y] * 3, marker=marker, markevery=[1],
            markersize=5, transform=figure.transFigure, **style,
        )  # fmt: skip
        figure.add_artist(key)
        weight = "bold" if line.ours else "normal"
        _at(figure, 38, 10 + 19 * index, line.label, fontsize=SMALL, fontweight=weight)
        others += not line.ours
    axes.set_ylim(0, max(max(line.y) for line in chart.lines) * 1.06)
    axes.yaxis.set_major_locator(MaxNLocator(6))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: _tick(value)))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
    axes.tick_params(labelsize=SMALL)
    axes.grid(color=GRID, linewidth=0.8)
    axes.set_axisbelow(True)
    axes.set_xlabel(chart.over, fontsize=SMALL, labelpad=3)
    _at(figure, 2, top - 6, chart.axis, fontsize=SMALL, color=MUTED)
    return figure


DRAW = {BarChart: _bars, GroupedChart: _grouped, StackedChart: _stacked, LineChart: _lines}
