"""Parse a server's settings from a URL or a client."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterable
from typing import Any, Protocol, TypeAlias
from urllib.parse import quote, urlsplit

import redis

from ..outcome.errors import TransportError
from .cluster import Remap

__all__ = ["ServerLike", "is_cluster", "pool_of", "without_client_name", "with_password"]

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


class Client(Protocol):
    """A client of redis-py or valkey-py, sync or asyncio."""

    connection_pool: Any


class ClusterClient(Protocol):
    """A cluster client of redis-py or valkey-py, sync or asyncio."""

    nodes_manager: Any


ServerLike: TypeAlias = str | Client | ClusterClient | None


def pool_of(server: ServerLike, *, nodes: bool = False) -> Any:
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
    """Return a URL, or the default URL, with a password; for None, return the URL unchanged.

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
    """The settings of an asyncio, cluster or valkey-py client, for redis-py's own connections."""

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


def without_client_name() -> dict[str, None]:
    """Return settings that keep the installed redis-py from sending CLIENT SETINFO."""
    try:
        import redis.driver_info  # noqa: F401
    except ImportError:
        return {"lib_name": None, "lib_version": None}
    return {"driver_info": None}
