"""What the benchmarks share: the commands, and how a spread is shown."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from fastresp.generators import PAYLOAD

__all__ = ["KINDS", "commands", "spread"]

KINDS = ("SET", "LPUSH")


def commands(kind: str, count: int) -> list[tuple[str, str, str]]:
    """Ready commands with the report's payload: SET with distinct keys, or LPUSH with one key."""
    if kind == "SET":
        return [("SET", f"key:{index:08}", PAYLOAD) for index in range(count)]
    return [("LPUSH", "key", PAYLOAD)] * count


def spread(values: Sequence[float]) -> str:
    """Median, least and greatest of some ratios."""
    return f"{median(values):.3f}x ({min(values):.3f} to {max(values):.3f})"
