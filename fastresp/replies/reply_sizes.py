"""Query the sizes of replies before sending commands to servers that evict keys."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from itertools import accumulate, islice
from typing import Any

from ..outcome.errors import CommandError, ProtocolError
from ..resp.read import ReplyReader
from ..resp.slots import size_queries
from ..transports.stream import ReplySink, Stream
from ..transports.window import Window

__all__ = ["ReplySizes"]

# The number of commands in one batch of queries; the first batch is small, since the server may
# refuse queries.
FIRST_COMMANDS = 64
MAX_COMMANDS = 8192
# The maximum number of commands in flight if the sizes of their replies are unknown.
UNKNOWN_IN_FLIGHT = 16


class ReplySizes:
    """Limits the bytes of replies in flight, by querying reply sizes first.

    Unread replies count towards ``maxmemory``, and a server runs all received commands before it
    sends the first reply. So large replies could make a server evict keys. While queries are in
    flight, no commands are in flight, and this object's own reader receives the replies to queries.

    Args:
        max_bytes: the maximum number of bytes of replies in flight; a command with a larger reply
            is sent alone.
    """

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._window = Window()
        self._reader = ReplyReader()
        self._answers: list[Any] = []
        # For each queried command, the number of queries, below 0 if the size is unknown.
        self._counts: list[int] = []
        # For each queried command, the number of bytes that earlier commands write to its keys.
        self._written: list[int] = []
        # The index of the first queried command.
        self._first = 0
        # The cumulative sizes of the queried commands' replies.
        self._ends: list[int] = []
        self._max_commands = FIRST_COMMANDS
        self._refused = False

    @property
    def received(self) -> int:
        """The number of bytes of replies to queries, received over this connection."""
        return self._reader.offset

    @property
    def sent_bytes(self) -> int:
        """The number of bytes of queries sent."""
        return self._window.totals()[2]

    @property
    def asking(self) -> bool:
        """Whether a query is not answered yet."""
        return self._window.acknowledged < self._window.made

    def restart(self) -> None:
        """Forget the queries of a closed connection, so that a new connection can be used."""
        self._window.acknowledge(self._window.made)
        self._reader, self._answers = ReplyReader(), []
        self._ends = []

    def room(self, acknowledged: int) -> int:
        """Return how many commands may be sent in total once ``acknowledged`` replies arrived."""
        if self._refused:
            return acknowledged + UNKNOWN_IN_FLIGHT
        at, ends = acknowledged - self._first, self._ends
        if at >= len(ends):
            return acknowledged
        before = ends[at - 1] if at else 0
        return self._first + max(bisect_right(ends, before + self._max_bytes), at + 1)

    def step(self, window: Window, stream: Stream, sink: ReplySink) -> bool:
        """Send queries if needed, or read replies to queries; return whether bytes were sent."""
        if self.asking:
            self._read(stream, sink)
        elif not self._refused and self._is_next(window):
            self._ask(window, stream)
        return self.asking and stream.send(self._window)

    def _is_next(self, window: Window) -> bool:
        """Return whether the next reply's size must be queried, and no commands are in flight."""
        answered = window.acknowledged
        return window.begun <= answered < window.made and answered >= self._first + len(self._ends)

    def _ask(self, window: Window, stream: Stream) -> None:
        """Create queries about the replies to the next commands."""
        self._first, self._ends = window.acknowledged, []
        held, at = window.locate(self._first)
        count = min(len(held.chunk.ends) - at, self._max_commands)
        found = size_queries(held.chunk, at, at + count)
        if found is None:
            self._refused = True
            return
        questions, self._counts, self._written = found
        if count == 1:  # the command is sent alone, so its reply may have any size
            self._ends = [0]
        elif questions is None:
            self._use([])
        else:
            self._window.add(questions)
            stream.feed(self._reader)

    def _read(self, stream: Stream, sink: ReplySink) -> None:
        """Read replies to queries; use the replies when all have arrived."""
        self._answers += self._reader.take()
        window, count = self._window, len(self._answers)
        due = window.made - window.acknowledged
        if count > due:
            stream.give_up(ProtocolError("more replies than commands", self.received))
        if count != due:
            return
        answers, self._answers = self._answers, []
        window.acknowledge(window.made)
        stream.feed(sink)
        if all(type(each) is CommandError for each in answers):
            # Without the permission or the command, the server will refuse all such queries.
            self._refused = any(
                each.text.startswith("NOPERM") or "unknown" in each.text.lower() for each in answers
            )
        self._use(answers)

    def _use(self, answers: list[Any]) -> None:
        unknown = self._max_bytes // UNKNOWN_IN_FLIGHT
        # The answer is None if the key does not exist.
        sizes = iter(
            [each if type(each) is int else unknown if each is not None else 0 for each in answers]
        )
        of_each = (
            unknown if count < 0 else _sum(sizes, count) + written
            for count, written in zip(self._counts, self._written, strict=True)
        )
        self._ends = [*accumulate(of_each)]
        self._max_commands = MAX_COMMANDS


def _sum(sizes: Iterator[int], count: int) -> int:
    return next(sizes) if count == 1 else sum(islice(sizes, count))
