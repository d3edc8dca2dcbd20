"""What names a server: a URL, or a client whose settings are taken over."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterable
from typing import Any, Protocol, TypeAlias
from urllib.parse import urlsplit

from ..outcome.errors import TransportError
from ..outcome.messages import Hint, Message

__all__ = ["ServerLike", "pool_of"]


class Client(Protocol):
    """A client of redis-py or of valkey-py, sync or asyncio."""

    connection_pool: Any


ServerLike: TypeAlias = str | Client | None

DEFAULT_URL = "redis://localhost:6379/0"
# What Valkey calls them, and redis-py.
SCHEMES = {"valkey": "redis", "valkeys": "rediss"}
# Clients whose settings are translated, and those of a whole cluster.
CLIENTS = (("redis.asyncio", "Redis"), ("valkey", "Valkey"), ("valkey.asyncio", "Valkey"))
CLUSTERS = (
    ("redis", "RedisCluster"),
    ("redis.asyncio", "RedisCluster"),
    ("valkey", "ValkeyCluster"),
    ("valkey.asyncio", "ValkeyCluster"),
)
# What is taken over of such a client, besides ssl_*.
SETTINGS = {
    "client_name", "credential_provider", "db", "host", "password", "path", "port",
    "socket_keepalive", "socket_keepalive_options", "username",
}  # fmt: skip


def pool_of(server: ServerLike) -> Any:
    """What has the class and the settings of the connections: a pool, or what is like one.

    Raises:
        ValueError: the URL can't be read.
        TypeError: it is neither a URL nor a client.
        TransportError: it is a client of a whole cluster, or one of Sentinel that can't be used.
    """
    import redis

    if server is None:
        server = os.environ.get("REDIS_URL") or DEFAULT_URL
    if isinstance(server, str):
        return _pool_from_url(server)
    if isinstance(server, redis.Redis):
        return server.connection_pool
    if _is_any(server, CLIENTS):
        return _Translated(server)
    if _is_any(server, CLUSTERS):
        message = Message(
            "a load into a whole cluster is not in this version; load each master with the "
            "URL of that node and ",
            Hint("transport", "socket"),
        )
        raise TransportError(message)
    raise TypeError(
        f"server is a URL or a client of redis-py or valkey-py, not a {type(server).__name__}"
    )


def _is_any(client: object, classes: Iterable[tuple[str, str]]) -> bool:
    """Whether it is of one of these classes; their modules are not imported for this."""
    loaded = ((sys.modules.get(module), name) for module, name in classes)
    return any(
        module is not None and isinstance(client, getattr(module, name)) for module, name in loaded
    )


class _Translated:
    """The settings of a client of asyncio or valkey-py, for a connection of redis-py's own."""

    def __init__(self, client: Any) -> None:
        import redis

        pool = client.connection_pool
        if "connection_pool" in pool.connection_kwargs:
            raise TransportError(
                f"this Sentinel client of {type(client).__module__.partition('.')[0]} can't be "
                "used; give Sentinel(...).master_for(name) of redis, not of redis.asyncio or valkey"
            )
        names = {base.__name__ for base in pool.connection_class.__mro__}
        classes = (redis.SSLConnection, redis.UnixDomainSocketConnection, redis.Connection)
        # The first that it is derived from; an SSLConnection is a Connection, too.
        self.connection_class = next(each for each in classes if each.__name__ in names)
        self.connection_kwargs = {
            name: value
            for name, value in pool.connection_kwargs.items()
            if name in SETTINGS or name.startswith("ssl_")
        }


def _pool_from_url(url: str) -> Any:
    import redis

    scheme, colon, rest = url.partition(":")
    url = SCHEMES.get(scheme.lower(), scheme) + colon + rest
    try:
        parts = urlsplit(url)
        if parts.scheme in ("redis", "rediss") and not re.fullmatch(r"(/\d*)?", parts.path):
            raise ValueError  # redis-py would take database 0
        if parts.scheme != "unix" and "@" in parts.path + parts.query + parts.fragment:
            # The end of a password with an unescaped '/', '?' or '#' in it.
            raise ValueError
        return redis.ConnectionPool.from_url(url)
    except ValueError:
        # Neither the URL nor the parser's words may be shown: a password with '/', '#' or '@'
        # in it ends up in both.
        raise ValueError(
            "this server URL can't be read; it looks like redis://user:password@host:port/db, "
            "rediss:// for TLS, valkey:// and valkeys:// likewise, or unix:///path?db=0, with "
            "special characters in the password percent-encoded"
        ) from None
