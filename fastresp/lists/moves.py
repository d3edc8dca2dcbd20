"""Errors of cluster nodes that do not, or no longer, serve the slot of the list."""

from __future__ import annotations

import time

from ..outcome.command_error import CommandError
from ..outcome.errors import TransportError
from ..transports.retries import LOADING, MAX_S, PAUSE_S, REFUSED

__all__ = ["DOWN_PAUSE_S", "Deadline", "SlotMoved", "as_slot_moved"]

# The error of a blocking command, if the node becomes a replica while the command waits.
DEMOTED = "UNBLOCKED force unblock"
# Seconds to wait before asking another node while the cluster is down.
DOWN_PAUSE_S = 0.1


class SlotMoved(CommandError):
    """A cluster node did not run a command: the slot is on another node, moving, or unserved."""

    @property
    def elsewhere(self) -> bool:
        """Whether another node may own the slot; if not, the slot is being moved."""
        return self.down or self.code in ("MOVED", "UNBLOCKED")

    @property
    def down(self) -> bool:
        """Whether the node reports that the cluster is down, for example during a failover."""
        return self.code == "CLUSTERDOWN"

    def pause(self, *, first: bool) -> float:
        """Return the seconds to wait before resending; ``first`` is from ``Deadline.check()``."""
        if self.down:
            return DOWN_PAUSE_S
        return 0.0 if first and self.elsewhere else PAUSE_S


def as_slot_moved(error: CommandError) -> CommandError:
    """Return a node's error, converted to a SlotMoved if the command must be resent.

    After TRYAGAIN, the call waits, since some keys of the command are on the old node, and some on
    the new node. It also waits after ASK: only commands with one key could be resent immediately.
    """
    text = error.text
    message = text.encode(errors="replace")
    if REFUSED.match(message) or message.startswith(LOADING) or text.startswith(DEMOTED):
        return SlotMoved(text)
    return error


class Deadline:
    """Limits the time for which a call is repeated without progress.

    Args:
        timeout: seconds without progress; None for 30.
    """

    def __init__(self, timeout: float | None) -> None:
        self._timeout = timeout or MAX_S
        self._since = 0.0
        self._progress: object = None

    def check(self, message: str, progress: object, key: object) -> bool:
        """Return whether the call has made progress since the last check.

        Args:
            message: why the call must be repeated, for messages.
            progress: a value that changes whenever a call makes progress.
            key: the key of the list, for messages.

        Raises:
            TransportError: no progress for ``timeout`` seconds.
        """
        now = time.monotonic()
        first = progress != self._progress
        if first:
            self._since, self._progress = now, progress
        elif now - self._since > self._timeout:
            raise TransportError(
                f"the slot of the list {key!r} could not be used for {self._timeout:g} s; "
                f"{message} (check the cluster with redis-cli --cluster check)"
            )
        return first
