"""Find keys with SCAN on one server, or on all nodes of a cluster, also while nodes are lost."""

from __future__ import annotations

import random
import socket
import time
from collections import deque
from collections.abc import Generator, Iterator
from contextlib import ExitStack, suppress
from typing import Any, NamedTuple

from ..outcome.errors import CommandError, FastrespError, ProtocolError, TransportError
from ..outcome.excerpts import shown_reply
from ..resp.slots import SLOTS, keys_in, mask_of
from ..server.cluster import Topology, importing_of
from ..server.forks import Inherited, is_own
from ..server.settings import Server, topology_from
from ..transports.nodes import LOOK_S, MOST_ASKED, MOST_KNOWN, REOPEN_S
from ..transports.retries import MOST_S, ranges

__all__ = ["Scan"]

# COUNT of each SCAN: large enough to hide the round trip.
SCAN_COUNT = 1000
# How often the keys of some slots are looked for again from the first one.
MOST_RESTARTS = 16


class Part(NamedTuple):
    """The search on one server.

    Attributes:
        server: the server.
        slots: those of the node whose keys are wanted; None for all keys of a single server.
        wanted: for each slot whether its keys are taken; None to take all.
        pages: yields the keys.
        restarts: how often its slots were searched from the first key again.
    """

    server: Server
    slots: frozenset[int] | None
    wanted: bytes | None
    pages: Generator[list[bytes], None, None]
    restarts: int = 0


class Scan:
    """Finds the keys of a pattern on all servers that have some, over connections of its own.

    A cursor is valid on one server only. So if a node of a cluster is lost, the keys of its slots
    are looked for from the first one again, on the node that serves them then: they may come twice.

    Args:
        server: the server, or a node of a cluster.
        timeout: seconds to wait for each reply, and for a lost node's slots; None for no limit,
            and 30 for the slots.
        slots: take only keys of these slots; None for all. A single server has to list all keys.
    """

    def __init__(self, server: Server, timeout: float | None, slots: range | None = None) -> None:
        self._server = server
        self._timeout = timeout
        self._slots = slots
        self._connections: list[Any] = []
        self._known: list[tuple[str, int]] = []
        self._stopped = False

    def pages(self, glob: str, kind: str | None) -> Generator[list[bytes], None, None]:
        """Yield pages of keys of all servers in turn, so that all work at the same time.

        Args:
            glob: the pattern.
            kind: the type of the keys, by its name for TYPE; None for any.

        Raises:
            CommandError: a server refuses SCAN.
            TransportError, TransportTimeout: a connection was lost, or a server does not reply; in
                a cluster, no node serves its slots for longer than the timeout.
        """
        import redis

        opened, topology = self._server.open_primaries(self._timeout)
        parts: deque[Part] = deque()
        with ExitStack() as stack:
            stack.callback(self._close)
            self._connections = [connection for _, connection in opened]
            parts.extend(self._parts(opened, topology, glob, kind))
            self._know(topology)
            while parts:
                part = parts[0]
                try:
                    page = next(part.pages, None)
                except ProtocolError as error:
                    words = f"can't read from the server at {part.server}: {error.args[0]}"
                    raise TransportError(words) from error
                except FastrespError:
                    raise
                except (redis.RedisError, OSError) as error:
                    failed = part.server.failure(error)
                    if part.slots is None or self._stopped or part.restarts >= MOST_RESTARTS:
                        raise failed from error
                    parts.popleft()
                    parts.extend(self._again(part, failed, glob, kind))
                    continue
                if page is None:
                    parts.popleft()
                    continue
                yield page if part.wanted is None else keys_in(page, part.wanted)
                parts.rotate(-1)

    def _parts(
        self,
        opened: list[tuple[Server, Any]],
        topology: Topology | None,
        glob: str,
        kind: str | None,
    ) -> Iterator[Part]:
        """Yield the searches on all servers that may have keys of the wanted slots.

        Each takes the keys of all wanted slots: those of a slot that is being moved are on two
        nodes.

        Raises:
            TransportError: a node does not say which slots it is getting.
        """
        wanted = None if self._slots is None else mask_of(self._slots)
        for number, (server, connection) in enumerate(opened):
            slots = None
            if topology is not None:
                slots = frozenset(at for at, node in enumerate(topology.slots) if node == number)
                if self._slots is not None:
                    slots &= frozenset(self._slots)
                    if not slots and self._slots:
                        slots = importing(server, connection).intersection(self._slots)
            if self._slots is None or slots or (slots is None and self._slots):
                yield Part(server, slots, wanted, scan(connection, glob, kind))
            else:
                connection.disconnect()

    def _know(self, topology: Topology | None) -> None:
        if topology is not None:
            known = [*topology.nodes, *topology.replicas, *self._known]
            self._known = list(dict.fromkeys(known))[:MOST_KNOWN]

    def _again(self, part: Part, failed: TransportError, glob: str, kind: str | None) -> list[Part]:
        """Return the searches that replace one whose node was lost.

        Raises:
            TransportError: no node serves its slots for too long.
        """
        assert part.slots is not None
        timeout = self._timeout or MOST_S
        end = time.monotonic() + timeout
        words = ""
        while not self._stopped and time.monotonic() < end:
            try:
                return self._opened(part, glob, kind)
            except TransportError as error:
                words = str(error)
            time.sleep(LOOK_S)
        raise TransportError(
            f"{failed}; no node serves slots {ranges(sorted(part.slots))} after {timeout:g} s: "
            f"{words}"
        ) from failed

    def _opened(self, part: Part, glob: str, kind: str | None) -> list[Part]:
        """Open connections to the nodes that serve the slots of a search now."""
        assert part.slots is not None
        known = random.sample(self._known, min(len(self._known), MOST_ASKED))
        topology = topology_from(self._server.nodes_of(known, 1), REOPEN_S)
        self._know(topology)
        if any(topology.slots[slot] < 0 for slot in part.slots):
            raise TransportError("some of them have no node")
        parts = []
        for owner in {topology.slots[slot] for slot in part.slots}:
            [server] = self._server.nodes_of([topology.nodes[owner]], 1)
            connection = server.connect(min(self._timeout or REOPEN_S, REOPEN_S))
            connection._sock.settimeout(self._timeout)
            self._connections.append(connection)
            slots = frozenset(slot for slot in part.slots if topology.slots[slot] == owner)
            found = scan(connection, glob, kind)
            parts.append(Part(server, slots, mask_of(slots), found, part.restarts + 1))
        return parts

    def _close(self) -> None:
        for connection in self._connections:
            connection.disconnect()

    def disconnect(self) -> None:
        """Interrupt a SCAN that another thread waits for; it then ends with an error."""
        self._stopped = True
        for connection in filter(is_own, self._connections):
            with suppress(OSError, AttributeError):  # it may be closed
                connection._sock.shutdown(socket.SHUT_RDWR)


def importing(server: Server, connection: Any) -> frozenset[int]:
    """Return the slots that a node is getting from others; all if it may not be asked.

    Raises:
        TransportError: the connection was lost, or the node does not reply.
    """
    import redis

    try:
        connection.send_command("CLUSTER", "NODES")
        return frozenset(importing_of(connection.read_response()))
    except redis.ResponseError:  # no permission
        return frozenset(range(SLOTS))
    except (redis.RedisError, OSError) as error:
        raise server.failure(error) from error


def scan(connection: Any, glob: str, kind: str | None) -> Generator[list[bytes], None, None]:
    """Yield pages of keys found with SCAN; the next page is requested ahead.

    Args:
        connection: an unused redis-py connection; closed at the end.
        glob, kind: as for ``Scan.pages()``.

    Raises:
        CommandError: the server refuses SCAN.
        ProtocolError: it answers something else.
        redis.RedisError: the connection was lost, or the server does not reply.
        OSError: the same.
    """
    import redis

    how: tuple[Any, ...] = ("MATCH", glob, "COUNT", SCAN_COUNT)
    if kind is not None:
        how += ("TYPE", kind)
    try:
        connection.send_command("SCAN", 0, *how)
        cursor = None
        while cursor != b"0":
            if not is_own(connection):
                raise TransportError(str(Inherited("connection")))
            cursor, found = _page_of(connection.read_response())
            if cursor != b"0":
                connection.send_command("SCAN", cursor, *how)
            yield found
    except redis.ResponseError as error:
        raise CommandError(f"SCAN: {error}") from error
    finally:
        connection.disconnect()


def _page_of(reply: Any) -> tuple[bytes, list[bytes]]:
    """Return the cursor and the keys of a reply to SCAN.

    Raises:
        ProtocolError: the reply has another form.
    """
    match reply:
        case [bytes() as cursor, list() as keys] if all(type(key) is bytes for key in keys):
            return cursor, keys
    raise ProtocolError(f"unexpected reply to SCAN: {shown_reply(reply)}", 0)
