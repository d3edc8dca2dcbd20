"""A server: parse its settings with redis-py, and open connections."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from copy import copy
from operator import itemgetter
from typing import Any

from ..encode.template import Template
from ..outcome.errors import FastrespError, TransportError, TransportTimeout
from ..outcome.messages import Hint, Message
from .answers import (
    Answers,
    ClosedAt,
    Wishes,
    ask,
    tell_unknown,
)
from .cluster import Redirect, Remap, redirect_of
from .connection_setup import (
    check_alive,
    check_fsync,
    check_surplus,
    load_scripts,
    mark_import_source,
)
from .descriptors import needed_for
from .failure import failure
from .forks import own
from .preflight import rehearsal_of
from .threads import Opening
from .url_or_client import ServerLike, pool_of, unnamed

__all__ = ["Server", "ServerLike", "as_server", "one_server"]

# A running server answers a connection and a PING well within this time.
ASK_TIMEOUT_S = 5.0
# Seconds to open all connections of a load, if the caller sets no timeout.
OPEN_TIMEOUT_S = 30.0
# Maximum connections to a cluster; each may need 2 MiB.
MAX_LANES = 4096
# A plain port never answers a TLS handshake. After this time, check whether the port is plain; if
# it uses TLS, a second handshake gets the full timeout.
HANDSHAKE_TIMEOUT_S = 1.0


def as_server(
    like: ServerLike | Server, template: Template | None = None, *, nodes: bool = False
) -> Server:
    """Return a Server for a URL, a client or a Server; other arguments are as for ``Server``."""
    return like if isinstance(like, Server) else Server(like, template=template, nodes=nodes)


def one_server(like: ServerLike | Server, *, reading: bool = False) -> Server:
    """Return a Server for a URL or a client; for a cluster client, a Server for one node."""
    if isinstance(like, Server):
        return like
    return Server(like, reading=reading, nodes=True).changed(nodes=False)


class Server:
    """Settings of one Redis or Valkey server. Creating a Server opens no connection.

    Args:
        server: a URL (``redis://``, ``rediss://``, ``valkey://``, ``valkeys://``, ``unix://``), a
            client of redis-py or valkey-py, sync or asyncio, or None for the environment variable
            ``REDIS_URL`` (default: ``redis://localhost:6379/0``).
        template: the first connection checks the commands and loads the scripts of this template.
        reading: whether nothing will be written, so that a replica suffices.
        nodes: whether ``open_all()`` connects to all primaries of a cluster.
        follows: whether the caller follows redirects of a cluster, so that any node suffices.

    Raises:
        ValueError: the URL can't be parsed.
        TypeError: ``server`` is neither a URL nor a client.
        TransportError: ``server`` is a cluster client, but neither ``nodes`` nor ``follows`` is
            set.
    """

    def __init__(
        self,
        server: ServerLike = None,
        *,
        template: Template | None = None,
        reading: bool = False,
        nodes: bool = False,
        follows: bool = False,
    ) -> None:
        self.reading = reading
        self.nodes = nodes
        # In a cluster, ``open_all()`` connects only to the owner of this slot; None for all nodes.
        self.slot: int | None = None
        self.follows = follows
        self.rehearsal = rehearsal_of(template)
        # Returns optional commands to try, whose refusal is not an error.
        self.wishes: Wishes | None = None
        # Whether to check that the server can confirm that commands are in its append-only file.
        self.fsync = False
        # Whether to read the settings that limit compact encodings.
        self.limits = False
        self.echo = False
        # Whether expired keys are visible to our commands.
        self.import_source = False
        # Commands that made the server close the connection: some proxies do so at unknown
        # commands.
        self._without: set[str] = set()
        self._told = False
        # Whether ``open_all()`` lists search indexes.
        self.indexes = False
        self.scripts = {} if template is None else template.scripts
        pool = pool_of(server, nodes=nodes or follows)
        # Maps announced addresses of cluster nodes to reachable addresses.
        self.remap: Remap = getattr(pool, "remap", None)
        # Whether this is a cluster node, at its announced address.
        self.announced = False
        self.connection_class: type[Any] = pool.connection_class
        self.settings: dict[str, Any] = {
            name: value
            for name, value in pool.connection_kwargs.items()
            if not name.startswith(("maint_", "oss_cluster_maint_"))
        }

    @property
    def tls(self) -> bool:
        import redis

        return issubclass(self.connection_class, redis.SSLConnection)

    @property
    def credentials(self) -> tuple[str | None, str | None]:
        """User and password; from the client's credential provider, if there is one."""
        provider = self.settings.get("credential_provider")
        if provider is None:
            found = [self.settings.get("username"), self.settings.get("password")]
        else:
            found = [None, *provider.get_credentials()][-2:]
        user, password = (os.fsdecode(x) if isinstance(x, bytes) else x and str(x) for x in found)
        return user, password

    def __str__(self) -> str:
        path = self.settings.get("path")
        if path:
            return str(path)
        sentinel = self.settings.get("connection_pool")
        if sentinel is not None:
            return f"Sentinel service {sentinel.service_name}"
        host, port = self.settings.get("host") or "localhost", self.settings.get("port", 6379)
        return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"

    def connect(self, timeout: float | None, opening: Opening | None = None) -> Any:
        """Open a private redis-py connection: RESP2, no retries, nothing shared with a pool.

        Args:
            timeout: seconds to connect, and for each read.
            opening: the common deadline for several connections, if any.

        Raises:
            TransportError: the connection can't be opened; the message includes the server's error.
        """
        import redis
        from redis.backoff import NoBackoff
        from redis.retry import Retry

        from .reply_parser import BoundedParser

        settings = self.settings | {
            "protocol": 2,
            "parser_class": BoundedParser,
            "decode_responses": False,
            "retry": Retry(NoBackoff(), 0),
            "retry_on_timeout": False,
            "retry_on_error": [],
            "health_check_interval": 0,
            "socket_timeout": timeout,
            "socket_connect_timeout": timeout,
        }
        if "CLIENT" in self._without:
            settings |= unnamed()
        try:
            with needed_for(f"can't use the server at {self}"):  # redis-py reads files to connect
                connection = self.connection_class(**settings)
        except TypeError as error:
            raise TransportError(
                f"can't use the settings of the server at {self}: {error} (check the options "
                "after the '?' of its URL)"
            ) from error
        # In a child process redis-py closes its copy of the socket, but does not shut it down.
        own(connection, lambda connection: connection.disconnect())
        if opening is not None:
            opening.add(connection)
        try:
            connection.connect()
        except (redis.RedisError, OSError, UnicodeError, TypeError) as error:
            connection.disconnect()
            if str(error).startswith("Connection closed") and "CLIENT" not in self._without:
                self._without.add("CLIENT")
                return self.connect(timeout, opening)
            raise self.failure(error) from error
        return connection

    def ask(self, timeout: float | None) -> Answers:
        """Check whether the server can accept a load, before anything is sent.

        Args:
            timeout: seconds to wait for each reply (at most 5), and for all replies (at least 5).

        Raises:
            TransportError: the server can't be reached or used; the message includes its error.
            TransportTimeout: the server does not answer.
        """
        each = ASK_TIMEOUT_S if timeout is None else min(timeout, ASK_TIMEOUT_S)
        with Opening(max(ASK_TIMEOUT_S, timeout or OPEN_TIMEOUT_S)) as opening:
            connection, answers = self._open_first(each, opening)
            connection.disconnect()
        return answers

    def open(self, timeout: float | None) -> tuple[Any, Answers]:
        """Check the server as ``ask()`` does, load the scripts, and return the connection.

        Raises:
            CommandError: the server refuses a script.
        """
        [connection], answers = self.open_all(1, timeout)
        return connection, answers

    def open_all(self, count: int, timeout: float | None) -> tuple[list[Any], Answers]:
        """Open several connections as ``open()`` does; if an attempt fails, close all.

        The first connection checks the server. The first connection to each node loads the scripts.
        """
        each = ASK_TIMEOUT_S if timeout is None else min(timeout, ASK_TIMEOUT_S)
        with Opening(max(ASK_TIMEOUT_S, timeout or OPEN_TIMEOUT_S)) as opening:
            first, answers = self._open_first(each, opening)
            if answers.topology is not None:
                first.disconnect()
                nodes = answers.topology.nodes
                if self.slot is not None:
                    nodes = [answers.topology.node_of(self.slot, str(self))]
                return self._open_nodes(self.nodes_of(nodes, count), each, opening), answers
            self._prepare(first)
            if count == 1:
                return [first], answers
            more = opening.several(count - 1, lambda: self._another(each, opening))
            return [first, *more], answers

    def open_again(self, count: int, timeout: float | None) -> list[Any]:
        """Open connections as ``open_all()`` does; return only the connections."""
        connections, _ = self.open_all(count, timeout)
        return connections

    def redirect(self, words: str) -> Redirect | None:
        """Return where an error reply of this server redirects a command; None for other errors."""
        return redirect_of(words, self.settings.get("host") or "localhost", self.remap)

    def any_node(self) -> Server:
        """Return a copy of this Server for a caller that follows redirects."""
        return self.changed(nodes=False, follows=True)

    def changed(self, **attributes: Any) -> Server:
        """Return a copy of this Server with these attributes changed."""
        server = copy(self)
        for name, value in attributes.items():
            assert hasattr(server, name), name
            setattr(server, name, value)
        return server

    def nodes_of(self, nodes: Iterable[tuple[str, int]], count: int) -> list[Server]:
        """Return ``count`` Servers for each of these cluster nodes: one per connection.

        Raises:
            TransportError: there would be too many connections.
        """
        import redis

        nodes, servers = list(nodes), []
        if len(nodes) * count > MAX_LANES:
            words = (
                f"{len(nodes):,} nodes with {count} connections each are more than {MAX_LANES:,} "
            )
            raise TransportError(Message(words, "connections; use fewer ", Hint("connections")))
        for host, port in nodes:
            server = copy(self)
            server.settings = self.settings | {"host": host, "port": port}
            server.settings.pop("path", None)
            server.announced = True
            if issubclass(self.connection_class, redis.UnixDomainSocketConnection):
                server.connection_class = redis.Connection
            servers += [server] * count
        return servers

    def open_nodes(self, servers: Sequence[Server], timeout: float | None) -> list[Any]:
        """Open a connection to each of these cluster nodes; raises as ``open()`` does."""
        each = ASK_TIMEOUT_S if timeout is None else min(timeout, ASK_TIMEOUT_S)
        with Opening(max(ASK_TIMEOUT_S, timeout or OPEN_TIMEOUT_S)) as opening:
            return self._open_nodes(servers, each, opening)

    def _open_nodes(self, servers: Sequence[Server], timeout: float, opening: Opening) -> list[Any]:
        left = iter(range(len(servers)))

        def open_one() -> tuple[int, Any]:
            at = next(left)
            connection = servers[at]._another(timeout, opening)
            if at == 0 or servers[at] is not servers[at - 1]:
                servers[at]._prepare(connection)
            return at, connection

        made = opening.several(len(servers), open_one)
        return [connection for _, connection in sorted(made, key=itemgetter(0))]

    def _prepare(self, connection: Any) -> None:
        """Over the first connection to a server, check fsync if required, and load the scripts."""
        if self.scripts or self.fsync:
            with self._explained():
                if self.fsync:
                    check_fsync(connection, str(self))
                load_scripts(connection, str(self), self.scripts)
                check_surplus(connection, str(self))

    def _open_first(self, timeout: float, opening: Opening) -> tuple[Any, Answers]:
        if self.tls and timeout > HANDSHAKE_TIMEOUT_S:
            with suppress(TransportTimeout):
                connection, answers = self._open(HANDSHAKE_TIMEOUT_S, opening)
                connection._sock.settimeout(timeout)
                return connection, answers
        return self._open(timeout, opening)

    def _another(self, timeout: float, opening: Opening) -> Any:
        """Open an additional connection to a server that has been checked."""
        connection = self.connect(timeout, opening)
        with self._explained():
            check_alive(connection, str(self))
            self._mark(connection)
            check_surplus(connection, str(self))
        return connection

    def _mark(self, connection: Any) -> None:
        if self.import_source:
            mark_import_source(connection, str(self))

    def _open(self, timeout: float, opening: Opening) -> tuple[Any, Answers]:
        connection = self.connect(timeout, opening)
        place = str(self)
        try:
            with self._explained():
                answers = ask(
                    connection, place, self.rehearsal, self.wishes, reading=self.reading,
                    limits=self.limits, nodes=self.nodes, remap=self.remap, indexes=self.indexes,
                    echo=self.echo, without=self._without,
                )  # fmt: skip
                self._mark(connection)
                check_surplus(connection, place)
            if "INFO" in answers.unknown and not self._told:
                self._told = True
                tell_unknown(place, answers.unknown)
            return connection, answers
        except ClosedAt as closed:
            connection.disconnect()
            self._without.add(closed.question)
        except BaseException:
            connection.disconnect()
            raise
        return self._open(timeout, opening)

    @contextmanager
    def _explained(self) -> Iterator[None]:
        """Convert errors of redis-py and the system to a TransportError with advice."""
        import redis

        try:
            yield
        except (FastrespError, ClosedAt):
            raise
        except (redis.RedisError, OSError) as error:
            raise self.failure(error) from error

    def explained(self) -> AbstractContextManager[None]:
        """Convert errors of redis-py in the block to a TransportError with advice."""
        return self._explained()

    def failure(self, error: Exception) -> TransportError:
        """Return the exception for a server that can't be used, with advice."""
        return failure(error, str(self), self.settings, tls=self.tls, announced=self.announced)
