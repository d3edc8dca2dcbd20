"""Popping at least once: an item that is popped stays in the server until it is acknowledged."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from ..outcome.errors import CommandError, LeaseError
from ..transports.driver import Steps
from .connection import Command, ListConnection
from .consumer import Consumer
from .held import Held
from .popping import Popping
from .settings import Settings

__all__ = ["AtLeastOnce"]


class AtLeastOnce(Popping):
    """Items that stay in a list of this consumer's until they are acknowledged; see Popping."""

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
        """After a lost connection: put back what the user does not have, and keep the rest.

        Raises:
            LeaseError: recover() put back what the user has.
        """
        if not self.held.given:
            yield from self._putting_back()
            return
        [reply] = yield from self.calling(self._consumer.rejoin(), errors=True)
        self._check_lease(reply)
        if not self._consumer.can_have(reply):
            self.connection.misunderstood("a script for items in work", reply)
        self._consumer.rejoined(reply)
        yield from self._acknowledging(0)

    def _putting_back(self) -> Steps[None]:
        """Put back what this consumer holds in the server, and be it no longer."""
        yield from self.calling(self._consumer.put_back())
        self.held.forget()
        self._consumer.leave()

    def _request(self, n: int) -> Sequence[Command]:
        return [self._consumer.take(n)]

    @property
    def _longest_wait(self) -> float:
        # In parts: a consumer that waits is alive, and says so.
        return self.settings.lease / 3

    def _waiting(self, seconds: float) -> Steps[bool]:
        # From one end to the same end: nothing moves, but it waits. To take the item is left to the
        # script, which sees whether we were taken for dead meanwhile.
        side = "LEFT" if self._fifo else "RIGHT"
        name = self.settings.name
        [reply] = yield from self.calling(("BLMOVE", name, name, side, side, seconds))
        if reply is None:
            yield from self._acknowledging(0)
            return False
        return (yield from self.holding(1))  # unless another consumer was first

    def acknowledging(self, n: int | None) -> Steps[int]:
        given = self.held.given
        count = given if n is None else n
        if not 0 <= count <= given:
            raise ValueError(f"{count:,} items can't be acknowledged: {given:,} were given")
        yield from self.settling()
        yield from self._acknowledging(count)
        return self.held.given

    def _acknowledging(self, count: int) -> Steps[None]:
        [reply] = yield from self.calling(self._consumer.acknowledge(count), errors=True)
        self._check_lease(reply)
        self._consumer.acknowledging_returned(count)

    def ending(self) -> Steps[None]:
        with suppress(CommandError):  # what is held goes back all the same
            yield from self.settling()
        if self.name:
            yield from self._putting_back()

    def clearing(self) -> Steps[None]:
        *_, replies = yield from self.calling(*self._consumer.clear())
        expect = self.connection.expect
        expect(list, "EXEC", replies)
        expect(int | CommandError, "EXEC", replies[1] if len(replies) == 2 else replies)
        self._consumer.cleared()
        with suppress(LeaseError):  # what it had was back in the list, and is gone, too
            self._check_lease(replies[1])
        self.held.forget()

    def _check_lease(self, reply: Any) -> None:
        """Raise an error reply, as a LeaseError where it is that."""
        if isinstance(reply, CommandError):
            raise self._refused(reply)
        self.connection.expect(int, "a script for items in work", reply)

    def _refused(self, error: CommandError) -> CommandError | LeaseError:
        if error.code != "LEASE":
            return error
        count = self._consumer.leave()
        self.held.forget()
        self.connection.close()
        return LeaseError(
            f"this consumer was silent for more than lease={self.settings.lease:g} s, and "
            f"recover() put back what it held, {count:,} items that it had among them: they come "
            "again, here or elsewhere; call ack() more often, or make the lease longer"
        )
