"""At-least-once delivery: popped items stay in the server until they are acknowledged."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from ..outcome.errors import CommandError, LeaseError
from ..outcome.report import counted
from ..transports.driver import Steps
from .connection import Command, ListConnection
from .consumer import Consumer
from .held import Held
from .popping import Popping
from .settings import Settings

__all__ = ["AtLeastOnce"]


class AtLeastOnce(Popping):
    """Pops items by moving them to this consumer's own list until acknowledged; see Popping."""

    safe = True

    def __init__(self, connection: ListConnection, settings: Settings, held: Held) -> None:
        super().__init__(connection, settings, held)
        self._consumer = Consumer(settings, held)

    @property
    def name(self) -> str:
        return self._consumer.name

    @property
    def acknowledged(self) -> int:
        return self._consumer.acknowledged

    def let_go(self) -> None:
        super().let_go()
        self._consumer = Consumer(self.settings, self.held)

    def beginning(self) -> Steps[None]:
        self.check_records()
        if self.name:
            yield from self._rejoining()
        if not self.name:
            name = self._consumer.new_name()
            *_, done = yield from self.calling(*self._consumer.joining(name))
            self.connection.expect(list, "EXEC", done)
            for reply in done:
                if isinstance(reply, CommandError):
                    raise reply
            self._consumer.joined(name)

    def _rejoining(self) -> Steps[None]:
        """Over a new connection, put back all items that were not returned to the caller.

        Raises:
            LeaseError: the ``recover()`` of another consumer has put the items back.
        """
        if not self.held.given:
            yield from self._putting_back()
            return
        [reply] = yield from self.calling(self._consumer.rejoin(), errors=True)
        self._check_lease(reply)
        if not self._consumer.can_have(reply):
            self.connection.misunderstood("a script for unacknowledged items", reply)
        self._consumer.rejoined(reply)
        yield from self._acknowledging(0)

    def _putting_back(self) -> Steps[None]:
        """Put back all items of this consumer, and remove the consumer from the server."""
        yield from self.calling(self._consumer.put_back())
        self.held.forget()
        self._consumer.leave()

    def _request(self, n: int) -> Sequence[Command]:
        return [self._consumer.take(n)]

    @property
    def _longest_wait(self) -> float:
        # Less than the lease, which is renewed after each wait.
        return self.settings.lease / 3

    def _waiting(self, seconds: float) -> Steps[bool]:
        # BLMOVE from one end to the same end changes nothing, but waits for an item. Then the
        # script pops the item, unless the lease has expired during the wait.
        side = "LEFT" if self._fifo else "RIGHT"
        name = self.settings.name
        [reply] = yield from self.calling(("BLMOVE", name, name, side, side, seconds))
        if reply is None:
            yield from self._acknowledging(0)
            return False
        return (yield from self.holding(1))  # False if another consumer was faster

    def acknowledging(self, n: int | None) -> Callable[[], Steps[int]]:
        def steps() -> Steps[int]:
            given = self.held.given
            count = given if n is None else n
            if not 0 <= count <= given:
                raise ValueError(
                    f"can't acknowledge {counted(count, 'item')}; unacknowledged: {given:,}"
                )
            yield from self.settling()
            yield from self._acknowledging(count)
            return self.held.given

        return steps

    def _acknowledging(self, count: int) -> Steps[None]:
        [reply] = yield from self.calling(self._consumer.acknowledge(count), errors=True)
        self._check_lease(reply)
        self._consumer.acknowledging_returned(count)

    def ending(self) -> Steps[None]:
        with suppress(CommandError):  # held items are still put back
            yield from self.settling()
        if self.name:
            yield from self._putting_back()

    def clearing(self) -> Steps[None]:
        *_, replies = yield from self.calling(*self._consumer.clear())
        expect = self.connection.expect
        expect(list, "EXEC", replies)
        expect(int | CommandError, "EXEC", replies[0] if len(replies) == 2 else replies)
        self._consumer.cleared()
        with suppress(LeaseError):  # another consumer put our items back; DEL has removed them
            self._check_lease(replies[0])
        self.held.forget()

    def _check_lease(self, reply: Any) -> None:
        """Raise the exception for an error reply: a LeaseError if the lease has expired."""
        if isinstance(reply, CommandError):
            raise self._refused(reply)
        self.connection.expect(int, "a script for unacknowledged items", reply)

    def _refused(self, error: CommandError) -> CommandError | LeaseError:
        if error.code != "LEASE":
            return error
        count = self._consumer.leave()
        self.held.forget()
        self.connection.close()
        return LeaseError(
            f"this consumer was silent for longer than its lease ({self.settings.lease:g} s), so "
            f"recover() put its items back, including {count:,} already popped: they will be "
            "popped again, here or elsewhere; call ack() more often, or use a longer lease"
        )
