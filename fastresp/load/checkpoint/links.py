"""A checkpoint's own connections: to the server of a load, or to all primaries of its cluster."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from copy import copy
from typing import Any

from ...outcome.errors import CheckpointError, TransportError
from ...outcome.messages import Hint, Message
from ...resp.slots import Rules
from ...resp.split import arguments
from ...resp.values import pack
from ...server.answers import parse_info
from ...server.readers import bytes_of, integer_of
from ...server.settings import Server
from ...transports.confirming import Confirmation

__all__ = [
    "Link", "Links", "address_of", "check_name", "connection_error", "name_of",
    "possible_later", "redis_error", "response_error", "until_freed",
]  # fmt: skip

NAMES = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.:")
MOST_NAME = 200
# The longest wait for a reply, and for a node that is no primary any more.
MOST_S = 5.0
FORMER_S = 1.0
# How long what a full server refuses at the end of a load is tried again.
FREED_S = 0.5
# How long a server waits for its replicas, or its disk, before it is asked again.
CONFIRMED_MS = 200
# How many commands to send before their replies are read.
PORTION = 2000


def may_lack_rows(words: str) -> CheckpointError:
    """Return the error for a server that was started again, or that took another one's place."""
    return possible_later(words)


def possible_later(words: str | Message) -> CheckpointError:
    """Return an error after which the load can be resumed later."""
    error = CheckpointError(words)
    error.again = True
    return error


def until_freed(write: Callable[[], object]) -> None:
    """Write to a server, and try it again for a moment if it refuses that.

    When a full server has ended a load, the buffers of its connections take memory until the server
    notices that these are closed.
    """
    end = time.monotonic() + FREED_S
    while True:
        try:
            write()
            return
        except response_error():
            if time.monotonic() > end:
                raise
        time.sleep(0.02)


class Link:
    """A connection of a checkpoint.

    It is never opened again by itself: while it lives, so does the server's process.

    Args:
        server: where to.
        connection: a redis-py connection.
        address: of the node of a cluster; empty for the one server.
        name: to give it, so that it can be told from those of others.

    Attributes:
        number: its CLIENT ID.
        run: of the server's process; empty if the user may not know it.
        policy: what the server does when its memory is full; empty if it has no limit.
        lost: whether the connection can't be used any more.
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
        """Return what INFO says; nothing if the user may not run it."""
        with suppress(response_error()):
            return parse_info(self.call("INFO"))
        return {}

    def check_keeps(self) -> None:
        """Check that the server does not delete a checkpoint when its memory is full.

        Raises:
            CheckpointError: it may.
        """
        if self.policy.startswith("allkeys"):
            raise CheckpointError(
                f"the server at {self.server} may delete the checkpoint when its memory is full "
                f"(maxmemory-policy {self.policy}); set noeviction, or one of the volatile policies"
            )

    @contextmanager
    def explained(self) -> Iterator[None]:
        """Turn errors of redis-py into a TransportError that says what to do."""
        with self.server.explained():
            yield

    @contextmanager
    def _once(self) -> Iterator[None]:
        """Use the connection; after an error, do not let redis-py open it again."""
        if self.lost:
            raise connection_error()("the connection was lost")
        self.lost = True
        try:
            yield
        except response_error():
            self.lost = False
            raise
        self.lost = False

    def call(self, *words: Any) -> Any:
        """Run a command."""
        with self._once():
            self._connection.send_command(*words)
            return self._connection.read_response()

    def together(self, *commands: tuple[Any, ...]) -> list[Any]:
        """Send commands at once, and return their replies; raise the first error among them."""
        replies = self.replies(commands)
        for reply in replies:
            if isinstance(reply, Exception):
                raise reply
        return replies

    def replies(self, commands: Sequence[tuple[Any, ...]]) -> list[Any]:
        """Send commands, and return their replies, errors too."""
        connection, found = self._connection, list[Any]()
        with self._once():
            for first in range(0, len(commands), PORTION):
                portion = commands[first : first + PORTION]
                connection.send_packed_command([b"".join(pack(*words) for words in portion)])
                for _ in portion:
                    try:
                        found.append(connection.read_response())
                    except response_error() as error:
                        found.append(error)
        return found

    def confirmed(self, confirmation: Confirmation) -> int:
        """Return how many copies of what was written are durable, after a short wait at most."""
        *words, _ = arguments(confirmation.piece.data)
        reply = self.call(*words, CONFIRMED_MS)
        name = words[0].decode()
        return integer_of(name, reply[0] if isinstance(reply, list) and reply else reply)

    def lives(self, numbers: Iterable[int], *, named: bool = False) -> bool | None:
        """Return whether any of these connections exists; None if the user may not know.

        Args:
            named: whether it must also have our name, as the numbers may be those of others.
        """
        for number in numbers:
            exists: bool | None
            try:
                found = bytes_of("CLIENT LIST", self.call("CLIENT", "LIST", "ID", number))
                exists = bool(found) and (not named or b" name=%s " % self.name.encode() in found)
            except response_error():
                exists = self._is_there(number)
                exists = None if named and exists else exists  # it may be that of another
            if exists or exists is None:
                return exists
        return False

    def _is_there(self, number: int) -> bool | None:
        """Return what ``lives()`` does, for a user without the right to CLIENT LIST.

        A connection that is not there can't be named by CLIENT TRACKING.
        """
        try:
            self.call("CLIENT", "TRACKING", "ON", "REDIRECT", number)
        except response_error() as error:
            return False if "does not exist" in str(error) else None
        self.call("CLIENT", "TRACKING", "OFF")
        return True

    def close(self) -> None:
        """Close the connection."""
        self._connection.disconnect()


class Links:
    """The connections of a checkpoint.

    Args:
        server: of the load.
        timeout: seconds to connect, and for each read; at most 5 are waited.
        key: whose node is ``home``.
        name: of the connections.

    Attributes:
        home: the connection to the server that has the checkpoint's description.
        topology: of a cluster; None for one server.

    Raises:
        TransportError: a server can't be reached or used.
    """

    def __init__(self, server: Server, timeout: float | None, key: bytes, name: str) -> None:
        self.server = server
        self.name = name
        self._timeout = min(timeout or MOST_S, MOST_S)
        self._shared = False
        opened, self.topology = server.open_primaries(self._timeout)
        self.all: list[Link] = []
        try:
            for node, connection in opened:
                with node.explained():
                    self.all.append(Link(node, connection, self._address(node), name))
        except BaseException:
            for _, connection in opened:
                connection.disconnect()
            raise
        self.home = self._home_of(key)

    def _home_of(self, key: bytes) -> Link:
        return self.all[0] if self.topology is None else self.link_of(slot_of(key))

    def at_home_of(self, key: bytes) -> Links:
        """Return the same connections for another key, whose node is ``home``.

        Only these links close the connections, not what is returned.
        """
        other = copy(self)
        other.home = self._home_of(key)
        other._shared = True
        return other

    def _address(self, server: Server) -> str:
        return "" if self.topology is None else address_of(server)

    def link_of(self, slot: int) -> Link:
        """Return the connection to the node that has a slot.

        Raises:
            TransportError: no node serves it.
        """
        assert self.topology is not None
        self.topology.node_of(slot, str(self.server))
        return self.all[self.topology.slots[slot]]

    def check(self) -> None:
        """Check that each server's process is still the same, after any pause.

        A server with a ``timeout`` closes connections that are idle: these are opened again.

        Raises:
            CheckpointError: a server was started again, as far as is known.
            TransportError: it can't be reached.
        """
        for at, link in enumerate(self.all):
            with link.explained():
                try:
                    link.call("CLIENT", "ID")  # the user may lack the right to PING
                    continue
                except connection_error():
                    if not link.run:
                        raise
                link.close()
                again = Link(
                    link.server, link.server.connect(self._timeout), link.address, self.name
                )
            if again.run != link.run:
                raise may_lack_rows(
                    f"the server at {link.server} was started again; resume the load"
                )
            self.all[at] = again
            if self.home is link:
                self.home = again

    def check_places(self, connections: Iterable[tuple[str, int]]) -> None:
        """Check that a load is connected to the servers that we are connected to.

        Args:
            connections: the address of a node, empty for the one server, and the CLIENT ID.

        Raises:
            CheckpointError: it is not, for example after a failover.
        """
        for link in self.all:
            numbers = [number for address, number in connections if address == link.address]
            with link.explained():
                elsewhere = [number for number in numbers if link.lives([number]) is False]
            if elsewhere:
                raise may_lack_rows(f"the server at {link.server} was replaced; resume the load")

    def clients(self, connections: Iterable[tuple[str, int]]) -> str:
        """Return the connections of a load, and our own, as JSON.

        Raises:
            CheckpointError: it is connected to a server to which we are not.
        """
        numbers = {link.address: [link.number] for link in self.all}
        for address, number in connections:
            if address not in numbers:
                raise may_lack_rows(
                    f"the node at {address} has just become a primary; resume the load"
                )
            numbers[address].append(number)
        return json.dumps([(link.address, link.run, numbers[link.address]) for link in self.all])

    def at(self, address: str, run: str) -> Iterator[Link]:
        """Yield the connection to a server, if it is there.

        One that is no primary now gets a new connection.

        Args:
            address: as another loader knows it; nodes can have other addresses elsewhere.
            run: of its process; empty if it is unknown.
        """
        same = [link for link in self.all if run and link.run == run]
        found = same or [link for link in self.all if link.address == address]
        if found:
            yield found[0]
            return
        host, _, port = address.rpartition(":")
        if self.topology is None or not port.isdigit():
            return
        [server] = self.server.nodes_of([(host, int(port))], 1)
        with suppress(TransportError):
            connection = server.connect(min(self._timeout, FORMER_S))
            try:
                with server.explained():
                    yield Link(server, connection, address, self.name)
            finally:
                connection.disconnect()

    def close(self) -> None:
        """Close all connections, unless they are those of other links."""
        if not self._shared:
            for link in self.all:
                link.close()


def address_of(server: Server) -> str:
    """Return the host and port of a node."""
    return f"{server.settings.get('host')}:{server.settings.get('port')}"


def slot_of(key: bytes) -> int:
    """Return the slot of a key."""
    return Rules().slot(pack("GET", key))


def response_error() -> type[Exception]:
    """Return redis-py's class, which is imported when it is needed."""
    import redis

    return redis.ResponseError


def redis_error() -> type[Exception]:
    """Return the base of redis-py's classes, which is imported when it is needed."""
    import redis

    return redis.RedisError


def connection_error() -> type[Exception]:
    """Return redis-py's class, which is imported when it is needed."""
    import redis

    return redis.ConnectionError


def check_name(name: str, option: str) -> None:
    """Check the name of a checkpoint, or of a job.

    Args:
        option: that the user gave it as.

    Raises:
        CheckpointError: it has other characters than letters, digits, and ``-_.:``.
    """
    if not isinstance(name, str) or not 1 <= len(name) <= MOST_NAME or not NAMES.issuperset(name):
        words = f" must be 1 to {MOST_NAME} letters, digits, or -_.: characters, not {name!r}"
        raise CheckpointError(Message(Hint(option), words))


def name_of(checkpoint: str) -> str:
    """Return the name of the connections of a load."""
    return f"fastresp:{checkpoint}"
