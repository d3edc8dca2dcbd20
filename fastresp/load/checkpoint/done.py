"""What the loads under a name have done so far."""

from __future__ import annotations

import json
from array import array
from collections.abc import Mapping
from dataclasses import dataclass, field

__all__ = ["Done", "is_whole"]


@dataclass
class Done:
    """What the loads under a name have done so far.

    Attributes:
        ran: for each marker how many rows have run.
        seen: up to which row the replies were seen.
        failed: commands among these that failed.
        going_on: whether a load before had begun.
        ended: when all had run, in seconds since 1970; empty if they have not.
        total: how many rows there were then.
        unknown: as ``unseen``, of the loads before the last one.
    """

    ran: array[int] = field(default_factory=lambda: array("q", [0]))
    seen: int = 0
    failed: int = 0
    going_on: bool = False
    ended: str = ""
    total: int = 0
    unknown: tuple[int, int] | None = None

    @property
    def rows(self) -> int:
        """Up to which row all have run."""
        return self.total if self.ended else min(self.ran)

    @property
    def most(self) -> int:
        """How many rows the source has at least, as these have run somewhere."""
        return max(self.rows, *self.ran)

    @property
    def unseen(self) -> tuple[int, int] | None:
        """The rows, from the first to the end, that ran without all their replies being seen."""
        end = max(self.ran)
        if self.ended or end <= self.seen:
            return self.unknown
        first, last = self.unknown or (self.seen, end)
        return min(first, self.seen), max(last, end)

    @property
    def seen_now(self) -> int:
        """What ``seen`` is for a load that goes on: a server may have lost rows since."""
        return self.rows if max(self.ran) < self.seen else self.seen


def is_whole(found: Mapping[str, str]) -> bool:
    """Return whether the numbers and the connections of a description can be read."""
    try:
        numbers = [int(found.get(name) or 0) for name in ("seen", "failed", "ended", "lease")]
        numbers.append(int(json.loads(found.get("totals") or "{}").get("rows", 0)))
        first, end = json.loads(found.get("unknown") or "[0, 0]")
        numbers += int(first), int(end)
        for address, run, clients in json.loads(found.get("clients") or "[]"):
            numbers += map(int, clients)
            address.encode(), run.encode()
    except (ValueError, TypeError, AttributeError, RecursionError):
        return False
    return min(numbers) >= 0 and max(numbers) < 1 << 63
