"""Rate limits: commands or bytes per second."""

from __future__ import annotations

import re
from contextlib import suppress
from dataclasses import dataclass
from typing import Self, TypeAlias

from ..outcome.excerpts import shortened
from ..outcome.messages import Hint, InPython, Message, above_zero

__all__ = ["Rate", "RateLimit"]

RateLimit: TypeAlias = float | str | None

# A number with a unit of bytes: decimal (kB, MB) or binary (KiB, MiB).
LIMIT = re.compile(r"\s*([0-9]{1,15}(?:\.[0-9]{0,15})?)\s*([kKmMgGtT]?)(i?)[bB](?:/s)?\s*")
# Mb and Gb usually mean bits.
BITS = re.compile(r"[KMGT]i?b")
POWERS = ("", "k", "m", "g", "t")
# Assumed size of a command, to convert commands per second to bytes per second.
COMMAND_BYTES = 50


@dataclass(frozen=True)
class Rate:
    """A rate limit.

    Attributes:
        per_second: the limit.
        in_bytes: whether the limit counts bytes of RESP instead of commands.
    """

    per_second: float
    in_bytes: bool = False

    @classmethod
    def of(cls, limit: RateLimit) -> Self | None:
        """Parse a limit: commands per second, or bytes per second as a text such as "50MB".

        Raises:
            ValueError: the limit is not a finite number above 0, with or without a unit of bytes.
        """
        if limit is None:
            return None
        number, in_bytes = _read(limit) if isinstance(limit, str) else (float(limit), False)
        if not 0 < number < float("inf"):
            raise ValueError(above_zero("rate_limit", "commands or bytes per second", limit))
        return cls(number, in_bytes)

    def shared_by(self, parts: int) -> str:
        """Return each load's share if several loads share the limit, as text for ``of()``."""
        return f"{self.per_second / parts:f}{'B' if self.in_bytes else ''}"

    def commands_in(self, seconds: float) -> int | None:
        """Return how many commands are allowed in this time, at least 1; None for a byte limit."""
        return None if self.in_bytes else max(1, int(self.per_second * seconds))

    def bytes_in(self, seconds: float) -> int:
        """Return approximately how many bytes are allowed in this time."""
        each = 1 if self.in_bytes else COMMAND_BYTES
        return int(min(self.per_second * each * seconds, 1 << 62))


def _read(text: str) -> tuple[float, bool]:
    """Parse a text; return the number, and whether it counts bytes instead of commands."""
    with suppress(ValueError):
        return float(text), False
    found = LIMIT.fullmatch(text)
    if found is None or BITS.search(text):
        raise ValueError(
            Message(
                Hint("rate_limit"),
                f" is {shortened(repr(text))}, but must be commands per second, such as 20000, or "
                "bytes per second, such as ",
                InPython("the text "),
                "800KB, 50MB, 1.5GB or 64MiB",
            )
        )
    number, unit, binary = found.groups()
    return float(number) * (1024 if binary else 1000) ** POWERS.index(unit.lower()), True
