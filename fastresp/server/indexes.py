"""The search indexes of a server: the keys that they cover, and their backlog."""

from __future__ import annotations

from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass
from threading import Lock
from typing import Any

import redis

from .cluster_view import ClusterView
from .reply_parser import fields_of, integer_of
from .settings import Server
from .threads import shut_down

__all__ = ["Index", "Indexes", "read_index"]


@dataclass(frozen=True)
class Index:
    """The state of an index, from FT.INFO.

    After FT.CREATE, the server scans existing keys in the background. RediSearch without worker
    threads indexes other keys while it runs the commands that write them; Valkey Search queues
    them.

    Attributes:
        kind: the type of the indexed keys, ``"HASH"`` or ``"JSON"``.
        prefixes: the prefixes of the keys; an empty prefix means all keys.
        scanning: whether the scan of existing keys is running, or waits for another index's scan.
        scanned: the scanned share of the keys. RediSearch 2.10 divides by the number of keys at the
            start of the scan, so the share may exceed 1 long before the end.
        failures: number of writes since the creation of the index that could not be indexed.
        error: the server's message about the last failure.
        error_key: the key of the document that failed last.
        keys: number of keys in the database.
    """

    name: str
    kind: str
    prefixes: tuple[bytes, ...]
    documents: int = 0
    scanning: bool = False
    scanned: float = 1.0
    queued: int = 0
    failures: int = 0
    error: str = ""
    error_key: str = ""
    keys: int = 0

    def waiting(self, keys_before: int) -> int:
        """Estimate how many documents are not indexed yet.

        Args:
            keys_before: number of keys at the start of the scan, or the earliest known number. Keys
                written later are indexed immediately, although the scan also sees them.
        """
        if not self.scanning:
            return self.queued
        keys = max(self.keys, 1)
        left = keys_before * (1 - min(1.0, self.scanned * keys_before / keys))
        return self.queued + max(1, min(round(left), keys - self.documents))


def read_index(name: bytes, reply: Any, keys: int = 0) -> Index | None:
    """Parse a reply to FT.INFO; return None for any other reply.

    Field names are from RediSearch and, where they differ, from Valkey Search
    (https://redis.io/docs/latest/commands/ft.info, https://valkey.io/commands/ft.info).
    """
    said = fields_of(reply)
    definition = fields_of(said.get(b"index_definition"))
    prefixes = definition.get(b"prefixes")
    if not isinstance(prefixes, list):
        return None
    errors = fields_of(said.get(b"Index Errors"))
    scanned = said.get(b"percent_indexed", said.get(b"backfill_complete_percent", 1))
    scanning = _number(said.get(b"indexing", said.get(b"backfill_in_progress", 0)))
    return Index(
        _text(name),
        _text(definition.get(b"key_type", b"HASH")).upper(),
        tuple(b"" if prefix == b"*" else bytes(prefix) for prefix in prefixes),
        documents=int(_number(said.get(b"num_docs"))),
        scanning=bool(scanning),
        scanned=_number(scanned),
        queued=int(_number(said.get(b"mutation_queue_size"))),
        failures=int(_number(said.get(b"hash_indexing_failures"))),
        error=_text(errors.get(b"last indexing error", b"")),
        error_key=_text(errors.get(b"last indexing error key", b"")),
        keys=keys,
    )


class Indexes:
    """Asks a server about search indexes, over separate connections.

    In a cluster, all primaries are asked. If the cluster has a coordinator, each node lists all
    indexes with the same state, so the first answer counts. Otherwise, a node lists only its own
    indexes.
    """

    def __init__(self, server: Server, timeout: float | None) -> None:
        # Indexes exist only in database 0.
        self._server = server.changed(settings=server.settings | {"db": 0})
        self._timeout = timeout
        self._connections: list[tuple[Server, Any]] = []
        self._lock = Lock()  # a load also calls ask() in another thread
        self._closed = False

    def ask(self, wanted: Collection[str] | None = None) -> list[Index]:
        """Return the indexes with these names, or all; close connections after a failure."""
        with self._lock:
            try:
                return self._asked(wanted)
            except BaseException:
                self._close()
                raise
            finally:
                if self._closed:
                    self._close()

    def _asked(self, wanted: Collection[str] | None) -> list[Index]:
        if not self._connections:
            self._connections = ClusterView(self._server).open_primaries(self._timeout)
        found: dict[str, Index] = {}
        for server, connection in self._connections:
            with server.explained():
                for index in _asked(connection, wanted):
                    found.setdefault(index.name, index)
        return list(found.values())

    def interrupt(self) -> None:
        """Make ``ask()`` in another thread end soon."""
        for _, connection in self._connections:
            shut_down(connection)

    def disconnect(self) -> None:
        """Close the connections; the next ``ask()`` opens new connections."""
        with self._lock:
            self._close()

    def close(self) -> None:
        """Close the connections, even while another thread runs ``ask()``."""
        self._closed = True
        self.interrupt()
        if self._lock.acquire(blocking=False):
            try:
                self._close()
            finally:
                self._lock.release()

    def _close(self) -> None:
        connections, self._connections = self._connections, []
        for _, connection in connections:
            connection.disconnect()


def _asked(connection: Any, wanted: Collection[str] | None) -> list[Index]:
    """Return the indexes of one server; raises as redis-py does."""
    connection.send_command("FT._LIST")
    listed = connection.read_response()
    names = [each for each in listed if isinstance(each, bytes)] if isinstance(listed, list) else []
    names = [each for each in names if wanted is None or _text(each) in wanted]
    if not names:
        return []
    connection.send_command("DBSIZE")
    for name in names:
        connection.send_command("FT.INFO", name)
    keys, found = 0, []
    with suppress(redis.ResponseError):  # no permission
        keys = integer_of("DBSIZE", connection.read_response())
    refused: Exception | None = None
    for name in names:
        try:
            index = read_index(name, connection.read_response(), keys)
        except redis.exceptions.NoPermissionError as error:
            refused = error
        except redis.ResponseError:  # the index was dropped after FT._LIST
            continue
        else:
            if index is not None:
                found.append(index)
    if refused is not None and (wanted is not None or not found):
        raise refused
    return found


def _text(value: Any) -> str:
    return value.decode(errors="backslashreplace") if isinstance(value, bytes) else ""


def _number(value: Any) -> float:
    """Parse a number in a reply; 0 for anything else."""
    try:
        number = float(value)
    except (TypeError, ValueError):
        return 0.0
    return number if 0 <= number < 1e18 else 0.0
