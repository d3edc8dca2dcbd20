"""A connected socket, plain or TLS, that takes and gives what it can and never waits."""

from __future__ import annotations

import math
import select
import socket
import ssl
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from ..errors import ProtocolError
from ..window import Window

__all__ = ["READ_BYTES", "Stream", "Wait", "wait_for"]

# Below 128 KiB, from where malloc would fetch fresh pages for each read.
READ_BYTES = 1 << 16
# A unix socket holds 208 KiB by default; with more the server waits less for us, 3% of an
# LPUSH load. The system gives less than this if net.core.wmem_max says so. TCP finds its own size.
UNIX_BUFFER_BYTES = 1 << 20
# A socket takes what it has room for; more than a chunk is never offered.
WRITE_BYTES = 1 << 20
# OpenSSL has to be offered the same bytes again when it could not send them all.
TLS_WRITE_BYTES = 1 << 18
WOULD_BLOCK = (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError)


class Wait(NamedTuple):
    """What a connection waits for: input, room for output, or the end of so many seconds."""

    read: bool
    write: bool
    seconds: float


class Stream:
    """The socket of a redis-py connection: commands go out of a window, replies go to a function.

    One thread both sends and receives: OpenSSL does not allow two.

    Args:
        connection: a redis-py connection, connected and with no reply outstanding. Belongs to
            the stream from now on.
        window: where the commands come from, and where it is noted how far they have gone.
        feed: is given the bytes of replies as they come in. If it returns False, they were less
            than a read takes, and there are no more for now.

    Attributes:
        window: may be another one while nothing is in flight.
        lost: why the connection can't be used any more, or None.
        sure: False after an exception of a signal handler came in the midst of a TLS call: then
            nobody knows what went and what came, and the connection can only be closed.
        full: whether the socket had no room when last offered something.
    """

    def __init__(self, connection: Any, window: Window, feed: Callable[[bytes], object]) -> None:
        self._connection = connection
        self.window = window
        self._feed = feed
        self.lost: Exception | None = None
        self.sure = True
        self.full = False
        self._socket: socket.socket = connection._sock
        self._socket.setblocking(False)
        if self._socket.family == socket.AF_UNIX:
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, UNIX_BUFFER_BYTES)
        else:
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._tls: Any = getattr(self._socket, "_sslobj", None)
        self._pending: memoryview | None = None  # what OpenSSL has to be offered again
        self._receive_one = self._tls.read if self._tls else self._socket.recv

    def fileno(self) -> int:
        """The file descriptor, to wait for."""
        return self._socket.fileno()

    def close(self) -> None:
        """Close the connection. The server drops a command that it has half of."""
        self._connection.disconnect()

    @property
    def has_input(self) -> bool:
        """Whether there is input that the file descriptor does not show: OpenSSL holds it."""
        return bool(self._tls and self._tls.pending())

    def interest(self, *, read: bool, write: bool) -> tuple[bool, bool]:
        """Whether to wait for input, and for room: TLS may have to read in order to write."""
        return read or (self._tls is not None and write), write

    def receive(self, calls: int = 64) -> bool:
        """Feed on what has come in; return whether there was anything."""
        got: list[object] = []
        # In one call in C the bytes are taken and fed on, as in send().
        sizes = (READ_BYTES,)
        for count in range(calls):
            try:
                got.extend(map(self._feed, filter(None, map(self._receive_one, sizes))))
            except WOULD_BLOCK:
                break
            except (OSError, ProtocolError) as error:
                self.lost = error
                break
            except BaseException:
                self.sure = self._tls is None
                raise
            if len(got) == count:
                self.lost = EOFError("the server closed the connection")
                break
            if got[-1] is False and self._tls is None:
                break  # to ask would cost an exception
        return bool(got)

    def send(self, most_commands: int | None = None) -> bool:
        """Send from the window, at most so many commands of the stream in all.

        Returns whether anything went.
        """
        went = False
        self.full = False
        while not (self.lost or self.full):
            piece = self._pending or self._piece(most_commands)
            if not piece:
                break
            try:
                self._send_tls(piece) if self._tls else self._send_plain(piece)
                went = True
            except WOULD_BLOCK:
                self.full = True
            except OSError as error:
                self.lost = error
        return went

    def _piece(self, most_commands: int | None) -> memoryview | None:
        sending = self.window.sending
        if sending is None:
            return None
        if most_commands is not None:
            most_commands -= sending.first_command
        return sending.piece(TLS_WRITE_BYTES if self._tls else WRITE_BYTES, most_commands)

    def _send_plain(self, piece: memoryview) -> None:
        sending = self.window.sending
        assert sending is not None
        # One call in C writes and takes a note of it: no signal handler can come in between, so
        # a Ctrl-C never makes us lose or repeat a byte.
        sending.written.extend(map(self._socket.send, (piece,)))
        self.full = sending.written[-1] < len(piece)

    def _send_tls(self, piece: memoryview) -> None:
        self.sure = False
        if self._pending is None:
            # From here on some of it may be on its way.
            sending = self.window.sending
            assert sending is not None
            self._pending = piece
            sending.written.append(len(piece))
        try:
            written = self._tls.write(piece)
        except OSError:
            self.sure = True
            raise
        self._pending = piece[written:] or None
        self.sure = True


def wait_for(waits: Sequence[tuple[Stream, Wait]]) -> None:
    """Wait until any of some connections has what it waits for."""
    poll = select.poll()
    seconds = math.inf
    for stream, wait in waits:
        if wait.read and stream.has_input:
            return
        read, write = stream.interest(read=wait.read, write=wait.write)
        poll.register(stream, (read and select.POLLIN) | (write and select.POLLOUT))
        seconds = min(seconds, wait.seconds)
    poll.poll(max(1, int(1000 * seconds)))
