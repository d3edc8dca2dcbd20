"""A consumer of a list, as the server knows it: its keys, its commands, its account of items."""

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
    """What of a list is this buffer's, with at-least-once.

    A call whose connection was lost may have acknowledged items or not. The server counts them from
    the first on, and its user repeats the call: so the repeat is sent with the count that both
    add up to, and lets go of nothing else.

    Attributes:
        name: in the server; empty before it has joined there.
        acknowledged: items that were acknowledged by calls that returned, also as a consumer of an
            earlier name.
    """

    def __init__(self, settings: Settings, held: Held) -> None:
        self.settings = settings
        self.held = held
        self.name = ""
        self.acknowledged = 0
        self._returned = 0  # of ``acknowledged``, those of this name
        self._arrived = 0  # items of this name that the server has counted as acknowledged

    @property
    def from_left(self) -> int:
        """Whether items are taken from the left end, for scripts."""
        return int(self.settings.order == "fifo")

    @property
    def lease_ms(self) -> int:
        return math.ceil(1000 * self.settings.lease)

    def new_name(self) -> str:
        """A name of its own; ``recover()`` puts items back at the end that it begins with."""
        return f"{self.settings.order}-{uuid.uuid4().hex}"

    def joining(self, name: str) -> Sequence[Command]:
        """What makes it known in the server."""
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
        """Have no items, and no name any more; return how many items the user had."""
        given, self.held.given, self.name = self.held.given, 0, ""
        return given

    def take(self, n: int) -> Command:
        """Move up to n items to its list, and ask for them."""
        return self._script(TAKE, n, self.name, self.lease_ms, self.from_left)

    def acknowledge(self, count: int) -> Command:
        """Let go of the first items given; what was in doubt counts among them."""
        return self._script(ACK, self._after(count), self.name, self.lease_ms)

    def acknowledging_returned(self, count: int) -> None:
        self._arrived = self._after(count)
        self._returned += count
        self.acknowledged += count
        self.held.given -= count

    def _after(self, count: int) -> int:
        return max(self._arrived, self._returned + count)

    def rejoin(self) -> Command:
        """Put back what the user does not have, and ask how many items are acknowledged."""
        given = self._returned + self.held.given
        return self._script(PUT_BACK, "", self.name, 1, self.from_left, given)

    def can_have(self, arrived: int) -> bool:
        """Whether this number of its items can be acknowledged."""
        return 0 <= arrived <= self._returned + self.held.given

    def rejoined(self, arrived: int) -> None:
        self._arrived = arrived

    def put_back(self) -> Command:
        """Put back all its items, and strike it off."""
        return self._script(PUT_BACK, "", self.name, 1, self.from_left, "")

    def clear(self) -> Sequence[Command]:
        """Remove all items; those that were given count as acknowledged.

        So the account is right whether or not the reply arrives: nothing that is given later is let
        go of in their place.
        """
        both = _keys(self.settings, self.name)[:2]
        return ("MULTI",), ("DEL", *both), self.acknowledge(self.held.given), ("EXEC",)

    def cleared(self) -> None:
        self._arrived = self._returned = self._after(self.held.given)
        self.held.given = 0

    def _script(self, script: str, *arguments: object) -> Command:
        return _script(script, _keys(self.settings, self.name), *arguments)


def recover(settings: Settings, name: str) -> Command:
    """Put back all items of a consumer whose lease is over."""
    from_left = int(name.startswith("fifo"))
    return _script(PUT_BACK, _keys(settings, name), "", name, 0, from_left, "")


def _keys(settings: Settings, name: str) -> list[bytes]:
    """The list, a consumer's list, the consumers, the consumer's lease."""
    names = (f"processing:{name}", "consumers", f"lease:{name}")
    return [settings.name, *map(settings.beside, names)]


def _script(script: str, keys: list[bytes], *arguments: object) -> Command:
    # The whole text each time: nothing beside the items, and no server forgets it.
    return ("EVAL", script, 4, *keys, *arguments)
