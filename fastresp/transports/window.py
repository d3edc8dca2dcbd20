"""Commands in flight: which were sent and answered, and which command a reply answers.

A chunk contains encoded whole commands. A window holds the chunks of one connection until they are
answered. After a chunk that is a fence, the source waits for the replies to this chunk.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, MutableMapping, Sequence
from itertools import chain
from operator import not_
from typing import Any, NamedTuple, TypeAlias

from ..resp.buffer import Chunk
from ..resp.transactions import BatchedChunk
from .sending import Position, Sending

__all__ = ["WINDOW_BYTES", "WINDOW_COMMANDS", "Counts", "Error", "Filter", "Refusals", "Window"]

# Maximum bytes in flight. The buffers between two processes on one machine hold 0.4 MB (unix) to
# 6 MB (TCP); a network of 10 Gbit/s and 5 ms holds 6 MB.
WINDOW_BYTES = 8 << 20
# Maximum commands in flight: each needs 16 bytes of memory in addition to RESP.
WINDOW_COMMANDS = 1 << 18

# An error reply: its index, its text, and the number of the reply's element that is or contains the
# error, counted from 1; 0 if the whole reply is an error.
Error: TypeAlias = tuple[int, bytes, int]


class Counts(NamedTuple):
    """What a window sent: whole commands, their rows, and bytes.

    Attributes:
        rows: rows whose commands were sent.
        commands: commands that were sent, except those that will be resent.
        size: bytes sent.
        sent: commands that were sent, including each resent command once more.
        in_doubt: commands that were sent but not answered: the server may have run them.
        unsent: commands that were not sent, or only in part: the server has not run them.
    """

    rows: int
    commands: int
    size: int
    sent: int
    in_doubt: int
    unsent: int


class Refusals(NamedTuple):
    """Counts of refused commands that will be resent. Each error reply is counted once.

    Interruptions: a signal handler may raise between any two bytecodes. The same replies are then
    processed again from the start. So each change of a window or a ledger must be repeatable, and
    is one of these:

    - An entry of a dict or a set, whose key comes from the command: setting it again changes
      nothing. Entries are set before their reply is counted.
    - A tuple, such as this one, that replaces the previous tuple. ``Window.refuse()`` ignores
      replies that it has seen.
    - One call in C, in which no handler can run: ``Window.resend()``, or ``update()`` of a dict or
      a set.

    Attributes:
        next_reply: all replies before this index were counted.
        commands: commands that were sent, and will be resent.
    """

    next_reply: int = 0
    commands: int = 0


class Filter:
    """Inspects a window's replies before they are counted. By default, it changes nothing."""

    # Why the connection must be closed.
    fault: Exception | None = None

    def filter_error(self, window: Window, error: Error) -> Error | None:
        """Return the error to report; None to drop it."""
        return error

    def may_acknowledge(self, window: Window, received: int) -> int:
        """Return how many of the first ``received`` replies may be acknowledged."""
        return received

    def gate(self, window: Window) -> int | None:
        """Return the current limit for ``Window.sent``, in replies; None for no limit."""
        return None

    def is_settled(self, index: int) -> bool:
        """Return whether the outcome of an unacknowledged command, given by reply, is known."""
        return False

    def counts(self, window: Window, counts: Counts) -> Counts:
        """Return the window's counts, after this filter has corrected them."""
        return counts

    def adding(self, window: Window, start: Position | None) -> None:
        """Add fastresp's own commands, if needed, before a new chunk that begins at ``start``."""

    def added(self, window: Window) -> None:
        """Add fastresp's own commands, if needed, after a new chunk."""

    def refill(self, window: Window) -> None:
        """After replies were processed, add the commands that are due."""


class Window:
    """Holds chunks from encoding until their last reply arrives.

    Does no I/O: the sender sends a ``sending.piece()``, appends the number of sent bytes to
    ``sending.written``, and calls ``acknowledge()`` with the number of received replies.

    Numbers count replies, since merged commands share a reply, unless a name says "commands".

    Args:
        max_bytes: the window is full if the held chunks use at least this much memory.
        max_commands: the window is full if at least this number of replies is missing.
        filters: the filters, in the order in which they inspect replies.
        node: the cluster node that receives the commands, for messages; None for a single server.
        batched: whether commands are sent in transactions that advance a checkpoint.

    Attributes:
        held: the chunks that are not fully answered.
        acknowledged: number of leading replies that all filters have accepted.
        pending: refused commands, by index in the source, that wait to be resent over this
            connection, and are not in a chunk yet.
        refusals: counts of the commands that were refused.
    """

    def __init__(
        self,
        max_bytes: int = WINDOW_BYTES,
        max_commands: int = WINDOW_COMMANDS,
        *,
        filters: Sequence[Filter] = (),
        node: str | None = None,
        batched: bool = False,
    ) -> None:
        self.max_bytes = max_bytes
        self.max_commands = max_commands
        self.filters = filters
        self.node = node
        self.batched = batched
        self.acknowledged = 0
        self.pending: dict[int, Any] = {}
        self.refusals = Refusals()
        # All counts are computed from the held chunks, so that they are consistent after an
        # interruption.
        self.held: deque[Sending] = deque()
        self._gone: Sending | None = None  # the last chunk released
        self._next = 0  # all chunks with a lower number were sent

    @property
    def last(self) -> Sending | None:
        """The last chunk that was added; None if no chunk was added."""
        return self.held[-1] if self.held else self._gone

    @property
    def position(self) -> Position:
        """The position in the source after the last chunk."""
        last = self.last
        return last.end if last else Position()

    @property
    def made(self) -> int:
        """Number of replies to all commands added to the window, received or not."""
        last = self.last
        return last.end_reply + len(self.pending) if last else 0

    @property
    def fence(self) -> Sending | None:
        """The last fence in this window, to which all connections must wait for the replies."""
        return next((held for held in reversed(self.held) if held.fence is not None), None)

    @property
    def has_room(self) -> bool:
        """Whether another chunk may be added. An empty window accepts a chunk of any size."""
        in_flight = self.made - self.acknowledged
        room = self.held_bytes < self.max_bytes and in_flight < self.max_commands
        return room and not self.pending

    @property
    def held_bytes(self) -> int:
        """Memory of the held chunks, in bytes."""
        if not self.held:
            return 0
        first, last = self.held[0], self.held[-1]
        return last.memory_before + last.chunk.memory - first.memory_before

    @property
    def sending(self) -> Sending | None:
        """The chunk to send next, which may be partially sent; None if all chunks were sent."""
        while self.held:
            index = max(self._next - self.held[0].number, 0)
            if index >= len(self.held):
                return None
            sending = self.held[index]
            if sum(sending.written) < sending.size:  # the same as ``at``, but faster
                return sending
            self._next = sending.number + 1
        return None

    def counts(self) -> Counts:
        rows, commands, size = self._totals()
        sent, last = self._sent_commands, self.last
        unsent = last.end_command - sent + len(self.pending) if last else 0
        in_doubt = sent - self._answered_commands
        counts = Counts(rows, commands - self.refusals.commands, size, sent, in_doubt, unsent)
        for each in self.filters:
            counts = each.counts(self, counts)
        return counts

    def totals(self) -> tuple[int, int, int]:
        """Return the numbers of rows, whole commands and bytes sent."""
        return self.counts()[:3] if self.filters else self._totals()

    def _totals(self) -> tuple[int, int, int]:
        latest = self.sending or self.last
        return latest.totals() if latest else (0, 0, 0)

    @property
    def sent(self) -> int:
        """Number of replies to all wholly sent commands, received or not."""
        sending = self.sending
        if sending is not None:
            return sending.first_reply + sending.whole
        last = self.last
        return last.end_reply if last else 0

    @property
    def sent_commands(self) -> int:
        """Number of whole commands sent, including each resent command once more."""
        # Filters change this number only after the load was stopped or the chunks were dropped.
        return self._sent_commands if self.held else self.counts().sent

    @property
    def _sent_commands(self) -> int:
        sending = self.sending
        if sending is not None:
            return sending.first_command + sending.chunk.covered(sending.whole)
        last = self.last
        return last.end_command if last else 0

    @property
    def _answered_commands(self) -> int:
        # After an interruption, answered chunks may still be held.
        for held in self.held:
            if self.acknowledged < held.end_reply:
                replies = max(0, self.acknowledged - held.first_reply)
                return held.first_command + held.chunk.covered(replies)
        last = self.last
        return last.end_command if last else 0

    def answered_row(self, start: int) -> int:
        """Return how many leading source rows are answered; ``start`` if there are no chunks."""
        for held in self.held:
            if self.acknowledged < held.end_reply:
                replies = max(0, self.acknowledged - held.first_reply)
                return held.start.row + held.covered_rows(held.chunk.covered(replies))
        last = self.last
        return last.end.row if last else start

    @property
    def begun(self) -> int:
        """Like ``sent``, but including the reply to a partially sent command."""
        sending = self.sending
        return self.sent + (1 if sending is not None and sending.underway else 0)

    @property
    def in_doubt(self) -> int:
        """Number of commands sent but not answered: the server may or may not have run them."""
        return self.counts().in_doubt

    @property
    def unsent(self) -> int:
        """Number of commands sent in part or not at all: the server has not run them."""
        if self.filters:
            return self.counts().unsent
        last = self.last
        return last.end_command - self._sent_commands + len(self.pending) if last else 0

    @property
    def unsent_bytes(self) -> int:
        sending, last = self.sending, self.last
        if sending is None or last is None:
            return 0
        return last.end_byte - sending.first_byte - sending.at

    @property
    def fault(self) -> Exception | None:
        """Why the connection must be closed; None if it need not be."""
        return next((each.fault for each in self.filters if each.fault is not None), None)

    def gate(self) -> int | None:
        gates = (each.gate(self) for each in self.filters)
        return min((gate for gate in gates if gate is not None), default=None)

    def is_settled(self, index: int) -> bool:
        return any(each.is_settled(index) for each in self.filters)

    def add(self, chunk: Chunk, start: Position | None = None) -> None:
        """Add a chunk; ``start`` as for Sending."""
        self.prepare(start)
        self.held.append(Sending(chunk, self.last, start))
        self._added()

    def add_first(self, first: Filter) -> None:
        """Add a filter that inspects replies before all other filters."""
        self.filters = [first, *self.filters]

    def add_own(self, held: Sending) -> None:
        """Add a chunk of fastresp's own commands."""
        self.held.append(held)

    def resend(self, held: Sending, waiting: MutableMapping[Any, Any], keys: Iterable[Any]) -> None:
        """Add a chunk of commands to resend, and remove their ``keys`` from ``waiting``."""
        # One call in C: no signal handler can run between adding and removing, since the second
        # part yields nothing.
        nothing: Iterable[Any] = filter(not_, map(waiting.pop, keys))
        self.held.extend(chain((held,), nothing))
        self._added()

    def prepare(self, start: Position | None) -> None:
        """Add what must precede the next chunk, which begins at ``start``."""
        for each in self.filters:
            each.adding(self, start)

    def _added(self) -> None:
        for each in self.filters:
            each.added(self)

    def refill(self) -> None:
        for each in self.filters:
            each.refill(self)

    def filter_errors(self, errors: list[Error]) -> None:
        """Drop the errors that filters handle."""
        if self.filters:
            errors[:] = filter(None, map(self._filtered, errors))

    def _filtered(self, error: Error) -> Error | None:
        found: Error | None = error
        for each in self.filters:
            if found is not None:
                found = each.filter_error(self, found)
        return found

    def refuse(self, index: int, commands: int) -> None:
        """Count the commands that an error reply refuses; see Refusals."""
        if index >= self.refusals.next_reply:
            self.refusals = Refusals(index + 1, self.refusals.commands + commands)

    def acknowledge(self, received: int) -> None:
        """Set the total number of received replies, and release fully answered chunks."""
        replies = received
        for each in self.filters:
            replies = min(replies, each.may_acknowledge(self, received))
        self.acknowledged = replies
        while self.held and self.held[0].end_reply <= replies:
            gone = self._gone = self.held[0]
            if gone.fence is not None:
                gone.fence.answered = not gone.fence_refused
            self.held.popleft()

    def drop(self) -> None:
        """Drop all chunks. The counts are then 0, unless a filter keeps them."""
        self.pending = {}
        self.held.clear()
        self._gone = None
        self.acknowledged = 0

    def locate(self, index: int) -> tuple[Sending, int]:
        """Return the chunk that a reply answers, and the index of the reply in the chunk.

        Raises:
            LookupError: the chunk was released, or never existed.
        """
        # With about eight chunks, a binary search would not be faster.
        for held in self.held:
            if held.first_reply <= index < held.end_reply:
                return held, index - held.first_reply
        raise LookupError(f"reply {index:,} answers nothing in flight")

    def note_error(self, index: int, *, existed: bool) -> None:
        """If the source waits for this error reply, note it in its chunk.

        ``existed`` is whether the error is that the key exists.
        """
        fence = self.fence
        if fence is not None and fence.fence is not None and index == fence.end_reply - 1:
            fence.fence.refused = True
            fence.fence.existed = existed

    def failing(self, index: int, nested: int) -> range:
        """Return the indexes, in their chunk, of the commands that failed with an Error."""
        held, at = self.locate(index)
        chunk = held.chunk
        if not nested or not isinstance(chunk, BatchedChunk):
            return chunk.parts(at)
        elements, number = chunk.elements(at), nested - chunk.opening
        if not 0 < number <= len(elements):
            return range(0)
        return chunk.inner.parts(elements[number - 1])

    @property
    def first_unanswered(self) -> int | None:
        """The source row of the first unanswered command; None if all are answered."""
        for held in self.held:
            for at in range(max(0, self.acknowledged - held.first_reply), len(held.chunk.ends)):
                parts = held.chunk.parts(at)
                if parts:
                    return held.row(parts[0])
        return None

    def within(self, commands: int) -> int:
        """Return how many leading replies answer at most this many commands."""
        for held in self.held:
            if commands < held.end_command:
                return held.first_reply + held.chunk.within(commands - held.first_command)
        return self.made

    def command(self, index: int) -> tuple[int, bytes]:
        """Return the source row and the bytes of a command in flight, which must not be merged.

        Raises:
            LookupError: as for ``locate()``.
        """
        held, at = self.locate(index)
        return held.row(at), held.command(at, at)
