"""A figure to reach."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from .data import Results
from .measures import Measured

__all__ = ["Goal", "amount"]


@dataclass(frozen=True)
class Goal:
    """A figure to reach.

    Attributes:
        area: what it belongs to, such as ``"Encode"``.
        what: what the figure is.
        file: the name of the results it is computed from.
        measure: computes it from results.
        bound: the least value that reaches the goal, or with ``at_most`` the greatest; None for a
            figure that is shown without a verdict.
        operations: the least number of operations that counts as a measurement.
    """

    area: str
    what: str
    file: str
    measure: Callable[[Results], Measured]
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
    """Format a figure with its unit."""
    # Near 1 the third decimal can decide.
    digits = 3 if number < 2 else 2 if number < 10 else 1 if number < 100 else 0
    return f"{number:.{digits}f}{_unit(unit)}"


def _unit(unit: str) -> str:
    return unit if unit == "x" else f" {unit}"
