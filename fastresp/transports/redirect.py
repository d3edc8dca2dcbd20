"""The commands that nodes of a cluster redirected, to be sent again."""

from __future__ import annotations

import re
import time
from typing import NamedTuple

from ..outcome.errors import TransportError
from ..outcome.report import Report

__all__ = ["Moved", "Redirected"]

# MOVED: another node has the slot. ASK: the slot is being moved there, which is waited for: a
# command sent to the other node with ASKING could overtake one that is sent here again.
REDIRECTS = re.compile(rb"(MOVED|ASK) \d{1,5} \S*:\d{1,5}$")
# How long to wait before a command is sent again that was refused again.
PAUSE_S = 0.02
# How long a slot may move, if the caller sets no timeout.
MOVING_S = 30.0


class Moved(NamedTuple):
    """A command that a node redirected, and did not run."""

    place: int  # among the commands of the source
    row: int
    command: bytes


class Redirected:
    """The refused commands of all connections of a load.

    Args:
        timeout: seconds for which a command may be refused again and again.
    """

    def __init__(self, timeout: float | None) -> None:
        self._timeout = timeout or MOVING_S
        # By window and number: after an interruption, one may be added again.
        self._commands: dict[tuple[int, int], Moved] = {}
        self._words = b""
        self._first = -1
        self._since = 0.0

    def __len__(self) -> int:
        return len(self._commands)

    def accept(self, words: bytes) -> bool:
        """Return whether an error reply redirects its command to another node."""
        if REDIRECTS.match(words) is None:
            return False
        self._words = words
        return True

    def add(self, window: int, number: int, command: Moved) -> None:
        """Add a command; the number counts those of a window."""
        self._commands[window, number] = command

    def pause(self, report: Report) -> float:
        """Return how many seconds to wait before the commands are sent again.

        Raises:
            TransportError: the first of them has been refused for ``timeout`` seconds.
        """
        first = min(command.place for command in self._commands.values())
        now = time.monotonic()
        if first != self._first:
            self._first, self._since = first, now
            return 0.0
        if now - self._since > self._timeout:
            raise TransportError(
                f"a command was redirected for {self._timeout:g} s, last with: "
                f"{self._words.decode(errors='replace')} (check the cluster with redis-cli "
                "--cluster check)",
                report,
            )
        return PAUSE_S

    @property
    def commands(self) -> list[Moved]:
        """The commands in the order of the source."""
        return sorted(self._commands.values())

    def forget(self) -> None:
        """Drop all commands, once they are in the windows again."""
        self._commands = {}
