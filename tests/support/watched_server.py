"""A misbehaving server that knows with which commands fastresp begins a connection."""

from __future__ import annotations

import re
from pathlib import Path

from fastresp.server.local_server import LocalServer
from fastresp.testing import Connection, Misbehaving

__all__ = ["BY_NAME", "ENDLESS", "WatchedServer"]

# Commands that fastresp and redis-py send first, with exactly these arguments.
GREETING = re.compile(
    rb"PING|ECHO .*|INFO|CONFIG GET proto-max-bulk-len|CLIENT SETINFO .*|SELECT .*|HELLO .*", re.S
)
# The commands after MULTI in the check before a load: the callers' templates with 1 for each value.
REHEARSAL = re.compile(rb"SET k:1 1|MGET fastresp|EVALSHA \w{40} 1 k:1 1|DISCARD")
BY_NAME = {each.name: each for each in Misbehaving.all()}
ENDLESS = [name for name in BY_NAME if name.startswith("endless ")]
MORE = ("one reply more", "replies twice", "many replies before")
# More bytes than any limit of fastresp.
FLOOD_BYTES = 1 << 40


class WatchedServer(Misbehaving):
    """A misbehaving server on a unix socket.

    Args:
        name: the misbehaviour.
        late: be honest until the client has sent the commands with which each connection begins.

    Attributes:
        seen: number of commands after those first commands.
        generous: whether there may be more replies than commands.
    """

    def __init__(self, name: str, server: LocalServer, path: Path, *, late: bool = False) -> None:
        self.seen = 0
        self.generous = name in ENDLESS or name in MORE
        self._late = late
        # The previous command of each connection, and whether the check before a load is running.
        self._before: dict[Connection, tuple[bytes, bool]] = {}
        at_once = BY_NAME[name].at_once and not late
        super().__init__(
            name, server.url, listen=path, honest=() if at_once else self._is_honest,
            flood_bytes=FLOOD_BYTES,
        )  # fmt: skip

    def _is_honest(self, connection: Connection, command: list[bytes]) -> bool:
        words, (before, rehearsing) = b" ".join(command), self._before.get(connection, (b"", False))
        if words == b"MULTI":
            rehearsing = before == b"CONFIG GET proto-max-bulk-len"
        elif before == b"DISCARD" or not REHEARSAL.fullmatch(words):
            rehearsing = False
        self._before[connection] = words, rehearsing
        greeting = rehearsing or GREETING.fullmatch(words) is not None
        self.seen += not greeting
        return greeting and self._late
