"""The entries of a large key after the first ones, read in parts."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeAlias

from ..outcome.errors import CommandError, TransportError
from ..server.settings import Server

__all__ = ["Rest"]

# Further requests ask for about MORE_BYTES, at most MOST_ENTRIES.
MOST_ENTRIES = 10_000
MORE_BYTES = 1 << 20
# How often a request may be redirected. Source: RedisClusterRequestTTL of redis-py.
MOST_REDIRECTS = 16

# The host and port of a node of a cluster; None for the server that was given.
Node: TypeAlias = tuple[str, int] | None


class Rest:
    """Read the further entries of large keys, in a cluster from the nodes of the keys.

    It has a connection of its own to each node.

    Args:
        server: the server, or a node of a cluster.
        command: LRANGE, SSCAN or ZSCAN.
        timeout: seconds to wait for each reply; None for no limit.
    """

    def __init__(self, server: Server, command: str | None, timeout: float | None) -> None:
        self._server = server
        self._command = command
        self._timeout = timeout
        self._opened: dict[Node, tuple[Server, Any]] = {}
        # The nodes of slots, as far as they are known. None: this is no cluster.
        self._slots: dict[int, Node] | None = None

    def of_set(self, key: bytes, cursor: bytes, entries: list[bytes]) -> Iterator[list[bytes]]:
        """Yield the entries of a set or sorted set.

        If the key moves to another node meanwhile, entries may come twice: a cursor is valid on
        one node only, so they are read from the beginning again.

        Args:
            key: its key.
            cursor, entries: the first reply of SSCAN or ZSCAN.
        """
        at: bytes | None = cursor
        node: Node = None
        self._connected(node)
        if self._slots is None:
            yield entries
        else:
            at = None  # it is unknown which node has sent these
        while at != b"0":
            (after, more), now = self._asked(key, at or b"0", "COUNT", _next_count(entries))
            if at is not None and now != node:
                at = None
                continue
            at, node, entries = after, now, more
            yield entries

    def of_list(self, key: bytes, items: list[bytes]) -> Iterator[list[bytes]]:
        """Yield the items of a list after the first ones."""
        start, count = 0, 0
        while items and len(items) >= count:
            start, count = start + len(items), _next_count(items)
            items, _ = self._asked(key, start, start + count - 1)
            yield items

    def _asked(self, key: bytes, *arguments: Any) -> tuple[Any, Node]:
        """Send a request to the node of a key; return the reply and the node."""
        from redis import RedisError, ResponseError
        from redis.crc import key_slot
        from redis.exceptions import AskError, MovedError

        node, asks = (self._slots or {}).get(key_slot(key)), False
        for _ in range(MOST_REDIRECTS):
            server, connection = self._connected(node)
            try:
                if asks:
                    connection.send_command("ASKING")
                    connection.read_response()
                connection.send_command(self._command, key, *arguments)
                return connection.read_response(), node
            except AskError as error:  # or MOVED
                kind = "MOVED" if isinstance(error, MovedError) else "ASK"
                to = server.redirect(f"{kind} {error}")
                if to is None:
                    raise CommandError(f"{kind} {error}") from error
                node, asks = to.node, to.asks
                if not asks and self._slots is not None:
                    self._slots[to.slot] = node
            except ResponseError as error:
                if str(error).startswith("WRONGTYPE "):
                    return ((b"0", []) if self._command != "LRANGE" else []), node
                raise CommandError(f"{self._command}: {error}") from error
            except (RedisError, OSError) as error:
                raise server.failure(error) from error
        raise TransportError(
            f"a command was redirected {MOST_REDIRECTS} times, last to {node} (check the cluster "
            "with redis-cli --cluster check)"
        )

    def _connected(self, node: Node) -> tuple[Server, Any]:
        """Return a node, and a connection to it."""
        if node not in self._opened:
            server = self._server if node is None else self._server.nodes_of([node], 1)[0]
            connection = server.connect(self._timeout)
            self._opened[node] = server, connection
            if node is None and server.nodes:
                self._slots = {} if server.is_clustered(connection) else None
        return self._opened[node]

    def close(self) -> None:
        """Close the connections."""
        for _, connection in self._opened.values():
            connection.disconnect()


def _next_count(entries: list[bytes]) -> int:
    """Return how many entries to ask for next, from the average size of the last ones."""
    size = sum(map(len, entries)) / max(len(entries), 1)
    return max(1, min(MOST_ENTRIES, int(MORE_BYTES / max(size, 1))))
