"""The pace of a load with a rate limit."""

from __future__ import annotations

import bisect
import time

from ..server.options import Rate
from .sending import Sending

__all__ = ["PORTION_S", "Pace"]

# With a rate limit, data is sent in portions: each is what the limit allows in this many seconds.
PORTION_S = 0.01


class Pace:
    """Computes how many commands or bytes a rate limit allows.

    Args:
        rate: the limit.

    Attributes:
        in_bytes: whether the limit counts bytes instead of commands.
        start: when the first command may be sent.
    """

    def __init__(self, rate: Rate) -> None:
        self.rate = rate.per_second
        self.in_bytes = rate.in_bytes
        self.start = time.monotonic()

    def allowed(self, sent: int) -> int:
        """Return how many commands or bytes, in total, may have been sent by now.

        A pause of the source is not followed by a burst. ``sent`` is the number sent so far.
        """
        allowed = 1 + int((time.monotonic() - self.start) * self.rate)
        unused = allowed - sent - 1 - int(2 * PORTION_S * self.rate)
        if unused > 0:
            self.start += unused / self.rate
            allowed -= unused
        return allowed

    def piece(self, sending: Sending, max_bytes: int) -> memoryview:
        """Return the bytes of a chunk to send now: whole commands, or nothing.

        A large command is followed by a longer pause. A command larger than ``max_bytes`` is sent
        in parts, without a pause between them.
        """
        whole = sending.whole
        replies = whole + 1 if sending.underway else self._replies(sending)
        if replies <= whole:
            return memoryview(b"")
        return sending.whole_piece(max_bytes, replies)

    def _replies(self, sending: Sending) -> int:
        """Return how many of the chunk's replies the rate limit allows by now, in total."""
        _, commands, size = sending.totals()
        sent = size if self.in_bytes else commands
        left = self.allowed(sent) - sent
        if left <= 0:
            return sending.whole
        if self.in_bytes:
            most = bisect.bisect_right(sending.chunk.ends, sending.at + left)
        else:
            most = sending.chunk.within(commands + left - sending.first_command)
        return max(most, sending.whole + 1)
