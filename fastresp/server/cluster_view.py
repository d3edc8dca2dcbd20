"""A cluster as its clients see it: the known nodes, the node of each slot, and restarts of nodes.

Loads, reads, scans and checkpoints each use a ClusterView to find nodes: at the start, after MOVED,
and after a node was lost. The caller decides when to look, and what happens to commands meanwhile.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import redis

from ..outcome.errors import TransportError
from .answers import ask_topology, is_clustered, read_config, request_config
from .cluster import MAX_NODES, Topology
from .known_faults import ServerState, faults_of
from .reply_parser import parse_info

if TYPE_CHECKING:
    from .settings import Server

__all__ = [
    "LOOK_S", "RECONNECT_TIMEOUT_S", "Address", "ClusterView", "LostData", "Process", "Processes",
    "closed_if_failed", "may_lack_data",
]  # fmt: skip

# Minimum seconds between looks while commands wait for a node. A look is a call of look(), which
# queries the topology. The interval is also at least PAUSE_FACTOR times the duration of the last
# look, up to MAX_PAUSE_S, since a look can delay other work.
LOOK_S = 0.1
PAUSE_FACTOR = 3
MAX_PAUSE_S = 5.0
# A look asks at most this many connected nodes, and this many other known nodes. Each node that
# can't be reached costs up to RECONNECT_TIMEOUT_S.
MAX_ASKED = 8
# Maximum number of nodes to remember, since a server may report any number.
MAX_KNOWN = 2000
# Maximum seconds to wait for a node that may have failed; a frozen node never accepts.
RECONNECT_TIMEOUT_S = 1.0

# Host and port of a node.
Address: TypeAlias = tuple[str, int]


class ClusterView:
    """A cluster, as its nodes last reported it; or a single server.

    The methods block. A core calls them in a thread: ``yield Blocking(view.look)``.

    Args:
        server: the server that the user named: the single server, or any node of the cluster.
        topology: the topology, if it is already known.
        processes: remembers the process of each node, to detect restarts; None to create it.

    Attributes:
        topology: the last reported topology; None for a single server, or before the first look.
        known: nodes that may be asked for the topology, newest first, including replicas and
            nodes that have left.
        look_at: the earliest time for the next look, from ``time.monotonic()``.
    """

    def __init__(
        self, server: Server, topology: Topology | None = None, processes: Processes | None = None
    ) -> None:
        self.server = server
        self.topology: Topology | None = None
        self.known: list[Address] = []
        self.look_at = 0.0
        self.processes = Processes() if processes is None else processes
        if topology is not None:
            self.update(topology)

    def update(self, topology: Topology) -> None:
        """Replace the topology with one that a node has reported."""
        known = dict.fromkeys([*topology.nodes, *topology.replicas, *self.known])
        self.known = list(known)[:MAX_KNOWN]
        self.topology = topology
        self.processes.forget_others(topology.nodes)

    def open_primaries(self, timeout: float | None) -> list[tuple[Server, Any]]:
        """Query the topology, and connect to each primary, or to the single server.

        Returns:
            Pairs of a server and its redis-py connection, in the order of ``topology.nodes``.

        Raises:
            TransportError: a server can't be reached or used; all connections are closed.
        """
        server = self.server
        with ExitStack() as stack:
            connection = server.connect(timeout)
            stack.callback(connection.disconnect)
            opened = [(server, connection)]
            if server.requirements.nodes:
                with server.explained():
                    if is_clustered(connection):
                        self.update(ask_topology(connection, str(server), server.remap))
            if self.topology is not None:
                connection.disconnect()
                opened = []
                for node in server.nodes_of(self.topology.nodes, 1):
                    opened.append((node, node.connect(timeout)))
                    stack.callback(opened[-1][1].disconnect)
            stack.pop_all()
            return opened

    def look(self, connected: Iterable[Server] = (), min_pause: float = LOOK_S) -> Topology:
        """Ask nodes for the topology until one answers; store and return the topology.

        Args:
            connected: nodes to ask first, such as nodes that have replied recently.
            min_pause: minimum seconds until the next look.

        Raises:
            TransportError: no node answers.
        """
        began = time.monotonic()
        known = random.sample(self.known, min(len(self.known), MAX_ASKED))
        others = [*self.server.nodes_of(known, 1), self.server]
        failed = TransportError("the cluster has no nodes")
        try:
            for server in dict.fromkeys([*islice(connected, MAX_ASKED), *others]):
                try:
                    topology = _topology_at(server)
                    self.update(topology)
                    return topology
                except TransportError as error:
                    failed = error
            raise failed
        finally:
            self.pause_after(began, min_pause)

    def pause_after(self, began: float, min_pause: float = LOOK_S) -> float:
        """Set and return ``look_at``, the earliest time of the next look; a slow look delays it."""
        now = time.monotonic()
        self.look_at = now + min(max(min_pause, PAUSE_FACTOR * (now - began)), MAX_PAUSE_S)
        return self.look_at

    def server_of(self, node: Address | None) -> Server:
        """Return the Server of a node; for None, the server that the user named."""
        return self.server if node is None else self.server.nodes_of([node], 1)[0]

    def node_of(self, slot: int) -> Address | None:
        """Return the node that serves a slot; None if there is none, or for a single server."""
        node = -1 if self.topology is None else self.topology.slots[slot]
        return None if self.topology is None or node < 0 else self.topology.nodes[node]

    def move(self, slot: int, node: Address) -> None:
        """Set the node of a slot after MOVED; do nothing for a single server."""
        topology = self.topology
        if topology is not None and (node in topology.nodes or len(topology.nodes) < MAX_NODES):
            topology.add(node, slot, slot)

    def connect(self, node: Address | None, timeout: float | None, data: str) -> tuple[Server, Any]:
        """Connect to a node; return its Server, and the redis-py connection.

        Args:
            node: the node; None for the server that the user named.
            timeout: seconds to connect, and for each read.
            data: name of the data that a restart may have lost, for the message of LostData.

        Raises:
            LostData: the node was restarted or replaced, and may have lost data.
            TransportError: the node can't be used.
        """
        server = self.server_of(node)
        connection = server.connect(timeout)
        with closed_if_failed([connection]):
            if restarted := self.processes.check(server, connection):
                raise LostData(f"{restarted}: {data} may be missing")
        return server, connection


def _topology_at(server: Server) -> Topology:
    connection = server.connect(RECONNECT_TIMEOUT_S)
    try:
        with server.explained():
            return ask_topology(connection, str(server), server.remap)
    finally:
        connection.disconnect()


class LostData(TransportError):
    """A server was restarted or replaced while data was read, and may have lost data."""


class Process(NamedTuple):
    """What INFO reports about a server process.

    Attributes:
        run_id: the ID that a server creates at each start.
        histories: the replication IDs of the data, which a replica shares with its primary.
        uptime_s: seconds since the start of the server.
        aof: whether the server has an append-only file.
        keys: whether the server has any keys.
    """

    run_id: str
    histories: frozenset[str]
    uptime_s: int
    aof: bool
    keys: bool


def address_of(server: Server) -> tuple[Any, Any]:
    """Return the host and port of a server; empty for a unix socket."""
    return server.settings.get("host"), server.settings.get("port")


class Processes:
    """Remembers which server process answered at each address.

    Args:
        sends_info: whether to send INFO. Some proxies close the connection when they receive INFO.
    """

    def __init__(self, *, sends_info: bool = True) -> None:
        self._sends_info = sends_info
        self._known: dict[tuple[Any, Any], tuple[Process, float]] = {}

    def record(
        self, opened: Iterable[tuple[Server, Any]], settings: Sequence[str] = ()
    ) -> list[ServerState]:
        """Send INFO over redis-py connections, read all replies, and remember the processes.

        Args:
            opened: the servers and connections.
            settings: settings to ask for in the same round trip.
        """
        opened = list(opened) if self._sends_info else []
        states = []
        for server, connection in opened:
            with server.explained():
                connection.send_command("INFO")
                request_config(connection, settings)
        for server, connection in opened:
            with server.explained():
                info = _info(connection)
                config = read_config(connection, settings)
            states.append(ServerState(str(server), faults_of(info, config), config))
            if (process := _process_of(info)) is not None:
                self._known[address_of(server)] = process, time.monotonic()
        return states

    def check(self, server: Server, connection: Any) -> str:
        """Check whether a server may have lost data since its process was recorded.

        Returns:
            A description of the loss; empty if the server is the same process, has kept its data,
            does not answer INFO, or was never recorded.
        """
        known = self._known.get(address_of(server))
        self.record([(server, connection)])
        if known is None:
            return ""
        before, since = known
        now, _ = self._known[address_of(server)]
        if not may_lack_data(before, now, time.monotonic() - since):
            return ""
        state = "has data, but no append-only file" if now.keys else "is empty"
        return f"the server at {server} was restarted or replaced, and {state}"

    def forget_others(self, nodes: Iterable[Address]) -> None:
        """Forget all nodes except these primaries.

        If another node becomes a primary later, it has received its data as a replica, so its
        earlier process does not matter.
        """
        self._known = {node: self._known[node] for node in nodes if node in self._known}

    def reopen(self, server: Server, connect: Callable[[], list[Any]]) -> tuple[list[Any], str]:
        """Open connections to a server; return (connections, the result of ``check()``)."""
        connections = connect()
        with closed_if_failed(connections):
            return connections, self.check(server, connections[0])


@contextmanager
def closed_if_failed(connections: Iterable[Any]) -> Iterator[None]:
    try:
        yield
    except BaseException:
        for connection in connections:
            connection.disconnect()
        raise


def may_lack_data(before: Process, now: Process, seconds: float) -> bool:
    """Return whether a server may lack data that the earlier process had acknowledged.

    An append-only file counts as complete. With "appendfsync everysec", up to two seconds may be
    missing if the machine failed or an fsync was running, but INFO does not show this. A replica
    that took over the address has the data. A replica is assumed if the new process shares a
    replication ID with the earlier process, and was already running ``seconds`` ago, when the
    earlier process last answered.
    """
    if now.run_id == before.run_id:
        return False
    took_over = now.uptime_s > seconds and not before.histories.isdisjoint(now.histories)
    return not (now.keys and (now.aof or took_over))


def _info(connection: Any) -> dict[str, str]:
    """Read the reply to INFO."""
    try:
        return parse_info(connection.read_response())
    except redis.ResponseError:  # no permission
        return {}


def _process_of(info: Mapping[str, str]) -> Process | None:
    """Return the process that INFO describes; None if it identifies none."""
    run_id, uptime = info.get("run_id"), info.get("uptime_in_seconds", "")
    if not run_id:
        return None
    histories = {info.get("master_replid", ""), info.get("master_replid2", "")}
    return Process(
        run_id,
        frozenset(each for each in histories if each.strip("0")),
        int(uptime) if uptime.isdecimal() and len(uptime) < 19 else 0,
        info.get("aof_enabled") == "1",
        any(name.startswith("db") and "keys=" in value for name, value in info.items()),
    )
