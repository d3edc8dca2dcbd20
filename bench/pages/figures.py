"""Measured figures as text, and texts with placeholders for figures."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from string import Formatter
from typing import TypeAlias

from .data import Results
from .measures import Measure, Measured

UNITS = {"ns": 1e9, "us": 1e6, "ms": 1e3, "s": 1.0}


def shown(number: float, like: float | None = None) -> str:
    """Format a number with two or three significant digits, or with the decimals of ``like``."""
    size = abs(number if like is None else like)
    return f"{number:,.{3 if size < 0.1 else 2 if size < 2 else 1 if size < 10 else 0}f}"


def formatted(measured: Measured, kind: str) -> str:
    """Format a measured figure.

    Args:
        measured: the figure; a time is in seconds.
        kind: ``x``: 5.7x (4.7 to 7.6). ``plain``: 5.7x. ``rate``: 702,000 (operations per second).
            ``k``: 702k. ``MiB``: a size in MiB. ``ns``, ``us``, ``ms``, ``s``: a time in this unit.
    """
    figure = measured.figure
    if kind == "rate":  # with three significant digits
        return f"{int(float(f'{figure:.3g}')):,}"
    if kind == "k":
        return f"{figure / 1e6:.2f}M" if figure >= 999_500 else f"{figure / 1e3:.0f}k"
    if kind == "MiB":
        return f"{shown(figure)} MiB"
    if kind in UNITS:
        return f"{shown(figure * UNITS[kind])} {kind.replace('us', 'µs')}"
    if kind == "plain":
        return f"{shown(figure)}x"
    low, high = (shown(each, figure) for each in (measured.low, measured.high))
    extent = "" if low == high else f" ({low} to {high})"
    return f"{shown(figure)}x{extent}"


@dataclass(frozen=True)
class Claim:
    """A text with the figures of its placeholders, such as ``{ratio:x}``."""

    text: str
    figures: dict[str, Measure] = field(default_factory=dict)

    def pieces(self, results: Results) -> list[tuple[str, str]]:
        """Return the pieces of the claim in order: text, and the figure that follows the text.

        Raises:
            NotMeasured: a figure is not in the results.
        """
        return [
            (text, formatted(self.figures[name](results), kind or "") if name else "")
            for text, name, kind, _ in Formatter().parse(self.text)
        ]

    def __call__(self, results: Results) -> str:
        return "".join(text + figure for text, figure in self.pieces(results))


def table(headings: Iterable[str], rows: Iterable[Iterable[str]], words: int = 1) -> str:
    """Return a table in Markdown; its first ``words`` columns are text, the others are numbers."""
    headings = list(headings)
    lines = [headings, ["---"] * words + ["---:"] * (len(headings) - words), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


# A cell: text, or measures, each with the format of its figure.
GridCell: TypeAlias = str | Sequence[tuple[Measure, str]]


def grid(headings: Iterable[str], rows: Mapping[str, Sequence[GridCell]]) -> Claim:
    """Return a table whose cells have figures; ``rows`` has them by the text of the first cell."""
    figures: dict[str, Measure] = {}

    def text(cell: GridCell) -> str:
        if isinstance(cell, str):
            return cell
        placeholders = []
        for measure, kind in cell:
            name = f"figure{len(figures)}"
            figures[name] = measure
            placeholders.append(f"{{{name}:{kind}}}")
        return ", ".join(placeholders)

    return Claim(
        table(headings, ([words, *map(text, cells)] for words, cells in rows.items())), figures
    )
