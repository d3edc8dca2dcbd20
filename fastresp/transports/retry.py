"""The filter of a window that moves refused and lost commands to the ledger."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from itertools import compress

from ..server.cluster import Redirect
from .failures import may_pass
from .ledger import COUNTS, LATER, Key, Ledger, portions
from .resend import (
    Request,
    ResendUnit,
    Resent,
    keys_in,
    replaces,
    split_by_key,
    transaction_at,
    unit_of,
    units_of,
)
from .sending import Position, Sending
from .window import Counts, Error, Filter, Window

__all__ = ["RetryFilter"]

# The error reply to ASKING for a user without permission.
NO_ASKING = re.compile(rb"(?i)NOPERM .*'asking' command")
# Error of commands whose keys are temporarily on two nodes.
TRYAGAIN = b"TRYAGAIN "
# For a command that was split from merged commands, the number in the ledger's key is SPLIT plus
# the command's index in the source.
SPLIT = 1 << 61


class RetryFilter(Filter):
    """Moves commands to the ledger, if a node refused them or was lost before it answered.

    Args:
        ledger: the ledger.
        lane: the number of the window's lane.
        redirect: parses redirections of the lane's server.
    """

    def __init__(
        self, ledger: Ledger, lane: int, redirect: Callable[[str], Redirect | None]
    ) -> None:
        self._ledger = ledger
        self._lane = lane
        self._redirect = redirect
        # For transactions that fail at EXEC (EXECABORT), by the index of their first reply: the
        # node that ASK named, or None, and the value of ``ResendUnit.later``. Kept as long as the
        # sets below, since the step that processes EXEC may be repeated.
        self._aborted: dict[int, tuple[tuple[str, int] | None, bool]] = {}
        # Kept until all commands are answered: the replies that refuse commands, the error replies,
        # and the chunks since the first refused command.
        self._refused: set[int] = set()
        self._failed: set[int] = set()
        self._kept: list[Sending] = []
        # The numbers of the split commands that were dropped; see overtaken().
        self._dropped: set[int] = set()

    def filter_error(self, window: Window, error: Error) -> Error | None:
        index, message, nested = error
        if nested:
            return error
        held, at = window.locate(index)
        if isinstance(held, Resent) and not held.requests[at].commands:
            self._note_own(message)
            return None
        if self._refuse(window, index, message):
            return None
        if self._refused:
            self._failed.add(index)
        return error

    def _note_own(self, message: bytes) -> None:
        """Record that ASKING was refused."""
        text = message.decode(errors="replace")
        if self.fault is None:
            self.fault = OSError(f"it refuses a command of ours: {text}")
            if NO_ASKING.match(message):
                self._ledger.denied = text

    def _refuse(self, window: Window, index: int, message: bytes) -> bool:
        """Return whether an error is a temporary refusal; if so, add the command to the ledger.

        A transaction is added when its EXEC is refused.
        """
        ledger = self._ledger
        aborted = bool(self._aborted) and message.startswith(b"EXECABORT")
        held, at = window.locate(index)
        if not (aborted or ledger.refuses(message) or ledger.refuses_for_now(message, held, at)):
            return False
        whole = transaction_at(held, at) if ledger.transactions else None
        begin = -1 if whole is None else held.first_reply + whole[0]
        if aborted and begin not in self._aborted:
            return False
        if index < window.refusals.next_reply:
            return True
        to = self._redirect(message.decode(errors="replace"))
        before, later = self._aborted.get(begin, (None, False))
        node = to.node if to is not None and to.asking else None
        later = later or message.startswith(LATER) or may_pass(message)
        commands = 0
        if whole is not None and at != whole[-1]:
            self._aborted[begin] = node, later
        else:
            unit = unit_of(
                held, whole or range(at, at + 1), len(held.chunk.ends), self._lane, node or before
            )
            again = {index: unit}
            if whole is None and (node is not None or message.startswith(TRYAGAIN)):
                # The keys of the merged commands may be on two nodes, neither of which runs them.
                again = {SPLIT + each.place: each for each in split_by_key(unit)}
            entries = {
                (self._lane, number): each._replace(sent=0, later=later)
                for number, each in again.items()
            }
            ledger.add(entries)
            if unit.fence is not None:
                held.fence_refused = True
            commands = unit.sent
            self._refused.update(held.first_reply + each for each in whole or (at,))
        window.refuse(index, commands)
        return True

    def may_acknowledge(self, window: Window, received: int) -> int:
        if self._refused:
            known = {id(each) for each in self._kept}
            answered = (each for each in window.held if each.first_reply < received)
            self._kept += [each for each in answered if id(each) not in known]
        return received

    def counts(self, window: Window, counts: Counts) -> Counts:
        if self._dropped:
            counts = counts._replace(commands=counts.commands + len(self._dropped))
        return self._ledger.counts_of(self._lane) or counts

    def resend(
        self, window: Window, units: Sequence[tuple[Key, ResendUnit]], start: Position
    ) -> None:
        """Move units, given with their keys, from the ledger to the window."""
        for portion in portions(units):
            keys, again = zip(*portion, strict=True)
            window.prepare(start)
            held = Resent.of_units(again, window.last, start)
            window.resend(held, self._ledger.entries, keys)

    def lose(self, window: Window) -> list[int]:
        """Move the unanswered commands to the ledger, to be resent over a new connection.

        Returns:
            The rows of commands in doubt that are not moved, since they must not be resent.
        """
        ledger, lane = self._ledger, self._lane
        if ledger.counts_of(lane) is not None:
            return []  # a repeated call after an interruption
        resent = in_doubt = 0
        doubtful = []
        entries: dict[Key, ResendUnit | Counts] = {}
        ran = list(self._unanswered(window, ran=True))
        again = ledger.may_resend([unit for _, _, unit in ran])
        for (held, replies, unit), repeats in zip(ran, again, strict=True):
            if repeats:
                entries[lane, held.first_reply + replies[0]] = unit
                resent += unit.sent
                continue
            if unit.fence is not None:
                # The rest of a key can't be sent if the start may be missing.
                unit.fence.refused = unit.fence.existed = unit.fence.answered = True
            in_doubt += unit.sent - answered_of(window, held, replies)
            doubtful += [command.row for command in unit.commands]
        for held, replies, unit in self._unanswered(window, ran=False):
            entries[lane, held.first_reply + replies[0]] = unit
            resent += unit.sent
        for each in window.pending.values():
            request = Request(each.command, [each])
            entries[lane, -1 - each.place] = ResendUnit(each.place, [request], lane=lane)
        counts = window.counts()
        entries[lane, COUNTS] = counts._replace(
            commands=counts.commands - resent, in_doubt=in_doubt, unsent=0
        )
        ledger.add(entries)
        return doubtful

    def release(self, window: Window) -> None:
        """Drop all chunks of a window after storing its counts in the ledger."""
        if self._ledger.counts_of(self._lane) is None:
            self._ledger.add({(self._lane, COUNTS): window.counts()._replace(unsent=0)})
        self._kept = []
        window.drop()

    def _unanswered(
        self, window: Window, *, ran: bool
    ) -> Iterator[tuple[Sending, range, ResendUnit]]:
        """Yield each unanswered unit as (chunk, indexes of the unit's replies, unit).

        Args:
            ran: True to yield units that were sent whole, and may have run; False for the others.
        """
        for held in window.held:
            count = len(held.chunk.ends)
            sent = max(0, min(window.sent - held.first_reply, count))
            first = max(window.acknowledged - held.first_reply, 0)
            if first >= count:
                continue
            for replies in units_of(held, first, transactions=self._ledger.transactions):
                is_own = not any(len(held.chunk.parts(at)) for at in replies)
                settled = window.is_settled(held.first_reply + replies[-1])
                if (replies[-1] < sent) == ran and not settled and not is_own:
                    yield held, replies, unit_of(held, replies, sent, self._lane)

    def overtaken(self, window: Window) -> bool:
        """Return whether a command ran although an earlier command of the same key was refused.

        A later command that replaces or deletes the key does not count if the refused command was
        split from merged commands and was not resent: the refused command is then dropped, and
        counts as answered.

        Call this method once all commands are answered. Before it returns False, it drops the
        chunks that were kept for the check.
        """
        refused_keys: dict[bytes, list[int]] = {}
        for held in self._kept:
            for at, keys in enumerate(keys_in(held)):
                reply = held.first_reply + at
                if reply >= window.acknowledged:
                    break
                if reply in self._refused:
                    parts = held.chunk.parts(at)
                    split = len(parts) == len(keys) > 1
                    for number, key in enumerate(keys):
                        place = held.source_index(parts[number]) if split else -1
                        refused_keys.setdefault(key, []).append(SPLIT + place)
                elif reply not in self._failed and not refused_keys.keys().isdisjoint(keys):
                    if not replaces(held, at):
                        return True
                    numbers = [number for key in keys for number in refused_keys.pop(key, ())]
                    if not self._drop(numbers):
                        return True
        # Last, so that the check can be repeated after an interruption; see Refusals.
        self._kept, self._refused, self._failed, self._aborted = [], set(), set(), {}
        return False

    def _drop(self, numbers: Sequence[int]) -> bool:
        """Drop split commands, which then count as answered; return True.

        If any of the commands was resent, drop none, and return False.
        """
        entries = self._ledger.entries
        left = [number for number in numbers if number not in self._dropped]
        keys = [(self._lane, number) for number in left]
        if not all(key in entries for key in keys):
            return False
        self._dropped.update(compress(left, map(entries.pop, keys)))  # one call in C
        return True


def answered_of(window: Window, held: Sending, replies: range) -> int:
    """Return the number of answered commands of a unit."""
    answered = min(max(window.acknowledged - held.first_reply, replies[0]), replies[-1] + 1)
    return held.chunk.covered(answered) - held.chunk.covered(replies[0])
