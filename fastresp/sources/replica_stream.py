"""A replica's end of the replication protocol. Source: replication.c of Redis and Valkey."""

from __future__ import annotations

import os
import re
import socket
import tempfile
import time
from collections import deque
from contextlib import suppress
from threading import Condition
from typing import IO, Any, NamedTuple

import redis

from ..outcome.errors import FastrespError, SourceError
from ..outcome.messages import Hint, Message, message_of, shortened
from ..outcome.report import size_text
from ..server.file_io import write_all
from ..server.forks import Inherited, is_own, on_fork
from ..server.preflight import call
from ..server.settings import ASK_TIMEOUT_S, Server
from ..server.threads import in_thread

__all__ = ["Place", "READ_BYTES", "ReplicaStream", "Spool"]

READ_BYTES = 1 << 20
# Maximum bytes of a line before the snapshot.
LINE_BYTES = 1024
# The number of bytes of the random mark that ends a snapshot of unknown size.
MARK_BYTES = 40
ACKNOWLEDGE_S = 1.0
# Seconds: to reconnect after a lost connection, between two attempts, and without data until a
# connection counts as lost. A primary sends PING every 10 seconds, and drops a silent replica after
# 60 (repl-timeout).
RECONNECT_S = 60.0
RETRY_S = 0.5
IDLE_S = 60.0
# Options that only some servers know. Without a version, Valkey 9 makes a snapshot for Valkey 8,
# which fails if fields of a hash expire. With rdb-only, the source keeps no later commands for us.
OPTIONAL = (("version", "9.1.0"), ("rdb-only", "1"))
FULL = re.compile(r"FULLRESYNC ([0-9a-zA-Z]{1,64}) (\d{1,18})")
CONTINUE = re.compile(r"CONTINUE(?: ([0-9a-zA-Z]{1,64}))?")
SIZE = re.compile(rb"\$(\d{1,18})")
MARK = re.compile(rb"\$EOF:([0-9a-zA-Z]{%d})" % MARK_BYTES)
# A file is closed once it has this size and was read.
FILE_BYTES = 64 << 20
# Maximum seconds of one wait, so that Ctrl-C ends it.
TICK_S = 0.2
# Advice for a source that refuses a replica.
WITH_SCAN = Message("leave out ", Hint("from_replica"), " to copy with SCAN")


class _File:
    """A file without a name, which vanishes when it is closed."""

    def __init__(self) -> None:
        self.file: IO[bytes] = tempfile.TemporaryFile(buffering=0)  # noqa: SIM115
        self.written = self.read = 0

    @property
    def done(self) -> bool:
        return self.read == self.written >= FILE_BYTES


class Spool:
    """A queue of bytes in files of the temporary folder, which TMPDIR chooses.

    The writer never waits for the reader: a slow target does not make the source keep data for us.
    Memory stays bounded, and the disk holds only what was not read yet.

    Attributes:
        ended: whether no more bytes will be written.
        written: number of bytes written.
        unread: number of written bytes that were not read.
    """

    def __init__(self) -> None:
        self.ended = False
        self.written = self.unread = 0
        self._error: BaseException | None = None
        self._changed = Condition()
        self._files: deque[_File] = deque()

    def write(self, data: bytes) -> None:
        """Add bytes; after ``end()`` or ``close()``, drop them.

        Raises:
            SourceError: the temporary folder is full, or can't be used.
        """
        with self._changed:
            if self.ended:
                return
            try:
                if not self._files or self._files[-1].written >= FILE_BYTES:
                    self._files.append(_File())
                last = self._files[-1]
                write_all(last.file, data)
            except OSError as error:
                raise SourceError(
                    f"can't write what the source sends to a temporary file: {error.strerror}; set "
                    "TMPDIR to a folder with room for a snapshot"
                ) from error
            last.written += len(data)
            self.written += len(data)
            self.unread += len(data)
            self._changed.notify_all()

    def end(self, error: BaseException | None = None) -> None:
        """End the queue; a reader that needs more bytes raises ``error``, if any."""
        with self._changed:
            if not self.ended:
                self.ended, self._error = True, error
            self._changed.notify_all()

    def take(self, size: int, seconds: float = TICK_S) -> bytes | None:
        """Return 1 to ``size`` bytes; b"" at the end, None if none arrive within ``seconds``."""
        with self._changed:
            if not self.unread and not self.ended:
                self._changed.wait(seconds)
            if not self.unread:
                if self._error is not None:
                    raise self._error
                return b"" if self.ended else None
            first = self._files[0]
            data = os.pread(first.file.fileno(), min(size, first.written - first.read), first.read)
            first.read += len(data)
            self.unread -= len(data)
            if first.done:
                self._files.popleft().file.close()
            return data

    def close(self) -> None:
        """Drop all bytes."""
        with self._changed:
            self.ended, self.unread = True, 0
            while self._files:
                self._files.pop().file.close()
            self._changed.notify_all()


class Place(NamedTuple):
    """A place in the history of a source: its replication ID, and an offset."""

    replication_id: str
    offset: int


class _Refused(Exception):
    """The source refuses to replicate."""


class _Closed(Exception):
    """We have closed the stream."""


class ReplicaStream:
    """Receives a server's snapshot, and then its later commands, as a replica does.

    A thread receives the bytes, and puts them into spools. It acknowledges only applied commands,
    so that WAIT at the source is not answered too early.

    Args:
        server: the source.
        timeout: maximum seconds without data; None for no limit.
        follow: whether the commands after the snapshot are wanted.
        instead: advice if the source refuses to replicate.

    Attributes:
        snapshot: an RDB file.
        commands: the commands after the snapshot.
        replication_id: the ID of the source's history.
        received: the replication offset of the last byte that was received.
        applied: the replication offset that is acknowledged.
    """

    def __init__(
        self,
        server: Server,
        timeout: float | None,
        *,
        follow: bool = False,
        instead: Message = WITH_SCAN,
    ) -> None:
        self.server = server
        self.snapshot, self.commands = Spool(), Spool()
        self.replication_id = ""
        self.received = self.applied = 0
        self._timeout = timeout
        self._follow = follow
        self._instead = instead
        self._closing = False
        self._online = False  # whether commands arrive, which are acknowledged
        self._connection: Any = None
        self._acknowledged = 0.0  # the time of the last acknowledgement
        on_fork(self)

    def open(self, place: Place | None = None) -> None:
        """Request the snapshot, wait until the source begins to create it, and start to receive.

        Args:
            place: skip the snapshot, and receive the commands after this place.

        Raises:
            SourceError: the source refuses, can't be reached, or no longer has these commands.
        """
        try:
            self._connect()
            if place is None:
                reply = self._psync("?", -1)
                found = FULL.fullmatch(reply)
                if found is None:
                    raise _Refused(f"unexpected reply to PSYNC: {shortened(repr(reply))}")
                place = Place(found[1], int(found[2]))
            else:
                self.snapshot.end()
                self._continue(place)
        except BaseException as error:
            self._disconnect()
            raise self._explained(error) from error
        self.replication_id = self.replication_id or place.replication_id
        self.received = self.applied = place.offset
        in_thread(self._receive)

    def read(self, size: int) -> bytes:
        """Wait for ``size`` bytes of the snapshot, fewer at its end, and return them.

        Raises:
            SourceError: the connection is lost, or the process is a forked child.
        """
        pieces = []
        while size:
            if not is_own(self):
                raise SourceError(str(Inherited("connection")))
            piece = self.snapshot.take(size)
            if piece == b"":
                break
            if piece is not None:
                pieces.append(piece)
                size -= len(piece)
        return b"".join(pieces)

    def acknowledge(self, offset: int, *, now: bool = False) -> None:
        """Set the applied replication offset; if ``now``, acknowledge it immediately."""
        self.applied = offset
        if now:
            self._acknowledged = 0.0

    def close(self) -> None:
        """Stop; the thread ends within TICK_S."""
        self._closing = True
        self.snapshot.close()
        self.commands.close()

    # Connecting.

    def _connect(self) -> None:
        seconds = ASK_TIMEOUT_S if self._timeout is None else min(self._timeout, ASK_TIMEOUT_S)
        self._connection = self.server.connect(seconds)
        try:
            call(self._connection, "REPLCONF", "capa", "eof", "capa", "psync2")
            for option in OPTIONAL[: 1 if self._follow else 2]:
                with suppress(redis.ResponseError):
                    call(self._connection, "REPLCONF", *option)
        except redis.ResponseError as error:
            raise _Refused(str(error)) from error

    def _psync(self, replication_id: str, offset: int) -> str:
        """Return the reply to PSYNC; raise _Refused for an error reply."""
        self._connection.send_command("PSYNC", replication_id, offset)
        line = self._line()
        text = line[1:].decode(errors="replace")
        if line[:1] != b"+":
            raise _Refused(text)
        return text

    def _continue(self, place: Place) -> None:
        """Request the commands after a place.

        Raises:
            SourceError: the source no longer has these commands.
            _Refused: the source refuses to replicate.
        """
        found = CONTINUE.fullmatch(self._psync(place.replication_id, place.offset + 1))
        if found is None:
            raise SourceError(
                f"the source no longer has the commands after replication offset {place.offset:,}; "
                "raise its repl-backlog-size, and copy again"
            )
        self.replication_id = found[1] or place.replication_id

    def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.disconnect()

    # The thread that receives.

    def _receive(self) -> None:
        error: BaseException | None = None
        try:
            if not self.snapshot.ended:
                self._receive_snapshot()
            if self._follow:
                self._receive_commands()
        except _Closed:
            pass
        except BaseException as caught:
            error = self._explained(caught)
        finally:
            self._disconnect()
            self.snapshot.end(error)
            self.commands.end(error)

    def _receive_snapshot(self) -> None:
        header = self._line()
        if found := SIZE.fullmatch(header):
            rest = int(found[1])
            while rest:
                data = self._recv(min(rest, READ_BYTES))
                self.snapshot.write(data)
                rest -= len(data)
        elif found := MARK.fullmatch(header):
            self._receive_marked(found[1])
        else:
            raise SourceError(f"unexpected start of its snapshot: {shortened(repr(header))}")
        self.snapshot.end()

    def _receive_marked(self, mark: bytes) -> None:
        """Receive a snapshot that ends with a mark; later commands wait for our REPLCONF ACK."""
        data = b""
        while (at := data.find(mark)) < 0:
            whole = max(0, len(data) - MARK_BYTES + 1)
            self.snapshot.write(data[:whole])
            data = data[whole:] + self._recv(READ_BYTES)
        self.snapshot.write(data[:at])
        if at + MARK_BYTES < len(data):
            raise SourceError("its snapshot does not end with its mark")

    def _receive_commands(self) -> None:
        self._online = True
        self._acknowledge()
        while True:
            try:
                data = self._recv(READ_BYTES)
            except (OSError, EOFError) as error:
                self._reconnect(error)
            else:
                self.commands.write(data)
                self.received += len(data)

    def _reconnect(self, error: Exception) -> None:
        """Continue after the last received byte over a new connection.

        Raises:
            SourceError: the source no longer has the commands after that byte.
            Exception: all attempts failed, the last one after RECONNECT_S seconds.
        """
        # Acknowledgements would delay the reply to PSYNC: a source waits until a replica is idle.
        self._online = False
        deadline = time.monotonic() + RECONNECT_S
        while not self._closing:
            self._disconnect()
            try:
                self._connect()
                self._continue(Place(self.replication_id, self.received))
            except SourceError:
                raise
            except (_Refused, OSError, EOFError, FastrespError, redis.RedisError) as again:
                if time.monotonic() > deadline:
                    raise again from error
                time.sleep(RETRY_S)
                continue
            self._online = True
            return
        raise _Closed

    def _line(self) -> bytes:
        """Return the next line; skip empty lines, which a busy source sends to show it is alive."""
        line = b""
        while not line.endswith(b"\n"):
            line = (line + self._recv(1)).lstrip(b"\n")
            if len(line) > LINE_BYTES:
                raise SourceError(f"unexpected reply to PSYNC: {shortened(repr(line))}")
        return line.rstrip(b"\r\n")

    def _recv(self, size: int) -> bytes:
        """Return 1 to ``size`` bytes; while waiting, acknowledge the applied commands.

        Raises:
            _Closed: ``close()`` was called.
            EOFError, OSError: the connection is lost.
        """
        source: socket.socket = self._connection._sock
        source.settimeout(TICK_S)
        last = time.monotonic()
        timeout = max(IDLE_S, self._timeout or 0) if self._online else self._timeout
        while not self._closing:
            if self._online and time.monotonic() > self._acknowledged + ACKNOWLEDGE_S:
                self._acknowledge()
            try:
                data = source.recv(size)
            except TimeoutError:
                if timeout is not None and time.monotonic() > last + timeout:
                    raise TimeoutError(f"no data for {timeout:g} s") from None
                continue
            if not data:
                raise EOFError("it closed the connection")
            return data
        raise _Closed

    def _acknowledge(self) -> None:
        self._acknowledged = time.monotonic()
        self._connection.send_command("REPLCONF", "ACK", self.applied)

    def _explained(self, error: BaseException) -> BaseException:
        """Return the exception for the reader; exceptions from bugs are returned unchanged."""
        if isinstance(error, _Refused):
            message = _advice(str(error), self._instead)
        elif isinstance(error, (FastrespError, redis.RedisError, OSError, EOFError)):
            received = self.snapshot.written
            progress = f" (after {size_text(received)} of its snapshot)" if received else ""
            message = Message(message_of(error), progress)
        else:
            return error
        return SourceError(Message("can't replicate ", str(self.server), ": ", message))


def _advice(refusal: str, instead: Message) -> Message:
    """Return what to do after an error reply of the source."""
    text = refusal.removeprefix("ERR ")
    if "no permissions" in text:
        text = text.removeprefix("NOPERM ")
        advice = "allow it with ACL SETUSER ... +psync +replconf, or "
        return Message(f"{text} (", advice, instead, ")")
    if refusal.startswith("NOMASTERLINK"):
        advice = " (it is a replica without a connection to its primary; copy from the primary)"
        return Message(refusal, advice)
    if text.lower().startswith("unknown command"):
        reason = "it does not offer replication, like many managed services"
        return Message(f"{reason} ({shortened(refusal, 100)}); ", instead)
    return Message(f"{refusal} (", instead, ")")
