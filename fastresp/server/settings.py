"""A server: parse its settings from a URL or a client, with redis-py, and open connections."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from copy import copy
from dataclasses import dataclass, replace
from typing import Any, Protocol, TypeAlias
from urllib.parse import quote, urlsplit

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from ..outcome.errors import FastrespError, TransportError, TransportTimeout
from ..outcome.messages import Hint, Message
from .answers import Answers, ClosedAt, ask, log_unknown
from .cluster import Redirect, Remap, redirect_of
from .failure import failure
from .file_io import needed_for
from .forks import on_fork
from .preflight import (
    NOTHING,
    Requirements,
    check_alive,
    check_fsync,
    check_snapshot,
    check_surplus,
    load_scripts,
    mark_import_source,
)
from .reply_parser import BoundedParser
from .threads import ConnectDeadline

__all__ = ["Server", "ServerLike", "as_server", "is_cluster", "one_server", "with_password"]

# A running server answers a connection and a PING well within this time.
ASK_TIMEOUT_S = 5.0
# Seconds to open all connections of a load, if the caller sets no timeout.
OPEN_TIMEOUT_S = 30.0
# Maximum connections to a cluster; each may need 2 MiB.
MAX_LANES = 4096
# A plain port never answers a TLS handshake. After this time, check whether the port is plain; if
# it uses TLS, a second handshake gets the full timeout.
HANDSHAKE_TIMEOUT_S = 1.0
DEFAULT_URL = "redis://localhost:6379/0"
# Valkey's names of URL schemes, and redis-py's names.
SCHEMES = {"valkey": "redis", "valkeys": "rediss"}
# Modules and class names of clients whose settings are translated, and of cluster clients.
CLIENTS = (("redis.asyncio", "Redis"), ("valkey", "Valkey"), ("valkey.asyncio", "Valkey"))
CLUSTERS = (
    ("redis", "RedisCluster"),
    ("redis.asyncio", "RedisCluster"),
    ("valkey", "ValkeyCluster"),
    ("valkey.asyncio", "ValkeyCluster"),
)
# The settings copied from a translated client, in addition to ssl_*.
SETTINGS = {
    "client_name", "credential_provider", "db", "host", "password", "path", "port",
    "socket_keepalive", "socket_keepalive_options", "username",
}  # fmt: skip


def as_server(like: ServerLike | Server, requirements: Requirements = NOTHING) -> Server:
    """Return a Server for a URL or a client; return a Server unchanged."""
    return like if isinstance(like, Server) else Server(like, requirements)


def one_server(like: ServerLike | Server, *, reading: bool = False) -> Server:
    """Return a Server for a URL or a client; for a cluster client, a Server for one node."""
    if isinstance(like, Server):
        return like
    return Server(like, Requirements(reading=reading, nodes=True)).requiring(nodes=False)


@dataclass(frozen=True, eq=False, init=False, repr=False)
class Server:
    """One Redis or Valkey server: how to connect, and what is required of it.

    Creating a Server opens no connection.

    Args:
        server: a URL (``redis://``, ``rediss://``, ``valkey://``, ``valkeys://``, ``unix://``), a
            client of redis-py or valkey-py, sync or asyncio, or None for the environment variable
            ``REDIS_URL`` (default: ``redis://localhost:6379/0``).
        requirements: what each connection is used for; checked when it is opened.

    Attributes:
        connection_class: redis-py's class of the connections.
        settings: redis-py's settings of the connections; may contain a password.
        remap: maps announced addresses of cluster nodes to reachable addresses.
        announced: whether this is a cluster node, at its announced address.

    Raises:
        ValueError: the URL can't be parsed.
        TypeError: ``server`` is neither a URL nor a client.
        TransportError: ``server`` is a cluster client, but the requirements allow only one server.
    """

    connection_class: type[Any]
    settings: dict[str, Any]
    requirements: Requirements
    remap: Remap
    announced: bool
    # All copies of a Server share these sets.
    _unanswered: set[str]  # commands at which a proxy closed the connection
    _logged: set[str]  # commands that were logged as unanswered

    def __init__(self, server: ServerLike = None, requirements: Requirements = NOTHING) -> None:
        pool = pool_of(server, nodes=requirements.nodes or requirements.follow_redirects)
        settings = {
            name: value
            for name, value in pool.connection_kwargs.items()
            if not name.startswith(("maint_", "oss_cluster_maint_"))
        }
        vars(self).update(
            connection_class=pool.connection_class, settings=settings, requirements=requirements,
            remap=getattr(pool, "remap", None), announced=False, _unanswered=set(), _logged=set(),
        )  # fmt: skip

    def changed(self, **attributes: Any) -> Server:
        """Return a copy of this Server with these attributes changed."""
        assert vars(self).keys() >= attributes.keys()
        server = copy(self)
        vars(server).update(attributes)
        return server

    def requiring(self, **needs: Any) -> Server:
        """Return a copy of this Server with these requirements changed."""
        return self.changed(requirements=replace(self.requirements, **needs))

    @property
    def tls(self) -> bool:
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

    def connect(self, timeout: float | None, deadline: ConnectDeadline | None = None) -> Any:
        """Open a private redis-py connection: RESP2, no retries, nothing shared with a pool.

        Args:
            timeout: seconds to connect, and for each read.

        Raises:
            TransportError: the connection can't be opened; the message includes the server's error.
        """
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
        settings |= client_name(self.settings, unanswered="CLIENT" in self._unanswered)
        try:
            with needed_for(f"can't use the server at {self}"):  # redis-py reads files to connect
                connection = self.connection_class(**settings)
        except TypeError as error:
            raise TransportError(
                f"can't use the settings of the server at {self}: {error} (check the options "
                "after the '?' of its URL)"
            ) from error
        # In a child process redis-py closes its copy of the socket, but does not shut it down.
        on_fork(connection, lambda connection: connection.disconnect())
        if deadline is not None:
            deadline.add(connection)
        try:
            connection.connect()
        except (redis.RedisError, OSError, UnicodeError, TypeError) as error:
            connection.disconnect()
            if str(error).startswith("Connection closed") and "CLIENT" not in self._unanswered:
                self._unanswered.add("CLIENT")
                return self.connect(timeout, deadline)
            raise self.failure(error) from error
        return connection

    def ask(self, timeout: float | None) -> Answers:
        """Check whether the server can accept a load, before anything is sent.

        Args:
            timeout: seconds to wait. All replies together get at least 5 s, even if ``timeout`` is
                shorter; each reply gets at most 5 s, even if ``timeout`` is longer.
                With None, these limits are 30 s and 5 s.

        Raises:
            TransportError: the server can't be reached or used; the message includes its error.
            TransportTimeout: the server does not answer.
        """
        with _deadline_of(timeout) as deadline:
            connection, answers = self._open_first(deadline)
            connection.disconnect()
        return answers

    def open(self, timeout: float | None) -> tuple[Any, Answers]:
        """Check the server as ``ask()`` does, and load the scripts; return (connection, answers).

        Raises:
            CommandError: the server refuses a script.
        """
        [connection], answers = self.open_all(1, timeout)
        return connection, answers

    def open_all(self, count: int, timeout: float | None) -> tuple[list[Any], Answers]:
        """Open several connections as ``open()`` does; if one can't be opened, close all.

        The first connection checks the server. The first connection to each node loads the scripts.
        """
        with _deadline_of(timeout) as deadline:
            first, answers = self._open_first(deadline)
            if answers.topology is not None:
                first.disconnect()
                nodes = answers.topology.nodes
                if self.requirements.slot is not None:
                    nodes = [answers.topology.node_of(self.requirements.slot, str(self))]
                return _open_nodes(self.nodes_of(nodes, count), deadline), answers
            self._prepare(first)
            if count == 1:
                return [first], answers
            more = deadline.open_several([self] * (count - 1), lambda _: self._another(deadline))
            return [first, *more], answers

    def open_again(self, count: int, timeout: float | None) -> list[Any]:
        """Open connections as ``open_all()`` does; return them without the answers."""
        connections, _ = self.open_all(count, timeout)
        return connections

    def redirect(self, message: str) -> Redirect | None:
        """Return where an error reply of this server redirects a command; None for other errors."""
        return redirect_of(message, self.settings.get("host") or "localhost", self.remap)

    @property
    def database(self) -> int:
        """The number of the database."""
        return int(self.settings.get("db") or 0)

    def in_database(self, number: int | None) -> Server:
        """Return a copy of this Server for another database; for None, the same database."""
        return self if number is None else self.changed(settings=self.settings | {"db": number})

    def any_node(self) -> Server:
        """Return a copy of this Server for a caller that follows redirects."""
        return self.requiring(nodes=False, follow_redirects=True)

    def nodes_of(self, nodes: Iterable[tuple[str, int]], count: int) -> list[Server]:
        """Return ``count`` Servers for each of these cluster nodes: one per connection.

        Raises:
            TransportError: there would be too many connections.
        """
        nodes, servers = list(nodes), []
        kind = self.connection_class
        if issubclass(kind, redis.UnixDomainSocketConnection):
            kind = redis.Connection
        if len(nodes) * count > MAX_LANES:
            text = (
                f"{len(nodes):,} nodes with {count} connections each are more than {MAX_LANES:,} "
            )
            raise TransportError(Message(text, "connections; use fewer ", Hint("connections")))
        for host, port in nodes:
            settings = self.settings | {"host": host, "port": port}
            settings.pop("path", None)
            server = self.changed(settings=settings, announced=True, connection_class=kind)
            servers += [server] * count
        return servers

    def pinned(self, timeout: float | None) -> Server:
        """Return a Server for the address that Sentinel chooses now; without Sentinel, this Server.

        Args:
            timeout: seconds to connect.

        Raises:
            TransportError: the connection can't be opened.
        """
        if "connection_pool" not in self.settings:
            return self
        connection = self.connect(timeout)
        connection.disconnect()
        settings = self.settings | {"host": connection.host, "port": connection.port}
        del settings["connection_pool"]
        kind = redis.SSLConnection if self.tls else redis.Connection
        return self.changed(settings=settings, connection_class=kind)

    def open_nodes(self, servers: Sequence[Server], timeout: float | None) -> list[Any]:
        """Open a connection to each of these cluster nodes; raises as ``open()`` does."""
        with _deadline_of(timeout) as deadline:
            return _open_nodes(servers, deadline)

    def _prepare(self, connection: Any) -> None:
        """Check fsync or BGSAVE if required, and load the scripts.

        This needs only the first connection to a server.
        """
        needs = self.requirements
        if needs.scripts or needs.fsync or needs.snapshot:
            with self.explained():
                if needs.fsync:
                    check_fsync(connection, str(self))
                if needs.snapshot:
                    check_snapshot(connection, str(self))
                load_scripts(connection, str(self), needs.scripts)
                check_surplus(connection, str(self))

    def _open_first(self, deadline: ConnectDeadline) -> tuple[Any, Answers]:
        timeout = deadline.each
        if self.tls and timeout > HANDSHAKE_TIMEOUT_S:
            with suppress(TransportTimeout):
                connection, answers = self._open(HANDSHAKE_TIMEOUT_S, deadline)
                connection._sock.settimeout(timeout)
                return connection, answers
        return self._open(timeout, deadline)

    def _another(self, deadline: ConnectDeadline) -> Any:
        """Open an additional connection to a server that has been checked."""
        connection = self.connect(deadline.each, deadline)
        with self.explained():
            check_alive(connection, str(self))
            self._mark(connection)
            check_surplus(connection, str(self))
        return connection

    def _mark(self, connection: Any) -> None:
        if self.requirements.import_source:
            mark_import_source(connection, str(self))

    def _open(self, timeout: float, deadline: ConnectDeadline) -> tuple[Any, Answers]:
        connection = self.connect(timeout, deadline)
        address = str(self)
        try:
            with self.explained():
                answers = ask(connection, address, self.requirements, self.remap, self._unanswered)
                self._mark(connection)
                check_surplus(connection, address)
            if "INFO" in answers.unknown and not self._logged:
                self._logged.update(answers.unknown)
                log_unknown(address, answers.unknown)
            return connection, answers
        except ClosedAt as closed:
            connection.disconnect()
            self._unanswered.add(closed.command)
        except BaseException:
            connection.disconnect()
            raise
        return self._open(timeout, deadline)

    @contextmanager
    def explained(self) -> Iterator[None]:
        """Convert an error in the block to a TransportError with advice."""
        try:
            yield
        except (FastrespError, ClosedAt):
            raise
        except (redis.RedisError, OSError) as error:
            raise self.failure(error) from error

    def failure(self, error: Exception) -> TransportError:
        return failure(error, str(self), self.settings, tls=self.tls, announced=self.announced)


def _deadline_of(timeout: float | None) -> ConnectDeadline:
    each = ASK_TIMEOUT_S if timeout is None else min(timeout, ASK_TIMEOUT_S)
    return ConnectDeadline(max(ASK_TIMEOUT_S, timeout or OPEN_TIMEOUT_S), each)


def _open_nodes(servers: Sequence[Server], deadline: ConnectDeadline) -> list[Any]:
    def open_one(number: int) -> Any:
        connection = servers[number]._another(deadline)
        if number == 0 or servers[number] is not servers[number - 1]:
            servers[number]._prepare(connection)
        return connection

    return deadline.open_several(range(len(servers)), open_one)


class Client(Protocol):
    """A client of redis-py or valkey-py, sync or asyncio."""

    connection_pool: Any


class ClusterClient(Protocol):
    """A cluster client of redis-py or valkey-py, sync or asyncio."""

    nodes_manager: Any


ServerLike: TypeAlias = str | Client | ClusterClient | None


def pool_of(server: ServerLike, *, nodes: bool) -> Any:
    """Return an object with ``connection_class`` and ``connection_kwargs``, such as a pool.

    ``nodes``: whether a cluster client is allowed. Raises as ``Server()`` does.
    """
    if server is None:
        server = os.environ.get("REDIS_URL") or DEFAULT_URL
    if isinstance(server, str):
        return _pool_from_url(server)
    if isinstance(server, redis.Redis):
        return server.connection_pool
    client: Any = server
    if _is_any(client, CLIENTS):
        return _Translated(client.connection_pool)
    if is_cluster(client):
        if not nodes:
            raise TransportError(
                "this call uses one server and can't use a whole cluster; pass the URL of one of "
                "its nodes"
            )
        remap = getattr(client.nodes_manager, "address_remap", None)
        return _Translated(_pool_of_cluster(client), remap)
    raise TypeError(
        f"server must be a URL or a client of redis-py or valkey-py, not {type(server).__name__}"
    )


def with_password(url: str | None, password: str | None) -> str | None:
    """Add a password to a URL, or to the default URL; without a password, return ``url``.

    Raises:
        ValueError: the URL has another password, or can't be parsed.
    """
    if password is None:
        return url
    url = url or os.environ.get("REDIS_URL") or DEFAULT_URL
    settings = _pool_from_url(url).connection_kwargs
    if settings.get("password") not in (None, password):
        raise ValueError("the URL of the server has another password; leave out one of them")
    parts = urlsplit(url)
    host = parts.netloc.rpartition("@")[2]
    user = quote(settings.get("username") or "", safe="")
    return parts._replace(netloc=f"{user}:{quote(password, safe='')}@{host}").geturl()


def is_cluster(server: object) -> bool:
    return _is_any(server, CLUSTERS)


def _is_any(client: object, classes: Iterable[tuple[str, str]]) -> bool:
    """Return whether a client is an instance of one of these classes, without importing them."""
    loaded = ((sys.modules.get(module), name) for module, name in classes)
    return any(
        module is not None and isinstance(client, getattr(module, name)) for module, name in loaded
    )


def _pool_of_cluster(client: Any) -> Any:
    """Return an object with the settings of connections to one node of a client's cluster."""
    manager = client.nodes_manager
    node = manager.default_node or next(iter(manager.startup_nodes.values()), None)
    if node is None:
        raise TransportError("this client of a cluster knows no node; initialize it first")
    for name in ("redis_connection", "valkey_connection"):
        if hasattr(node, name):
            return getattr(client.get_default_node(), name).connection_pool
    return node  # an asyncio client's


class _Translated:
    """Settings of an asyncio, cluster or valkey-py client, converted for sync redis-py."""

    def __init__(self, pool: Any, remap: Remap = None) -> None:
        self.remap = remap
        if "connection_pool" in pool.connection_kwargs:
            raise TransportError(
                f"this Sentinel client of {type(pool).__module__.partition('.')[0]} can't be "
                "used; use Sentinel(...).master_for(name) of redis, not of redis.asyncio or valkey"
            )
        names = {base.__name__ for base in pool.connection_class.__mro__}
        classes = (redis.SSLConnection, redis.UnixDomainSocketConnection, redis.Connection)
        # Use the first base class that matches, since an SSLConnection is also a Connection.
        self.connection_class = next(each for each in classes if each.__name__ in names)
        self.connection_kwargs = {
            name: value
            for name, value in pool.connection_kwargs.items()
            if name in SETTINGS or name.startswith("ssl_")
        }


def _pool_from_url(url: str) -> Any:
    scheme, colon, rest = url.partition(":")
    url = SCHEMES.get(scheme.lower(), scheme) + colon + rest
    try:
        parts = urlsplit(url)
        if parts.scheme in ("redis", "rediss") and not re.fullmatch(r"(/\d*)?", parts.path):
            raise ValueError  # redis-py would use database 0
        if parts.scheme != "unix" and "@" in parts.path + parts.query + parts.fragment:
            # The '@' ends a password that contains an unescaped '/', '?' or '#'.
            raise ValueError
        return redis.ConnectionPool.from_url(url)
    except ValueError:
        # Show neither the URL nor the parser's message: both may contain a part of a password that
        # contains '/', '#' or '@'.
        raise ValueError(
            "can't read this server URL; write redis://user:password@host:port/db, rediss:// for "
            "TLS, valkey:// or valkeys://, or unix:///path?db=0, and percent-encode special "
            "characters in the password"
        ) from None


def client_name(settings: Mapping[str, Any], *, unanswered: bool) -> dict[str, Any]:
    """Return the settings for CLIENT SETINFO with the installed redis-py.

    By default, redis-py reads its version from the metadata of its package, which takes 17 ms.

    Args:
        settings: the settings of the connection, which may already name the client.
        unanswered: whether the server does not answer CLIENT SETINFO, so that it is not sent.
    """
    try:
        from redis.driver_info import DriverInfo
    except ImportError:
        return {"lib_name": None, "lib_version": None} if unanswered else {}
    if unanswered:
        return {"driver_info": None}
    named = settings.keys() & {"driver_info", "lib_name", "lib_version"}
    return {} if named else {"driver_info": DriverInfo(lib_version=redis.__version__)}
