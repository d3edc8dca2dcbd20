"""Read the entries of a large key in parts, after its first entries were read."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from contextlib import suppress
from typing import Any, TypeAlias

from ..outcome.errors import CommandError, TransportError
from ..server.cluster import Topology
from ..server.processes import LostData, Processes, closed_if_failed
from ..server.settings import Server, topology_from
from ..transports.nodes import LOOK_S, MAX_ASKED, MAX_KNOWN, REOPEN_S
from ..transports.retries import MAX_S
from .postponed import SOON

__all__ = ["Rest"]

# Each further request is for about MORE_BYTES bytes, and at most MAX_ENTRIES entries.
MAX_ENTRIES = 10_000
MORE_BYTES = 1 << 20
# The maximum number of redirections of a request. Source: RedisClusterRequestTTL of redis-py.
MAX_REDIRECTS = 16

# The host and port of a cluster node; None for the server that the user named.
Node: TypeAlias = tuple[str, int] | None


class Rest:
    """Reads the remaining entries of large keys; in a cluster, from the owners of the keys.

    A Rest has its own connection to each node. If a cluster node is lost, or refuses a request for
    a while, the request is resent to the key's current owner.

    Args:
        server: the server, or a node of a cluster.
        command: LRANGE, SSCAN or ZSCAN; None if all keys have a single value.
        timeout: seconds to wait for each reply, and for a new owner of a lost node's slots. None
            for no limit for replies, and 30 seconds for a new owner.
    """

    def __init__(self, server: Server, command: str | None, timeout: float | None) -> None:
        self._server = server
        self._command = command
        self._timeout = timeout
        self._opened: dict[Node, tuple[Server, Any]] = {}
        # The node of each slot, as far as known; None for a single server.
        self._slots: dict[int, Node] | None = None
        self._processes = Processes()
        # Nodes that can be queried for the cluster's nodes.
        self._known: list[tuple[str, int]] = []

    def begin(self) -> None:
        """Find out whether the server belongs to a cluster, and find the cluster's nodes.

        Raises:
            TransportError: the server can't be used.
        """
        if not self._server.nodes:
            return
        opened, topology = self._server.open_primaries(self._timeout)
        with closed_if_failed(connection for _, connection in opened):
            if topology is not None:
                self._processes.begin(opened)
                self._use(topology)
        for _, connection in opened:
            connection.disconnect()

    def _use(self, topology: Topology) -> None:
        known = [*topology.nodes, *topology.replicas, *self._known]
        self._known = list(dict.fromkeys(known))[:MAX_KNOWN]
        self._processes.keep(topology.nodes)
        nodes: list[Node] = [*topology.nodes, None]
        self._slots = {slot: nodes[node] for slot, node in enumerate(topology.slots)}

    def of_set(self, key: bytes, cursor: bytes, entries: list[bytes]) -> Iterator[list[bytes]]:
        """Yield all entries of a set or sorted set, in parts.

        If the key moves to a different node while it is read, or the node is lost, entries may be
        yielded twice: a cursor is valid on one node only, so the key is read again from the start.

        Args:
            key: the key of the set.
            cursor, entries: the first reply to SSCAN or ZSCAN.
        """
        at: bytes | None = cursor
        over: Any = None
        if self._slots is None:
            yield entries
        else:
            at = None  # the node that sent these entries is unknown
        while at != b"0":
            (after, more), now = self._asked(key, at or b"0", "COUNT", _next_count(entries))
            if self._slots is not None and at is not None and now is not over:
                at = None
                continue
            at, over, entries = after, now, more
            yield entries

    def of_list(self, key: bytes, items: list[bytes]) -> Iterator[list[bytes]]:
        """Yield, in parts, the items of a list that follow ``items``, the first part."""
        start, count = 0, 0
        while items and len(items) >= count:
            start, count = start + len(items), _next_count(items)
            items, _ = self._asked(key, start, start + count - 1)
            yield items

    def _asked(self, key: bytes, *arguments: Any) -> tuple[Any, Any]:
        """Send a request to the node of a key; return the reply, and the connection to this node.

        Raises:
            CommandError: the server refuses the request.
            TransportError: the server can't be used; in a cluster, no node ran the request in time.
        """
        from redis import RedisError
        from redis.crc import key_slot

        timeout = self._timeout or MAX_S
        end = time.monotonic() + timeout
        while True:
            node = (self._slots or {}).get(key_slot(key))
            try:
                return self._followed(node, key, *arguments)
            except CommandError as error:
                words = f"the last reply was: {error.text}"
                if self._slots is None or not error.text.startswith(SOON):
                    raise CommandError(f"{self._command}: {error.text}") from error
            except LostData:
                raise
            except (RedisError, OSError) as error:
                words = str(error)
                if self._slots is None:
                    raise
            if time.monotonic() > end:
                raise TransportError(
                    f"commands of slots {key_slot(key):,} were refused for {timeout:g} s; {words} "
                    "(check the cluster with redis-cli --cluster check)"
                )
            time.sleep(LOOK_S)
            with suppress(TransportError):
                known = random.sample(self._known, min(len(self._known), MAX_ASKED))
                self._use(topology_from(self._server.nodes_of(known, 1), REOPEN_S))

    def _followed(self, node: Node, key: bytes, *arguments: Any) -> tuple[Any, Any]:
        """Send a request to a node, and follow redirections."""
        asks = False
        for _ in range(MAX_REDIRECTS):
            reply, connection = self._request(node, key, *arguments, asks=asks)
            if not isinstance(reply, CommandError):
                return reply, connection
            to = self._connected(node)[0].redirect(reply.text)
            if to is None:
                raise reply
            node, asks = to.node, to.asks
            if not asks and self._slots is not None:
                self._slots[to.slot] = node
        raise TransportError(
            f"a command was redirected {MAX_REDIRECTS} times, last to {node} (check the cluster "
            "with redis-cli --cluster check)"
        )

    def _request(self, node: Node, key: bytes, *arguments: Any, asks: bool) -> tuple[Any, Any]:
        """Send a request to a node; return the reply, which may be an error, and the connection.

        If the key has changed its type, the reply has no entries.
        """
        from redis import RedisError, ResponseError
        from redis.exceptions import AskError, ClusterDownError, MovedError, TryAgainError

        names = {MovedError: "MOVED ", AskError: "ASK ", TryAgainError: "TRYAGAIN "}
        names[ClusterDownError] = "CLUSTERDOWN "  # redis-py removes the error code
        server, connection = self._connected(node)
        try:
            if asks:
                connection.send_command("ASKING")
                connection.read_response()
            connection.send_command(self._command, key, *arguments)
            return connection.read_response(), connection
        except ResponseError as error:
            if str(error).startswith("WRONGTYPE "):
                return ((b"0", []) if self._command != "LRANGE" else []), connection
            return CommandError(f"{names.get(type(error), '')}{error}"), connection
        except (RedisError, OSError) as error:
            connection.disconnect()
            del self._opened[node]
            raise server.failure(error) from error

    def _connected(self, node: Node) -> tuple[Server, Any]:
        """Return the Server of a node, and a connection to the node."""
        if node not in self._opened:
            server = self._server if node is None else self._server.nodes_of([node], 1)[0]
            connection = server.connect(self._timeout)
            self._opened[node] = server, connection
            if restarted := self._processes.check(server, connection):
                raise LostData(f"{restarted}: entries of a key may be missing")
        return self._opened[node]

    def close(self) -> None:
        """Close the connections."""
        for _, connection in self._opened.values():
            connection.disconnect()


def _next_count(entries: list[bytes]) -> int:
    """Return the number of entries to request next, from the average size of ``entries``."""
    size = sum(map(len, entries)) / max(len(entries), 1)
    return max(1, min(MAX_ENTRIES, int(MORE_BYTES / max(size, 1))))
