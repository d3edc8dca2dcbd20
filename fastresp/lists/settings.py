"""The settings of a list buffer."""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass
from typing import Literal, TypeAlias, get_args

from ..outcome.messages import Hint, Message, above_zero
from ..resp.slots import Rules
from ..resp.values import pack

__all__ = ["BATCH_BYTES", "Delivery", "Order", "Settings", "checked_count"]

Order: TypeAlias = Literal["fifo", "lifo"]
Delivery: TypeAlias = Literal["at-most-once", "at-least-once"]

# Maximum arguments of a command; some servers refuse more.
MAX_ARGUMENTS = 65_536
# A variadic command ends with the item that reaches this size. Larger commands would block other
# clients, and 1,000 items of a megabyte would have to fit into the server's query buffer.
BATCH_BYTES = 1 << 20
RULES = Rules()


@dataclass(frozen=True)
class Settings:
    """The settings of a list buffer; see ListBuffer."""

    key: str | bytes
    batch: int = 1000
    order: Order = "fifo"
    delivery: Delivery = "at-most-once"
    maxlen: int | None = None
    lease: float = 30.0
    timeout: float | None = 30.0

    def __post_init__(self) -> None:
        if not isinstance(self.key, (str, bytes)):
            raise TypeError(f"key must be a str or bytes, not {self.key!r}")
        # The command's name and key also count as arguments.
        if not isinstance(self.batch, int) or not 1 <= self.batch <= MAX_ARGUMENTS - 2:
            raise ValueError(f"batch must be a whole number from 1 to 65,534, not {self.batch!r}")
        for name, values in (("order", get_args(Order)), ("delivery", get_args(Delivery))):
            if getattr(self, name) not in values:
                choices = " or ".join(map(repr, values))
                raise ValueError(f"{name} must be {choices}, not {getattr(self, name)!r}")
        if self.maxlen is not None and not (isinstance(self.maxlen, int) and self.maxlen > 0):
            raise ValueError(f"maxlen must be a whole number above 0, or None, not {self.maxlen!r}")
        if not isinstance(self.lease, (int, float)) or not 0.1 <= self.lease < math.inf:
            message = f" must be a finite number of seconds, 0.1 or more, not {self.lease!r}"
            raise ValueError(Message(Hint("lease"), message))
        timeout = self.timeout
        if timeout is not None and not (isinstance(timeout, (int, float)) and timeout > 0):
            raise ValueError(above_zero("timeout", "seconds", timeout))

    @property
    def name(self) -> bytes:
        """The key as bytes."""
        return self.key.encode() if isinstance(self.key, str) else self.key

    @property
    def slot(self) -> int:
        return _slot_of(self.name)

    def check_records(self) -> None:
        """Check that the list and its records are in one slot, as a cluster requires."""
        if _slot_of(self.key_for("consumers")) != self.slot:
            raise ValueError(
                f"no hash tag can name the slot of the key {self.key!r}, so in a cluster its items "
                "can't be acknowledged or recovered; use a key without braces, or with a hash tag"
            )

    def key_for(self, suffix: str) -> bytes:
        """Return a key for records about the list, in the same cluster slot as the list.

        For lists such as ``a}b``, the slot differs, since no hash tag can name the list's slot.
        """
        key = self.name
        # A key's hash tag is the text between its first '{' and the next '}'.
        start = key.find(b"{")
        tagged = start >= 0 and key.find(b"}", start + 1) > start + 1
        return (key + b":" if tagged else b"{" + key + b"}::") + suffix.encode()


def _slot_of(key: bytes) -> int:
    return RULES.slot(pack("LLEN", key))


def checked_count(n: object) -> int:
    """Return a number of items, at most ``sys.maxsize``; raise ValueError if it is invalid."""
    if not isinstance(n, int) or n < 0:
        raise ValueError(f"n must be a whole number of items, 0 or more, not {n!r}")
    return min(n, sys.maxsize)
