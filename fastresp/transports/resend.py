"""Resend commands that the server temporarily refused and did not run."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import chain
from operator import not_
from typing import Any

from ..resp.buffer import Chunk
from ..server.cluster import Redirect, redirect_of
from .causes import may_pass
from .confirming import Confirmation
from .resent import Counted, Refused, Resending, Resent
from .retries import LATER, LOST, Lost, Repeated, Retries, portions, repeated
from .units import Piece, Unit, apart, keys_in, replaces, transaction_at, unit_of, units_of
from .window import WINDOW_BYTES, Position, Sending, Window

__all__ = ["Refused", "Resending", "ResendingWindow", "Resent"]

# The error reply to ASKING for a user without permission.
NO_ASKING = re.compile(rb"(?i)NOPERM .*'asking' command")
# Error of commands whose keys are temporarily on two nodes.
TRYAGAIN = b"TRYAGAIN "
# When merged commands are split, the number of a command is its index in the source plus this.
APART = 1 << 61
# Maximum bytes to resend in one chunk.
RESENT_BYTES = 1 << 19


class ResendingWindow(Window):
    """A window that resends commands if the server temporarily refused them.

    A refused command counts as unsent until it is resent, after all other commands.

    Args:
        resending: decides which commands are resent; None to resend nothing.
        max_bytes: as for Window.
    """

    kind = Counted
    # For transactions that advance a checkpoint; see BatchedWindow.
    refused_at: tuple[Exception, int] | None = None

    def __init__(self, resending: Resending | None, max_bytes: int = WINDOW_BYTES) -> None:
        super().__init__(max_bytes)
        self._resending = resending
        # (checked replies, commands to resend over this connection). Replaced atomically, so that
        # no command is added twice after an interruption.
        self._seen = 0, 0
        # The commands to resend, by number, until they are in a chunk.
        self._refused: dict[int, Refused] = {}
        # Collects the commands to resend over any connection; None if this never happens.
        self.retries: Retries | None = None
        # Parses redirects of the lane's server.
        self.redirect: Callable[[str], Redirect | None] = partial(redirect_of, host="")
        # The number of the lane.
        self.lane = -1
        # (checked replies, commands to resend over any connection, replies that refuse them).
        # Replaced atomically.
        self._moved = 0, 0, 0
        # Transactions with a refused command, whose EXEC will also be refused: by the index of the
        # first reply, the node that ASK named, or None.
        self._aborted: dict[int, tuple[str, int] | None] = {}
        self._later: set[int] = set()
        # Kept until all commands are answered: the replies that refuse commands, the error replies,
        # and the chunks since the first refused command.
        self._redirects: set[int] = set()
        self._failed: set[int] = set()
        self._kept: list[Sending] = []
        self._received = 0
        # Whether the command that the source waits for will be resent.
        self._fence_aside = False
        # The confirmation that commands need to count as acknowledged; None if they need none.
        self.confirmation: Confirmation | None = None
        self.stopped = False
        # Whether fastresp's own commands, such as WAIT or ASKING, were added.
        self._has_own = False
        # Why commands are not confirmed; empty if no confirmation has failed.
        self.unconfirmed = ""
        # The pending confirmation: (index of its reply, number of commands that it covers). There
        # is only one, since a server that syncs once a second needs a second for each confirmation.
        self.question: tuple[int, int] | None = None
        # The numbers of confirmed replies and commands.
        self._confirmed = 0, 0
        # The indexes of later replies that need no confirmation, since they are errors.
        self._settled: set[int] = set()

    @property
    def refused(self) -> int:
        """Number of replies that refuse commands, which are resent over any connection."""
        return self._seen[1] + self._moved[2]

    def gate(self) -> int | None:
        """Return the value, in replies, that ``Window.sent`` may reach now; None for no limit."""
        return None

    @property
    def _resent(self) -> int:
        """Number of commands to resend that were already put into chunks."""
        last = self.last
        return getattr(last, "resent", 0)

    @property
    def waiting(self) -> int:
        """Number of commands to resend that were not yet put into chunks."""
        return self._seen[1] - self._resent if self._refused else 0

    @property
    def made(self) -> int:
        return super().made + self.waiting

    @property
    def unsent(self) -> int:
        return 0 if self._lost is not None else super().unsent + self.waiting

    @property
    def has_room(self) -> bool:
        return not self.waiting and super().has_room

    def add(self, chunk: Chunk, start: Position | None = None) -> None:
        super().add(chunk, start)
        self._confirm()

    def repeat(self, units: Sequence[tuple[tuple[int, int], Unit]], start: Position) -> None:
        """Move units, given with their keys, from ``retries`` to this window."""
        assert self.retries is not None
        for portion in portions(units):
            keys, again = zip(*portion, strict=True)
            self._plain = False
            self._has_own = self._has_own or any(unit.node for unit in again)
            held = repeated(again, self.last, start)
            # One call in C: no signal handler can run between adding and removing, since the second
            # part yields nothing.
            nothing: Iterable[Any] = filter(not_, map(self.retries.pop, keys))
            self._held.extend(chain((held,), nothing))
            self._confirm()

    def _confirm(self) -> None:
        """Add the command that confirms earlier commands, unless a confirmation is pending."""
        last = self.last
        if self.confirmation is not None and self.question is None and last is not None:
            held = Repeated([self.confirmation.piece], last, last.end)
            self._plain = False
            self._has_own = True
            self._held.append(held)
            # If an interruption precedes this, the reply confirms nothing.
            self.question = held.first_reply, held.first_command

    def confirm_rest(self) -> None:
        """Once all commands are sent, add the command that confirms the last of them."""
        if self.confirmation is None or self.unconfirmed or self.sending is not None:
            return
        if self.acknowledged < self.made:
            self._confirm()

    def confirmed_by(self, reply: int, number: int) -> None:
        """Note whether commands are confirmed, if ``reply`` is the pending confirmation's reply.

        ``number`` is the first number in this reply; see Confirmation.
        """
        if self.confirmation is not None and self.question is not None:
            if self.question[0] == reply and number < self.confirmation.least:
                self._leave_unconfirmed(f"the reply was {number}")
            elif self.question[0] == reply:
                self._confirmed, self.question = (reply + 1, self.question[1]), None

    def _leave_unconfirmed(self, words: str) -> None:
        """Note why the commands since the last confirmation are not confirmed."""
        self.question = None
        if not self.unconfirmed:
            fault = self.confirmation.fault if self.confirmation else "it refuses a command of ours"
            self.unconfirmed = f"{fault}: {words}"

    @property
    def _lost(self) -> Lost | None:
        return None if self.retries is None else self.retries.lost(id(self))

    @property
    def sent_commands(self) -> int:
        lost = self._lost
        return super().sent_commands if lost is None else lost.made

    def totals(self) -> tuple[int, int, int]:
        lost = self._lost
        if lost is not None:
            return lost[:3]
        rows, commands, size = super().totals()
        return rows, commands - self._seen[1] - self._moved[1], size

    def filter_errors(self, errors: list[tuple[int, bytes, int]]) -> None:
        """Remove errors from a list: errors of commands to resend, and of fastresp's commands."""
        if self.retries is not None or self._has_own:
            errors[:] = [each for each in errors if not self._defer(*each)]
            if self._redirects:
                self._failed.update(index for index, _, nested in errors if not nested)
        if self._resending is not None:
            errors[:] = [each for each in errors if each[2] or not self.take(each[0], each[1])]

    def _defer(self, index: int, words: bytes, nested: int) -> bool:
        """Process an error of fastresp's own command or of a command to resend.

        Return False for any other error.
        """
        if self._has_own and self._take_own(index, words, nested):
            return True
        return self.retries is not None and not nested and self._refuse(index, words)

    def _refuse(self, index: int, words: bytes) -> bool:
        """Return whether an error is a temporary refusal; if so, add the command to ``retries``.

        A transaction is added when its EXEC is refused.
        """
        retries = self.retries
        assert retries is not None
        aborted = bool(self._aborted) and words.startswith(b"EXECABORT")
        held, at = self.locate(index)
        if not (aborted or retries.refuses(words) or retries.waits_for(words, held, at)):
            return False
        whole = transaction_at(held, at) if retries.transactions else None
        begin = None if whole is None else held.first_reply + whole[0]
        ends = whole is None or at == whole[-1]
        if aborted and begin not in self._aborted:
            return False
        seen, commands, replies = self._moved
        if index < seen:
            return True
        to = self.redirect(words.decode(errors="replace"))
        node = to.node if to is not None and to.asking else None
        if ends:
            node = node or (None if begin is None else self._aborted.get(begin))
            count = len(held.chunk.ends)
            unit = unit_of(held, whole or range(at, at + 1), count, self.lane, node)
            later = words.startswith(LATER) or may_pass(words) or begin in self._later
            again = {index: unit}
            if whole is None and (node is not None or words.startswith(TRYAGAIN)):
                # The keys of the merged commands may be on two nodes, neither of which runs them.
                again = {APART + each.place: each for each in apart(unit)}
            retries.add(
                {
                    (id(self), number): each._replace(sent=0, later=later)
                    for number, each in again.items()
                }
            )
            if unit.fence is not None:
                self._fence_aside = True
            commands += unit.sent
            self._redirects.update(held.first_reply + each for each in whole or (at,))
            if begin is not None:
                self._aborted.pop(begin, None)
                self._later.discard(begin)
        elif begin is not None:
            self._aborted[begin] = node
            if words.startswith(LATER) or may_pass(words):
                self._later.add(begin)
        self._moved = index + 1, commands, replies + 1
        if self.confirmation is not None:
            self._settled.update(held.first_reply + each for each in whole or (at,))
        return True

    def acknowledge(self, replies: int) -> None:
        if self._redirects:
            known = {id(each) for each in self._kept}
            answered = (each for each in self._held if each.first_reply < replies)
            self._kept += [each for each in answered if id(each) not in known]
            self._received = replies
        if self.confirmation is not None and not self.stopped:
            if self.question is not None and self.question[0] < replies:
                self._leave_unconfirmed("the reply was not a number")
            replies = min(replies, self._confirmed[0])
            if self._settled:
                self._settled = {index for index in self._settled if index >= replies}
        super().acknowledge(replies)

    @property
    def in_doubt(self) -> int:
        lost = self._lost
        if lost is not None:
            return lost.in_doubt
        doubtful = super().in_doubt
        if self.confirmation is not None:
            doubtful = max(doubtful, self.sent_commands - self._confirmed[1])
        return doubtful

    def _aside(self, held: Sending) -> bool:
        if not held.chunk.fence:
            return False
        aside, self._fence_aside = self._fence_aside, False
        return aside

    def lose(self) -> list[int]:
        """Move the unanswered commands to ``retries``, to be resent over a new connection.

        Returns:
            The rows of commands in doubt that are not moved, since they must not be resent.
        """
        retries = self.retries
        assert retries is not None
        if self._lost is not None:
            return []  # a repeated call after an interruption
        rows, commands, size = self.totals()
        made, in_doubt = self.sent_commands, 0
        doubtful = []
        entries: dict[tuple[int, int], Unit | Lost] = {}
        ran = list(self._unanswered(ran=True))
        again = retries.may_resend([unit for _, _, unit in ran])
        for (held, replies, unit), repeats in zip(ran, again, strict=True):
            if repeats:
                entries[id(self), held.first_reply + replies[0]] = unit
                commands -= unit.sent
                continue
            if unit.fence is not None:
                # The rest of a key can't be sent if the start may be missing.
                unit.fence.refused = unit.fence.existed = unit.fence.answered = True
            in_doubt += unit.sent - self._answered_of(held, replies)
            doubtful += [row for piece in unit.pieces for row, _, _ in piece.parts]
        for held, replies, unit in self._unanswered(ran=False):
            entries[id(self), held.first_reply + replies[0]] = unit
            commands -= unit.sent
        for number, each in self._refused.items():
            piece = Piece(each.command, [(each.row, each.place, each.command)])
            entries[id(self), -1 - number] = Unit(each.place, [piece], lane=self.lane)
        entries[id(self), LOST] = Lost(rows, commands, size, in_doubt, made)
        retries.add(entries)
        return doubtful

    def release(self) -> None:
        """Drop all chunks after storing the totals in ``retries``."""
        assert self.retries is not None
        if self._lost is None:
            lost = Lost(*self.totals(), self.in_doubt, self.sent_commands)
            self.retries.add({(id(self), LOST): lost})
        self._refused, self._kept = {}, []
        self._held.clear()
        self._gone = None
        super().acknowledge(0)

    def _unanswered(self, *, ran: bool) -> Iterator[tuple[Sending, range, Unit]]:
        """Yield the chunk, the reply indexes and the Unit of each unanswered unit.

        Args:
            ran: True to yield units that were sent whole, and may have run; False for the others.
        """
        assert self.retries is not None
        for held in self._held:
            count = len(held.chunk.ends)
            sent = max(0, min(self.sent - held.first_reply, count))
            first = max(self.acknowledged - held.first_reply, 0)
            if first >= count:
                continue
            for replies in units_of(held, first, transactions=self.retries.transactions):
                settled = held.first_reply + replies[-1] in self._settled
                own = not any(len(held.chunk.parts(at)) for at in replies)
                if (replies[-1] < sent) == ran and not settled and not own:
                    yield held, replies, unit_of(held, replies, sent, self.lane)

    def _answered_of(self, held: Sending, replies: range) -> int:
        """Return the number of answered commands of a unit."""
        answered = min(max(self.acknowledged - held.first_reply, replies[0]), replies[-1] + 1)
        return held.chunk.covered(answered) - held.chunk.covered(replies[0])

    def _take_own(self, index: int, words: bytes, nested: int) -> bool:
        """Return whether an error reply answers fastresp's own command; if so, note the error."""
        held, at = self.locate(index)
        if held.chunk.parts(at):
            if self.confirmation is not None and not nested:
                self._settled.add(index)
            return False
        seen, commands, replies = self._moved
        if index >= seen:
            self._moved = index + 1, commands, replies + 1
        if not self.unconfirmed:
            text = words.decode(errors="replace")
            self._leave_unconfirmed(text)
            if self.retries is not None and NO_ASKING.match(words):
                self.retries.denied = text
        return True

    def overtaken(self) -> bool:
        """Return whether a command ran although an earlier command of the same key was refused.

        This is harmless if the later command replaces or deletes the key, and if the refused
        command was split from merged commands and is not resent yet. The refused command is then
        dropped, and counts as answered.

        Call this method once all commands are answered; it drops the chunks kept for the check.
        """
        kept, redirects, failed = self._kept, self._redirects, self._failed
        # With ``durable``, only confirmed replies count; later commands are in doubt.
        received = self._received if self.confirmation is None else self._confirmed[0]
        self._kept, self._redirects, self._failed = [], set(), set()
        moved: dict[bytes, list[int]] = {}
        for held in kept:
            for at, keys in enumerate(keys_in(held)):
                reply = held.first_reply + at
                if reply >= received:
                    break
                if reply in redirects:
                    parts = held.chunk.parts(at)
                    apart_by_key = len(parts) == len(keys) > 1
                    for number, key in enumerate(keys):
                        place = held.source_index(parts[number]) if apart_by_key else -1
                        moved.setdefault(key, []).append(APART + place)
                elif reply not in failed and not moved.keys().isdisjoint(keys):
                    if not replaces(held, at):
                        return True
                    numbers = [number for key in keys for number in moved.pop(key, ())]
                    if not self._leave_out(numbers):
                        return True
        return False

    def _leave_out(self, numbers: Sequence[int]) -> bool:
        """Drop split commands, which then count as answered; return False if any was resent."""
        retries = self.retries
        assert retries is not None
        entries = [(id(self), number) for number in numbers]
        if not all(map(retries.has, entries)):
            return False
        seen, commands, replies = self._moved
        self._moved = seen, commands - len(entries), replies
        for entry in entries:
            retries.pop(entry)
        return True

    def take(self, index: int, words: str | bytes, window: Window | None = None) -> bool:
        """Return whether a command must be resent after this error reply; if so, note the command.

        Args:
            index: index of the reply in the window of the command.
            words: the error reply.
            window: the window of the command; None for this window.
        """
        if self._resending is None or not self._resending.refused(words):
            return False
        held, at = (window or self).locate(index)
        part = held.chunk.parts(at)[0]  # a merged command is never temporarily refused
        command = held.command(at, part)
        tries = held.refused[at].tries if isinstance(held, Resent) else 0
        if not self._resending.can_repeat(command, tries):
            return False
        seen, number = self._seen
        if window is not None or index >= seen:
            self._refused[number] = Refused(
                held.row(part), held.source_index(part), command, tries + 1
            )
            self._seen = (index + 1 if window is None else seen), number + 1
        return True

    def resend(self) -> None:
        """Put the commands to resend into chunks, while the window has room."""
        while self._resending and self.waiting and self.unsent_bytes < RESENT_BYTES:
            first = self._resent
            rest = map(self._refused.__getitem__, range(first, self._seen[1]))
            again = ((each.command, each.tries) for each in rest)
            chunk, count = self._resending.chunk(again, RESENT_BYTES)
            refused = [self._refused[number] for number in range(first, first + count)]
            self._held.append(Resent(chunk, self.last, refused))
            self._confirm()
            # Forget all commands in chunks, including chunks of an earlier, interrupted call.
            left = range(self._resent, self._seen[1])
            self._refused = {number: self._refused[number] for number in left}
