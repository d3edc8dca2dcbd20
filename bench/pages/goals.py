"""The project's goals, read from ``goals.toml``: the measure and the bound of each goal."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

from . import measures
from .goal import Goal

BOUND = re.compile(r"([≤≥]) ([\d.]+) ?(.+)")


def read(path: Path) -> Iterator[tuple[str, Goal]]:
    """Yield each goal of a file, after the row of a table that shows the goal ("" if none)."""
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
