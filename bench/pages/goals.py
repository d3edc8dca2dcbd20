"""The project's goals, read from ``goals.toml``: target, measured value, and verdict."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from results import Result

from . import measures
from .data import Cell, NotMeasured, Results
from .measures import Measure, Measured
from .tables import Column, ranged

BOUND = re.compile(r"([≤≥]) ([\d.]+) ?(.+)")
# How the cells of verdicts are marked.
MARKS = {"reached": "reached", "missed": "missed", "not measured": "open", "no goal": ""}


@dataclass(frozen=True)
class Goal:
    """A target for a figure.

    Attributes:
        area: the group of the goal, such as ``"Encode"``.
        what: a description of the figure.
        measure: computes the figure from results.
        bound: the minimum that reaches the goal, or with ``at_most`` the maximum; None for a figure
            that is shown without a verdict.
        operations: the minimum number of operations of a valid measurement.
    """

    area: str
    what: str
    measure: Measure
    bound: float | None
    unit: str = "x"
    at_most: bool = False
    operations: int = 0

    @property
    def wanted(self) -> str:
        """The bound as text; a dash without one."""
        if self.bound is None:
            return "-"
        return f"{'≤' if self.at_most else '≥'} {self.bound:g}{_unit(self.unit)}"


def amount(number: float, unit: str) -> str:
    # Near 1, the third decimal can decide whether a goal is reached.
    digits = 3 if number < 2 else 2 if number < 10 else 1 if number < 100 else 0
    return f"{number:.{digits}f}{_unit(unit)}"


def _unit(unit: str) -> str:
    return unit if unit == "x" else f" {unit}"


@dataclass(frozen=True)
class Verdict:
    """A goal, judged: ``word`` is ``"reached"``, ``"missed"`` or ``"not measured"``.

    For a measured figure without a bound it is ``"no goal"``.
    """

    goal: Goal
    word: str
    measured: Measured | None = None
    reason: str = ""


def judge(goal: Goal, results: Results) -> Verdict:
    """Judge a goal: by the median, or for memory by the maximum."""
    try:
        measured = goal.measure(results)
    except NotMeasured as error:
        return Verdict(goal, "not measured", reason=str(error))
    if 1 < measured.operations < goal.operations:
        reason = f"measured with {measured.operations:,} operations, needs {goal.operations:,}"
        return Verdict(goal, "not measured", reason=reason)
    if goal.bound is None:
        return Verdict(goal, "no goal", measured)
    figure = measured.figure
    good = figure <= goal.bound if goal.at_most else figure >= goal.bound
    return Verdict(goal, "reached" if good else "missed", measured)


def beside(heading: str, goals: Mapping[str, Goal]) -> Callable[[Results], Column]:
    """Return a column with the measured value of each row that has a goal."""

    def column(results: Results) -> Column:
        def cell(row: Result) -> Cell:
            goal = goals.get(row.row)
            if goal is None:
                return Cell("-")
            try:
                figures = ranged(goal.measure(results), lambda each: amount(each, goal.unit))
            except NotMeasured:
                return Cell("-")
            mark = MARKS[judge(goal, results).word]
            return Cell(f"{figures}, goal {goal.wanted}", mark)

        return Column(heading, cell)

    return column


def read(path: Path) -> Iterator[tuple[str, Goal]]:
    """Yield (row, goal) for each goal of a file: the row of a table that shows it, "" if none."""
    for group in tomllib.loads(path.read_text(encoding="utf-8"))["group"]:
        for each in group["goals"]:
            function, *arguments = each["measure"]
            measure = getattr(measures, function)(*arguments)
            bound, unit, at_most = None, "x", False
            if found := BOUND.fullmatch(each["bound"]):
                at_most, bound, unit = found[1] == "≤", float(found[2]), found[3]
            operations = each.get("operations", 0)
            goal = Goal(group["area"], each["what"], measure, bound, unit, at_most, operations)
            yield each.get("row", ""), goal


ALL = [*read(Path(__file__).with_suffix(".toml"))]
GOALS = tuple(goal for _, goal in ALL)
# By the names of their rows, for the columns of other tables.
CHECKPOINTS, VERIFIED, ENGINES, SLOTS = (
    {row: goal for row, goal in ALL if row and goal.area == area}
    for area in ("Checkpoints", "Verification", "Engines", "Scale")
)
