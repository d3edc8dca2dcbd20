"""A verdict: a finding with evidence, advice, and the source of the rule."""

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
        grade: ``"problem"``: costs much throughput, or puts data at risk; ``"advice"``: throughput
            can be gained; ``"note"``: information, nothing to change.
        title: the finding in a few words.
        figure: the evidence, measured or read from the server.
        advice: what to do.
        gain: the expected throughput, as a multiple of the current throughput; None if the finding
            is not about speed, or the gain is unknown.
        expected: the gain in words.
        source: the publication that supports the rule.
        nodes: the affected nodes of a cluster; empty if the finding is about a single server, or
            about the whole cluster.
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
    """Sort verdicts: data at risk first, then by gain, largest first, and notes last."""
    return sorted(verdicts, key=_place)


def _place(verdict: Verdict) -> tuple[bool, float, int]:
    gain = verdict.gain
    if gain is None:
        gain = float("inf") if verdict.grade == "problem" else 1.0
    return verdict.grade == "note", -gain, GRADES.index(verdict.grade)


def worst(verdicts: Iterable[Verdict]) -> Grade | None:
    """Return the worst grade of the verdicts; None if there are no verdicts."""
    found = {verdict.grade for verdict in verdicts}
    return next((grade for grade in GRADES if grade in found), None)
