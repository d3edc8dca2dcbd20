"""What a list buffer was asked to be."""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass
from typing import Literal, TypeAlias

from ..outcome.messages import Hint, Message, above_zero

__all__ = ["BATCH_BYTES", "Delivery", "Order", "Settings", "checked_count"]

Order: TypeAlias = Literal["fifo", "lifo"]
Delivery: TypeAlias = Literal["at-most-once", "at-least-once"]

# Some servers take no command of more arguments.
MOST_ARGUMENTS = 65_536
# A variadic command ends with the item that reaches this size: a larger one is in the way of the
# server's other clients, and 1,000 items of a megabyte would have to fit into its query buffer.
BATCH_BYTES = 1 << 20


@dataclass(frozen=True)
class Settings:
    """What a buffer was asked to be; see ListBuffer."""

    key: str | bytes
    batch: int = 1000
    order: Order = "fifo"
    delivery: Delivery = "at-most-once"
    maxlen: int | None = None
    lease: float = 30.0
    timeout: float | None = 30.0

    def __post_init__(self) -> None:
        if not isinstance(self.key, (str, bytes)):
            raise TypeError(f"key is a str or bytes, not {self.key!r}")
        # Besides the items there are the name of the command and the key.
        if not isinstance(self.batch, int) or not 1 <= self.batch <= MOST_ARGUMENTS - 2:
            raise ValueError(f"batch is a number from 1 to 65,534, not {self.batch!r}")
        if self.order not in ("fifo", "lifo"):
            raise ValueError(f"order is 'fifo' or 'lifo', not {self.order!r}")
        if self.delivery not in ("at-most-once", "at-least-once"):
            raise ValueError(
                f"delivery is 'at-most-once' or 'at-least-once', not {self.delivery!r}"
            )
        if self.maxlen is not None and not (isinstance(self.maxlen, int) and self.maxlen > 0):
            raise ValueError(f"maxlen is a number above 0, or None, not {self.maxlen!r}")
        if not isinstance(self.lease, (int, float)) or not 0.1 <= self.lease < math.inf:
            words = f" is a number of seconds of 0.1 or more, not {self.lease!r}"
            raise ValueError(Message(Hint("lease"), words))
        timeout = self.timeout
        if timeout is not None and not (isinstance(timeout, (int, float)) and timeout > 0):
            raise ValueError(above_zero("timeout", "seconds", timeout))

    @property
    def name(self) -> bytes:
        """The key as bytes."""
        return self.key.encode() if isinstance(self.key, str) else self.key

    def beside(self, what: str) -> bytes:
        """The key of what belongs to the list, in the same slot of a cluster.

        But for keys such as ``a}b``, for which there is no tag.
        """
        key = self.name
        # The tag of a key is what stands between its first '{' and the first '}' behind it.
        start = key.find(b"{")
        tagged = start >= 0 and key.find(b"}", start + 1) > start + 1
        return (key + b":" if tagged else b"{" + key + b"}::") + what.encode()


def checked_count(n: object) -> int:
    """A number of items, as large as there can be; refuses what is none."""
    if not isinstance(n, int) or n < 0:
        raise ValueError(f"n is a number of items of 0 or more, not {n!r}")
    return min(n, sys.maxsize)
