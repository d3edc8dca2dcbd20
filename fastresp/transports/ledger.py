"""The ledger of a load: the commands that must be resent, from all connections.

A unit is a request or a transaction, which is resent as a whole; see ResendUnit.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TypeAlias

from ..outcome.errors import TransportError
from ..outcome.report import Report, counted
from ..resp.idempotent import may_resend
from ..server.failure import asking_refused
from .failures import ABORTED, may_pass, remedy_for
from .resend import Request, ResendUnit, is_script, may_replace_hash
from .sending import Sending
from .window import Counts

__all__ = ["LATER", "REFUSED", "REPEATS", "Key", "Ledger", "portions", "ranges"]

# The command was not run. MOVED: another node owns the slot. ASK: the slot is being moved, and the
# key is on the new node. TRYAGAIN: the keys of the command are on both nodes. CLUSTERDOWN: no node
# serves the slot now.
REFUSED = re.compile(rb"(MOVED|ASK) \d{1,5} \S*:\d{1,5}$|TRYAGAIN |CLUSTERDOWN ")
# A server that is loading its data from disk runs nothing.
LOADING = b"LOADING "
LATER = (b"TRYAGAIN ", b"CLUSTERDOWN ", LOADING)
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
# For each value of ``retry``, a function that decides which commands in doubt are resent.
Repeats: TypeAlias = Callable[[Sequence[Sequence[bytes]]], list[bool]]
REPEATS: dict[str, Repeats] = {
    "never": lambda units: [False] * len(units),
    "idempotent": may_resend,
    "always": lambda units: [True] * len(units),
}
# The key of a unit: its lane, and a number that no other unit of the lane has, such as the index of
# the unit's reply. So adding a unit again after an interruption changes nothing (see Refusals).
Key: TypeAlias = tuple[int, int]
# The number under which the counts of a lost or closed lane are stored.
COUNTS = -(1 << 62)


class Ledger:
    """The commands of a load that must be resent.

    Units are resent in the order of the source, per slot. The ledger also keeps the counts of lost
    lanes: one call in C adds a lane's counts and its units.

    Args:
        timeout: seconds for which the first command may be refused; None for no limit.
        retry: a key of REPEATS: which commands are resent although they may have run.
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
        self._timeout = timeout
        self._repeats = REPEATS[retry]
        self.transactions = transactions
        self.cluster = cluster
        self._resumable = resumable
        self.entries: dict[Key, ResendUnit | Counts] = {}
        self.message = ""
        self.denied = ""
        self._demoted = False
        # The first unit, and when it was first refused.
        self._first = -1
        self._since = 0.0

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

    def refuses(self, message: bytes) -> bool:
        """Return whether an error means that the command was not run, but may be accepted later."""
        if not message.startswith(LOADING) and not (self.cluster and REFUSED.match(message)):
            return False
        self.message = message.decode(errors="replace")
        return True

    def refuses_for_now(self, message: bytes, held: Sending, at: int) -> bool:
        """Return whether to resend a command that was refused because of the server's state.

        A script is resent only if the server was busy with another script. Otherwise, the script
        may have run partially.
        """
        parts = held.chunk.parts(at)
        if self._resumable or not may_pass(message) or not parts:
            return False
        message = message.removeprefix(ABORTED)
        if not message.startswith(BUSY) and is_script(held.command(at, parts[0])):
            return False
        self.message = message.decode(errors="replace")
        self._demoted = self._demoted or message.startswith(READONLY)
        return True

    def was_demoted(self) -> bool:
        """Return whether a server has become a replica since the last call."""
        demoted, self._demoted = self._demoted, False
        return demoted

    def may_resend(self, units: Sequence[ResendUnit]) -> list[bool]:
        """Return for each unit in doubt whether it may be resent."""
        requests = (
            each.requests if len(each.requests) == 1 else each.requests[1:-1] for each in units
        )
        return self._repeats(
            [[command_to_examine(request) for request in each] for each in requests]
        )

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

        Args:
            report: report of the load.
            slot_of: returns the slot of a unit; -1 if it has no slot.

        Raises:
            TransportError: the first command was refused for ``timeout`` seconds, or the user
                lacks the permission for ASKING.
        """
        if self.denied:
            raise TransportError(asking_refused(self.denied), report)
        units = self.units
        first, now = units[0].place, time.monotonic()
        if first != self._first:
            self._first, self._since = first, now
            return 0.0
        if self._timeout is not None and now - self._since > self._timeout:
            remedy = remedy_for(self.message.encode())
            slots, advice = "", remedy and f" ({remedy})"
            if self.cluster:
                found = sorted({slot for slot in map(slot_of, units) if slot >= 0})
                slots = f" of slots {ranges(found)}"
                advice = advice or " (check the cluster with redis-cli --cluster check)"
            raise TransportError(
                f"commands{slots} were refused for {self._timeout:g} s, the first of row "
                f"{units[0].first_row:,}; the last reply was: {self.message}{advice}",
                report,
            )
        return min(max(PAUSE_S, (now - self._since) / PAUSES), LATEST_S)


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
