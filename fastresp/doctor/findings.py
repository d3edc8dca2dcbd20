"""The input of the rules, and their results."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal, TypeAlias

from .facts import Facts
from .measure import Measured
from .watch import Use

__all__ = [
    "GRADES", "Findings", "Grade", "Rule", "Verdict", "gain_of", "in_order",
]  # fmt: skip

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
    """Sort verdicts: problems of unknown gain first, then by falling gain, notes last."""
    return sorted(verdicts, key=_place)


def _place(verdict: Verdict) -> tuple[bool, float, int]:
    gain = verdict.gain
    if gain is None:
        gain = float("inf") if verdict.grade == "problem" else 1.0
    return verdict.grade == "note", -gain, GRADES.index(verdict.grade)


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
    """Return ``rate`` divided by ``other``; None if either was not measured, or is 0."""
    return rate / other if rate and other else None
