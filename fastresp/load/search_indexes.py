"""Search indexes of a load's keys: find them, report their backlog, and wait until it is small."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from threading import Lock
from typing import Any, NamedTuple

import redis

from ..encode.template import Template
from ..outcome.errors import TransportError, TransportTimeout
from ..outcome.messages import Hint, Message
from ..outcome.report import IndexState
from ..resp.buffer import Chunk
from ..resp.commands import properties_of
from ..server.cluster_view import ClusterView
from ..server.options import Options
from ..server.reply_parser import fields_of, integer_of
from ..server.settings import Server
from ..server.threads import in_thread, shut_down
from ..transports.base import Transport
from ..transports.driver import Blocking, Steps
from .load import Feature, Load

__all__ = ["Index", "SearchIndexes", "Written", "read_index", "written_by"]

# Seconds between questions to the server.
ASKED_S = 0.1
# Timeout in seconds of each question, if the answer is only shown in the report.
ANSWERED_S = 5.0


@dataclass(frozen=True)
class Index:
    """The state of an index, from FT.INFO.

    After FT.CREATE, the server scans existing keys in the background. Valkey Search queues keys
    that are written later; RediSearch without worker threads indexes such a key while it runs the
    command that writes the key.

    Attributes:
        kind: the type of the indexed keys, ``"HASH"`` or ``"JSON"``.
        prefixes: the prefixes of the keys; an empty prefix means all keys.
        scanning: whether the scan of existing keys is running, or waits for another index's scan.
        scanned: the scanned share of the keys. RediSearch 2.10 divides by the number of keys at the
            start of the scan, so the share may exceed 1 long before the end.
        failures: number of writes that could not be indexed since the index was created.
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
            keys_before: number of keys when the scan started or, if that is unknown, when the
                server was first asked. Keys written later don't count: they are indexed
                immediately, without the scan.
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
    indexes with the same state, so one answer suffices. Otherwise, a node lists only its own
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
        """Return the indexes named in ``wanted`` (None: all). Close connections after a failure."""
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


class SearchIndexes(Feature):
    """Reports how many keys of a load are not indexed yet, and waits until they are indexed.

    Asks the server over separate connections.
    """

    def __init__(self, template: Template | None, options: Options) -> None:
        self._template = template
        self._options = options
        self._asked_for = options.wait_index or options.index_backlog is not None
        self._indexes: Indexes | None = None
        self._transport: Transport | None = None
        self._before: dict[str, Index] = {}  # the indexes when the load began
        self._keys: dict[str, int] = {}  # for each index: number of keys before the index's scan
        self._question: Future[list[Index]] | None = None
        self._asked_at = 0.0
        # Number of commands answered before the server was last asked for the backlog.
        self._answered = 0
        self._admitted = 0  # number of commands of the load that may be sent

    def connected(self, load: Load) -> Steps[None]:
        """Find the indexes that cover the keys of the load.

        If neither ``wait_index`` nor ``index_backlog`` is given, errors are ignored, and the server
        is asked only if it may have such indexes.

        Raises:
            TransportError: one of these options is given, but the indexes can't be listed, or no
                index covers the keys.
        """
        assert load.transport is not None
        server, transport = load.transport.server, load.transport
        written = written_by(self._template, unknown=self._asked_for)
        timeout, answers = self._options.timeout, transport.answers
        if not self._asked_for:
            timeout = min(ANSWERED_S if timeout is None else timeout, ANSWERED_S)
            if not written or answers is None or not answers.searches:
                return
            if not answers.indexes and answers.topology is None:
                return  # in a cluster, other nodes may have indexes
        indexes = self._indexes = Indexes(server, timeout)
        try:
            found: list[Index] = yield Blocking(indexes.ask, indexes.interrupt)
        except TransportError as error:
            if not self._asked_for:
                return
            words = " needs a server with search indexes, and permission for FT._LIST and FT.INFO: "
            text = Message(_option(self._options), words, f"{error} (nothing was sent)")
            raise TransportError(text) from error
        self._before = {
            index.name: index for index in found if any(each.covered_by(index) for each in written)
        }
        if self._asked_for and not self._before:
            raise _covers_none(self._options, server, found)
        if self._options.index_backlog is None:
            indexes.disconnect()
        self._transport = transport
        self._note_keys(found)

    def sending(self, load: Load, chunk: Chunk) -> Steps[None]:
        """Wait until the index backlog is small enough to send a chunk.

        Raises:
            TransportError: the server does not return the size of the backlog.
            TransportTimeout: the indexes make no progress.
        """
        most = self._options.index_backlog
        if most is None or self._transport is None:
            return
        commands = min(chunk.commands, most)
        if not self.admits(commands):
            yield from load.drain()
            yield from self._until(most - commands, load)
            self._answered = self._transport.made
            self._admitted = self._answered + most - self._transport.live_report.index_waiting

    def admits(self, commands: int = 1) -> bool:
        """Return whether the last known index backlog allows sending this many commands now.

        The server is asked for the backlog in a thread. Commands that were unanswered when the
        server was last asked count as backlog.
        """
        most, transport = self._options.index_backlog, self._transport
        if most is None or transport is None or self._indexes is None:
            return True
        question = self._question
        if question is not None and question.done():
            self._question = None
            with suppress(TransportError):  # sending() then asks the server
                self._note(question.result())
                self._admitted = self._answered + most - transport.live_report.index_waiting
        if self._question is None and time.monotonic() >= self._asked_at + ASKED_S:
            self._asked_at = time.monotonic()
            self._answered = transport.report.replies
            with suppress(RuntimeError):  # no memory for a thread
                self._question = in_thread(partial(self._indexes.ask, self._before))
        return transport.made + commands <= self._admitted

    def finishing(self, load: Load) -> Steps[None]:
        """With ``wait_index``, wait for the indexes; then store their state in the report.

        Raises:
            TransportError: ``wait_index`` is given, and the server does not return the state.
            TransportTimeout: the indexes make no progress.
        """
        if self._transport is None or self._indexes is None or not self._before:
            return
        report = self._transport.report
        if self._options.wait_index and not report.stopped:
            try:
                yield from self._until(0, load)
            except TransportError as error:
                error.report = report
                raise
        else:
            with suppress(TransportError):
                ask = partial(self._indexes.ask, self._before)
                self._note((yield Blocking(ask, self._indexes.interrupt)))

    def ended(self, load: Load) -> Steps[None]:
        yield from ()
        if self._indexes is not None:
            self._indexes.close()

    def _until(self, most: int, load: Load) -> Steps[None]:
        """Wait until at most ``most`` documents are waiting to be indexed.

        Raises:
            TransportError, TransportTimeout: as for ``sending()``.
        """
        assert self._indexes is not None and self._transport is not None
        timeout = self._options.timeout
        moved, seen = time.monotonic(), list[tuple[str, bool, float, int]]()
        while not self._transport.live_report.stopped:
            lost: TransportError | None = None
            try:
                # Progress of any index counts: an index may wait for another index's scan.
                found: list[Index] = yield Blocking(self._indexes.ask, self._indexes.interrupt)
            except TransportError as error:
                lost = error
            else:
                self._note(found)
                if self._transport.live_report.index_waiting <= most:
                    return
                now = [(each.name, each.scanning, each.scanned, each.queued) for each in found]
                if now != seen:
                    moved, seen = time.monotonic(), now
            if timeout is not None and time.monotonic() - moved > timeout:
                raise self._no_progress(timeout, lost)
            yield from load.idle()
            yield Blocking(partial(time.sleep, ASKED_S))

    def _no_progress(self, timeout: float, lost: TransportError | None) -> TransportError:
        assert self._transport is not None
        if lost is not None:
            words = f"can't read the state of the search indexes: {lost.args[0]}"
            return TransportError(words, self._transport.report)
        behind = [str(index) for index in self._transport.live_report.indexes if index.waiting]
        words = f"no progress for {timeout:g} s: {'; '.join(behind)} (a larger "
        return TransportTimeout(
            Message(words, Hint("timeout", ...), " waits longer)"), self._transport.report
        )

    def _note(self, found: Sequence[Index]) -> None:
        """Store the state of the load's indexes in the report."""
        assert self._transport is not None
        self._note_keys(found)
        self._transport.live_report.indexes = [
            self._state(index) for index in found if index.name in self._before
        ]

    def _note_keys(self, found: Sequence[Index]) -> None:
        for index in found:
            if not index.scanning or index.name not in self._keys:
                self._keys[index.name] = index.keys

    def _state(self, index: Index) -> IndexState:
        failures = max(0, index.failures - self._before[index.name].failures)
        return IndexState(
            index.name,
            index.documents,
            index.waiting(self._keys[index.name]),
            failures,
            index.error if failures else "",
            index.error_key if failures else "",
        )


def _option(options: Options) -> Hint:
    """Return the option of the user that needs indexes, for a message."""
    if options.index_backlog is not None:
        return Hint("index_backlog", options.index_backlog)
    return Hint("wait_index", True)


def _covers_none(options: Options, server: Server, found: Sequence[Index]) -> TransportError:
    names = ", ".join(index.name for index in found[:10])
    there = f"the indexes are {names}" if found else "the server has no index"
    words = f" has nothing to wait for: no search index of {server} covers the keys of this load"
    advice = f" (nothing was sent; {there}; create one with FT.CREATE, or leave out the option)"
    return TransportError(Message(_option(options), words, advice))


class Written(NamedTuple):
    """Keys that a load writes.

    Attributes:
        kind: ``"HASH"`` or ``"JSON"``; empty for either.
        beginning: common prefix of the keys.
    """

    kind: str
    beginning: bytes

    def covered_by(self, index: Index) -> bool:
        """Return whether an index may cover some of the keys."""
        begins = self.beginning
        return self.kind in ("", index.kind) and any(
            begins.startswith(prefix) or prefix.startswith(begins) for prefix in index.prefixes
        )


def written_by(template: Template | None, *, unknown: bool) -> list[Written]:
    """Return the keys that a template writes and that a search index may cover.

    Args:
        template: the load's template; None if the source contains whole commands.
        unknown: whether to include commands that may write any key.
    """
    anything = [Written("", b"")] if unknown else []
    if template is None:
        return anything
    found: list[Written] = []
    for first, *others in template.commands:
        name = _beginning(first).upper()
        effect, _, flags = properties_of(name)
        is_known = all(isinstance(part, bytes) for part in first)
        if not is_known or effect == "script" or name == b"RESTORE":  # these may write any key
            found += anything
        elif "fields" in flags:
            found += [Written("HASH", _beginning(key)) for key in others[:1]]
        elif name.startswith(b"JSON."):
            keys = others[::3] if name == b"JSON.MSET" else others[:1]
            found += [Written("JSON", _beginning(key)) for key in keys]
    return list(dict.fromkeys(found))


def _beginning(argument: Iterable[object]) -> bytes:
    """Return the constant prefix of a template's argument."""
    found = b""
    for part in argument:
        if not isinstance(part, bytes):
            break
        found += part
    return found
