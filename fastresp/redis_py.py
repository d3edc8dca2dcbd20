"""Speed up redis-py and valkey-py: pack their commands and pipelines with fastresp."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from functools import lru_cache, update_wrapper
from typing import Any, TypeVar

import redis

from .outcome.errors import EncodeError
from .outcome.tracebacks import public
from .resp.values import pack_pipeline

__all__ = ["CommandPacker", "fast", "speed_up"]

Client = TypeVar("Client")


class CommandPacker:
    """Packs commands one by one, as the ``command_packer=`` of a redis-py or valkey-py connection.

    For pipelines, ``speed_up()`` is faster, since it packs all commands of a pipeline in one call.
    Any number of connections and threads can use one packer.

    Args:
        encoding: the text encoding of the client.
        encoding_errors: the error handler of the encoding, such as ``"strict"``.
    """

    _data_error: type[Exception] = redis.DataError

    def __init__(self, encoding: str = "utf-8", encoding_errors: str = "strict") -> None:
        self._encode = _encoder(encoding, encoding_errors)

    def pack(self, *args: Any) -> list[bytes]:
        """Pack one command, given as its name and arguments, as RESP.

        Returns:
            A list of one bytes object, since connections expect a list.

        Raises:
            redis.DataError: an argument is not bytes, str, int, float or a buffer of bytes.
        """
        return _pack((args,), self._encode, self._data_error)


class _Packing:
    """The methods that pack commands, for fast connections.

    This class directly precedes the library's base class in the MRO. So a method that a user's
    class overrides is called first, and ``super()`` in that method refers to this class.

    Attributes:
        library: redis-py or valkey-py; the subclasses set it.
    """

    __slots__ = ()
    library: _Library
    encoder: Any
    _command_packer: Any

    def _construct_command_packer(self, packer: Any) -> Any:
        if packer is not None:
            return packer
        replaced = super()._construct_command_packer(None)  # type: ignore[misc]
        return _packer_for(self, replaced)

    def pack_commands(self, commands: Iterable[Iterable[Any]]) -> list[bytes]:
        # The library may rename its private attribute _command_packer; then it packs the commands.
        packer = getattr(self, "_command_packer", None)
        if type(packer) is CommandPacker:
            return _pack(commands, packer._encode, self.library.data_error)
        packed: list[bytes] = super().pack_commands(commands)  # type: ignore[misc]
        return packed


class _AsyncPacking:
    """The methods that pack commands, for fast asyncio connections; see ``_Packing``."""

    __slots__ = ()
    library: _Library
    encoder: Any

    def pack_command(self, *args: Any) -> list[bytes]:
        if type(self.encoder) is self.library.encoder:
            return _pack((args,), _encoder_of(self), self.library.data_error)
        packed: list[bytes] = super().pack_command(*args)  # type: ignore[misc]
        return packed

    def pack_commands(self, commands: Iterable[Iterable[Any]]) -> list[bytes]:
        ours = getattr(self.pack_command, "__func__", None) is _AsyncPacking.pack_command
        if ours and type(self.encoder) is self.library.encoder:
            return _pack(commands, _encoder_of(self), self.library.data_error)
        packed: list[bytes] = super().pack_commands(commands)  # type: ignore[misc]
        return packed


class _Library:
    """The classes of redis-py, or of its fork valkey-py.

    Args:
        name: name of the package, which is imported.
        client: name of the client class, and prefix of the cluster client's name.
    """

    def __init__(self, name: str, client: str) -> None:
        self.name = name
        self.client = client
        module, connection = sys.modules[name], sys.modules[f"{name}.connection"]
        self.data_error: type[Exception] = module.DataError
        self.encoder: type[Any] = connection.Encoder
        # The library's own packers. A CommandPacker replaces only these, not a user's packer.
        names = ("HiredisRespSerializer", "LibvalkeyRespSerializer", "PythonRespSerializer")
        self.packers = [getattr(connection, each) for each in names if hasattr(connection, each)]

    @property
    def forms(self) -> list[tuple[Any, type[Any], type[Any]]]:
        """(Module, connection base class, packing class) for sync and, if imported, for asyncio."""
        found: list[tuple[Any, type[Any], type[Any]]] = []
        for name, packing in ((self.name, _Packing), (f"{self.name}.asyncio", _AsyncPacking)):
            if name in sys.modules:
                base = sys.modules[f"{name}.connection"].AbstractConnection
                found.append((sys.modules[name], base, packing))
        return found


_library = lru_cache(_Library)


def _libraries() -> list[_Library]:
    """Return redis-py and valkey-py, if they are imported."""
    known = (("redis", "Redis"), ("valkey", "Valkey"))
    return [_library(*each) for each in known if f"{each[0]}.connection" in sys.modules]


def fast(connection_class: Callable[..., Any]) -> Callable[..., Any]:
    """Return a subclass of a connection class that packs commands with fastresp.

    For your own pool: ``ConnectionPool(connection_class=fast(redis.Connection))``. Methods that
    your class overrides, and your own ``command_packer``, are called as before.

    Args:
        connection_class: a connection class of redis-py or valkey-py, or a function that returns
            connections.

    Returns:
        A subclass, or a function that returns fast connections.

    Raises:
        TypeError: the class is not a subclass of redis-py's or valkey-py's connection classes.
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
    for library in _libraries():
        for _, base, packing in library.forms:
            if issubclass(connection_class, base):
                bases = (connection_class, packing, base)
                return type(f"Fast{connection_class.__name__}", bases, {"library": library})
    raise TypeError(
        f"{connection_class.__name__} is not a subclass of a redis-py or valkey-py connection "
        "class, so fastresp can't pack its commands; leave out speed_up() and fast(), or derive it "
        "from redis.Connection"
    )


class _Factory:
    """Wraps a function that returns connections, and speeds up each connection."""

    def __init__(self, make: Callable[..., Any]) -> None:
        update_wrapper(self, make)
        self._make = make

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        connection = self._make(*args, **kwargs)
        _speed_up_connection(connection)
        return connection


def _speed_up_connection(connection: Any) -> None:
    """Speed up an existing connection, but keep a packer that the user set."""
    kind: Any = type(connection)
    connection.__class__ = _fast_class(kind)
    packer = getattr(connection, "_command_packer", None)
    if type(packer) in connection.library.packers:
        connection._command_packer = _packer_for(connection, packer)


def _packer_for(connection: Any, replaced: Any) -> CommandPacker:
    """Return a CommandPacker that sends the same bytes as ``replaced``, the library's packer.

    With hiredis or libvalkey, the library sends text as UTF-8 and ignores ``encoding``.
    """
    if type(replaced).__name__ == "PythonRespSerializer":
        packer = CommandPacker(connection.encoder.encoding, connection.encoder.encoding_errors)
    else:
        packer = CommandPacker()
    packer._data_error = connection.library.data_error
    return packer


def _encoder_of(connection: Any) -> Callable[[str], bytes] | None:
    return _encoder(connection.encoder.encoding, connection.encoder.encoding_errors)


@public
def speed_up(client: Client) -> Client:
    """Make a client of redis-py or valkey-py pack its commands and pipelines with fastresp.

    All clients with the same connection pool become faster. If your connection class or
    ``command_packer`` overrides packing, your code is called as before, and fastresp packs only the
    commands that your code passes on to the library.

    Args:
        client: a ``Redis`` or ``RedisCluster`` of ``redis`` or ``redis.asyncio``, a ``Valkey`` or
            ``ValkeyCluster`` of ``valkey`` or ``valkey.asyncio``, including Sentinel's clients, or
            a ``ConnectionPool`` of these.

    Returns:
        The same client.

    Raises:
        TypeError: the client is of another type, or its connection class is unknown.
    """
    for library in _libraries():
        for module, _, packing in library.forms:
            if isinstance(client, module.ConnectionPool):
                _speed_up_pool(client)
            elif isinstance(client, getattr(module, library.client)):
                _speed_up_pool(client.connection_pool)
            elif not isinstance(client, getattr(module, f"{library.client}Cluster")):
                continue
            elif packing is _Packing:
                _speed_up_cluster(client, library.name)
            else:
                _speed_up_async_cluster(client, module.Connection)
            return client
    raise TypeError(
        "client must be a Redis, RedisCluster, Valkey, ValkeyCluster or ConnectionPool, not a "
        f"{type(client).__name__}"
    )


def _speed_up_pool(pool: Any) -> None:
    """Speed up existing and future connections of a pool."""
    pool.connection_class = fast(pool.connection_class)
    for name in ("_available_connections", "_in_use_connections", "_connections"):
        for connection in list(getattr(pool, name, ())):
            # With client-side caching, redis-py wraps the connection in another object.
            _speed_up_connection(getattr(connection, "_conn", connection))


def _speed_up_cluster(client: Any, library: str) -> None:
    """Speed up the clients of known and future nodes of a cluster."""
    manager, name = client.nodes_manager, f"create_{library}_node"
    create = getattr(manager, name)
    setattr(manager, name, lambda *args, **kwargs: speed_up(create(*args, **kwargs)))
    for node in (*manager.startup_nodes.values(), *manager.nodes_cache.values()):
        connection = getattr(node, f"{library}_connection")
        if connection is not None:
            speed_up(connection)


def _speed_up_async_cluster(client: Any, default: type[Any]) -> None:
    settings = client.connection_kwargs
    settings["connection_class"] = fast(settings.get("connection_class", default))
    manager = client.nodes_manager
    # Not a set: a startup node and its replacement are equal, but both must become fast.
    for node in (*manager.startup_nodes.values(), *manager.nodes_cache.values()):
        _speed_up_pool(node)


def _pack(
    commands: Iterable[Iterable[Any]],
    encode: Callable[[str], bytes] | None,
    data_error: type[Exception],
) -> list[bytes]:
    try:
        return pack_pipeline(commands, encode)
    except EncodeError as error:
        raise data_error(str(error)) from None


@lru_cache
def _encoder(encoding: str, errors: str) -> Callable[[str], bytes] | None:
    """Return a function that encodes text, or None for UTF-8, which needs no function."""
    if encoding.lower().replace("_", "-") in ("utf-8", "utf8") and errors == "strict":
        return None
    return lambda text: text.encode(encoding, errors)
