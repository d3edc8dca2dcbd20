"""At-most-once delivery: popping an item removes it from the server."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress

from ..outcome.errors import CommandError
from ..transports.driver import Steps
from .connection import Command
from .popping import Popping
from .settings import BATCH_BYTES
from .variadic import gather

__all__ = ["AtMostOnce"]


class AtMostOnce(Popping):
    """Pops items with LPOP or RPOP, which remove them from the server; see Popping."""

    def beginning(self) -> Steps[None]:
        [reply] = yield from self.calling((self._pop, self.settings.name, 0), errors=True)
        # Servers before 6.2 refuse the count.
        wrong = isinstance(reply, CommandError)
        self._counted = not (wrong and "wrong number of arguments" in reply.text)

    def acknowledging(self, n: int | None) -> Callable[[], Steps[int]]:
        raise ValueError("ack() needs delivery='at-least-once'; at-most-once has nothing to ack")

    def _request(self, n: int) -> Sequence[Command]:
        key = self.settings.name
        if self._counted:
            return [(self._pop, key, n)]
        first, keep = ((0, n - 1), (n, -1)) if self._fifo else ((-n, -1), (0, -n - 1))
        return [("MULTI",), ("LRANGE", key, *first), ("LTRIM", key, *keep), ("EXEC",)]

    def _waiting(self, seconds: float) -> Steps[bool]:
        # Servers before 6.0 accept only whole seconds.
        seconds = seconds if self._counted else math.ceil(seconds)
        [reply] = yield from self.calling(("B" + self._pop, self.settings.name, seconds))
        if reply is None:
            return False
        expect = self.connection.expect
        expect(list, "a blocking pop", reply)
        expect(bytes, "a blocking pop", reply[1] if len(reply) == 2 else reply)
        self.held.add([reply[1]])
        return True

    def ending(self) -> Steps[None]:
        with suppress(CommandError):  # held items are still put back
            yield from self.settling()
        self.held.take_apart()
        yield from self._returning(self.held.singly)

    def _returning(self, held: deque[bytes]) -> Steps[None]:
        """Push held items back at the end where they were popped.

        If the connection is lost, items in doubt are not pushed a second time.
        """
        command = "LPUSH" if self._fifo else "RPUSH"
        while held:
            # Push the last items first, and fewer at a time if they are large.
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
