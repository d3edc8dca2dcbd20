"""Popping at most once: an item that is popped is gone from the server."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from contextlib import suppress

from ..outcome.errors import CommandError
from ..transports.driver import Steps
from .connection import Command
from .popping import Popping
from .settings import BATCH_BYTES
from .variadic import gather

__all__ = ["AtMostOnce"]


class AtMostOnce(Popping):
    """Items that are gone from the server once they are popped; see Popping."""

    def beginning(self) -> Steps[None]:
        [reply] = yield from self.calling((self._pop, self.settings.name, 0), errors=True)
        # Before 6.2 it took no count.
        wrong = isinstance(reply, CommandError)
        self._counted = not (wrong and "wrong number of arguments" in reply.text)

    def acknowledging(self, n: int | None) -> Steps[int]:
        raise ValueError("ack() is for delivery='at-least-once': nothing else waits for it")

    def _request(self, n: int) -> Sequence[Command]:
        key = self.settings.name
        if self._counted:
            return [(self._pop, key, n)]
        first, keep = ((0, n - 1), (n, -1)) if self._fifo else ((-n, -1), (0, -n - 1))
        return [("MULTI",), ("LRANGE", key, *first), ("LTRIM", key, *keep), ("EXEC",)]

    def _waiting(self, seconds: float) -> Steps[bool]:
        # Before 6.0 only whole seconds.
        seconds = seconds if self._counted else math.ceil(seconds)
        [reply] = yield from self.calling(("B" + self._pop, self.settings.name, seconds))
        if reply is None:
            return False
        expect = self.connection.expect
        expect(list, "a pop that waits", reply)
        expect(bytes, "a pop that waits", reply[1] if len(reply) == 2 else reply)
        self.held.add([reply[1]])
        return True

    def ending(self) -> Steps[None]:
        with suppress(CommandError):  # what is held goes back all the same
            yield from self.settling()
        self.held.take_apart()
        yield from self._returning(self.held.singly)

    def _returning(self, held: deque[bytes]) -> Steps[None]:
        """Push what is held at the end where it came from.

        At most once: what may have arrived when the connection is lost is not pushed again.
        """
        command = "LPUSH" if self._fifo else "RPUSH"
        while held:
            # The last ones first, and few that are large.
            back: list[bytes] = []
            gather(reversed(held), back, self.settings.batch, BATCH_BYTES, math.inf)
            for _ in back:
                held.pop()
            window = self.connection.core.window
            try:
                [length] = yield from self.calling((command, self.settings.name, *back))
                self.connection.expect(int, command, length)
            except BaseException as error:
                if isinstance(error, CommandError) or window.unsent:
                    held.extend(reversed(back))
                else:
                    self.doubtful += len(back)
                raise

    def clearing(self) -> Steps[None]:
        [count] = yield from self.calling(("DEL", self.settings.name))
        self.connection.expect(int, "DEL", count)
        self.held.given = 0
        self.held.forget()
