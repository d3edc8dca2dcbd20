"""Goals: the target, the measured value, and the verdict."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from results import Result

from .data import Cell, NotMeasured, Results
from .measures import Measure, Measured
from .tables import Column, ranged


@dataclass(frozen=True)
class Goal:
    """A figure to reach.

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


# How the cells of verdicts are marked.
MARKS = {"reached": "reached", "missed": "missed", "not measured": "open", "no goal": ""}


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
