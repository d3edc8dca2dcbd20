"""The ledger of a load: refused and lost commands; and the filter that moves commands to it.

A unit is a request or a transaction, which is resent as a whole; see ResendUnit.
"""

from __future__ import annotations

import math
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import compress
from typing import TypeAlias

from ..outcome.errors import TransportError
from ..outcome.report import Report, counted
from ..resp.idempotent import may_resend
from ..server.cluster import Redirect
from ..server.failure import asking_refused
from .resend import (
    ABORTED,
    Request,
    ResendUnit,
    Resent,
    is_script,
    keys_in,
    may_pass,
    may_replace_hash,
    remedy_for,
    replaces,
    split_by_key,
    transaction_at,
    unit_of,
    units_of,
)
from .sending import Position, Sending
from .window import Counts, Error, Filter, Window

__all__ = ["REFUSED", "Deadline", "Key", "Ledger", "RetryFilter", "ranges"]

# The command was not run. MOVED: another node owns the slot. ASK: the slot is being moved, and the
# key is on the new node. TRYAGAIN: the keys of the command are on both nodes. CLUSTERDOWN: no node
# serves the slot now.
REFUSED = re.compile(rb"(MOVED|ASK) \d{1,5} \S*:\d{1,5}$|TRYAGAIN |CLUSTERDOWN ")
# A server that is loading its data from disk runs nothing.
LOADING = b"LOADING "
# Error of commands whose keys are temporarily on two nodes.
TRYAGAIN = b"TRYAGAIN "
LATER = (TRYAGAIN, b"CLUSTERDOWN ", LOADING)
# The error reply to ASKING for a user without permission.
NO_ASKING = re.compile(rb"(?i)NOPERM .*'asking' command")
# Delay before the second and later retries: the time since the first refusal divided by PAUSES, at
# least PAUSE_S and at most LATEST_S seconds.
PAUSE_S = 0.02
PAUSES = 20
LATEST_S = 0.5
# After READONLY, the load reconnects. BUSY means that the server is running another script.
READONLY = b"READONLY "
BUSY = b"BUSY "
# Default timeout of reads and lists, in seconds.
MAX_S = 30.0
# Maximum ranges of slots in a message.
MAX_RANGES = 10
# Approximate bytes of a chunk of resent commands.
REPEATED_BYTES = 1 << 19
# The key of a unit: its lane, and a number that no other unit of the lane has, such as the index of
# the unit's reply. So adding a unit again after an interruption changes nothing (see Refusals).
Key: TypeAlias = tuple[int, int]
# The number under which the counts of a lost or closed lane are stored.
COUNTS = -(1 << 62)
# For a command that was split from merged commands, the number in the ledger's key is SPLIT plus
# the command's index in the source.
SPLIT = 1 << 61


class Deadline:
    """Limits the time without progress.

    Attributes:
        stuck_s: seconds without progress, except those that ``resume()`` excludes.
    """

    def __init__(self, timeout: float | None) -> None:
        self.timeout = math.inf if timeout is None else timeout
        self._progress: object = None
        self.stuck_s, self._resumed = 0.0, time.monotonic()

    def resume(self) -> None:
        """Don't count the time since the last check, which was not spent waiting."""
        self._resumed = time.monotonic()

    def check(self, progress: object) -> bool:
        """Return whether ``progress`` has changed since the last check."""
        now = time.monotonic()
        changed = progress != self._progress
        self.stuck_s = 0.0 if changed else self.stuck_s + now - self._resumed
        self._progress, self._resumed = progress, now
        return changed

    @property
    def exceeded(self) -> bool:
        """Whether there was no progress for ``timeout`` seconds."""
        return self.stuck_s > self.timeout


class Ledger:
    """The commands of a load that must be resent.

    Units are resent in the order of the source, per slot. The ledger also keeps the counts of lost
    lanes: one call in C adds a lane's counts and its units.

    Args:
        timeout: seconds for which the first command may be refused; None for no limit.
        retry: which commands in doubt are resent: ``"never"``, ``"idempotent"`` or ``"always"``.
        transactions: whether the commands may include MULTI and EXEC.
        cluster: whether the server is a cluster.
        resumable: whether the load ends, and can be resumed, if a server refuses commands because
            of its state, such as OOM; otherwise such commands are resent.

    Attributes:
        message: the last reply that refused a command, or why a node is not available.
        denied: the error reply to ASKING, if the user lacks permission.
    """

    def __init__(
        self,
        timeout: float | None,
        retry: str,
        *,
        transactions: bool,
        cluster: bool,
        resumable: bool = False,
    ) -> None:
        self._deadline = Deadline(timeout)  # for the first unit
        self._retry = retry
        self.transactions = transactions
        self.cluster = cluster
        self._resumable = resumable
        self.entries: dict[Key, ResendUnit | Counts] = {}
        self.message = ""
        self.denied = ""
        self._demoted = False

    def __bool__(self) -> bool:
        return any(type(each) is ResendUnit for each in self.entries.values())

    @property
    def sent(self) -> int:
        """Number of commands to resend that are in doubt: they were sent, and may have run."""
        return sum(unit.sent for _, unit in self._unsorted)

    @property
    def unsent(self) -> int:
        """Number of commands to resend that have not run."""
        return sum(unit.command_count - unit.sent for _, unit in self._unsorted)

    @property
    def units(self) -> list[ResendUnit]:
        """The units in the order of the source."""
        return [unit for _, unit in self._sorted]

    @property
    def _sorted(self) -> list[tuple[Key, ResendUnit]]:
        return sorted(self._unsorted, key=lambda each: each[1].place)

    @property
    def _unsorted(self) -> Iterator[tuple[Key, ResendUnit]]:
        return ((key, each) for key, each in self.entries.items() if isinstance(each, ResendUnit))

    def add(self, entries: Mapping[Key, ResendUnit | Counts]) -> None:
        """Add units, or the counts of a lane."""
        self.entries.update(entries)

    def counts_of(self, lane: int) -> Counts | None:
        """Return the counts of a lane that was lost or closed; None for any other lane."""
        found = self.entries.get((lane, COUNTS))
        return found if isinstance(found, Counts) else None

    def refuses(self, message: bytes, held: Sending, at: int) -> bool:
        """Return whether an error means that the command was not run, but may be accepted later.

        If a script was refused because of the server's state, it is resent only if the server was
        busy with another script. Otherwise, the script may have run partially.
        """
        if not (message.startswith(LOADING) or (self.cluster and REFUSED.match(message))):
            parts = held.chunk.parts(at)
            if self._resumable or not may_pass(message) or not parts:
                return False
            message = message.removeprefix(ABORTED)
            if not message.startswith(BUSY) and is_script(held.command(at, parts[0])):
                return False
            self._demoted = self._demoted or message.startswith(READONLY)
        self.message = message.decode(errors="replace")
        return True

    def was_demoted(self) -> bool:
        """Return whether a server has become a replica since the last call."""
        demoted, self._demoted = self._demoted, False
        return demoted

    def may_resend(self, units: Sequence[ResendUnit]) -> list[bool]:
        """Return for each unit in doubt whether it may be resent."""
        if self._retry != "idempotent":
            return [self._retry == "always"] * len(units)
        requests = (
            each.requests if len(each.requests) == 1 else each.requests[1:-1] for each in units
        )
        return may_resend([[*map(command_to_examine, each)] for each in requests])

    def ready(self, slot_of: Callable[[ResendUnit], int]) -> list[tuple[int, Key, ResendUnit]]:
        """Return (slot, key in the ledger, unit) for each unit to send now; other units wait.

        If a node may start to accept commands of a slot at any moment, only the first unit of the
        slot is sent: otherwise, the node could refuse the first unit, and run the second. The
        other units follow once the first unit has run.
        """
        units = [(slot_of(unit), key, unit) for key, unit in self._sorted]
        later = {slot for slot, _, unit in units if unit.later}
        nodes: dict[int, set[tuple[str, int] | None]] = {}
        ready = []
        for slot, key, unit in units:
            if slot in later and slot in nodes:
                self.entries[key] = unit._replace(later=False)
                continue
            nodes.setdefault(slot, set()).add(unit.node)
            ready.append((slot, key, unit))
        # Sending all units of a slot to one node keeps their order. The node may redirect them.
        return [
            (slot, key, unit if len(nodes[slot]) == 1 else unit._replace(node=None))
            for slot, key, unit in ready
        ]

    def pause(self, report: Report, slot_of: Callable[[ResendUnit], int]) -> float:
        """Return how many seconds to wait before the commands are resent.

        Raises:
            TransportError: the first command was refused for ``timeout`` seconds, or the user
                lacks the permission for ASKING.
        """
        if self.denied:
            raise TransportError(asking_refused(self.denied), report)
        units, deadline = self.units, self._deadline
        if deadline.check(units[0].place):
            return 0.0
        if deadline.exceeded:
            remedy = remedy_for(self.message.encode())
            slots, advice = "", remedy and f" ({remedy})"
            if self.cluster:
                found = sorted({slot for slot in map(slot_of, units) if slot >= 0})
                slots = f" of slots {ranges(found)}"
                advice = advice or " (check the cluster with redis-cli --cluster check)"
            raise TransportError(
                f"commands{slots} were refused for {deadline.timeout:g} s, the first of row "
                f"{units[0].first_row:,}; the last reply was: {self.message}{advice}",
                report,
            )
        return min(max(PAUSE_S, deadline.stuck_s / PAUSES), LATEST_S)


class RetryFilter(Filter):
    """Moves commands to the ledger, if a node refused them or was lost before it answered.

    ``redirect`` parses redirections of the lane's server.
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
            text = message.decode(errors="replace")
            if self.fault is None:
                self.fault = OSError(f"it refuses a command of ours: {text}")
                if NO_ASKING.match(message):
                    self._ledger.denied = text
            return None
        if self._refuse(window, index, message):
            return None
        if self._refused:
            self._failed.add(index)
        return error

    def _refuse(self, window: Window, index: int, message: bytes) -> bool:
        """Return whether an error is a temporary refusal; if so, add the command to the ledger.

        A transaction is added when its EXEC is refused.
        """
        ledger = self._ledger
        aborted = bool(self._aborted) and message.startswith(b"EXECABORT")
        held, at = window.locate(index)
        if not (aborted or ledger.refuses(message, held, at)):
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
            answered = max(window.acknowledged - held.first_reply, replies[0])
            chunk = held.chunk
            in_doubt += unit.sent - chunk.covered(answered) + chunk.covered(replies[0])
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

        If ``ran``, yield the units that were sent whole, and may have run; otherwise the others.
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


def command_to_examine(request: Request) -> bytes:
    """Return the command that decides whether a request is idempotent.

    It is the request itself, but the user's HSET if HIMPORT SET or a script replaces the hash.
    """
    data, commands = request
    return commands[0].command if len(commands) == 1 and may_replace_hash(data) else data


def portions(units: Sequence[tuple[Key, ResendUnit]]) -> Iterator[list[tuple[Key, ResendUnit]]]:
    """Divide (key, unit) pairs into lists of about REPEATED_BYTES each."""
    portion = []
    size = 0
    for key, unit in units:
        portion.append((key, unit))
        size += sum(len(request.data) for request in unit.requests)
        if size >= REPEATED_BYTES:
            yield portion
            portion, size = [], 0
    if portion:
        yield portion


def ranges(numbers: Sequence[int]) -> str:
    """Return sorted numbers as text, such as "0-99, 200", with at most MAX_RANGES ranges."""
    found: list[list[int]] = []
    for number in numbers:
        if found and number == found[-1][1] + 1:
            found[-1][1] = number
        else:
            found.append([number, number])
    texts = [f"{low:,}" if low == high else f"{low:,}-{high:,}" for low, high in found]
    shown, others = texts[:MAX_RANGES], len(texts) - MAX_RANGES
    more = f" and {counted(others, 'range')} more" if others > 0 else ""
    return ", ".join(shown) + more
