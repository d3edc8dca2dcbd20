"""A column of figures that have a goal, with the goal beside each."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from results import Result

from .data import Cell, NotMeasured, Results
from .goal import Goal, amount
from .goals import MARKS, judge
from .tables import Column, ranged

__all__ = ["beside"]


def beside(heading: str, goals: Mapping[str, Goal]) -> Callable[[Results], Column]:
    """Return a column of what is measured for the goals of some rows.

    Args:
        heading: what the figures are.
        goals: by the name of their row; other rows have an empty cell.
    """

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
