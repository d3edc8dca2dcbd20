"""Ask servers that evict keys for the sizes of replies, before sending the commands."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from itertools import accumulate, islice
from typing import Any

from ..outcome.errors import CommandError, ProtocolError
from ..resp.read import ReplyReader
from ..resp.size_questions import size_questions
from ..transports.stream import Sink, Stream
from ..transports.window import Window

__all__ = ["ReplySizes"]

# The number of commands to ask about in one batch; first a few, since the server may refuse.
FIRST_COMMANDS = 64
MOST_COMMANDS = 8192
# Commands in flight if the sizes of their replies are unknown.
UNKNOWN_IN_FLIGHT = 16


class ReplySizes:
    """Limits the bytes of replies in flight to what fits, by asking for their sizes first.

    Unread replies count towards ``maxmemory``, and a server runs all received commands before it
    sends the first reply. So a server that evicts keys would lose some because of our reading.
    While the questions are in flight, nothing else is, and the stream's sink is ours.

    Args:
        most_bytes: maximum bytes of replies in flight. A larger reply is requested alone.
    """

    def __init__(self, most_bytes: int) -> None:
        self._most_bytes = most_bytes
        self._window = Window()
        self._reader = ReplyReader()
        self._answers: list[Any] = []
        # For each command asked about: the questions about it, the bytes that earlier commands
        # write to its keys, and the index of the first of these commands.
        self._counts: list[int] = []
        self._written: list[int] = []
        self._first = 0
        # Cumulative bytes of their replies.
        self._ends: list[int] = []
        self._most_commands = FIRST_COMMANDS
        self._refused = False

    @property
    def received(self) -> int:
        """Bytes of answers received over this connection."""
        return self._reader.offset

    @property
    def sent_bytes(self) -> int:
        """Bytes of questions sent."""
        return self._window.totals()[2]

    @property
    def asking(self) -> bool:
        """Whether an answer is due."""
        return self._window.acknowledged < self._window.made

    def restart(self) -> None:
        """Forget the questions: the connection is closed, and a new one may follow."""
        self._window.acknowledge(self._window.made)
        self._reader, self._answers = ReplyReader(), []
        self._ends = []

    def room(self, acknowledged: int) -> int:
        """Return the number of commands that may be sent in total, after this many replies."""
        if self._refused:
            return acknowledged + UNKNOWN_IN_FLIGHT
        at, ends = acknowledged - self._first, self._ends
        if at >= len(ends):
            return acknowledged
        before = ends[at - 1] if at else 0
        return self._first + max(bisect_right(ends, before + self._most_bytes), at + 1)

    def step(self, window: Window, stream: Stream, sink: Sink) -> bool:
        """Ask, or read the answers, when due; return whether anything was sent.

        Args:
            window: of the commands.
            stream: sends the questions.
            sink: gets the replies to the commands.
        """
        if self.asking:
            self._read(stream, sink)
        elif not self._refused and self._is_next(window):
            self._ask(window, stream)
        return self.asking and stream.send(self._window)

    def _is_next(self, window: Window) -> bool:
        """Return whether the next command was not asked about, and all before it are answered."""
        answered = window.acknowledged
        return window.begun <= answered < window.made and answered >= self._first + len(self._ends)

    def _ask(self, window: Window, stream: Stream) -> None:
        """Make the questions about the next commands."""
        self._first, self._ends = window.acknowledged, []
        held, at = window.locate(self._first)
        count = min(len(held.chunk.ends) - at, self._most_commands)
        found = size_questions(held.chunk, at, at + count)
        if found is None:
            self._refused = True
            return
        questions, self._counts, self._written = found
        if count == 1:  # its reply is requested alone
            self._ends = [0]
        elif questions is None:
            self._use([])
        else:
            self._window.add(questions)
            stream.feed(self._reader)

    def _read(self, stream: Stream, sink: Sink) -> None:
        """Read the answers that have arrived; use them when all have."""
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
            self._refused = any(is_refusal(each.text) for each in answers)
        self._use(answers)

    def _use(self, answers: list[Any]) -> None:
        unknown = self._most_bytes // UNKNOWN_IN_FLIGHT
        # None: the key does not exist.
        sizes = iter(
            [each if type(each) is int else unknown if each is not None else 0 for each in answers]
        )
        of_each = (
            unknown if count < 0 else _sum(sizes, count) + written
            for count, written in zip(self._counts, self._written, strict=True)
        )
        self._ends = [*accumulate(of_each)]
        self._most_commands = MOST_COMMANDS


def _sum(sizes: Iterator[int], count: int) -> int:
    return next(sizes) if count == 1 else sum(islice(sizes, count))


def is_refusal(words: str) -> bool:
    """Return whether an error reply means that this question is never answered."""
    return words.startswith("NOPERM") or "unknown" in words.lower()
