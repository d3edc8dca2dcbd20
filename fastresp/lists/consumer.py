"""A consumer of a list: its keys in the server, its commands, and its item counts."""

from __future__ import annotations

import math
import uuid
from collections.abc import Sequence

from .connection import Command
from .held import Held
from .scripts import ACK, PUT_BACK, TAKE
from .settings import Settings

__all__ = ["Consumer", "recover"]


class Consumer:
    """The consumer that this buffer registers in the server, with at-least-once.

    The server stores the total number of items that the consumer has acknowledged, and each
    acknowledgement sends the new total. So a call can be retried after a lost connection.

    Attributes:
        name: the consumer's name in the server; empty until it has joined.
        acknowledged: number of items acknowledged by calls that returned, under this name and
            earlier names.
    """

    def __init__(self, settings: Settings, held: Held) -> None:
        self.settings = settings
        self.held = held
        self.name = ""
        self.acknowledged = 0
        self._returned = 0  # number of items in ``acknowledged`` under this name
        self._arrived = 0  # the server's total under this name

    @property
    def from_left(self) -> int:
        """1 if items are popped from the left end, else 0; an argument of scripts."""
        return int(self.settings.order == "fifo")

    @property
    def lease_ms(self) -> int:
        return math.ceil(1000 * self.settings.lease)

    def new_name(self) -> str:
        """Return a unique name. The prefix shows ``recover()`` at which end to put items back."""
        return f"{self.settings.order}-{uuid.uuid4().hex}"

    def joining(self, name: str) -> Sequence[Command]:
        """Return the commands that register the consumer in the server."""
        keys = _keys(self.settings, name)
        return (
            ("MULTI",),
            ("HSET", keys[2], name, 0),
            ("SET", keys[3], 1, "PX", self.lease_ms),
            ("EXEC",),
        )

    def joined(self, name: str) -> None:
        self.name = name
        self._returned = self._arrived = 0

    def leave(self) -> int:
        """Forget the name; return the number of items that the caller had not acknowledged."""
        given, self.held.given, self.name = self.held.given, 0, ""
        return given

    def take(self, n: int) -> Command:
        """Return the command that moves n items to this consumer's list, and replies with them."""
        return self._script(TAKE, n, self.name, self.lease_ms, self.from_left)

    def acknowledge(self, count: int) -> Command:
        """Return the command that acknowledges the caller's first ``count`` unacknowledged items.

        Items whose earlier acknowledgement is in doubt are also acknowledged.
        """
        return self._script(ACK, self._after(count), self.name, self.lease_ms)

    def acknowledging_returned(self, count: int) -> None:
        self._arrived = self._after(count)
        self._returned += count
        self.acknowledged += count
        self.held.given -= count

    def _after(self, count: int) -> int:
        return max(self._arrived, self._returned + count)

    def rejoin(self) -> Command:
        """Return the command that puts back all items that were not returned to the caller.

        The reply is the total number of acknowledged items.
        """
        given = self._returned + self.held.given
        return self._script(PUT_BACK, "", self.name, 1, self.from_left, given)

    def can_have(self, arrived: int) -> bool:
        """Return whether this total of acknowledged items, from the server, is possible."""
        return 0 <= arrived <= self._returned + self.held.given

    def rejoined(self, arrived: int) -> None:
        self._arrived = arrived

    def put_back(self) -> Command:
        """Return the command that puts back all items of the consumer and deletes it."""
        return self._script(PUT_BACK, "", self.name, 1, self.from_left, "")

    def clear(self) -> Sequence[Command]:
        """Return the commands that remove all items, and acknowledge the items that the caller has.

        The acknowledgement keeps the totals correct even if the reply is lost. Otherwise, later
        items could be deleted by mistake.
        """
        both = _keys(self.settings, self.name)[:2]
        # The order matters; see scripts.
        return ("MULTI",), self.acknowledge(self.held.given), ("DEL", *both), ("EXEC",)

    def cleared(self) -> None:
        self._arrived = self._returned = self._after(self.held.given)
        self.held.given = 0

    def _script(self, script: str, *arguments: object) -> Command:
        return _script(script, _keys(self.settings, self.name), *arguments)


def recover(settings: Settings, name: str) -> Command:
    """Return the command that puts back all items of a consumer with an expired lease."""
    from_left = int(name.startswith("fifo"))
    return _script(PUT_BACK, _keys(settings, name), "", name, 0, from_left, "")


def _keys(settings: Settings, name: str) -> list[bytes]:
    """Return the KEYS of the scripts; see ``scripts``."""
    names = (f"processing:{name}", "consumers", f"lease:{name}")
    return [settings.name, *map(settings.key_for, names)]


def _script(script: str, keys: list[bytes], *arguments: object) -> Command:
    # The whole script each time: it is small compared to the items, and avoids NOSCRIPT.
    return ("EVAL", script, 4, *keys, *arguments)
