"""Speed up redis-py: pack its commands and pipelines with fastresp."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from functools import lru_cache, update_wrapper
from typing import Any, TypeVar

import redis
from redis._parsers import Encoder
from redis.connection import (
    AbstractConnection,
    HiredisRespSerializer,
    PythonRespSerializer,
)

from .outcome.errors import EncodeError
from .resp.redis_pipeline import pack_pipeline

__all__ = ["CommandPacker", "fast", "speed_up"]

Client = TypeVar("Client")


class CommandPacker:
    """Pack single commands; pass it to a redis-py connection as ``command_packer=``.

    With it alone, a pipeline is still packed command by command; ``speed_up()`` packs it in one
    call. One packer serves any number of connections and threads.

    Args:
        encoding, encoding_errors: the client's settings for text.
    """

    def __init__(self, encoding: str = "utf-8", encoding_errors: str = "strict") -> None:
        self._encode = _encoder(encoding, encoding_errors)

    def pack(self, *args: Any) -> list[bytes]:
        """Pack one command, name first.

        Raises:
            redis.DataError: an argument is not bytes, str, int, float or a buffer of bytes.
        """
        return _pack((args,), self._encode)


class _Packing:
    """The packing methods of a fast connection.

    This class comes right before redis-py's own base class in the MRO. So a method that a user's
    class overrides is called first, and its ``super()`` call arrives here.
    """

    __slots__ = ()
    encoder: Any
    _command_packer: Any

    def _construct_command_packer(self, packer: Any) -> Any:
        return _packer_for(self) if packer is None else packer

    def pack_commands(self, commands: Iterable[Iterable[Any]]) -> list[bytes]:
        # _command_packer is private to redis-py; if it is gone, redis-py packs as before.
        if type(getattr(self, "_command_packer", None)) is CommandPacker:
            return _pack(commands, _encoder_of(self))
        packed: list[bytes] = super().pack_commands(commands)  # type: ignore[misc]
        return packed


class _AsyncPacking:
    """The same for asyncio, where redis-py packs in methods; a user's overrides come first too."""

    __slots__ = ()
    encoder: Any

    def pack_command(self, *args: Any) -> list[bytes]:
        if type(self.encoder) is Encoder:
            return _pack((args,), _encoder_of(self))
        packed: list[bytes] = super().pack_command(*args)  # type: ignore[misc]
        return packed

    def pack_commands(self, commands: Iterable[Iterable[Any]]) -> list[bytes]:
        ours = getattr(self.pack_command, "__func__", None) is _AsyncPacking.pack_command
        if ours and type(self.encoder) is Encoder:
            return _pack(commands, _encoder_of(self))
        packed: list[bytes] = super().pack_commands(commands)  # type: ignore[misc]
        return packed


def fast(connection_class: Callable[..., Any]) -> Callable[..., Any]:
    """Return a subclass of a redis-py connection class, sync or asyncio, that packs fast.

    For your own pool: ``ConnectionPool(connection_class=fast(redis.Connection))``. Methods that
    your class overrides are called as before, and so is your own ``command_packer``. Given a
    function that makes connections, return one that makes fast connections.

    Raises:
        TypeError: the class is not a subclass of a redis-py connection class.
    """
    if isinstance(connection_class, type):
        return _fast_class(connection_class)
    if isinstance(connection_class, _Factory):
        return connection_class
    return _Factory(connection_class)


@lru_cache
def _fast_class(connection_class: type[Any]) -> type[Any]:
    if issubclass(connection_class, (_Packing, _AsyncPacking)):
        return connection_class
    base: type[Any] = AbstractConnection
    packing: type[Any] = _Packing
    other = sys.modules.get("redis.asyncio.connection")
    if other is not None and issubclass(connection_class, other.AbstractConnection):
        base, packing = other.AbstractConnection, _AsyncPacking
    elif not issubclass(connection_class, base):
        raise TypeError(
            f"{connection_class.__name__} is not a subclass of a redis-py connection class, so "
            "fastresp can't pack its commands; leave out speed_up() and fast(), or derive it from "
            "redis.Connection"
        )
    return type(f"Fast{connection_class.__name__}", (connection_class, packing, base), {})


class _Factory:
    """Wrap a function that makes connections; make each connection fast."""

    def __init__(self, make: Callable[..., Any]) -> None:
        update_wrapper(self, make)
        self._make = make

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        connection = self._make(*args, **kwargs)
        _speed_up_connection(connection)
        return connection


def _speed_up_connection(connection: Any) -> None:
    """Make an existing connection fast; keep a packer that the user set."""
    kind: Any = type(connection)
    connection.__class__ = _fast_class(kind)
    packer = getattr(connection, "_command_packer", None)
    if type(packer) in (HiredisRespSerializer, PythonRespSerializer):
        connection._command_packer = _packer_for(connection)


def _packer_for(connection: Any) -> CommandPacker:
    return CommandPacker(connection.encoder.encoding, connection.encoder.encoding_errors)


def _encoder_of(connection: Any) -> Callable[[str], bytes] | None:
    return _encoder(connection.encoder.encoding, connection.encoder.encoding_errors)


def speed_up(client: Client) -> Client:
    """Make a redis-py client pack its commands and pipelines with fastresp.

    Args:
        client: a ``Redis`` or ``RedisCluster`` of ``redis`` or ``redis.asyncio``, including
            Sentinel's clients, or a ``ConnectionPool`` of either. Clients that share its pool
            become fast too. If your connection class or ``command_packer`` overrides packing, it is
            called as before; what it passes on to redis-py is packed by fastresp.

    Returns:
        The same client.

    Raises:
        TypeError: it is not one of these, or its connections are not redis-py's.
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
            f"client must be a Redis, RedisCluster or ConnectionPool, not a {type(client).__name__}"
        )
    return client


def _speed_up_pool(pool: Any) -> None:
    """Make existing and future connections of a pool fast; pools differ in attribute names."""
    pool.connection_class = fast(pool.connection_class)
    for name in ("_available_connections", "_in_use_connections", "_connections"):
        for connection in list(getattr(pool, name, ())):
            # With client-side caching, redis-py wraps the connection in another object.
            _speed_up_connection(getattr(connection, "_conn", connection))


def _speed_up_cluster(nodes: Any) -> None:
    """Speed up the nodes known now and those discovered later."""
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
    """Return a client's text encoder; None for UTF-8, which the packer does itself."""
    if encoding.lower().replace("_", "-") in ("utf-8", "utf8") and errors == "strict":
        return None
    return lambda text: text.encode(encoding, errors)
