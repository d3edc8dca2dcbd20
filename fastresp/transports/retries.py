"""Commands to resend, because a node refused them, or was lost before it replied.

A unit is a command, merged commands, or a transaction, which are resent together.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple, TypeAlias

from ..outcome.errors import TransportError
from ..outcome.report import Report, counted
from ..resp.buffer import Chunk
from ..resp.idempotent import may_resend
from ..server.failure import asking_refused
from .causes import ABORTED, may_pass, remedy_for
from .units import Piece, PlainChunk, Unit, is_script
from .window import Position, Sending

__all__ = [
    "LATER",
    "LOST",
    "REPEATS",
    "Lost",
    "Repeated",
    "Retries",
    "portions",
    "ranges",
    "repeated",
]  # fmt: skip

# The command was not run. MOVED: another node owns the slot. ASK: the slot is being moved, and the
# key is on the new node. TRYAGAIN: the keys of the command are on both nodes. CLUSTERDOWN: no node
# serves the slot now.
REFUSED = re.compile(rb"(MOVED|ASK) \d{1,5} \S*:\d{1,5}$|TRYAGAIN |CLUSTERDOWN ")
# A server that is loading its data from disk runs nothing.
LOADING = b"LOADING "
LATER = (b"TRYAGAIN ", b"CLUSTERDOWN ", LOADING)
# Minimum seconds to wait before the second and later retries of a command.
PAUSE_S = 0.02
# The wait grows with the time since the first refusal: this share of that time, up to this maximum.
PAUSES = 20
LATEST_S = 0.5
# After READONLY, the load reconnects. BUSY means that the server is running another script.
READONLY = b"READONLY "
BUSY = b"BUSY "
# Seconds for which a command may be refused, if there is no timeout.
MAX_S = 30.0
ASKING = b"*1\r\n$6\r\nASKING\r\n"
# In a key of ``Retries``, the number that marks the totals of a window.
LOST = -(1 << 62)
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


class Lost(NamedTuple):
    """The totals of a window whose connection was lost, without the commands to resend."""

    rows: int
    commands: int
    size: int
    in_doubt: int
    made: int  # whole commands that were sent over the connection


class Repeated(Sending):
    """A chunk without new commands: commands to resend, and fastresp's own commands.

    Args:
        pieces: the pieces, each of which gets a reply.
        last: the previous chunk on the same connection, or None.
        start: the load's position in the source.
        rows: for each command, the number of rows that the chunk's commands up to and including
            this command send for the first time; empty if there are no such rows.
        fence: as in Unit.
    """

    def __init__(
        self,
        pieces: Sequence[Piece],
        last: Sending | None,
        start: Position,
        rows: Sequence[int] = (),
        fence: Chunk | None = None,
    ) -> None:
        self._covered = rows
        self._parts = PlainChunk(pieces, fence)
        super().__init__(self._parts, last, start)  # type: ignore[arg-type]
        self.resent: int = getattr(last, "resent", 0)

    @property
    def end(self) -> Position:
        return self.start

    def row(self, index: int) -> int:
        return self._parts.parts_of[index][0]

    def source_index(self, index: int) -> int:
        return self._parts.parts_of[index][1]

    def covered_rows(self, commands: int) -> int:
        return self._covered[commands - 1] if commands and self._covered else 0


def repeated(units: Sequence[Unit], last: Sending | None, start: Position) -> Repeated:
    """Return a chunk of units. ASKING precedes each unit for a node that imports a slot."""
    pieces, rows, covered = [], [], 0
    for unit in units:
        if unit.node is not None:
            pieces.append(Piece(ASKING, ()))
        pieces += unit.pieces
        covered += unit.rows
        rows += [covered] * unit.commands
    return Repeated(pieces, last, start, rows, units[-1].fence)


def portions(
    units: Iterable[tuple[tuple[int, int], Unit]],
) -> Iterator[list[tuple[tuple[int, int], Unit]]]:
    """Split pairs of key and unit into lists of about REPEATED_BYTES."""
    portion = []
    size = 0
    for key, unit in units:
        portion.append((key, unit))
        size += sum(len(piece.data) for piece in unit.pieces)
        if size >= REPEATED_BYTES:
            yield portion
            portion, size = [], 0
    if portion:
        yield portion


class Retries:
    """The commands to resend, from all connections of a load.

    Args:
        timeout: seconds for which the first command may be refused; None for no limit.
        repeats: decides which commands that may have run are resent; see REPEATS.
        transactions: whether the commands may include MULTI and EXEC.
        cluster: whether the server is a cluster.
        waits: whether to resend commands that a server refuses because of its state, such as OOM.
    """

    def __init__(
        self,
        timeout: float | None,
        repeats: Repeats,
        *,
        transactions: bool,
        cluster: bool,
        waits: bool = True,
    ) -> None:
        self._waits = waits
        self._demoted = False
        self._timeout = timeout
        self._repeats = repeats
        self.transactions = transactions
        self.cluster = cluster
        # Keyed by window and reply, so that adding an entry again after an interruption changes
        # nothing. Includes the totals of lost windows, added with their units in one call in C.
        self._entries: dict[tuple[int, int], Unit | Lost] = {}
        self.words = ""
        # The error reply to ASKING, if the user lacks permission.
        self.denied = ""
        self._first = -1
        self._since = 0.0

    def __bool__(self) -> bool:
        return any(type(each) is Unit for each in self._entries.values())

    @property
    def sent(self) -> int:
        """Number of commands to resend that are in doubt: they were sent, and may have run."""
        return sum(unit.sent for unit in self._entries.values() if isinstance(unit, Unit))

    @property
    def unsent(self) -> int:
        """Number of commands to resend that have not run."""
        return sum(unit.commands - unit.sent for unit in self.units)

    def refuses(self, words: bytes) -> bool:
        """Return whether an error means that the command was not run, but may be accepted later."""
        if not words.startswith(LOADING) and not (self.cluster and REFUSED.match(words)):
            return False
        self.words = words.decode(errors="replace")
        return True

    def waits_for(self, words: bytes, held: Sending, at: int) -> bool:
        """Return whether to resend a command that was refused because of the server's state.

        A script is resent only if the server was busy with another script. Otherwise, the script
        may have run partially.
        """
        parts = held.chunk.parts(at)
        if not (self._waits and may_pass(words) and parts):
            return False
        words = words.removeprefix(ABORTED)
        if not words.startswith(BUSY) and is_script(held.command(at, parts[0])):
            return False
        self.words = words.decode(errors="replace")
        self._demoted = self._demoted or words.startswith(READONLY)
        return True

    def was_demoted(self) -> bool:
        """Return whether a server has become a replica since the last call."""
        demoted, self._demoted = self._demoted, False
        return demoted

    def may_resend(self, units: Sequence[Unit]) -> list[bool]:
        """Return for each unit in doubt whether it may be resent."""
        several = (unit.pieces if len(unit.pieces) == 1 else unit.pieces[1:-1] for unit in units)
        return self._repeats([[piece.data for piece in pieces] for pieces in several])

    def add(self, entries: Mapping[tuple[int, int], Unit | Lost]) -> None:
        """Add units, or the totals of a lost window, by window and number."""
        self._entries.update(entries)

    def lost(self, window: int) -> Lost | None:
        """Return the totals of a window whose connection was lost; None for any other window."""
        found = self._entries.get((window, LOST))
        return found if isinstance(found, Lost) else None

    def has(self, key: tuple[int, int]) -> bool:
        """Return whether a unit with this key (window and number) waits to be resent."""
        return key in self._entries

    @property
    def pop(self) -> Callable[[tuple[int, int]], object]:
        """A function that removes a unit by its key, in one call in C."""
        return self._entries.pop

    @property
    def units(self) -> list[Unit]:
        """The units in the order of the source."""
        units = [each for each in self._entries.values() if isinstance(each, Unit)]
        return sorted(units, key=lambda unit: unit.place)

    def portion(self, slot_of: Callable[[Unit], int]) -> list[tuple[int, tuple[int, int], Unit]]:
        """Return the slot, key and unit of each unit to send now; other units keep waiting.

        If a node may start to accept commands of a slot at any moment, only the first unit of the
        slot is sent: the node could refuse the first unit, and run the second. The other units
        follow once the first unit has run.
        """
        found = [(key, each) for key, each in self._entries.items() if isinstance(each, Unit)]
        found.sort(key=lambda each: each[1].place)
        units = [(slot_of(unit), key, unit) for key, unit in found]
        later = {slot for slot, _, unit in units if unit.later}
        nodes: dict[int, set[tuple[str, int] | None]] = {}
        portion = []
        for slot, key, unit in units:
            if slot in later and slot in nodes:
                self._entries[key] = unit._replace(later=False)
                continue
            nodes.setdefault(slot, set()).add(unit.node)
            portion.append((slot, key, unit))
        # Sending all units of a slot to one node keeps their order. The node may redirect them.
        return [
            (slot, key, unit if len(nodes[slot]) == 1 else unit._replace(node=None))
            for slot, key, unit in portion
        ]

    def pause(self, report: Report, slot_of: Callable[[Unit], int]) -> float:
        """Return how many seconds to wait before the commands are resent.

        Args:
            report: report of the load.
            slot_of: returns the slot of a unit; -1 if it has no slot.

        Raises:
            TransportError: the first command was refused for ``timeout`` seconds, or the user may
                not run ASKING.
        """
        if self.denied:
            raise TransportError(asking_refused(self.denied), report)
        units = self.units
        first, now = units[0].place, time.monotonic()
        if first != self._first:
            self._first, self._since = first, now
            return 0.0
        if self._timeout is not None and now - self._since > self._timeout:
            row, _, _ = units[0].pieces[0].parts[0]
            remedy = remedy_for(self.words.encode())
            slots, advice = "", remedy and f" ({remedy})"
            if self.cluster:
                found = sorted({slot for slot in map(slot_of, units) if slot >= 0})
                slots = f" of slots {ranges(found)}"
                advice = advice or " (check the cluster with redis-cli --cluster check)"
            raise TransportError(
                f"commands{slots} were refused for {self._timeout:g} s, the first of row {row:,}; "
                f"the last reply was: {self.words}{advice}",
                report,
            )
        return min(max(PAUSE_S, (now - self._since) / PAUSES), LATEST_S)


def ranges(numbers: Sequence[int]) -> str:
    """Return sorted numbers as text, such as "0-99, 200", with at most MAX_RANGES ranges."""
    found: list[list[int]] = []
    for number in numbers:
        if found and number == found[-1][1] + 1:
            found[-1][1] = number
        else:
            found.append([number, number])
    words = [f"{low:,}" if low == high else f"{low:,}-{high:,}" for low, high in found]
    shown, others = words[:MAX_RANGES], len(words) - MAX_RANGES
    more = f" and {counted(others, 'range')} more" if others > 0 else ""
    return ", ".join(shown) + more
