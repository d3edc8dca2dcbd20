"""The progress stored in a checkpoint.

A marker is a key that stores how many rows have run; see markers.py.
"""

from __future__ import annotations

import json
import re
from array import array
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime

__all__ = ["StoredProgress", "damaged_field"]


@dataclass
class StoredProgress:
    """The progress of all loads that have used a checkpoint.

    Attributes:
        ran: for each marker, the number of rows that have run.
        seen: number of leading rows whose replies were all received.
        failed: number of failed commands in the first ``seen`` rows.
        resumed: whether an earlier load has used the checkpoint.
        ended: when the load of the whole source ended, in seconds since 1970, as text; empty if it
            has not ended.
        total: number of rows of the source when the load last ended; 0 if it has never ended.
        unknown: the value of ``unseen`` when the last load began.
    """

    ran: array[int] = field(default_factory=lambda: array("q", [0]))
    seen: int = 0
    failed: int = 0
    resumed: bool = False
    ended: str = ""
    total: int = 0
    unknown: tuple[int, int] | None = None

    @property
    def rows(self) -> int:
        """The number of leading rows that have all run."""
        return self.total if self.ended else min(self.ran)

    @property
    def most(self) -> int:
        """The number of rows that earlier loads have reached, and that the source must have."""
        return max(self.rows, *self.ran)

    @property
    def unseen(self) -> tuple[int, int] | None:
        """The range (start, stop) of rows that may have run, but whose replies were lost.

        None if there are no such rows.
        """
        end = max(self.ran)
        if self.ended or end <= self.seen:
            return self.unknown
        first, last = self.unknown or (self.seen, end)
        return min(first, self.seen), max(last, end)

    @property
    def seen_now(self) -> int:
        """The value of ``seen`` for a resumed load; if a server has lost rows, ``rows`` instead."""
        return self.rows if max(self.ran) < self.seen else self.seen


def damaged_field(found: Mapping[str, str]) -> str:
    """Return the first missing or invalid field of a description; empty if all fields are valid."""
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


# The check of each field of a description.
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
# Required fields: every load writes them when it starts.
NEEDED = frozenset(("lease", "ended", "clients", "generation", "fence", "markers"))
