"""A verdict: what limits the throughput, the evidence, what to do, and the source of the rule."""

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
        code: a stable name for programs, such as ``"aof-always"``.
        grade: ``"problem"``: costs much of the throughput, or puts data at risk; ``"advice"``:
            throughput to gain; ``"note"``: good to know, nothing to change.
        title: what the finding is.
        figure: the evidence, measured or read from the server.
        advice: what to do.
        gain: the expected throughput, as a multiple of today's; None if the finding is not about
            speed, or the gain is unknown.
        expected: the gain in words.
        source: where the rule comes from.
        nodes: the nodes of a cluster that it is about; empty if it is about the server, or the
            cluster as a whole.
    """

    code: str
    grade: Grade
    title: str
    figure: str
    advice: str
    expected: str
    source: str
    gain: float | None = None
    nodes: tuple[str, ...] = ()


def in_order(verdicts: Iterable[Verdict]) -> list[Verdict]:
    """Sort by gain, largest first; data at risk comes before speed, and notes come last."""
    return sorted(verdicts, key=_place)


def _place(verdict: Verdict) -> tuple[bool, float, int]:
    gain = verdict.gain
    if gain is None:
        gain = float("inf") if verdict.grade == "problem" else 1.0
    return verdict.grade == "note", -gain, GRADES.index(verdict.grade)


def worst(verdicts: Iterable[Verdict]) -> Grade | None:
    """Return the worst grade of the verdicts; None if there are none."""
    found = {verdict.grade for verdict in verdicts}
    return next((grade for grade in GRADES if grade in found), None)
