"""The input of the rules."""

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
    """Everything that the doctor knows about a server.

    Attributes:
        facts: the settings and state that the server reported.
        measured: the measurements; None if the server was only watched.
        use: how clients used the server while it was watched, or since it started; None if the
            server refuses INFO.
    """

    facts: Facts
    measured: Measured | None = None
    use: Use | None = None


Rule: TypeAlias = Callable[[Findings], Verdict | None]


def gain_of(rate: float | None, other: float | None) -> float | None:
    """Return ``rate`` divided by ``other``; None if one of them was not measured."""
    return rate / other if rate and other else None
