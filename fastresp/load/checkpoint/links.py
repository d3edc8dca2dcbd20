"""The connections of a checkpoint: to the server, or to all primaries of a cluster."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, suppress
from copy import copy
from typing import Any

import redis

from ...outcome.errors import CheckpointError, TransportError
from ...outcome.messages import Hint, Message
from ...resp.slots import Rules
from ...resp.split import arguments
from ...resp.values import pack
from ...server.cluster_view import ClusterView
from ...server.reply_parser import bytes_of, integer_of, parse_info
from ...server.settings import Server
from ...transports.filters import Confirmation

__all__ = [
    "Link", "Links", "address_of", "check_name", "name_of", "possible_later", "until_freed",
]  # fmt: skip

NAMES = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.:")
MAX_NAME = 200
# Maximum seconds to connect, and to wait for a reply.
MAX_S = 5.0
# Maximum seconds to connect to a node that is no longer a primary.
FORMER_S = 1.0
# Seconds to retry writes that a full server refuses at the end of a load.
FREED_S = 0.5
# Timeout in ms of each WAIT or WAITAOF, which is repeated until the load's timeout.
CONFIRMED_MS = 200
# Number of commands to send before reading their replies.
PORTION = 2000


def possible_later(words: str | Message) -> CheckpointError:
    """Return an error with ``again`` set: the load can be resumed later."""
    error = CheckpointError(words)
    error.again = True
    return error


def until_freed(write: Callable[[], object]) -> None:
    """Call ``write``; if the server refuses the write, retry for FREED_S seconds.

    After a load that ended because the server was full, the buffers of its connections use memory
    until the server notices that the connections are closed.
    """
    end = time.monotonic() + FREED_S
    while True:
        try:
            write()
            return
        except redis.ResponseError:
            if time.monotonic() > end:
                raise
        time.sleep(0.02)


class Link:
    """A connection of a checkpoint.

    A Link never reconnects by itself: while it is open, the server has not restarted.

    Args:
        server: the server.
        connection: a redis-py connection.
        address: address of the cluster node; empty for a single server.
        name: name for CLIENT SETNAME, which shows that the connection belongs to a checkpoint.

    Attributes:
        number: CLIENT ID of the connection.
        run: run ID of the server; empty if the user lacks permission for INFO.
        policy: the server's maxmemory-policy; empty if the server has no memory limit.
        lost: whether the connection can no longer be used.
    """

    def __init__(self, server: Server, connection: Any, address: str, name: str) -> None:
        self.server = server
        self.address = address
        self.name = name
        self._connection = connection
        self.lost = False
        self.number = integer_of("CLIENT ID", self.call("CLIENT", "ID"))
        self.call("CLIENT", "SETNAME", name)
        info = self.info()
        self.run = info.get("run_id", "")
        self.policy = info.get("maxmemory_policy", "") if info.get("maxmemory", "0") != "0" else ""

    def info(self) -> dict[str, str]:
        """Return the fields of INFO; empty if the user lacks permission."""
        with suppress(redis.ResponseError):
            return parse_info(self.call("INFO"))
        return {}

    def check_keeps(self) -> None:
        """Check that the server never evicts a checkpoint."""
        if self.policy.startswith("allkeys"):
            raise CheckpointError(
                f"the server at {self.server} may evict the checkpoint when its memory is full "
                f"(maxmemory-policy {self.policy}); set noeviction, or one of the volatile policies"
            )

    def explained(self) -> AbstractContextManager[None]:
        """Convert redis-py's exceptions to a TransportError that says what to do."""
        return self.server.explained()

    def call(self, *words: Any) -> Any:
        """Run a command, and return its reply; raise an error reply."""
        return self.together(words)[0]

    def together(self, *commands: tuple[Any, ...]) -> list[Any]:
        """Send commands in one pipeline, and return their replies; raise the first error reply."""
        replies = self.replies(commands)
        for reply in replies:
            if isinstance(reply, Exception):
                raise reply
        return replies

    def replies(self, commands: Sequence[tuple[Any, ...]]) -> list[Any]:
        """Send commands in one pipeline, and return their replies, including error replies."""
        connection, found = self._connection, list[Any]()
        if self.lost:
            raise redis.ConnectionError("the connection was lost")
        self.lost = True  # after a connection error, so that redis-py can't reconnect
        for first in range(0, len(commands), PORTION):
            portion = commands[first : first + PORTION]
            connection.send_packed_command([b"".join(pack(*words) for words in portion)])
            for _ in portion:
                try:
                    found.append(connection.read_response())
                except redis.ResponseError as error:
                    found.append(error)
        self.lost = False
        return found

    def confirmed(self, confirmation: Confirmation) -> int:
        """Wait for at most 200 ms; return the number of durable copies of the last writes."""
        *words, _ = arguments(confirmation.request.data)
        reply = self.call(*words, CONFIRMED_MS)
        name = words[0].decode()
        return integer_of(name, reply[0] if isinstance(reply, list) and reply else reply)

    def lives(self, numbers: Iterable[int], *, named: bool = False) -> bool | None:
        """Return whether any of these connections exists; None if a permission is missing.

        Args:
            numbers: CLIENT IDs of the connections.
            named: whether to count only connections with our name. Needed if the server may have
                restarted: another client may then have one of the IDs.
        """
        for number in numbers:
            exists: bool | None
            try:
                found = bytes_of("CLIENT LIST", self.call("CLIENT", "LIST", "ID", number))
                exists = bool(found) and (not named or b" name=%s " % self.name.encode() in found)
            except redis.ResponseError:
                exists = self._is_there(number)
                exists = None if named and exists else exists  # it may be another client
            if exists or exists is None:
                return exists
        return False

    def _is_there(self, number: int) -> bool | None:
        """Find out without CLIENT LIST whether a connection exists; return None if unknown.

        CLIENT TRACKING refuses to redirect to a connection that does not exist.
        """
        try:
            self.call("CLIENT", "TRACKING", "ON", "REDIRECT", number)
        except redis.ResponseError as error:
            return False if "does not exist" in str(error) else None
        self.call("CLIENT", "TRACKING", "OFF")
        return True

    def close(self) -> None:
        """Close the connection."""
        self._connection.disconnect()


class Links:
    """The connections of a checkpoint: one to the server, or one to each primary of a cluster.

    Args:
        server: the server of the load.
        timeout: seconds to connect, and to wait for each reply; None, or more than 5, means 5.
        key: key of the checkpoint's description.
        name: name of the connections, for CLIENT SETNAME.

    Attributes:
        home: the connection to the server that stores the checkpoint's description.
        topology: topology of a cluster; None for a single server.
    """

    def __init__(self, server: Server, timeout: float | None, key: bytes, name: str) -> None:
        self.server = server
        self.name = name
        self._timeout = min(timeout or MAX_S, MAX_S)
        self._shared = False
        self._view = ClusterView(server)
        opened = self._view.open_primaries(self._timeout)
        self.topology = self._view.topology
        self.all: list[Link] = []
        try:
            for node, connection in opened:
                with node.explained():
                    address = "" if self.topology is None else address_of(node)
                    self.all.append(Link(node, connection, address, name))
        except BaseException:
            for _, connection in opened:
                connection.disconnect()
            raise
        self.home = self._home_of(key)

    def _home_of(self, key: bytes) -> Link:
        slot = Rules().slot(pack("GET", key))
        return self.all[0] if self.topology is None else self.link_of(slot)

    def at_home_of(self, key: bytes) -> Links:
        """Return Links that share these connections; their ``home`` is the node of ``key``.

        Closing the returned Links leaves the connections open.
        """
        other = copy(self)
        other.home = self._home_of(key)
        other._shared = True
        return other

    def link_of(self, slot: int) -> Link:
        """Return the connection to the owner of a slot."""
        assert self.topology is not None
        node = self.topology.node_of(slot, str(self.server))
        return self.all[self.topology.nodes.index(node)]

    def check(self) -> None:
        """Check that no server has restarted since the connections were opened.

        Reopen connections that a server has closed because they were idle.

        Raises:
            CheckpointError: a server was restarted.
            TransportError: a server can't be reached, or a connection was lost and the user lacks
                permission for INFO, so a restart can't be ruled out.
        """
        for at, link in enumerate(self.all):
            with link.explained():
                try:
                    link.call("CLIENT", "ID")  # the user may lack permission for PING
                    continue
                except redis.ConnectionError:
                    if not link.run:
                        raise
                link.close()
                again = Link(
                    link.server, link.server.connect(self._timeout), link.address, self.name
                )
            if again.run != link.run:
                raise possible_later(f"the server at {link.server} was restarted; resume the load")
            self.all[at] = again
            if self.home is link:
                self.home = again

    def check_places(self, connections: Iterable[tuple[str, int]]) -> None:
        """Check that the load and the checkpoint are connected to the same servers.

        Args:
            connections: pairs of a node's address (empty for a single server) and a CLIENT ID.

        Raises:
            CheckpointError: the servers differ, for example after a failover.
        """
        for link in self.all:
            numbers = [number for address, number in connections if address == link.address]
            with link.explained():
                elsewhere = any(link.lives([number]) is False for number in numbers)
            if elsewhere:
                raise possible_later(f"the server at {link.server} was replaced; resume the load")

    def clients(self, connections: Iterable[tuple[str, int]]) -> str:
        """Return the connections of the load and of the checkpoint, as JSON.

        Args:
            connections: the load's connections, as for ``check_places()``.

        Raises:
            CheckpointError: the checkpoint has no connection to one of the load's servers.
        """
        numbers = {link.address: [link.number] for link in self.all}
        for address, number in connections:
            if address not in numbers:
                raise possible_later(
                    f"the node at {address} has just become a primary; resume the load"
                )
            numbers[address].append(number)
        return json.dumps([(link.address, link.run, numbers[link.address]) for link in self.all])

    def at(self, address: str, run: str) -> Iterator[Link]:
        """Yield a connection to a server; yield nothing if the server can't be reached.

        If the server is no longer a primary, a temporary connection is opened for the iteration.

        Args:
            address: the server's address, as stored by another loader; we may know the server by a
                different address.
            run: run ID of the server; empty if unknown.
        """
        same = [link for link in self.all if run and link.run == run]
        found = same or [link for link in self.all if link.address == address]
        if found:
            yield found[0]
            return
        host, _, port = address.rpartition(":")
        if self.topology is None or not port.isdigit():
            return
        server = self._view.server_of((host, int(port)))
        with suppress(TransportError):
            connection = server.connect(min(self._timeout, FORMER_S))
            try:
                with server.explained():
                    yield Link(server, connection, address, self.name)
            finally:
                connection.disconnect()

    def close(self) -> None:
        """Close all connections, unless they are shared: see ``at_home_of()``."""
        if not self._shared:
            for link in self.all:
                link.close()


def address_of(server: Server) -> str:
    """Return the host and port of a node, such as ``"10.0.0.1:6379"``."""
    return f"{server.settings.get('host')}:{server.settings.get('port')}"


def check_name(name: str, option: str) -> None:
    """Check the name of a checkpoint or a job.

    Raises:
        CheckpointError: the name is empty, longer than 200 characters, or contains characters other
            than letters, digits, and ``-_.:``.
    """
    if not isinstance(name, str) or not 1 <= len(name) <= MAX_NAME or not NAMES.issuperset(name):
        words = f" must be 1 to {MAX_NAME} letters, digits, or -_.: characters, not {name!r}"
        raise CheckpointError(Message(Hint(option), words))


def name_of(checkpoint: str) -> str:
    """Return the name (CLIENT SETNAME) of the connections of a load with this checkpoint."""
    return f"fastresp:{checkpoint}"
