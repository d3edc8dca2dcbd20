"""Read the entries of a large key in parts, after its first entries were read."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from redis.crc import key_slot
from redis.exceptions import (
    AskError,
    ClusterDownError,
    MovedError,
    RedisError,
    ResponseError,
    TryAgainError,
)

from ..outcome.errors import CommandError, TransportError
from ..server.cluster_view import LOOK_S, Address, ClusterView, LostData, closed_if_failed
from ..server.reply_parser import unexpected
from ..server.settings import Server
from ..transports.ledger import MAX_S
from .unresolved import refusal_of

__all__ = ["FIRST_ENTRIES", "LargeKeyReader", "entries_of", "next_count"]

# The number of entries in the first request for a set, sorted set, list or stream.
FIRST_ENTRIES = 256
# Each further request is for about MORE_BYTES bytes, and at most MAX_ENTRIES entries.
MAX_ENTRIES = 10_000
MORE_BYTES = 1 << 20
# The maximum number of redirections of a request. Source: RedisClusterRequestTTL of redis-py.
MAX_REDIRECTS = 16
WRONGTYPE = "WRONGTYPE "
# Error codes, which redis-py removes.
CODES = {
    MovedError: "MOVED ",
    AskError: "ASK ",
    TryAgainError: "TRYAGAIN ",
    ClusterDownError: "CLUSTERDOWN ",
}


class LargeKeyReader:
    """Reads the remaining entries of large keys; in a cluster, from the owners of the keys.

    The reader has its own connection to each node. If a cluster node is lost, or refuses a request
    for a while, the request is resent to the key's current owner.

    Args:
        server: the server, or a node of a cluster.
        command: LRANGE, SSCAN, ZSCAN or XRANGE; None if only ``request()`` is used.
        timeout: seconds to wait for each reply, and for a new owner of a lost node's slots. None
            means no limit for replies, and 30 seconds for a new owner.
    """

    def __init__(self, server: Server, command: str | None, timeout: float | None) -> None:
        self._command = command
        self._timeout = timeout
        self._view = ClusterView(server)
        self._opened: dict[Address | None, tuple[Server, Any]] = {}

    def begin(self) -> None:
        """Find out whether the server belongs to a cluster, and find the cluster's nodes."""
        if not self._view.server.requirements.nodes:
            return
        opened = self._view.open_primaries(self._timeout)
        with closed_if_failed(connection for _, connection in opened):
            if self._view.topology is not None:
                self._view.processes.record(opened)
        for _, connection in opened:
            connection.disconnect()

    def parts(self, key: bytes, reply: Any) -> Iterator[list[Any]]:
        """Yield the entries of a key in parts; ``reply`` is the reply to the first request."""
        count = FIRST_ENTRIES
        if self._command is None:
            # The reply is None if the key was deleted after SCAN found it.
            yield [] if reply is None else [reply]
        elif self._command == "LRANGE":
            start = 0
            yield reply
            while len(reply) >= count:
                start, count = start + len(reply), next_count(len(reply), _size(reply))
                reply, _ = self._more(key, start, start + count - 1)
                yield reply
        elif self._command == "XRANGE":
            entries = entries_of(reply)
            yield entries
            while len(entries) >= count:
                size = sum(len(each[0]) + _size(each[1]) for each in entries)
                count = next_count(len(entries), size)
                reply, _ = self._more(key, b"(" + entries[-1][0], "+", "COUNT", count)
                entries = entries_of(reply)
                yield entries
        else:
            cursor, entries = reply
            yield from self._parts_of_set(key, cursor, entries)

    def _parts_of_set(
        self, key: bytes, cursor: bytes, entries: list[bytes]
    ) -> Iterator[list[bytes]]:
        """Yield all entries of a set or sorted set, in parts, after the first reply to SSCAN.

        If the key moves to a different node while it is read, or the node is lost, entries may be
        yielded twice: a cursor is valid on one node only, so the key is read again from the start.
        """
        at: bytes | None = cursor
        over: Any = None
        if self._view.topology is None or cursor == b"0":
            yield entries
        else:
            at = None  # the node that sent these entries is unknown
        while at != b"0":
            (after, more), now = self._more(
                key, at or b"0", "COUNT", next_count(len(entries), _size(entries))
            )
            if self._view.topology is not None and at is not None and now is not over:
                at = None
                continue
            at, over, entries = after, now, more
            yield entries

    def _more(self, key: bytes, *arguments: Any) -> tuple[Any, Any]:
        """Like ``request()``; if the key has changed its type, return a reply without entries."""
        try:
            return self.request(key, self._command, key, *arguments)
        except CommandError as error:
            if not error.text.startswith(WRONGTYPE):
                raise
            return ([] if self._command in ("LRANGE", "XRANGE") else (b"0", [])), None

    def request(self, key: bytes, *command: Any) -> tuple[Any, Any]:
        """Send a command to the node of a key; return the reply, and the connection.

        Raises:
            CommandError: the server refuses the command.
            TransportError: the server can't be reached.
        """
        timeout = self._timeout or MAX_S
        end = time.monotonic() + timeout
        while True:
            node = self._view.node_of(key_slot(key))
            try:
                return self._redirected(node, *command)
            except CommandError as error:
                if error.text.startswith(WRONGTYPE):
                    raise
                message = f"the last reply was: {error.text}"
                refusal = refusal_of(error.text)
                may_pass = refusal is not None and refusal.may_pass
                if self._view.topology is None or not may_pass:
                    raise CommandError(f"{command[0]}: {error.text}") from error
            except LostData:
                raise
            except (RedisError, OSError) as error:
                message = str(error)
                if self._view.topology is None:
                    raise
            if time.monotonic() > end:
                raise TransportError(
                    f"commands of slots {key_slot(key):,} were refused for {timeout:g} s; "
                    f"{message} (check the cluster with redis-cli --cluster check)"
                )
            time.sleep(LOOK_S)
            with suppress(TransportError):
                self._view.look()

    def _redirected(self, node: Address | None, *command: Any) -> tuple[Any, Any]:
        """Send a request to a node, and follow redirections."""
        asks = False
        for _ in range(MAX_REDIRECTS):
            reply, connection = self._send(node, *command, asks=asks)
            if not isinstance(reply, CommandError):
                return reply, connection
            to = self._connected(node)[0].redirect(reply.text)
            if to is None:
                raise reply
            node, asks = to.node, to.asking
            if not asks:
                self._view.move(to.slot, to.node)
        raise TransportError(
            f"a command was redirected {MAX_REDIRECTS} times, last to {node} (check the cluster "
            "with redis-cli --cluster check)"
        )

    def _send(self, node: Address | None, *command: Any, asks: bool) -> tuple[Any, Any]:
        """Send a command to a node; return the reply, which may be an error, and the connection."""
        server, connection = self._connected(node)
        try:
            if asks:
                connection.send_command("ASKING")
                connection.read_response()
            connection.send_command(*command)
            return connection.read_response(), connection
        except ResponseError as error:
            return CommandError(f"{CODES.get(type(error), '')}{error}"), connection
        except (RedisError, OSError) as error:
            connection.disconnect()
            del self._opened[node]
            raise server.failure(error) from error

    def _connected(self, node: Address | None) -> tuple[Server, Any]:
        """Return the Server of a node, and a connection to the node."""
        if node not in self._opened:
            self._opened[node] = self._view.connect(node, self._timeout, "entries of a key")
        return self._opened[node]

    def close(self) -> None:
        for _, connection in self._opened.values():
            connection.disconnect()


def entries_of(reply: Any) -> list[tuple[bytes, list[bytes]]]:
    """Return the entries in a reply to XRANGE, after a check of their form."""
    try:
        for id_, fields in reply:
            if {type(id_), *map(type, fields)} != {bytes} or len(fields) % 2:
                raise TypeError
    except (TypeError, ValueError):
        raise TransportError(unexpected("XRANGE", reply).args[0]) from None
    entries: list[tuple[bytes, list[bytes]]] = reply
    return entries


def _size(texts: list[bytes]) -> int:
    return sum(map(len, texts))


def next_count(count: int, size: int) -> int:
    """Return the number of entries to request next, after ``count`` entries of ``size`` bytes."""
    average = size / max(count, 1)
    return max(1, min(MAX_ENTRIES, int(MORE_BYTES / max(average, 1))))
