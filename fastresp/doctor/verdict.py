"""A verdict: what limits the throughput, the figure that says so, what to do, and whose rule."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, TypeAlias

__all__ = ["Grade", "Verdict", "in_order", "worst"]

Grade: TypeAlias = Literal["problem", "advice", "note"]
GRADES: tuple[Grade, ...] = ("problem", "advice", "note")


@dataclass(frozen=True)
class Verdict:
    """One finding.

    Attributes:
        code: a name for programs, such as ``"aof-always"``.
        grade: ``"problem"`` costs much of the throughput, or puts data at risk; ``"advice"`` is
            something to gain; ``"note"`` is good to know, and nothing to change.
        title: what is the matter.
        figure: what was measured or read that says so.
        advice: what to do.
        gain: how many times the throughput can be expected; None where speed is not what is at
            stake, or nobody can tell.
        expected: the gain in words.
        source: where the rule comes from.
    """

    code: str
    grade: Grade
    title: str
    figure: str
    advice: str
    expected: str
    source: str
    gain: float | None = None


def in_order(verdicts: Iterable[Verdict]) -> list[Verdict]:
    """Sort by gain, the largest first.

    What puts data at risk comes before all that is only slow; notes come last.
    """
    return sorted(verdicts, key=_place)


def _place(verdict: Verdict) -> tuple[bool, float, int]:
    gain = verdict.gain
    if gain is None:
        gain = float("inf") if verdict.grade == "problem" else 1.0
    return verdict.grade == "note", -gain, GRADES.index(verdict.grade)


def worst(verdicts: Iterable[Verdict]) -> Grade | None:
    """The worst grade that there is; None for no verdict at all."""
    found = {verdict.grade for verdict in verdicts}
    return next((grade for grade in GRADES if grade in found), None)
