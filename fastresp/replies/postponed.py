"""Commands that wait because a cluster node was lost, or temporarily refused them.

The source index of a command is its index among all commands of the source.
"""

from __future__ import annotations

import heapq
import time
from collections.abc import Callable

from ..outcome.errors import TransportError
from ..resp.idempotent import only_reads
from ..resp.slots import keys_of
from ..resp.split import CommandSplitter
from ..server.cluster_view import LOOK_S
from ..transports.resend import Refused
from ..transports.retries import LATER, MAX_S, PAUSE_S, ranges

__all__ = ["SOON", "Postponed"]

# Error replies of nodes that did not run a command, but may run it soon.
SOON = tuple(each.decode() for each in LATER)


class Postponed:
    """Keeps commands, in order, until they may be resent.

    Until then, no later commands are sent. If a later command was in flight and ran, postponed
    commands with the same key are not resent, since they would run out of order.

    Args:
        timeout: seconds for which commands may wait without progress; None for 30.

    Attributes:
        message: the last error reply, or why no node could be queried.
        lost: how a node was lost, for messages; empty if no node was lost.
    """

    def __init__(self, timeout: float | None) -> None:
        self.message = self.lost = ""
        self._timeout = timeout or MAX_S
        # The commands to resend, by slot and source index; slot -1 for commands without a key.
        self._waiting: dict[int, dict[int, Refused]] = {}
        # By source index: why each command was last postponed.
        self._messages: dict[int, str] = {}
        # By source index: the keys of each unanswered command, including commands in flight again.
        self._keys: dict[int, tuple[bytes, ...]] = {}
        # By key and source index: whether an unanswered command writes the key.
        self._noted: dict[bytes, dict[int, bool]] = {}
        self._places: list[int] = []  # a heap of source indices, some of answered commands
        # Slots whose first command was answered, so that the remaining commands may be sent.
        self._served: set[int] = set()
        self._overtaken: set[int] = set()
        self._first, self._stuck, self._resumed = -1, 0.0, 0.0

    def __bool__(self) -> bool:
        return bool(self._waiting)

    @property
    def hold(self) -> int | None:
        """The source index of the first unanswered postponed command; None if all are answered."""
        places = self._places
        while places and places[0] not in self._keys:
            heapq.heappop(places)
        return places[0] if places else None

    @property
    def count(self) -> int:
        """The number of waiting commands."""
        return sum(map(len, self._waiting.values()))

    @property
    def unsent(self) -> int:
        """The number of waiting commands that have not run."""
        return sum(not each.tries for some in self._waiting.values() for each in some.values())

    def has(self, slot: int) -> bool:
        """Return whether commands of a slot are waiting."""
        return slot in self._waiting

    def add(self, command: Refused, slot: int, message: str) -> None:
        """Postpone a command.

        Args:
            command: the command.
            slot: the command's slot; -1 for a command without a key.
            message: why the command was not answered.
        """
        if not self._keys:
            self._resumed = time.monotonic()
        self._waiting.setdefault(slot, {})[command.place] = command
        self._served.discard(slot)
        self.message = self._messages[command.place] = message
        if command.place not in self._keys:
            self._keys[command.place] = keys = _keys_of(command.command)
            heapq.heappush(self._places, command.place)
            writes = not only_reads(command.command)
            for key in keys:
                self._noted.setdefault(key, {})[command.place] = writes

    def answered(self, place: int, slot: int) -> None:
        """Record that a command was answered."""
        self._messages.pop(place, None)
        self._overtaken.discard(place)
        for key in self._keys.pop(place, ()):
            noted = self._noted[key]
            noted.pop(place, None)
            if not noted:
                del self._noted[key]
        if slot in self._waiting:
            self._served.add(slot)
        if not self._keys:
            self.lost = ""

    def ran(self, command: Refused) -> None:
        """Record that a command may have run while earlier commands were postponed."""
        writes = None
        for key in _keys_of(command.command):
            for place, wrote in self._noted.get(key, {}).items():
                if place >= command.place:
                    continue
                if writes is None:
                    writes = not only_reads(command.command)
                if wrote or writes:
                    self._overtaken.add(place)

    def overtaken(self) -> list[tuple[int, Refused, str]]:
        """Remove and return the commands that a later command has overtaken.

        Returns:
            Tuples of the slot, the command, and the command's error reply.

        Raises:
            TransportError: an overtaken command has no error reply, because a node was lost.
        """
        found = []
        for slot, waiting in [*self._waiting.items()]:
            for place in sorted(self._overtaken.intersection(waiting)):
                command, message = waiting[place], self._messages[place]
                if not message.startswith(SOON):
                    raise TransportError(
                        "while a slot of the cluster was moved, a command was refused, but a later "
                        f"one of the same key ran; the command of row {command.row:,} can't be "
                        "resent without overtaking it"
                    )
                del waiting[place]
                found.append((slot, command, message))
            if not waiting:
                del self._waiting[slot]
        return found

    def resume(self) -> None:
        """Don't count the time until now as waiting time, since the caller spent this time."""
        self._resumed = time.monotonic()

    def pause(self) -> float:
        """Return the seconds to wait before commands are resent.

        Raises:
            TransportError: the first command has waited too long.
        """
        first = min(min(some) for some in self._waiting.values())
        row = next(some[first].row for some in self._waiting.values() if first in some)
        now = time.monotonic()
        if first != self._first:
            self._first, self._stuck, self._resumed = first, 0.0, now
            return 0.0
        self._stuck += now - self._resumed
        self._resumed = now
        if self._stuck > self._timeout:
            raise TransportError(self._overdue(row))
        return LOOK_S if self.lost else PAUSE_S

    def _overdue(self, row: int) -> str:
        """Return the error message for commands that have waited too long."""
        known = sorted(slot for slot in self._waiting if slot >= 0)
        slots = f" slots {ranges(known)}" if known else " commands without a key"
        if self.lost:
            return (
                f"{self.lost}; no node serves{slots} after {self._timeout:g} s; the first waiting "
                f"command is of row {row:,}: {self.message}"
            )
        return (
            f"commands{' of' if known else ''}{slots if known else ''} were refused for "
            f"{self._timeout:g} s, the first of row {row:,}; the last reply was: {self.message} "
            "(check the cluster with redis-cli --cluster check)"
        )

    def portion(self, owner: Callable[[int], object]) -> list[tuple[int, Refused]]:
        """Remove and return the commands to send now, with their slots.

        A node may begin to accept commands of a slot at any moment, so it could refuse a command
        and run the next command. So only the first command of a slot is sent; the later commands
        of the slot are sent after the reply.

        Args:
            owner: returns the owner of a slot; None if the slot's commands must wait.
        """
        found = []
        for slot, waiting in [*self._waiting.items()]:
            if owner(slot) is None:
                continue
            places = sorted(waiting)
            for place in places if slot in self._served else places[:1]:
                found.append((slot, waiting.pop(place)))
            if not waiting:
                del self._waiting[slot]
        self._served.clear()
        return found


def _keys_of(command: bytes) -> tuple[bytes, ...]:
    """Return the keys of a command, without duplicates."""
    chunk = CommandSplitter().feed(command)
    assert chunk is not None
    [keys] = keys_of(chunk)
    return tuple(dict.fromkeys(keys))
