"""Check before a load whether the server can accept it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from ..outcome.errors import CommandError, FastrespError, TransportError
from ..resp.grammar import BULK_BYTES
from .cluster import Remap, Topology, positions_of, topology_of
from .connection_setup import call, check_alive, expect
from .preflight import Refused, Rehearsed, rehearse
from .reply_parser import parse_info, texts_of

__all__ = [
    "Answers", "ClosedAt", "Wishes", "ask", "ask_topology", "is_clustered", "tell_unknown",
]  # fmt: skip

# The minimum proto-max-bulk-len of a server. Source: config.c.
MIN_BULK_BYTES = 1 << 20
# Receives whether the server is a cluster node, and returns optional commands to try.
Wishes: TypeAlias = Callable[[bool], list[tuple[bytes, ...]]]
BULK_LIMIT = "proto-max-bulk-len"


@dataclass(frozen=True)
class Answers:
    """A server's answers about itself."""

    version: str | None
    cluster: bool
    # The error reply to ECHO; None if ECHO was accepted or not sent.
    echo_refused: str | None
    # The largest argument that the server accepts, in bytes.
    max_bulk_bytes: int
    # The names of optional commands that the server refuses.
    lacking: frozenset[str]
    # The server's settings that limit compact encodings; empty if unknown.
    limits: dict[str, int]
    valkey: bool
    # The server of this connection; Sentinel may have chosen it.
    host: str | None
    port: int | None
    # The topology of the cluster; None for a single server, or if the node was not asked.
    topology: Topology | None = None
    # The key positions of the server's commands: first key, last key, and step.
    positions: dict[bytes, tuple[int, int, int]] = field(default_factory=dict)
    # Whether the server has the Search module. If requested, ``indexes`` has the index names.
    searches: bool = False
    # The Processes that answered over the first connections; None if not requested.
    processes: Any = None
    indexes: tuple[bytes, ...] = ()
    # Whether the server evicts keys when it reaches maxmemory.
    evicts: bool = False
    # Commands that were not sent, or that the server does not know: some proxies know only data
    # commands.
    unknown: frozenset[str] = frozenset()


class ClosedAt(ConnectionError):
    """The server closed the connection when it received an optional command."""

    def __init__(self, question: str) -> None:
        super().__init__(f"it closed the connection at {question}")
        self.question = question


def ask(
    connection: Any,
    place: str,
    rehearsal: list[Rehearsed],
    wishes: Wishes | None,
    *,
    reading: bool,
    limits: bool = False,
    nodes: bool = False,
    remap: Remap = None,
    indexes: bool = False,
    echo: bool = False,
    without: Collection[str] = (),
) -> Answers:
    """Check whether a server can accept a load.

    Args:
        connection: a redis-py connection.
        place: the name of the server, for messages.
        rehearsal: commands that the server must accept.
        wishes: returns optional commands.
        reading: whether nothing will be written, so that a replica suffices.
        limits: whether to read the settings that limit compact encodings.
        nodes: whether to ask for the topology of a cluster. The node may then be a replica.
        remap: maps announced addresses of nodes to reachable addresses.
        indexes: whether to list the search indexes, if the server has the Search module.
        echo: whether to test ECHO, which redis-cli --pipe needs to find the last reply. Proxies
            lack ECHO.
        without: which of the commands INFO, HELLO, CONFIG, MULTI and COMMAND are not sent.

    Raises:
        ClosedAt: the server closed the connection when it received one of these commands.
        TransportError: the server can't be used.
        CommandError: the server refuses a command of ``rehearsal``.
        redis.RedisError: the connection is lost or refused.
        OSError: the connection is lost or refused.
    """
    import redis

    check_alive(connection, place)
    echo_refused = None
    if echo:
        try:
            expect(b"fastresp", call(connection, "ECHO", "fastresp"), "ECHO fastresp", place)
        except redis.ResponseError as error:
            echo_refused = str(error)
    unknown = set(without)
    info = None
    if "INFO" not in without:
        with _closing_at("INFO"):
            info = _info(connection, unknown=unknown)
    with _closing_at("HELLO"):
        cluster = _clustered(connection, info, asks="HELLO" not in without)
    info = info or {}
    wished = wishes(cluster) if wishes else []
    settings: dict[str, int] = {}
    configures = "CONFIG" not in without
    rehearses = bool(rehearsal or wished) and "MULTI" not in without
    with _closing_at("CONFIG"):
        if configures:
            connection.send_command("CONFIG", "GET", "*max-*" if limits else BULK_LIMIT)
        if rehearses:
            connection.send_command("MULTI")  # before reading CONFIG's reply, to save a round trip
        if configures:
            with suppress(redis.ResponseError):
                settings = _settings(connection.read_response())
    refused, lacking = None, frozenset(wish[0].decode() for wish in wished)
    if rehearses:
        with _closing_at("MULTI"), suppress(redis.ResponseError):
            connection.read_response()
            refused, lacking = rehearse(connection, rehearsal, wished)
    _check_state(info, place, reading=reading or (cluster and nodes))
    if refused is not None:
        raise _refused(refused, place)
    topology, positions = None, {}
    if cluster and nodes:
        topology = ask_topology(connection, place, remap)
        if "COMMAND" not in without:
            with _closing_at("COMMAND"), suppress(redis.ResponseError):
                positions = positions_of(call(connection, "COMMAND"))
    names: list[bytes] = []
    searches = "search" in info.get("modules", "").split()
    if indexes and searches:
        with suppress(redis.ResponseError):  # no permission
            names = texts_of("FT._LIST", call(connection, "FT._LIST"))
    return Answers(
        version=info.get("valkey_version") or info.get("redis_version"),
        cluster=cluster,
        topology=topology,
        positions=positions,
        echo_refused=echo_refused,
        max_bulk_bytes=_bulk_limit(settings),
        lacking=lacking,
        limits=settings,
        valkey="valkey_version" in info,
        host=getattr(connection, "host", None),
        port=getattr(connection, "port", None),
        searches=searches,
        indexes=tuple(names),
        evicts=info.get("maxmemory", "0") != "0"
        and info.get("maxmemory_policy", "noeviction") != "noeviction",
        unknown=frozenset(unknown),
    )


@contextmanager
def _closing_at(question: str) -> Iterator[None]:
    """Raise ClosedAt if the server closes the connection during the block."""
    import redis

    try:
        yield
    except redis.ConnectionError as error:
        if type(error) is redis.ConnectionError:
            raise ClosedAt(question) from error
        raise


def is_clustered(connection: Any) -> bool:
    """Return whether this is a connection to a node of a cluster; raises as redis-py does."""
    return _clustered(connection, _info(connection, "cluster"))


def _info(
    connection: Any, *sections: str, unknown: set[str] | None = None
) -> dict[str, str] | None:
    """Return the fields of INFO; None if the server refuses INFO.

    Args:
        connection: a redis-py connection.
        sections: sections of INFO.
        unknown: a set, to which INFO is added if the server does not know INFO.
    """
    import redis

    try:
        return parse_info(call(connection, "INFO", *sections))
    except redis.ResponseError as error:
        if unknown is not None and not isinstance(error, redis.exceptions.NoPermissionError):
            unknown.add("INFO")
        return None


def _clustered(connection: Any, info: dict[str, str] | None, *, asks: bool = True) -> bool:
    """Return whether a server is a cluster node, by INFO or, if INFO is refused, by HELLO.

    No ACL can forbid HELLO. Without this check, the keys of one node could be mistaken for all keys
    of the cluster.
    """
    import redis

    if info is not None:
        return info.get("cluster_enabled") == "1"
    said: Any = None
    if not asks:
        return False
    with suppress(redis.ResponseError):  # unknown before Redis 6
        said = call(connection, "HELLO", "2")
    pairs = said if isinstance(said, list) else []
    return (b"mode", b"cluster") in zip(pairs[::2], pairs[1::2], strict=False)


def ask_topology(connection: Any, place: str, remap: Remap = None) -> Topology:
    """Return the topology of a cluster, as reported by a node.

    Args:
        connection: a connection to the node.
        place: the name of the node, for messages.
        remap: as for ``ask()``.

    Raises:
        TransportError, redis.RedisError, OSError: as ``ask()``.
    """
    import redis

    try:
        slots = call(connection, "CLUSTER", "SLOTS")
    except redis.exceptions.NoPermissionError as error:
        raise TransportError(
            f"can't use the cluster at {place}: {error} (allow it with ACL SETUSER ... "
            "+cluster|slots +command)"
        ) from error
    return topology_of(slots, getattr(connection, "host", None) or "localhost", place, remap)


def _check_state(info: dict[str, str], place: str, *, reading: bool) -> None:
    """Check that the server accepts writes.

    Raises:
        TransportError: the server is a replica, or is loading its data.
    """
    replica = info.get("role") == "slave" and info.get("slave_read_only") == "1"
    if replica and not reading:
        raise TransportError(
            f"{place} is a read-only replica; load into its primary "
            f"{info.get('master_host')}:{info.get('master_port')}"
        )
    if info.get("loading") == "1":
        raise TransportError(f"{place} is still loading its data from disk; try again later")


def tell_unknown(place: str, unknown: Collection[str]) -> None:
    """Log which commands a server does not answer, and what is unknown as a result."""
    import logging

    words = (
        "%s does not answer %s, as is usual for proxies: its role and free memory are unknown, and "
        "its commands are not checked before the first is sent"
    )
    logging.getLogger("fastresp").warning(words, place, ", ".join(sorted(unknown)))


def _refused(refused: Refused, place: str) -> FastrespError:
    """Return the exception for a command of the template that the server refuses in every row."""
    if refused.right:
        return TransportError(
            f"can't use the server at {place}: {refused.words} (nothing was sent; allow it "
            f"with ACL SETUSER ... +{refused.name.lower()})"
        )
    error = CommandError(refused.words)
    error.add_note(f"fastresp: the server refuses {refused.name}; no command was sent")
    return error


def _settings(reply: Any) -> dict[str, int]:
    """Return the settings in a reply to CONFIG GET whose values are numbers."""
    found: dict[str, int] = {}
    pairs = list(reply) if isinstance(reply, list | tuple) else []
    for name, value in zip(pairs[::2], pairs[1::2], strict=False):
        with suppress(TypeError, ValueError, AttributeError):
            found[name.decode() if isinstance(name, bytes) else str(name)] = int(value)
    return found


def _bulk_limit(settings: dict[str, int]) -> int:
    """Return the maximum size of an argument in bytes; the default if unknown."""
    most = settings.get(BULK_LIMIT, BULK_BYTES)
    return most if MIN_BULK_BYTES <= most <= sys.maxsize else BULK_BYTES
