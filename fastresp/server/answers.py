"""Check before a load whether the server can accept it."""

from __future__ import annotations

import socket
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import redis

from ..outcome.errors import CommandError, FastrespError, TransportError
from ..resp.grammar import BULK_BYTES
from .cluster import Remap, Topology, positions_of, topology_of
from .known_faults import ServerState, faults_of
from .preflight import Rejection, Requirements, call, check_alive, expect, preflight
from .reply_parser import fields_of, parse_info, texts_of

__all__ = [
    "Answers", "ClosedAt", "ask", "ask_topology", "is_clustered", "log_unknown", "primary_down",
    "read_config", "replica_advice", "request_config",
]  # fmt: skip

# The minimum proto-max-bulk-len of a server. Source: config.c.
MIN_BULK_BYTES = 1 << 20
BULK_LIMIT = "proto-max-bulk-len"
SEARCH = "search"  # the name of the module
# Seconds to wait for the primary of a replica to accept a connection.
PRIMARY_TIMEOUT_S = 1.0


@dataclass(frozen=True)
class Answers:
    """What a server reports about itself."""

    version: str | None
    cluster: bool
    # The error reply to ECHO; None if ECHO was accepted or not sent.
    echo_refused: str | None
    # The largest argument that the server accepts, in bytes.
    max_bulk_bytes: int
    # The names of optional commands that the server refuses.
    refused: frozenset[str]
    # The server's settings that limit compact encodings; empty if unknown.
    encoding_limits: dict[str, int]
    valkey: bool
    # The address of this connection, which Sentinel may have chosen.
    host: str | None
    port: int | None
    # The topology of the cluster; None for a single server, or if the node was not asked.
    topology: Topology | None = None
    # The key positions of the server's commands: first key, last key, and step.
    positions: dict[bytes, tuple[int, int, int]] = field(default_factory=dict)
    # Whether the server has the Search module.
    searches: bool = False
    # The names of the search indexes, if requested.
    indexes: tuple[bytes, ...] = ()
    # The Processes that answered over the first connections; None if not requested.
    processes: Any = None
    # Whether the server has HIMPORT, if requested.
    himport: bool = False
    # Whether the server evicts keys when it reaches maxmemory.
    evicts: bool = False
    # The ID of the server's process; empty if unknown.
    run_id: str = ""
    # Whether ``refused`` is known. If not, because MULTI is refused, it has all optional commands.
    tested: bool = False
    # The server, or the primaries of the cluster; empty if not requested.
    states: tuple[ServerState, ...] = ()
    # Commands that were not sent, or that the server does not know, as is usual for proxies.
    unknown: frozenset[str] = frozenset()


class ClosedAt(ConnectionError):
    """The server closed the connection when it received an optional command."""

    def __init__(self, command: str) -> None:
        super().__init__(f"it closed the connection at {command}")
        self.command = command


def ask(
    connection: Any,
    address: str,
    requirements: Requirements,
    remap: Remap,
    without: Collection[str],
) -> Answers:
    """Check whether a server meets the requirements, and ask for its version and settings.

    Args:
        connection: a redis-py connection.
        address: the name of the server, for messages.
        requirements: the requirements. If ``nodes`` is set, a replica in a cluster is accepted.
        without: optional commands that must not be sent: any of INFO, HELLO, CONFIG, MULTI and
            COMMAND.

    Raises:
        ClosedAt: the server closed the connection when it received an optional command.
        TransportError: the server can't be used.
        CommandError: the server refuses a command of the requirements.
        redis.RedisError, OSError: the connection is lost or refused.
    """
    check_alive(connection, address)
    echo_refused = None
    if requirements.echo:
        try:
            expect(b"fastresp", call(connection, "ECHO", "fastresp"), "ECHO fastresp", address)
        except redis.ResponseError as error:
            echo_refused = str(error)
    unknown = set(without)
    info = None
    if "INFO" not in without:
        with _closing_at("INFO"):
            info = _info(connection, unknown=unknown)
    with _closing_at("HELLO"):
        cluster = _clustered(connection, info, send_hello="HELLO" not in without)
    info = info or {}
    get_optional = requirements.optional_commands
    optional = get_optional(cluster) if get_optional else []
    nodes = cluster and requirements.nodes
    patterns: list[str] = []
    if "CONFIG" not in without:
        patterns = ["*max-*" if requirements.encoding_limits else BULK_LIMIT]
        patterns += [] if nodes else requirements.settings
    queues = bool(requirements.commands or optional) and "MULTI" not in without
    with _closing_at("CONFIG"):
        request_config(connection, patterns)
        if queues:
            connection.send_command("MULTI")  # before reading CONFIG's reply, to save a round trip
        config = read_config(connection, patterns)
    settings = _integers(config)
    rejection, refused = None, frozenset(each[0].decode() for each in optional)
    tested = False
    if queues:
        with _closing_at("MULTI"), suppress(redis.ResponseError):
            connection.read_response()
            merges = not requirements.himport
            rejection, refused = preflight(
                connection, requirements.commands, optional, merges=merges
            )
            tested = True
    _check_state(info, address, reading=requirements.reading or nodes)
    if rejection is not None:
        raise _rejected(rejection, address)
    topology, positions = None, {}
    if nodes:
        topology = ask_topology(connection, address, remap)
        if "COMMAND" not in without:
            with _closing_at("COMMAND"), suppress(redis.ResponseError):
                positions = positions_of(call(connection, "COMMAND"))
    himport = False
    if requirements.himport and "COMMAND" not in without:
        with _closing_at("COMMAND"), suppress(redis.ResponseError):
            found = call(connection, "COMMAND", "INFO", "HIMPORT")
            himport = isinstance(found, list) and any(found)
    names: list[bytes] | None = None
    searches = SEARCH in info.get("modules", "").split()
    if requirements.indexes and searches:
        with suppress(redis.ResponseError):  # no permission
            names = texts_of("FT._LIST", call(connection, "FT._LIST"))
    faults = faults_of(info, config)
    if names == []:
        faults = tuple(each for each in faults if each.fault.module != SEARCH)
    asked = bool(requirements.settings) and not nodes
    return Answers(
        version=info.get("valkey_version") or info.get("redis_version"),
        cluster=cluster,
        topology=topology,
        positions=positions,
        echo_refused=echo_refused,
        max_bulk_bytes=_bulk_limit(settings),
        refused=refused,
        encoding_limits=settings,
        valkey="valkey_version" in info,
        host=getattr(connection, "host", None),
        port=getattr(connection, "port", None),
        searches=searches,
        indexes=tuple(names or ()),
        himport=himport,
        evicts=info.get("maxmemory", "0") != "0"
        and info.get("maxmemory_policy", "noeviction") != "noeviction",
        run_id=info.get("run_id", ""),
        tested=tested,
        states=(ServerState("", faults, config),) if asked else (),
        unknown=frozenset(unknown),
    )


@contextmanager
def _closing_at(command: str) -> Iterator[None]:
    """Raise ClosedAt if the server closes the connection during the block."""
    try:
        yield
    except redis.ConnectionError as error:
        if type(error) is redis.ConnectionError:
            raise ClosedAt(command) from error
        raise


def is_clustered(connection: Any) -> bool:
    """Return whether this is a connection to a node of a cluster; raises as redis-py does."""
    return _clustered(connection, _info(connection, "cluster"))


def _info(
    connection: Any, *sections: str, unknown: set[str] | None = None
) -> dict[str, str] | None:
    """Return the fields of INFO; None if refused. If INFO is unknown, add it to ``unknown``."""
    try:
        return parse_info(call(connection, "INFO", *sections))
    except redis.ResponseError as error:
        if unknown is not None and not isinstance(error, redis.exceptions.NoPermissionError):
            unknown.add("INFO")
        return None


def _clustered(connection: Any, info: dict[str, str] | None, *, send_hello: bool = True) -> bool:
    """Return whether a server is a cluster node, from INFO or, if INFO is refused, from HELLO.

    No ACL can forbid HELLO. Without this check, the keys of one node could be mistaken for all keys
    of the cluster.
    """
    if info is not None:
        return info.get("cluster_enabled") == "1"
    with suppress(redis.ResponseError):  # unknown before Redis 6
        return send_hello and fields_of(call(connection, "HELLO", "2")).get(b"mode") == b"cluster"
    return False


def ask_topology(connection: Any, address: str, remap: Remap) -> Topology:
    """Return the topology that a cluster node reports; arguments and errors as for ``ask()``."""
    try:
        slots = call(connection, "CLUSTER", "SLOTS")
    except redis.exceptions.NoPermissionError as error:
        raise TransportError(
            f"can't use the cluster at {address}: {error} (allow it with ACL SETUSER ... "
            "+cluster|slots +command)"
        ) from error
    return topology_of(slots, getattr(connection, "host", None) or "localhost", address, remap)


def _check_state(info: dict[str, str], address: str, *, reading: bool) -> None:
    """Raise TransportError if the server is a replica, or is loading its data."""
    replica = info.get("role") == "slave" and info.get("slave_read_only") == "1"
    if replica and not reading:
        raise TransportError(f"{address} is a read-only replica; {replica_advice(info)}")
    if info.get("loading") == "1":
        raise TransportError(f"{address} is still loading its data from disk; try again later")


def replica_advice(info: dict[str, str]) -> str:
    """Return what to do about a replica, from its fields of INFO.

    After a load by replication was killed, the server remains a replica of a port on which no
    process listens. While such a load runs, no process listens on the port either, but INFO shows
    that the server is connected or receives data.
    """
    host, port = info.get("master_host"), info.get("master_port")
    if primary_down(info):
        return (
            f"its primary {host}:{port} can't be reached, so a load by replication may have been "
            "killed; if so, send the replica REPLICAOF NO ONE"
        )
    return f"load into its primary {host}:{port}"


def primary_down(info: Mapping[str, str]) -> bool:
    """Return whether INFO is from a replica whose primary can't be reached."""
    host, port = info.get("master_host"), info.get("master_port")
    down = info.get("master_link_status") == "down" and info.get("master_sync_in_progress") == "0"
    return bool(down and host and port and not _listens(host, port))


def _listens(host: str, port: str) -> bool:
    """Return whether a connection to this address, which a server has named, can be opened."""
    try:
        socket.create_connection((host, int(port)), PRIMARY_TIMEOUT_S).close()
    except (OSError, ValueError, OverflowError):
        return False
    return True


def log_unknown(address: str, unknown: Collection[str]) -> None:
    """Log which commands a server does not answer, and the consequences."""
    import logging

    text = (
        "%s does not answer %s, as is usual for proxies: its role and free memory are unknown, and "
        "its commands are not checked before the first is sent"
    )
    logging.getLogger("fastresp").warning(text, address, ", ".join(sorted(unknown)))


def _rejected(rejection: Rejection, address: str) -> FastrespError:
    """Return the exception for a command of the template that the server refuses in every row."""
    if rejection.permission:
        return TransportError(
            f"can't use the server at {address}: {rejection.message} (nothing was sent; allow it "
            f"with ACL SETUSER ... +{rejection.name.lower()})"
        )
    error = CommandError(rejection.message)
    error.add_note(f"fastresp: the server refuses {rejection.name}; no command was sent")
    return error


def request_config(connection: Any, settings: Iterable[str]) -> None:
    """Send a CONFIG GET for each setting: servers before 7.0 accept only one setting."""
    for name in settings:
        connection.send_command("CONFIG", "GET", name)


def read_config(connection: Any, settings: Iterable[str]) -> dict[str, str]:
    """Read the replies to ``request_config()``; return the settings that the server returned."""
    found: dict[str, str] = {}
    for _ in settings:
        with suppress(redis.ResponseError):
            found |= texts_of_settings(connection.read_response())
    return found


def texts_of_settings(reply: Any) -> dict[str, str]:
    """Return the settings in a reply to CONFIG GET."""
    pairs = fields_of(reply).items()
    return {
        name.decode(errors="replace"): value.decode(errors="replace")
        for name, value in pairs
        if isinstance(value, bytes)
    }


def _integers(settings: dict[str, str]) -> dict[str, int]:
    """Return the settings that are integers."""
    found: dict[str, int] = {}
    for name, value in settings.items():
        with suppress(ValueError):
            found[name] = int(value)
    return found


def _bulk_limit(settings: dict[str, int]) -> int:
    """Return the maximum size of an argument in bytes; the default if unknown."""
    most = settings.get(BULK_LIMIT, BULK_BYTES)
    return most if MIN_BULK_BYTES <= most <= sys.maxsize else BULK_BYTES
