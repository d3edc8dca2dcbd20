"""Pop items so that each is delivered at least once, even if this process dies."""

from __future__ import annotations

import math
import uuid
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from ..outcome.errors import CommandError, LeaseError
from ..outcome.report import counted
from ..transports.driver import Steps
from .at_most_once import AtMostOnce
from .settings import ACK, PUT_BACK, TAKE, Arguments, keys_of, run

__all__ = ["AtLeastOnce"]


class AtLeastOnce(AtMostOnce):
    """Pops items by moving them to this consumer's own list, until they are acknowledged.

    The server stores the total number of items that the consumer has acknowledged, and each
    acknowledgement sends the new total. So a call can be retried after a lost connection.
    """

    safe = True
    _returned = 0  # number of items of this name, acknowledged by calls that returned
    _arrived = 0  # the last known total of this name in the server

    def _script(self, script: str, *arguments: object) -> Arguments:
        return run(script, self.settings, self.name, *arguments)

    @property
    def _lease_ms(self) -> int:
        return math.ceil(1000 * self.settings.lease)

    def beginning(self) -> Steps[None]:
        self.check_records()
        if self.name:
            yield from self._rejoining()
        if not self.name:
            # The prefix encodes the end where recover() puts items back.
            name = f"{self.settings.order}-{uuid.uuid4().hex}"
            _, _, consumers, lease = keys_of(self.settings, name)
            *_, replies = yield from self.calling(
                ("MULTI",),
                ("HSET", consumers, name, 0),
                ("SET", lease, 1, "PX", self._lease_ms),
                ("EXEC",),
            )
            self.connection.expect(list, "EXEC", replies)
            for reply in replies:
                if isinstance(reply, CommandError):
                    raise reply
            self.name = name
            self._returned = self._arrived = 0

    def _rejoining(self) -> Steps[None]:
        """Over a new connection, put back all items that were not returned to the caller.

        Raises:
            LeaseError: the ``recover()`` of another consumer has put the items back.
        """
        if not self.popped.delivered:
            yield from self._putting_back()
            return
        delivered = self._returned + self.popped.delivered
        rejoin = self._script(PUT_BACK, "", 1, int(self._fifo), delivered)
        [reply] = yield from self.calling(rejoin, errors=True)
        self._check_lease(reply)
        if not 0 <= reply <= delivered:
            self.connection.core.reject_reply("a script for unacknowledged items", reply)
        self._arrived = reply
        yield from self._acknowledging(0)

    def _putting_back(self) -> Steps[None]:
        """Put back all items of this consumer, and remove the consumer from the server."""
        yield from self.calling(self._script(PUT_BACK, "", 1, int(self._fifo), ""))
        self._leave()

    def _leave(self) -> int:
        """Forget the name and the items; return how many items the caller had not acknowledged."""
        count, self.popped.delivered, self.name = self.popped.delivered, 0, ""
        self.popped.forget()
        return count

    def _request(self, n: int) -> Sequence[Arguments]:
        return [self._script(TAKE, n, self._lease_ms, int(self._fifo))]

    @property
    def _longest_wait(self) -> float:
        # A wait must be shorter than the lease, which is renewed after each wait.
        return self.settings.lease / 3

    def _wait_for_item(self, seconds: float) -> Steps[bool]:
        # BLMOVE from one end to the same end changes nothing, but waits for an item. Then the
        # script pops the item, unless the lease has expired during the wait.
        side = "LEFT" if self._fifo else "RIGHT"
        name = self.settings.name
        [reply] = yield from self.calling(("BLMOVE", name, name, side, side, seconds))
        if reply is None:
            yield from self._acknowledging(0)
            return False
        return (yield from self.popping_some(1))  # False if another consumer was faster

    def acknowledging(self, n: int | None) -> Callable[[], Steps[int]]:
        def steps() -> Steps[int]:
            delivered = self.popped.delivered
            count = delivered if n is None else n
            if not 0 <= count <= delivered:
                raise ValueError(
                    f"can't acknowledge {counted(count, 'item')}; unacknowledged: {delivered:,}"
                )
            yield from self.draining()
            yield from self._acknowledging(count)
            return self.popped.delivered

        return steps

    def _acknowledging(self, count: int) -> Steps[None]:
        total = self._total(count)
        [reply] = yield from self.calling(self._script(ACK, total, self._lease_ms), errors=True)
        self._check_lease(reply)
        self._arrived = total
        self._returned += count
        self.acknowledged += count
        self.popped.delivered -= count

    def _total(self, count: int) -> int:
        """Return the total of acknowledged items, including the caller's next ``count`` items.

        The total also includes items whose earlier acknowledgement is in doubt.
        """
        return max(self._arrived, self._returned + count)

    def ending(self) -> Steps[None]:
        with suppress(CommandError):  # popped items are still put back
            yield from self.draining()
        if self.name:
            yield from self._putting_back()

    def clearing(self) -> Steps[None]:
        # Also acknowledge the items that the caller has, so that the totals are correct even if the
        # reply is lost. With wrong totals, a later ACK could delete items by mistake.
        total = self._total(self.popped.delivered)
        acknowledge = self._script(ACK, total, self._lease_ms)
        # ACK before DEL: while the slot is being moved, a script is refused if a key is missing.
        delete = ("DEL", *keys_of(self.settings, self.name)[:2])
        *_, replies = yield from self.calling(("MULTI",), acknowledge, delete, ("EXEC",))
        expect = self.connection.expect
        expect(list, "EXEC", replies)
        expect(int | CommandError, "EXEC", replies[0] if len(replies) == 2 else replies)
        self._arrived = self._returned = total
        self.popped.delivered = 0
        with suppress(LeaseError):  # another consumer put our items back; DEL has removed them
            self._check_lease(replies[0])
        self.popped.forget()

    def _check_lease(self, reply: Any) -> None:
        """Raise the exception for an error reply: a LeaseError if the lease has expired."""
        if isinstance(reply, CommandError):
            raise self._refused(reply)
        self.connection.expect(int, "a script for unacknowledged items", reply)

    def _refused(self, error: CommandError) -> CommandError | LeaseError:
        if error.code != "LEASE":
            return error
        count = self._leave()
        self.connection.close()
        return LeaseError(
            f"this consumer was silent for longer than its lease ({self.settings.lease:g} s), so "
            f"recover() put its items back, including {count:,} already popped: they will be "
            "popped again, here or elsewhere; call ack() more often, or use a longer lease"
        )
