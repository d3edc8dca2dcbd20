"""A primary's end of the replication protocol: accept a replica, and send it an RDB file."""

from __future__ import annotations

import errno
import hmac
import os
import socket
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from secrets import token_hex
from struct import pack
from typing import TYPE_CHECKING

from ..encode.payload.format import checksum
from ..outcome.errors import ProtocolError, TransportError, TransportTimeout
from ..outcome.messages import Hint, Message
from ..outcome.report import counted, size_text
from ..resp.read import ReplyReader
from ..server.file_io import POLLIN, POLLOUT, needed_for, new_poll
from ..server.forks import on_fork
from ..server.threads import in_thread
from .rdb_file import EOF

if TYPE_CHECKING:
    from typing_extensions import Buffer

__all__ = ["ReplicaLink"]

# Until the server's PSYNC: maximum bytes of a command, and maximum number of connections.
COMMAND_BYTES = 4096
MAX_PEERS = 16
# Milliseconds between checks for an interruption.
TICK_MS = 200
# While the source pauses, something is sent at this interval, in seconds: a replica gives up after
# its repl-timeout, 60 s by default.
KEEP_ALIVE_S = 5.0
READ_BYTES = 1 << 16


class Stranger(Exception):
    """A connection to our port is not from the server that we load."""


class Peer:
    """A connection to our port that may not be from the server.

    A server that becomes a replica proves its identity: its PSYNC names its own replication ID,
    which is random, and which only users with permission for INFO can read.
    """

    def __init__(self, connection: socket.socket) -> None:
        connection.setblocking(False)
        self.connection = connection
        self._reader = ReplyReader(max_reply_bytes=COMMAND_BYTES)

    def accepted(self, replication_id: str) -> bool:
        """Answer the received commands; return whether the server's PSYNC was among them.

        Raises:
            Stranger: the connection is closed, or not from the server.
        """
        try:
            data = self.connection.recv(COMMAND_BYTES)
            self._reader.feed(data)
            for command in self._reader.take():
                if self._is_psync(command, replication_id):
                    return True
            if not data:
                raise Stranger
        except BlockingIOError:
            pass
        except (OSError, ProtocolError) as error:
            raise Stranger from error
        return False

    def _is_psync(self, command: object, replication_id: str) -> bool:
        """Answer a command; return whether it is the server's PSYNC."""
        match command:
            case [bytes(name)] if name.upper() == b"PING":
                self.connection.send(b"+PONG\r\n")
            case [bytes(name), *_] if name.upper() in (b"AUTH", b"REPLCONF"):
                self.connection.send(b"+OK\r\n")
            case [bytes(name), bytes(found), *_] if name.upper() == b"PSYNC":
                if not hmac.compare_digest(found, replication_id.encode()):
                    raise Stranger
                return True
            case _:
                raise Stranger
        return False


class ReplicaLink:
    """Listens for the server, and streams an RDB file to it.

    Args:
        host: the address to listen on.
        port: the port; 0 for any free port.
        timeout: seconds without progress after which to give up; None to wait forever.
        announced: the host and port that the server connects to; "" or 0 means the host or port on
            which this object listens.

    Attributes:
        host, port: the address that the server connects to.
        size: number of bytes of the RDB file that were sent.
        received: number of bytes received from the server since its PSYNC.
        complete: whether the whole file was sent.
        loaded: whether the server has said that it has loaded the file.
        interrupted: whether to give up at the next wait; set by ``interrupt()``.

    Raises:
        TransportError: the address can't be used.
    """

    def __init__(
        self, host: str, port: int, timeout: float | None, announced: tuple[str, int] = ("", 0)
    ) -> None:
        self.size = self.received = 0
        self.complete = self.loaded = self.interrupted = False
        self._timeout = timeout
        self._crc = 0
        self._mark = token_hex(20).encode()
        self._peers: list[Peer] = []
        self._refused = 0
        self._socket: socket.socket | None = None
        self._reader = ReplyReader(max_reply_bytes=COMMAND_BYTES)
        self._moved = time.monotonic()
        self._sending = threading.Lock()
        self._closed = threading.Event()
        self._listener: socket.socket | None = _listening(host, port)
        host, port = self._listener.getsockname()[:2]
        self.host, self.port = announced[0] or host, announced[1] or port
        self._option = "announce" if announced[0] else "listen"
        on_fork(self, ReplicaLink.close)

    def interrupt(self) -> None:
        """End the current wait of another thread."""
        self.interrupted = True

    def close(self) -> None:
        """Close all sockets; then the server drops the file, unless it has received all of it."""
        self._closed.set()
        for each in (self._listener, self._socket, *(peer.connection for peer in self._peers)):
            if each is not None:
                each.close()
        self._listener, self._peers = None, []

    def accept(self, replication_id: str) -> None:
        """Wait for the server's PSYNC, and begin to send the file.

        Raises:
            TransportTimeout: the server does not connect.
        """
        assert self._listener is not None
        self._moved = time.monotonic()
        while self._socket is None:
            ready = self._poll([self._listener, *(peer.connection for peer in self._peers)], 0)
            for peer in [each for each in self._peers if each.connection.fileno() in ready]:
                with suppress(Stranger):
                    if peer.accepted(replication_id):
                        self._socket = peer.connection
                        break
                    continue
                self._refused += 1
                self._drop(peer)
            if self._listener.fileno() in ready and self._socket is None:
                self._welcome()
            self._check_progress(self._not_connected)
        self._peers = [peer for peer in self._peers if peer.connection is not self._socket]
        for peer in self._peers[:]:
            self._drop(peer)
        self._listener.close()
        self._send(b"+FULLRESYNC %s 0\r\n$EOF:%s\r\n" % (token_hex(20).encode(), self._mark))

    def _welcome(self) -> None:
        """Add a new connection; if there are too many, drop the oldest."""
        assert self._listener is not None
        with suppress(BlockingIOError, ConnectionError):
            self._peers.append(Peer(self._listener.accept()[0]))
        if len(self._peers) > MAX_PEERS:
            self._drop(self._peers[0])

    def _drop(self, peer: Peer) -> None:
        self._peers.remove(peer)
        peer.connection.close()

    def add(self, data: Buffer) -> None:
        """Send a part of the file: whole keys.

        Raises:
            TransportError: the server closed the connection.
            TransportTimeout: the server does not read.
        """
        with self._sending:
            self._put(data)

    def keep_alive(self, filler: bytes) -> None:
        """Start a thread that sends ``filler`` whenever nothing was sent for KEEP_ALIVE_S.

        ``filler`` is a part of an RDB file that has no effect.
        """
        in_thread(partial(self._fill_pauses, filler))

    def _fill_pauses(self, filler: bytes) -> None:
        while not self._closed.wait(KEEP_ALIVE_S):
            with self._sending:
                if self.complete or time.monotonic() - self._moved < KEEP_ALIVE_S:
                    continue
                try:
                    self._put(filler)
                except TransportError:
                    self.close()  # the next part, which could follow half a filler, must fail

    def end(self) -> None:
        """Send the end of the file; raises as ``add()`` does."""
        with self._sending:
            self._put(EOF)
            self._send(pack("<Q", self._crc))
            self.complete = True  # from now on, the server may load the file
            self._send(self._mark)

    def look(self) -> bool:
        """Wait a moment for the server to load the file; return whether it has loaded it.

        Raises:
            TransportError: the server closed the connection.
        """
        self._wait(0)
        return self.loaded

    def _put(self, data: Buffer) -> None:
        """Send a part of the file, and update its checksum."""
        self._crc = checksum(data, self._crc)
        self._send(data)
        self.size += memoryview(data).nbytes

    def _send(self, data: Buffer) -> None:
        assert self._socket is not None
        rest, self._moved = memoryview(data).cast("B"), time.monotonic()
        while rest:
            try:
                rest = rest[self._socket.send(rest) :]
                self._moved = time.monotonic()
            except BlockingIOError:
                self._wait(POLLOUT)
                self._check_progress(self._stalled)
            except OSError as error:
                raise self._lost(error) from error

    def _wait(self, events: int) -> None:
        """Wait at most TICK_MS for these events or for input; read the input."""
        assert self._socket is not None
        if not self._poll([self._socket], events).get(self._socket.fileno(), 0) & ~POLLOUT:
            return
        try:
            data = self._socket.recv(READ_BYTES)
            self.received += len(data)
            # While the server loads the file, it sends newlines to show that it is alive.
            self._reader.feed(data if self._reader.pending else data.lstrip(b"\n"))
        except BlockingIOError:
            return
        except (OSError, ProtocolError) as error:
            raise self._lost(error) from error
        if not data:
            raise self._lost(None)
        for command in self._reader.take():
            if isinstance(command, list) and b"ACK" in command:
                self.loaded = self.complete

    def _poll(self, sockets: Sequence[socket.socket], events: int) -> dict[int, int]:
        poll = new_poll()
        for each in sockets:
            poll.register(each, POLLIN | events)
        found = dict(poll.poll(TICK_MS))
        if self.interrupted:
            raise TransportError("the load by replication was interrupted")
        return found

    def _check_progress(self, message: Message) -> None:
        if self._timeout is not None and time.monotonic() - self._moved > self._timeout:
            raise TransportTimeout(message)

    @property
    def _not_connected(self) -> Message:
        refused = f" ({counted(self._refused, 'other connection')} refused)" * bool(self._refused)
        return Message(
            f"the server did not connect to {self.host}:{self.port} within {self._timeout:g} s"
            f"{refused}; check firewalls, and name an address of this machine that the server can "
            "reach with ",
            Hint(self._option, ...),
        )

    @property
    def _stalled(self) -> Message:
        return Message(
            f"the server has not read the RDB file for {self._timeout:g} s (a larger ",
            Hint("timeout", ...),
            " waits longer)",
        )

    def _lost(self, error: Exception | None) -> TransportError:
        """Return the exception for a connection that the server closed."""
        cause = "" if error is None else f": {error}"
        if self.complete:
            text = f"the server received the RDB file, and did not load it{cause}"
            return TransportError(f"{text}; its log says why")
        text = f"the server closed its connection after {size_text(self.size)} of the RDB file"
        return TransportError(f"{text}{cause}; its log says why, such as a full disk")


def _listening(host: str, port: int) -> socket.socket:
    """Open a socket that listens on an address; errors as for ReplicaLink."""
    try:
        with needed_for(f"can't listen on {host}"):
            found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
            listener = socket.create_server(found[4][:2], family=found[0], backlog=MAX_PEERS)
    except (OSError, OverflowError) as error:
        if isinstance(error, TransportError):
            raise
        number = error.errno if isinstance(error, OSError) else None
        reason = os.strerror(number) if number and number > 0 else str(error)
        advice = (
            f"name {'an' if number == errno.EADDRNOTAVAIL else 'another'} address of this machine"
        )
        text = f"can't listen on {host}:{port}: {reason}; {advice} with "
        raise TransportError(Message(text, Hint("listen", ...))) from error
    listener.setblocking(False)
    return listener
