"""Speed for redis-py itself: its commands and pipelines packed by fastresp."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import Any, TypeVar

import redis

from .errors import EncodeError
from .wire.pipeline import pack_pipeline

__all__ = ["CommandPacker", "fast", "speed_up"]

Client = TypeVar("Client")


class CommandPacker:
    """What redis-py takes as ``command_packer=``: packs a single command.

    A pipeline is still packed command by command then; ``speed_up()`` packs it in one call. One
    packer serves any number of connections and threads.

    Args:
        encoding, encoding_errors: those of the client, for text.
    """

    def __init__(self, encoding: str = "utf-8", encoding_errors: str = "strict") -> None:
        self._encode = _encoder(encoding, encoding_errors)

    def pack(self, *args: Any) -> list[bytes]:
        """Pack one command, its name first.

        Raises:
            redis.DataError: an argument is not bytes, str, int or float.
        """
        return _pack((args,), self._encode)


class _Packing:
    """What a connection of redis-py gets, sync or asyncio."""

    encoder: Any
    send_packed_command: Any

    def pack_command(self, *args: Any) -> list[bytes]:
        return self.pack_commands((args,))

    def pack_commands(self, commands: Iterable[Iterable[Any]]) -> list[bytes]:
        encoder = self.encoder
        return _pack(commands, _encoder(encoder.encoding, encoder.encoding_errors))

    def send_command(self, *args: Any, **kwargs: Any) -> Any:
        # In asyncio this is what is to be awaited.
        check_health = kwargs.get("check_health", True)
        return self.send_packed_command(self.pack_command(*args), check_health=check_health)


@lru_cache
def fast(connection_class: type[Any]) -> type[Any]:
    """Give a subclass of one of redis-py's connection classes, sync or asyncio, that packs fast.

    For a pool of your own: ``ConnectionPool(connection_class=fast(redis.Connection))``.
    """
    if issubclass(connection_class, _Packing):
        return connection_class
    return type(f"Fast{connection_class.__name__}", (_Packing, connection_class), {})


def speed_up(client: Client) -> Client:
    """Let a client of redis-py pack its commands and pipelines with fastresp.

    Args:
        client: a ``Redis`` or ``RedisCluster`` of ``redis`` or ``redis.asyncio``, Sentinel's
            among them, or a ``ConnectionPool`` of either. What shares its pool becomes fast too.

    Returns:
        The same client.

    Raises:
        TypeError: it is no such client.
    """
    other = sys.modules.get("redis.asyncio")
    if isinstance(client, redis.Redis):
        _speed_up_pool(client.connection_pool)
    elif isinstance(client, redis.ConnectionPool):
        _speed_up_pool(client)
    elif other is not None and isinstance(client, other.Redis):
        _speed_up_pool(client.connection_pool)
    elif other is not None and isinstance(client, other.ConnectionPool):
        _speed_up_pool(client)
    elif isinstance(client, redis.RedisCluster):
        _speed_up_cluster(client.nodes_manager)
    elif other is not None and isinstance(client, other.RedisCluster):
        _speed_up_async_cluster(client, other.Connection)
    else:
        raise TypeError(
            f"client is a Redis, RedisCluster or ConnectionPool, not a {type(client).__name__}"
        )
    return client


def _speed_up_pool(pool: Any) -> None:
    """Those connections that it has, by whatever name its kind keeps them, and those to come."""
    pool.connection_class = fast(pool.connection_class)
    for name in ("_available_connections", "_in_use_connections", "_connections"):
        for connection in list(getattr(pool, name, ())):
            # With a cache redis-py wraps the connection in another.
            inner: Any = getattr(connection, "_conn", connection)
            inner.__class__ = fast(inner.__class__)


def _speed_up_cluster(nodes: Any) -> None:
    """Those nodes that are known, and those that are found later."""
    create = nodes.create_redis_node
    nodes.create_redis_node = lambda *args, **kwargs: speed_up(create(*args, **kwargs))
    for node in nodes.nodes_cache.values():
        if node.redis_connection is not None:
            speed_up(node.redis_connection)


def _speed_up_async_cluster(client: Any, default: type[Any]) -> None:
    settings = client.connection_kwargs
    settings["connection_class"] = fast(settings.get("connection_class", default))
    manager = client.nodes_manager
    for node in {*manager.startup_nodes.values(), *manager.nodes_cache.values()}:
        _speed_up_pool(node)


def _pack(commands: Iterable[Iterable[Any]], encode: Callable[[str], bytes] | None) -> list[bytes]:
    try:
        return pack_pipeline(commands, encode)
    except EncodeError as error:
        raise redis.DataError(str(error)) from None


@lru_cache
def _encoder(encoding: str, errors: str) -> Callable[[str], bytes] | None:
    """How a client encodes text; None for UTF-8, which the packer does itself."""
    if encoding.lower().replace("_", "-") in ("utf-8", "utf8") and errors == "strict":
        return None
    return lambda text: text.encode(encoding, errors)
