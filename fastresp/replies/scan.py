"""Find keys with SCAN on one server, or on all nodes of a cluster, even if nodes are lost."""

from __future__ import annotations

import socket
import time
from collections import deque
from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack, suppress
from functools import partial
from itertools import chain
from typing import Any, NamedTuple

import redis

from ..outcome.errors import CommandError, FastrespError, ProtocolError, TransportError
from ..resp.slots import SLOTS, keys_in, mask_of
from ..server.cluster import NodeSlots, Topology, node_slots_of
from ..server.cluster_view import LOOK_S, RECONNECT_TIMEOUT_S, Address, ClusterView, LostData
from ..server.forks import Inherited, is_own
from ..server.preflight import call
from ..server.reply_parser import parse_info, unexpected
from ..server.settings import Server
from ..transports.ledger import MAX_S, ranges

__all__ = ["Scan", "ScanPart"]

# The COUNT of each SCAN: large enough to hide the round trip.
SCAN_COUNT = 1000
# The maximum number of times that the same slots are scanned again from the start.
MAX_RESTARTS = 16


class ScanPart(NamedTuple):
    """The rest of the scan of a server, from which the scan can be resumed.

    Attributes:
        run_id: the ID of the server's process, for which the cursor is valid; empty if unknown.
        slots: the slots to scan on a cluster node; None if the server is not a cluster.
        cursor: where the scan continues.
    """

    run_id: str
    slots: frozenset[int] | None
    cursor: bytes


class NodeScan(NamedTuple):
    """The scan of one server.

    Attributes:
        slots: the slots to scan on a cluster node; None if the server is not a cluster.
        wanted: for each slot, whether to return its keys; None to return all keys.
        pages: yields pages of keys, each with the cursor of the next page.
        run_id: the ID of the server's process; empty if the scan is not tracked.
        cursor: the cursor after the last page.
        restarts: the number of times that the slots were scanned again from the start.
    """

    server: Server
    connection: Any
    slots: frozenset[int] | None
    wanted: bytes | None
    pages: Generator[tuple[bytes, list[bytes]], None, None]
    run_id: str = ""
    cursor: bytes = b"0"
    restarts: int = 0


class Scan:
    """Finds the keys that match a pattern, on one server or on all nodes of a cluster.

    A cursor is valid on one server only. So if a cluster node is lost, its slots are scanned again
    from the start, on their new owner, and keys may be returned twice. The same applies to slots
    that have moved, or are moving, when the scan of their node ends: some keys may have left the
    node before the scan reached them.

    Args:
        timeout: seconds to wait for each reply, and for a new owner of a lost node's slots. None
            means no limit for replies, and 30 seconds for a new owner.
        kind: the type of the keys, as TYPE names it; None for any type.
        slots: return only keys of these slots; None for all slots.
        tracked: whether ``left()`` will be called.
        resumed: the parts that an earlier scan left; None to scan everything.
    """

    def __init__(
        self,
        server: Server,
        timeout: float | None,
        glob: str,
        kind: str | None = None,
        slots: range | None = None,
        *,
        tracked: bool = False,
        resumed: list[ScanPart] | None = None,
    ) -> None:
        self._timeout = timeout
        self._scan = partial(scan, glob=glob, kind=kind)
        self._slots = slots
        self._connections: list[Any] = []
        self._view = ClusterView(server)
        # Nodes that are importing slots, even if they serve no slots yet.
        self._importing: dict[tuple[str, int], None] = {}
        self._stopped = False
        self._tracked = tracked
        self._resumed = resumed
        self._scans: deque[NodeScan] = deque()

    def left(self) -> list[ScanPart]:
        """Return the parts that are left to scan after the last page."""
        return [ScanPart(each.run_id, each.slots, each.cursor) for each in self._scans]

    def pages(self) -> Generator[list[bytes], None, None]:
        """Yield pages of keys from all servers in turn, so that the servers work concurrently.

        Raises:
            CommandError: a server refuses SCAN.
            TransportError, TransportTimeout: a connection was lost, or a server does not reply. In
                a cluster: some slots were not served for longer than the timeout.
        """
        opened = self._view.open_primaries(self._timeout)
        topology = self._view.topology
        scans = self._scans
        with ExitStack() as stack:
            stack.callback(self._close)
            self._connections = [connection for _, connection in opened]
            if topology is not None:
                self._view.processes.record(opened)
            parts = self._parts if self._resumed is None else self._parts_left
            scans.extend(parts(opened, topology))
            while scans:
                part = scans[0]
                try:
                    page = next(part.pages, None)
                    moved = self._moved(part) if page is None else None
                except ProtocolError as error:
                    message = f"can't read from the server at {part.server}: {error.args[0]}"
                    raise TransportError(message) from error
                except FastrespError:
                    raise
                except (redis.RedisError, OSError) as error:
                    failed = part.server.failure(error)
                    if part.slots is None or self._stopped or part.restarts >= MAX_RESTARTS:
                        raise failed from error
                    scans.popleft()
                    scans.extend(self._retry(part, failed, self._scans_of_owners))
                    continue
                if page is None:
                    scans.popleft()
                    part.connection.disconnect()
                    if moved:
                        scans.extend(self._follow_slots(part, moved))
                    continue
                cursor, keys = page
                scans[0] = part._replace(cursor=cursor)
                scans.rotate(-1)
                yield keys if part.wanted is None else keys_in(keys, part.wanted)

    def _parts(
        self, opened: list[tuple[Server, Any]], topology: Topology | None
    ) -> Iterator[NodeScan]:
        """Yield the scans of all servers that may have keys of the wanted slots.

        Each scan returns keys of all wanted slots, since a moving slot has keys on two nodes.
        """
        wanted = None if self._slots is None else mask_of(self._slots)
        for number, (server, connection) in enumerate(opened):
            slots = None
            if topology is not None:
                slots = frozenset(at for at, node in enumerate(topology.slots) if node == number)
                if self._slots is not None:
                    slots &= frozenset(self._slots)
                    if not slots and self._slots:
                        held = slots_on(server, connection)
                        importing = frozenset(range(SLOTS)) if held is None else held.importing
                        slots = importing.intersection(self._slots)
            if self._slots is None or slots or (slots is None and self._slots):
                yield self._begun(server, connection, slots, wanted)
            else:
                connection.disconnect()

    def _parts_left(
        self, opened: list[tuple[Server, Any]], topology: Topology | None
    ) -> Iterator[NodeScan]:
        """Yield the remaining scans; if a server's process has ended, rescan its slots."""
        left = self._resumed or []
        run_ids = [run_id_of(server, connection) for server, connection in opened]
        for number, (server, connection) in enumerate(opened):
            same = [each for each in left if each.run_id == run_ids[number] != ""]
            slots: frozenset[int] | None = None
            others: frozenset[int] = frozenset()
            if topology is not None:
                lost = [each.slots or range(SLOTS) for each in left if each.run_id not in run_ids]
                own = frozenset(at for at, node in enumerate(topology.slots) if node == number)
                others = own.intersection(chain.from_iterable(lost))
                slots = others.union(*(each.slots or () for each in same))
            if left if slots is None else slots:
                at_cursor = len(same) == 1 and not others
                wanted = None if at_cursor or slots is None else mask_of(slots)
                cursor = same[0].cursor if at_cursor else b"0"
                yield self._begun(server, connection, slots, wanted, cursor)
            else:
                connection.disconnect()

    def _begun(
        self,
        server: Server,
        connection: Any,
        slots: frozenset[int] | None,
        wanted: bytes | None,
        cursor: bytes = b"0",
        restarts: int = 0,
    ) -> NodeScan:
        """Return a scan that begins at a cursor."""
        run_id = run_id_of(server, connection) if self._tracked else ""
        pages = self._scan(connection, cursor)
        return NodeScan(server, connection, slots, wanted, pages, run_id, cursor, restarts)

    def _retry(
        self, part: NodeScan, failed: TransportError, reopen: Callable[[NodeScan], list[NodeScan]]
    ) -> list[NodeScan]:
        """Return the scans that replace ``part``; retry ``reopen`` until the timeout."""
        assert part.slots is not None
        timeout = self._timeout or MAX_S
        end = time.monotonic() + timeout
        message = ""
        while not self._stopped and time.monotonic() < end:
            before = len(self._connections)
            try:
                return reopen(part)
            except LostData:
                raise
            except TransportError as error:
                message = str(error)
                self._close(before)
            time.sleep(LOOK_S)
        raise TransportError(
            f"{failed}; no node serves slots {ranges(sorted(part.slots))} after {timeout:g} s: "
            f"{message}"
        ) from failed

    def _scans_of_owners(self, part: NodeScan) -> list[NodeScan]:
        """Return scans of a lost node's slots on their current owners."""
        assert part.slots is not None
        self._view.look()
        slots: dict[Address | None, set[int]] = {}
        for slot in part.slots:
            slots.setdefault(self._view.node_of(slot), set()).add(slot)
        if None in slots:
            raise TransportError("some of these slots have no owner")
        scans = []
        for node, owned in slots.items():
            opened = self._connect(node)
            scans.append(self._replacement(part, *opened, frozenset(owned)))
        return scans

    def _moved(self, part: NodeScan) -> frozenset[int]:
        """Return the slots of a scan that have left the scan's node, or are leaving it."""
        held = None if part.slots is None else query_slots(part.server, part.connection)
        if held is None or part.slots is None:
            return frozenset()
        self._importing |= dict.fromkeys(held.targets)
        return (part.slots - held.own - held.importing) | (part.slots & held.migrating)

    def _follow_slots(self, part: NodeScan, moved: frozenset[int]) -> list[NodeScan]:
        """Return scans of moved slots on the nodes that have received or are importing them."""
        message = f"slots {ranges(sorted(moved))} have left the node at {part.server}"
        failed = TransportError(message)
        if part.restarts >= MAX_RESTARTS:
            raise TransportError(f"{message}, and keep moving (wait for the end of the resharding)")
        return self._retry(part._replace(slots=moved), failed, self._scans_of_moved)

    def _scans_of_moved(self, part: NodeScan) -> list[NodeScan]:
        """Return scans of the slots of ``part``, on the nodes that report having these slots."""
        assert part.slots is not None
        left, scans = set(part.slots), []
        message = "no node reports that it has them"
        for node in dict.fromkeys(self._view.look().nodes) | self._importing:
            try:
                server, connection = self._connect(node)
                held = slots_on(server, connection) or NodeSlots()
            except LostData:
                raise
            except TransportError as error:  # another node may have the slots
                message = str(error)
                continue
            if str(server) == str(part.server):
                left -= held.migrating  # the importing node may have no keys of these slots yet
            elif slots := part.slots & (held.own | held.importing):
                left -= slots
                scans.append(self._replacement(part, server, connection, slots))
                continue
            connection.disconnect()
        if left:
            raise TransportError(message)
        return scans

    def _replacement(
        self, part: NodeScan, server: Server, connection: Any, slots: frozenset[int]
    ) -> NodeScan:
        """Return a scan of ``slots`` on ``server``, to replace ``part`` for these slots."""
        restarts = part.restarts + 1
        return self._begun(server, connection, slots, mask_of(slots), restarts=restarts)

    def _connect(self, node: Address | None) -> tuple[Server, Any]:
        """Connect to a node; raise the same exceptions as ``ClusterView.connect()``."""
        timeout = min(self._timeout or RECONNECT_TIMEOUT_S, RECONNECT_TIMEOUT_S)
        server, connection = self._view.connect(node, timeout, "keys")
        connection._sock.settimeout(self._timeout)
        self._connections.append(connection)
        return server, connection

    def _close(self, first: int = 0) -> None:
        """Close the connections whose index is ``first`` or higher."""
        for connection in self._connections[first:]:
            connection.disconnect()
        del self._connections[first:]

    def disconnect(self) -> None:
        """Interrupt a SCAN that another thread waits for; that thread gets an exception."""
        self._stopped = True
        for connection in filter(is_own, self._connections):
            with suppress(OSError, AttributeError):  # the connection may be closed
                connection._sock.shutdown(socket.SHUT_RDWR)


def slots_on(server: Server, connection: Any) -> NodeSlots | None:
    """Return which slots a node has, imports and migrates; None if CLUSTER NODES is refused."""
    with server.explained():
        return query_slots(server, connection)


def query_slots(server: Server, connection: Any) -> NodeSlots | None:
    """Return the same as ``slots_on()``, but raise the connection's errors unchanged."""
    check_own(connection)
    connection.send_command("CLUSTER", "NODES")
    try:
        return node_slots_of(connection.read_response(), server.remap)
    except redis.ResponseError:  # no permission
        return None


def run_id_of(server: Server, connection: Any) -> str:
    """Return the ID of a server's process; empty if INFO is refused."""
    with server.explained(), suppress(redis.ResponseError):
        return parse_info(call(connection, "INFO", "server")).get("run_id", "")
    return ""


def check_own(connection: Any) -> None:
    """Refuse a connection that a parent process opened."""
    if not is_own(connection):
        raise TransportError(str(Inherited("connection")))


def scan(
    connection: Any, cursor: bytes, glob: str, kind: str | None
) -> Generator[tuple[bytes, list[bytes]], None, None]:
    """Yield pages of keys found with SCAN, each with the next cursor; request pages in advance."""
    how: tuple[Any, ...] = ("MATCH", glob, "COUNT", SCAN_COUNT)
    if kind is not None:
        how += ("TYPE", kind)
    check_own(connection)
    try:
        connection.send_command("SCAN", cursor, *how)
        more = True
        while more:
            check_own(connection)
            cursor, found = _page_of(connection.read_response())
            more = cursor != b"0"
            if more:
                connection.send_command("SCAN", cursor, *how)
            yield cursor, found
    except redis.ResponseError as error:
        raise CommandError(f"SCAN: {error}") from error


def _page_of(reply: Any) -> tuple[bytes, list[bytes]]:
    """Return the cursor and the keys of a reply to SCAN."""
    match reply:
        case [bytes() as cursor, list() as keys] if all(type(key) is bytes for key in keys):
            return cursor, keys
    raise unexpected("SCAN", reply)
