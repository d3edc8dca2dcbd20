"""Detect that a server was restarted or replaced between two connections."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import redis

from ..outcome.errors import TransportError
from .reply_parser import parse_info

if TYPE_CHECKING:
    from .settings import Server

__all__ = ["LostData", "Process", "Processes", "closed_if_failed", "may_lack_data"]


# Host and port; both empty for a unix socket or Sentinel.
Address: TypeAlias = tuple[Any, Any]


class LostData(TransportError):
    """A server was restarted or replaced while data was read, and may have lost data."""


class Process(NamedTuple):
    """What INFO reports about a server process.

    Attributes:
        run_id: the ID that a server creates at each start.
        histories: the replication IDs of the data, which a replica shares with its primary.
        uptime_s: seconds since the start of the server.
        aof: whether the server has an append-only file.
        keys: whether the server has any keys.
    """

    run_id: str
    histories: frozenset[str]
    uptime_s: int
    aof: bool
    keys: bool


def address_of(server: Server) -> Address:
    """Return the host and port of a server; empty for a unix socket."""
    return server.settings.get("host"), server.settings.get("port")


class Processes:
    """Remembers which server process answered at each address.

    Args:
        sends_info: whether to send INFO. Some proxies close the connection when they receive INFO.
    """

    def __init__(self, *, sends_info: bool = True) -> None:
        self._sends_info = sends_info
        self._known: dict[Address, tuple[Process, float]] = {}

    def record(self, opened: Iterable[tuple[Server, Any]]) -> None:
        """Send INFO over redis-py connections, read all replies, and remember the processes."""
        opened = list(opened) if self._sends_info else []
        for server, connection in opened:
            with server.explained():
                connection.send_command("INFO")
        for server, connection in opened:
            if (process := _answer(server, connection)) is not None:
                self._known[address_of(server)] = process, time.monotonic()

    def check(self, server: Server, connection: Any) -> str:
        """Check whether a server may have lost data since its process was recorded.

        Returns:
            A description of the loss; empty if the server is the same process, has kept its data,
            does not answer INFO, or was never recorded.
        """
        known = self._known.get(address_of(server))
        self.record([(server, connection)])
        if known is None:
            return ""
        before, since = known
        now, _ = self._known[address_of(server)]
        if not may_lack_data(before, now, time.monotonic() - since):
            return ""
        state = "has data, but no append-only file" if now.keys else "is empty"
        return f"the server at {server} was restarted or replaced, and {state}"

    def forget_others(self, nodes: Iterable[Address]) -> None:
        """Forget all nodes except these primaries.

        If another node becomes a primary later, it has received its data as a replica, so its
        earlier process does not matter.
        """
        self._known = {node: self._known[node] for node in nodes if node in self._known}

    def reopen(self, server: Server, connect: Callable[[], list[Any]]) -> tuple[list[Any], str]:
        """Open connections to a server; return (connections, the result of ``check()``)."""
        connections = connect()
        with closed_if_failed(connections):
            return connections, self.check(server, connections[0])


@contextmanager
def closed_if_failed(connections: Iterable[Any]) -> Iterator[None]:
    try:
        yield
    except BaseException:
        for connection in connections:
            connection.disconnect()
        raise


def may_lack_data(before: Process, now: Process, seconds: float) -> bool:
    """Return whether a server may lack data that the earlier process had acknowledged.

    An append-only file counts as complete. With "appendfsync everysec", up to two seconds may be
    missing if the machine failed or an fsync was running, but INFO does not show this. A replica
    that took over the address has the data. A replica is assumed if the new process shares a
    replication ID with the earlier process, and was already running ``seconds`` ago, when the
    earlier process last answered.
    """
    if now.run_id == before.run_id:
        return False
    took_over = now.uptime_s > seconds and not before.histories.isdisjoint(now.histories)
    return not (now.keys and (now.aof or took_over))


def _answer(server: Server, connection: Any) -> Process | None:
    """Read the reply to INFO; return None if it does not identify a process."""
    with server.explained():
        try:
            info = parse_info(connection.read_response())
        except redis.ResponseError:  # no permission
            return None
    run_id, uptime = info.get("run_id"), info.get("uptime_in_seconds", "")
    if not run_id:
        return None
    histories = {info.get("master_replid", ""), info.get("master_replid2", "")}
    return Process(
        run_id,
        frozenset(each for each in histories if each.strip("0")),
        int(uptime) if uptime.isdecimal() and len(uptime) < 19 else 0,
        info.get("aof_enabled") == "1",
        any(name.startswith("db") and "keys=" in value for name, value in info.items()),
    )
