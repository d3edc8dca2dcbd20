"""``mode="replicate"``: act as the primary of an empty server, and stream an RDB file to it."""

from __future__ import annotations

import logging
import os
import tempfile
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial

from ..encode.payload.format import format_of
from ..encode.payload.serializer import Serializer
from ..encode.row_key import RowKeys
from ..encode.template import Template
from ..outcome.errors import TransportError, TransportTimeout
from ..outcome.messages import Hint, Message
from ..outcome.report import Report, counted
from ..resp.buffer import Chunk
from ..server.forks import Inherited, is_own, on_fork
from ..server.options import Options, Replicate
from ..server.preflight import Requirements
from ..server.settings import Server, ServerLike, as_server
from ..transports.base import RoutedChunks, Transport, add_report
from ..transports.driver import Blocking, Steps, nothing
from ..transports.socket import connecting
from .paused_settings import SETTINGS_OF_WARNINGS
from .rdb_file import MAX_KEY_BYTES, RDB_VERSIONS, KeyLog, add_records, header, select
from .replica import Keyspace, Replica
from .replica_link import ReplicaLink

__all__ = ["Replication", "check_target"]

# Seconds between questions about how much the server has loaded.
ASKED_S = 0.5
# Several rows may create one key, so a server is told to expect at most this many keys (128 MiB).
MAX_EXPECTED = 1 << 24
REQUIREMENTS = Requirements(
    nodes=True, encoding_limits=True, indexes=True, settings=SETTINGS_OF_WARNINGS
)


def check_target(server: ServerLike, timeout: float | None) -> None:
    """Check whether a server can be loaded by replication; raises as ``Replica.check()`` does."""
    found = Server(server, REQUIREMENTS)
    connections, answers = found.open_all(1, timeout)
    try:
        Replica(found, connections[0], answers, timeout).check()
    finally:
        for each in connections:
            each.disconnect()


class Replication(Transport):
    """Load an empty server as its primary.

    The server becomes our replica when the first commands are sent. It receives the keys of these
    commands as an RDB file, and loads the file once it is complete. At the end, even after an
    error, the server is made a primary again. If the load fails before the file is complete, the
    server stays empty.

    Args:
        options: the server, the timeout, and ``mode``, a Replicate.
        template: the template of the commands; None if it is unknown.
        rows: number of rows of the source; None if unknown. Each row makes at most one key, so the
            server can size its tables before it loads the file.
    """

    def __init__(self, options: Options, template: Template | None, rows: int | None) -> None:
        super().__init__(as_server(options.server, REQUIREMENTS))
        assert isinstance(options.mode, Replicate)
        self._options = options
        self._mode = options.mode
        self._row_keys = RowKeys(template)
        self._max_keys = min(rows or 0, MAX_EXPECTED)
        self._expires = template is not None and len(template.commands) > 1
        self._report = Report("replication")
        self._made = self._rows = 0
        self._started = 0.0
        self._loaded = 0.0  # the share of the file that the server has loaded
        self._received = 0  # bytes from the server, which sends newlines while it loads
        self._ended = False
        self._replica: Replica | None = None
        self._link: ReplicaLink | None = None
        self._log = KeyLog(os.path.join(tempfile.gettempdir(), "keys"))
        on_fork(self)

    @property
    def report(self) -> Report:
        """The live report. While the server loads the file, ``replies`` is an estimate."""
        report, link = self._report, self._link
        if self._started and not self._ended:
            report.commands, report.rows = self._made, self._rows
            report.replies = int(self._made * self._loaded)
            report.seconds = time.monotonic() - self._started
            report.bytes_sent = 0 if link is None else link.size
        return report

    @property
    def running(self) -> bool:
        return self._replica is not None

    @property
    def made(self) -> int:
        return self._made

    # Cores; see ``driver``.

    def connecting(self) -> Steps[None]:
        connections, self.answers = yield from connecting(self.server, self._options.timeout)
        first, *others = connections
        for each in others:  # of a cluster, which is refused
            each.disconnect()
        self._replica = Replica(self.server, first, self.answers, self._options.timeout)
        try:
            yield Blocking(self._replica.check)
        except BaseException:
            self.kill()
            raise
        answers = self.answers
        self._format = format_of(answers.version, answers.encoding_limits, valkey=answers.valkey)
        self._serializer = Serializer(
            self._format, file=True, max_bytes=MAX_KEY_BYTES, keys=self._log.keys
        )

    def writing(self, chunk: Chunk) -> Steps[None]:
        yield Blocking(partial(self._send, chunk), self._interrupt)

    def resend_refused(
        self, chunks: RoutedChunks, idle: Callable[[], Steps[None]], *, end: bool = False
    ) -> Steps[None]:
        """At the end of the source, wait until the server has loaded the file."""
        if end:
            yield from self._finishing(idle)

    def finishing(self) -> Steps[None]:
        yield from self._finishing(nothing)

    def ending_after(
        self,
        error: BaseException,
        rest: Callable[[int], Iterable[Chunk]] | None = None,
        following: Callable[[], Steps[None]] | None = None,
        locating: Callable[[], Steps[None]] | None = None,
    ) -> Steps[None]:
        """After an exception, drop the file, and make the server a primary again."""
        try:
            if isinstance(error, GeneratorExit):
                self._abandon()
            else:
                yield Blocking(self._abandon)
            if locating is not None and isinstance(error, Exception):
                yield from locating()
        except BaseException as second:  # such as a second Ctrl-C
            error = second
            raise
        finally:
            self.kill()
            if isinstance(error, TransportError):
                error.report = self.report  # its text has the report
            else:
                add_report(error, self.report, str(self.report))

    def kill(self) -> None:
        """Close all connections; if the server is still a replica, try once to promote it."""
        replica, self._replica = self._replica, None
        if self._link is not None:
            self._link.close()
        if replica is not None and is_own(self):
            try:
                with suppress(Exception):
                    if replica.attached:
                        replica.release_now()
            finally:
                self._report.stopped = replica.still_attached
                replica.disconnect()
        self._log.close()

    def _interrupt(self) -> None:
        if self._link is not None:
            self._link.interrupt()

    def _finishing(self, idle: Callable[[], Steps[None]]) -> Steps[None]:
        if self._ended:
            return
        if self._started:
            yield Blocking(self._send_end, self._interrupt)
            asked = moved = time.monotonic()
            while not (yield Blocking(self._look, self._interrupt)):
                if time.monotonic() - asked > ASKED_S:
                    asked = time.monotonic()
                    moved = asked if (yield Blocking(self._ask)) else moved
                    self._check_progress(moved)
                yield from idle()
            yield Blocking(self._check_loaded)
        self._end(self._made, self._rows)

    # Called by the cores; may block.

    @property
    def _parts(self) -> tuple[Replica, ReplicaLink]:
        if not is_own(self) or self._replica is None or self._link is None:
            raise TransportError(str(Inherited("connection")))
        return self._replica, self._link

    def _send(self, chunk: Chunk) -> None:
        if self._link is None:
            self._begin()
        _, link = self._parts
        self._made = chunk.first_command + chunk.commands
        self._rows = chunk.rows_after(chunk.commands)
        serializer = self._serializer
        add_records(link, serializer.serialize(chunk), self._row_keys.of_failing(serializer))

    def _begin(self) -> None:
        """Make the server our replica, and send it the header of the file."""
        assert self._replica is not None
        replica, (host, port) = self._replica, self._mode.address
        self._started = time.monotonic()
        host = host or replica.local_address
        announced = self._mode.announced
        link = self._link = ReplicaLink(host, port, self._options.timeout, announced)
        replica.attach(link.host, link.port)
        link.accept(replica.replication_id)
        version = min(self._format.rdb_version, max(RDB_VERSIONS))
        expiring, database = self._max_keys if self._expires else 0, self.server.database
        link.add(header(version, database, self._max_keys, expiring))
        link.keep_alive(select(database))

    def _send_end(self) -> None:
        _, link = self._parts
        serializer = self._serializer
        add_records(link, serializer.finish(), self._row_keys.of_failing(serializer))
        self._log.check()
        link.end()

    def _look(self) -> bool:
        _, link = self._parts
        return link.look()

    def _ask(self) -> bool:
        """Ask how much the server has loaded; return whether it has made progress."""
        replica, link = self._parts
        before = self._loaded, self._received
        self._received = link.received
        with suppress(TransportError):  # the server may be busy; if it died, the link is also lost
            info = replica.info()
            if info.get("loading") == "1":
                self._loaded = min(1.0, float(info.get("loading_loaded_perc", "0")) / 100)
        return (self._loaded, self._received) != before

    def _check_progress(self, moved: float) -> None:
        timeout = self._options.timeout
        if timeout is not None and time.monotonic() - moved > timeout:
            text = f"{self.server} has loaded nothing for {timeout:g} s (a larger "
            raise TransportTimeout(Message(text, Hint("timeout", ...), " waits longer)"))

    def _check_loaded(self) -> None:
        """Make the server a primary again, and compare its key counts with the file's."""
        replica, _ = self._parts
        replica.release()
        if replica.keyspace != self._sent:
            raise TransportError(
                f"{self.server} has loaded {self._keys_loaded:,} keys, but "
                f"{counted(self._serializer.key_count, 'key')} were sent; compare it with verify"
            )
        if replica.over_maxmemory:
            logging.getLogger("fastresp").warning(replica.over_maxmemory)

    @property
    def _sent(self) -> dict[int, Keyspace]:
        """The databases that the file creates."""
        found = Keyspace(self._serializer.key_count, self._serializer.expiring)
        return {self.server.database: found} if found.keys else {}

    @property
    def _keys_loaded(self) -> int | None:
        """The number of keys of the server at the end; None if unknown."""
        found = None if self._replica is None else self._replica.keyspace
        return None if found is None else sum(each.keys for each in found.values())

    def _abandon(self) -> None:
        """After an exception, make the server a primary again, and count what it has loaded."""
        if self._ended or not is_own(self):
            return
        replica, link = self._replica, self._link
        if link is not None:
            link.close()
        known = link is None or not link.complete
        try:
            if replica is not None and replica.attached:
                if not known:
                    text = "waiting until %s has loaded the data and is a primary again"
                    logging.getLogger("fastresp").warning(text, self.server)
                with suppress(TransportError):
                    replica.release()
                    known = True
        finally:
            whole = replica is not None and bool(self._made) and replica.keyspace == self._sent
            in_doubt = whole or not known
            self._end(self._made * in_doubt, self._rows * in_doubt)
            self._report.replies = self._made * whole

    def _end(self, commands: int, rows: int) -> None:
        """Complete the report."""
        report = self.report
        report.commands = report.replies = commands
        report.rows, report.unsent = rows, self._made - commands
        report.keys = self._keys_loaded
        self._ended = True
