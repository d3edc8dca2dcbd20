"""Read when keys expire, before their values are read."""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Iterable
from contextlib import closing

from ..encode.columns.arrow_out import TimeColumn, time_column
from ..outcome.errors import CommandError, TransportError
from ..server.reply_parser import unexpected
from ..server.settings import Server
from .iter_replies import iter_replies
from .key_pattern import replies_by_key

__all__ = ["Expiries", "expiry_command"]

PEXPIRETIME = "PEXPIRETIME {0}"
# For servers without PEXPIRETIME (Redis 6.2): TTL and clock of the node that has the key.
BY_CLOCK = (
    "EVAL \"local left, now = redis.call('PTTL', KEYS[1]), redis.call('TIME') "
    'return left < 0 and left or left + now[1] * 1000 + math.floor(now[2] / 1000)" 1 {0}'
)


def expiry_command(server: Server, timeout: float | None) -> str:
    """Return the template of the command that reads when a key expires, in ms since 1970."""
    [reply] = iter_replies(
        [("PEXPIRETIME", "")], server=server.any_node(), on_error="collect", timeout=timeout
    )
    lacking = isinstance(reply, CommandError) and "unknown command" in reply.text.lower()
    return BY_CLOCK if lacking else PEXPIRETIME


class Expiries:
    """Reads when keys expire, and keeps the times until the keys' values arrive.

    A time is read before the value. So a key that expires in between has no value; the other way
    around, it would have a value and no time, as if it never expired.

    Args:
        server, timeout: as for ``unload()``.
    """

    def __init__(self, server: Server, timeout: float | None) -> None:
        self._server = server
        self._timeout = timeout
        self._times: deque[int | None] = deque()

    def keys(self, keys: Iterable[bytes]) -> Generator[bytes, None, None]:
        """Yield the keys; before each key, read when it expires."""
        command = expiry_command(self._server, self._timeout)
        with closing(replies_by_key(keys, command, self._server, self._timeout)) as replies:
            for key, reply in replies:
                if isinstance(reply, CommandError):
                    raise reply
                if type(reply) is not int:
                    error = unexpected(command.partition(" ")[0], reply)
                    raise TransportError(f"can't read from the server at {self._server}: {error}")
                # -1: the key does not expire. -2: it is gone.
                self._times.append(reply if reply >= 0 else None)
                yield key

    def take(self) -> int | None:
        """Remove and return the time of the next key, in ms since 1970; None if there is none."""
        return self._times.popleft()

    def column(self, rows: int) -> TimeColumn:
        """Remove and return the times of the next keys as a column."""
        return time_column([self.take() for _ in range(rows)])
