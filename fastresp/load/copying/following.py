"""After the copy of a snapshot, apply the commands that the source has run since."""

from __future__ import annotations

import logging
import time
from collections import deque
from contextlib import closing, suppress
from dataclasses import replace
from threading import Event
from typing import TYPE_CHECKING, Any, NamedTuple

import redis

from ...outcome.errors import FastrespError, ProtocolError, SourceError
from ...outcome.messages import Hint, Message, shown_reply, visible
from ...outcome.report import LoadErrors, Report
from ...resp.read import RawReplies, ReplyReader
from ...server.preflight import Requirements, call
from ...server.reply_parser import parse_info
from ...server.settings import ASK_TIMEOUT_S, as_server
from ...sources.replica_stream import READ_BYTES, Place, ReplicaStream
from ...transports.signals import Undisturbed
from ..loader import Loader
from ..mass_insert import choose
from ..progress import reporting
from .options import CopyOptions
from .stream_commands import StreamCommands, in_database

if TYPE_CHECKING:
    from .stored_copy import StoredFollowing

__all__ = ["Following"]

# Seconds between requests for the source's offset.
ASKED_S = 0.5
# Maximum number of offsets to remember, to compute the lag in seconds.
OFFSETS_KEPT = 3600
# Commands that change no keys. Like the snapshot's functions, they are not copied.
NOT_OF_KEYS = {b"PUBLISH", b"SPUBLISH", b"SCRIPT", b"FUNCTION"}

# Only a replica waits for a DEL of its primary. Source: expireIfNeeded() of Redis.
EXPIRING = (
    "the target deletes expired keys by itself: a key whose time to live is extended in the source "
    "after it has expired in the target is lost; use import_source=True (--import-source) with "
    "Valkey 8.1 or later, or end with a copy that has changed=True (--changed)"
)


class Following:
    """Applies the commands of a replication stream to a server, in their order.

    The offset is exact, because all commands of a block are answered before the next block is read.
    The commands of a transaction are sent when all of them have arrived. A cluster receives them as
    single commands, since their keys may be on several nodes.

    Args:
        stream: the connection to the source, whose snapshot was copied.
        options: the options of the copy; ``server`` is the target.
        report: the report of the snapshot's copy.
        database: the database of the next command; -1 if it is unknown until the next SELECT.
        stored: stores the Place (replication ID and offset) in the target; None to store nothing.

    Raises:
        ValueError: ``stored`` is given, but the target is a cluster.
    """

    def __init__(
        self,
        stream: ReplicaStream,
        options: CopyOptions,
        report: Report,
        database: int,
        stored: StoredFollowing | None,
    ) -> None:
        self._stream = stream
        self._report = report
        self._progress = options.progress
        # The target differs after an error reply or a lost command, so either ends the copy.
        self._options = replace(
            options, connections=1, on_error="stop", retry="never", progress=None
        )
        self._target = as_server(options.server, Requirements(nodes=True))
        answers = self._target.ask(options.timeout)
        self._cluster = answers.cluster
        self._restorer = options.restorer(answers, stream.server.ask(options.timeout).valkey)
        drop = options.field_ttl == "drop"
        self._commands = StreamCommands(
            self._target, answers, self._restorer, drop, options.timeout
        )
        self._stored = stored
        if self._cluster and stored is not None:
            text = "the target is a cluster, whose nodes can't store a common place; leave out "
            raise ValueError(Message(text, Hint("checkpoint")))
        self._source = SourceOffset(stream)
        self._offset = self._read = stream.applied
        self._database = database
        self._wanted = stream.server.database
        self._transaction: list[list[bytes]] | None = None
        self._reader, self._sizes = ReplyReader(), RawReplies()
        self._followed = 0
        self._stopped = Event()
        self._told: set[str] = set()  # kinds of commands that were logged as not applied

    def run(self) -> Report:
        """Apply commands until the lag is small enough, or Ctrl-C.

        Raises:
            SourceError: the source was lost, or ran a command that can't be applied.
            LoadErrors, TransportError: the target refused a command, or was lost.
        """
        try:
            return self._follow()
        except FastrespError as error:
            text = f"fastresp: later commands were applied to replication offset {self._offset:,}"
            error.add_note(text)
            if self._stored is not None and isinstance(error, LoadErrors):
                self._stored.diverge()
            raise

    def _follow(self) -> Report:
        if not self._options.import_source:
            logging.getLogger("fastresp").warning(EXPIRING)
        with (
            closing(self._source),
            reporting(self._progress, ()) as show,
            Loader(None, self._options, choose) as load,
            suppress(KeyboardInterrupt),
        ):
            self._send([], load, self._offset, self._database)  # only stores the Place
            while not (self._stopped.is_set() or self._is_close_enough()):
                block = self._stream.commands.take(READ_BYTES)
                if block:
                    with Undisturbed():  # Ctrl-C ends it between two commands
                        self._apply(block, load)
                if show is not None:
                    show(self._with_lag(load.report))
        self._report = replace(
            self._report,
            restarts=[*self._report.restarts, *load.report.restarts],
            converted=self._report.converted + self._restorer.converted,
            expiries_dropped=self._report.expiries_dropped + self._restorer.expiries_dropped,
        )
        return self.report

    def stop(self) -> None:
        """Make ``run()`` end soon, between commands; may be called from another thread."""
        self._stopped.set()

    @property
    def report(self) -> Report:
        """The report of the snapshot's copy and of the commands applied so far."""
        return self._with_lag(self._report)

    def _is_close_enough(self) -> bool:
        asked, most = self._source.ask(self._offset), self._options.until_lag
        lag = self._source.lag(self._offset).bytes if asked else None
        return lag is not None and most is not None and lag <= most

    def _with_lag(self, report: Report) -> Report:
        lag = self._source.lag(self._offset)
        return replace(
            report,
            followed=self._followed,
            offset=self._offset,
            lag_bytes=lag.bytes,
            lag_seconds=lag.seconds,
        )

    def _apply(self, block: bytes, load: Loader) -> None:
        offset, database, asked = self._offset, self._database, False
        commands: list[list[bytes]] = []
        try:
            self._reader.feed(block)
            self._sizes.feed(block)
            for command, raw in zip(self._reader.take(), self._sizes.take(), strict=True):
                self._read += len(raw) if isinstance(raw, bytes) else 0  # an error is refused below
                name = self._name_of(command)
                if name == b"REPLCONF":  # GETACK, for WAIT at the source
                    asked = True
                else:
                    commands += self._commands_of(name, command)
                if self._transaction is None:
                    offset, database = self._read, self._database
        except ProtocolError as error:
            text = f"after replication offset {self._read:,}, the source at {self._stream.server} "
            raise SourceError(f"{text}sent what is no command: {error.args[0]}") from error
        finally:  # if a command can't be applied, send the commands before it
            self._send(commands, load, offset, database)
            self._offset = offset
        self._stream.acknowledge(offset, now=asked)

    def _send(self, commands: list[list[bytes]], load: Loader, offset: int, database: int) -> None:
        """Send commands; if Places are stored, store the new Place in the same transaction."""
        if self._stored is not None:
            place = Place(self._stream.replication_id, offset)
            commands = self._stored.transaction(commands, place, database)
        for each in commands:
            load.write(each)
        load.flush()
        load.report.raise_for_errors()

    def _name_of(self, command: Any) -> bytes:
        if not isinstance(command, list) or {*map(type, command)} != {bytes}:
            raise self._refusal(shown_reply(command))
        name: bytes = command[0].upper()
        return name

    def _commands_of(self, name: bytes, command: list[bytes]) -> list[list[bytes]]:
        """Return the commands to send for a command; for EXEC, the commands of the transaction."""
        if name == b"SELECT" and command[1:] and command[1].isdigit():
            self._database = int(command[1])
        elif name == b"MULTI":
            self._transaction = []
        elif name == b"EXEC":
            commands, self._transaction = self._transaction or [], None
            return commands if self._cluster else whole(commands)
        elif name == b"PING":
            # A PING keeps an idle connection open. It has no key, so no cluster node receives it.
            return [] if self._cluster else [command]
        else:
            commands = self._changes(name, command)
            self._followed += bool(commands)
            if self._transaction is None:
                # Other clients of the target must not see only some of the commands.
                return commands if self._cluster else whole(commands)
            self._transaction += commands
        return []

    def _changes(self, name: bytes, command: list[bytes]) -> list[list[bytes]]:
        """Return commands for the target with the same effect as a command of the source."""
        shown = name.decode(errors="backslashreplace")
        if self._database < 0:
            raise self._refusal(f"{shown} in an unknown database")
        if self._database != self._wanted:
            self._tell("commands of other databases")
        elif name in NOT_OF_KEYS:
            self._tell(f"{shown} commands, which change no keys,")
            return []
        try:
            ours = in_database(name, command, self._database, self._wanted)
            commands = self._commands.translated(ours) if ours else None if ours is None else []
        except SourceError as error:
            raise self._refusal(shown, error.args[0]) from error
        except (ValueError, IndexError):  # invalid arguments
            commands = None
        if commands is None:
            raise self._refusal(shown)
        return commands

    def _tell(self, what: str) -> None:
        if what not in self._told:
            self._told.add(what)
            logging.getLogger("fastresp").warning("%s are not applied to the target", what)

    def _refusal(self, command: str, reason: str = "") -> SourceError:
        """Return the error for a command that can't be applied."""
        text = f"the source ran {visible(command)} before replication offset {self._read:,}, "
        what = "which can't be applied to the target"
        parts = (" (", reason, ")") if reason else ()
        return SourceError(Message(text, what, *parts, "; empty the target, and copy again"))


def whole(commands: list[list[bytes]]) -> list[list[bytes]]:
    """Wrap commands in a transaction, unless there is only one."""
    return [[b"MULTI"], *commands, [b"EXEC"]] if commands[1:] else commands


class Lag(NamedTuple):
    """The lag of a copy behind its source.

    Attributes:
        bytes: bytes of the source's commands that are not applied yet; None if unknown.
        seconds: seconds since the source was at the target's offset; None if unknown.
    """

    bytes: int | None = None
    seconds: float | None = None


class SourceOffset:
    """Asks a source for its replication offset, to compute the lag of a copy."""

    def __init__(self, stream: ReplicaStream) -> None:
        self._stream = stream
        self._server = stream.server
        self._connection: Any = None
        self._asked = 0.0
        self._known = False  # whether the source has answered the last request
        self._offsets: deque[tuple[float, int]] = deque(maxlen=OFFSETS_KEPT)

    def ask(self, applied: int) -> bool:
        """Ask the source, at most every ASKED_S seconds; return whether there is a new answer.

        Args:
            applied: the target's offset; stored offsets below it are forgotten.
        """
        now = time.monotonic()
        if now < self._asked + ASKED_S:
            return False
        self._asked = now
        offset = self._ask()
        self._known = offset is not None
        if offset is None:
            return False
        self._offsets.append((now, offset))
        while len(self._offsets) > 1 and self._offsets[1][1] <= applied:
            self._offsets.popleft()
        return True

    def lag(self, applied: int) -> Lag:
        """Return the lag of a target that has applied all commands before an offset."""
        if not self._known:
            return Lag()
        # Commands received since the last request also count.
        behind = max(0, self._offsets[-1][1] - applied, self._stream.received - applied)
        return Lag(behind, time.monotonic() - self._offsets[0][0] if behind else 0.0)

    def _ask(self) -> int | None:
        """Return the replication offset of the source; None if its replication ID has changed."""
        try:
            if self._connection is None:
                self._connection = self._server.connect(ASK_TIMEOUT_S)
            info = parse_info(call(self._connection, "INFO", "replication"))
            same = info["master_replid"] == self._stream.replication_id
            return int(info["master_repl_offset"]) if same else None
        except redis.ResponseError as error:
            advice = "allow it with ACL SETUSER ... +info, to know how far the copy is behind"
            raise SourceError(f"{self._server}: {error} ({advice})") from error
        except (redis.RedisError, OSError, FastrespError, KeyError, ValueError):
            self.close()
            return None

    def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.disconnect()
