"""What the rules look at, and how they write figures and name their sources."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from .facts import Facts
from .measure import Measured
from .verdict import Verdict
from .watch import Use

__all__ = ["Findings", "Rule", "gain_of"]


@dataclass(frozen=True)
class Findings:
    """All that is known.

    Attributes:
        measured: None where nothing was sent but questions.
        use: while it was watched, or since the server started; None where it is not told.
    """

    facts: Facts
    measured: Measured | None = None
    use: Use | None = None


Rule: TypeAlias = Callable[[Findings], Verdict | None]


def gain_of(rate: float | None, other: float | None) -> float | None:
    """How many times the other the rate is; None where one was not measured."""
    return rate / other if rate and other else None
