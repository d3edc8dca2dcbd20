"""What the loads under a name have done so far."""

from __future__ import annotations

import json
import re
from array import array
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime

__all__ = ["Done", "damaged_field"]


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
        """What ``seen`` is for a load that is resumed: a server may have lost rows since."""
        return self.rows if max(self.ran) < self.seen else self.seen


def damaged_field(found: Mapping[str, str]) -> str:
    """Return the first field of a description that is missing or can't be read; empty if none."""
    for name, check in FIELDS.items():
        if name not in found and name not in NEEDED:
            continue
        try:
            right = check(found[name])
        except (ArithmeticError, LookupError, OSError, RecursionError, TypeError, ValueError):
            right = False
        if not right:
            return name
    return ""


def is_number(text: str) -> bool:
    return re.fullmatch("[0-9]{1,18}", text) is not None


def is_time(text: str) -> bool:
    return is_number(text) and datetime.fromtimestamp(int(text), UTC) is not None


def are_totals(text: str) -> bool:
    return is_number(str(json.loads(text)["rows"]))


def are_rows(text: str) -> bool:
    first, end = json.loads(text)
    return is_number(str(first)) and is_number(str(end))


def are_clients(text: str) -> bool:
    return all(
        isinstance(address, str) and isinstance(run, str) and all(map(is_number, map(str, ids)))
        for address, run, ids in json.loads(text)
    )


# What can be in each field of a description that is read again.
FIELDS: dict[str, Callable[[str], object]] = {
    "seen": is_number,
    "failed": is_number,
    "lease": is_time,
    "ended": lambda text: text == "" or is_time(text),
    "totals": are_totals,
    "unknown": are_rows,
    "clients": are_clients,
    "generation": re.compile("[0-9a-f]{8}").fullmatch,
    "fence": re.compile("([0-9a-f]{16})?").fullmatch,
    "markers": re.compile("(complete)?").fullmatch,
}
# Fields that are written when a load begins.
NEEDED = frozenset(("lease", "ended", "clients", "generation", "fence", "markers"))
