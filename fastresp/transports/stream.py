"""A connected socket, plain or TLS: non-blocking send and receive, and waiting for both."""

from __future__ import annotations

import math
import socket
import ssl
from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

from ..outcome.errors import ProtocolError
from ..server.file_io import POLLIN, POLLOUT, is_patched, new_poll
from ..server.forks import Inherited, on_fork
from .sending import Sending
from .signals import READ_BYTES, receive
from .window import Window

__all__ = ["ReplySink", "Stream", "Wait", "wait_for"]

# A unix socket buffers 208 KiB by default. A larger buffer saves 3% of the time of an LPUSH load,
# because the server waits less.
# The system grants at most net.core.wmem_max. TCP tunes its own buffer.
UNIX_BUFFER_BYTES = 1 << 20
# Maximum bytes per send; the socket accepts at most the bytes that it has room for.
WRITE_BYTES = 1 << 20
# OpenSSL requires the same bytes again if it could not send all of them.
TLS_WRITE_BYTES = 1 << 18
# Maximum reads in one wait, including reads of the rest of an incomplete reply. So a wait reads at
# most 256 KiB, and takes at most 0.8 s.
READS_OF_WAIT = 4
WOULD_BLOCK = (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError)


class Wait(NamedTuple):
    """What a connection waits for: input or room for output, and the maximum seconds."""

    read: bool
    write: bool
    seconds: float


class ReplySink(Protocol):
    """Receives the bytes of replies. Must be compiled; see ``receive()`` in ``signals``."""

    def feed(self, data: bytes, /) -> object: ...
    @property
    def pending(self) -> bool: ...
    @property
    def offset(self) -> int: ...


class Stream:
    """Sends a window's commands over the socket of a redis-py connection; feeds replies to a sink.

    One thread both sends and receives: OpenSSL does not allow two.

    Args:
        connection: a redis-py connection, connected and without outstanding replies. The stream
            becomes its owner.
        sink: receives the bytes of replies.

    Attributes:
        received: number of bytes received.
        lost: why the connection can no longer be used; None while it is usable.
        sure: False if a signal handler raised during a TLS call. It is then unknown what was sent
            and received, and the connection can only be closed.
        full: whether the socket had no room at the last send.
    """

    def __init__(self, connection: Any, sink: ReplySink) -> None:
        self._connection = connection
        self.sink = sink
        self.received = self._reported = 0
        self._soon = True  # whether the last wait was short
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
        self._pending: memoryview | None = None  # bytes that OpenSSL must be offered again
        on_fork(self, Stream._release)

    def _release(self) -> None:
        """Stop sending and receiving in a child of the process that opened the connection."""
        self.lost = Inherited("connection")

    def feed(self, sink: ReplySink) -> None:
        """Switch to another sink. Nothing may be in flight."""
        self.sink = sink

    def give_up(self, cause: Exception) -> None:
        """Mark the connection as lost; ``cause`` is stored in ``lost``."""
        self.lost = cause

    def fileno(self) -> int:
        return self._socket.fileno()

    def close(self) -> None:
        """Close the connection. The server drops a partially sent command."""
        self._connection.disconnect()

    @property
    def has_input(self) -> bool:
        """Whether OpenSSL has buffered input that poll() can't see."""
        return bool(self._tls and self._tls.pending())

    def interest(self, *, read: bool, write: bool) -> tuple[bool, bool]:
        """Return whether to poll for input, and whether to poll for room for output.

        TLS may have to read before it can write.
        """
        return read or (self._tls is not None and write), write

    def receive(self, reads: int = 16) -> bool:
        """Read what has arrived; return whether any bytes were received since the last call."""
        self._receive(reads, 0)
        reported, self._reported = self._reported, self.received
        return self.received > reported

    def wait(self, wait: Wait) -> bool:
        """Wait for input and read it in one call; return False if the caller must poll instead."""
        if self._tls or wait.write or self.lost or is_patched():
            return False
        self._receive(READS_OF_WAIT, max(1, int(1000 * wait.seconds)))
        return True

    def _receive(self, reads: int, milliseconds: int) -> None:
        sink, before = self.sink, self.sink.offset
        try:
            if self._tls:
                self._receive_tls(reads)
            else:
                soon = receive(self._socket.fileno(), sink, reads, milliseconds, self._soon)
                if milliseconds:
                    self._soon = soon
        except WOULD_BLOCK:
            pass
        except (OSError, EOFError, ProtocolError) as error:
            self.lost = error
        except BaseException:
            self.sure = self._tls is None
            raise
        finally:
            self.received += sink.offset - before

    def _receive_tls(self, reads: int) -> None:
        sizes = (READ_BYTES,)
        got: list[object] = []
        for count in range(reads):
            # One call in C reads the bytes and feeds the sink, as in send().
            got.extend(map(self.sink.feed, filter(None, map(self._tls.read, sizes))))
            if len(got) == count:
                raise EOFError("the server closed the connection")

    def send(
        self, window: Window, max_replies: int | None = None, max_bytes: int | None = None
    ) -> bool:
        """Send commands from a window; return whether any bytes were sent.

        Args:
            max_replies: the limit for the window's ``sent``, in replies; None for no limit.
            max_bytes: maximum bytes to send in this call; None for no limit.
        """
        went = False
        self.full = False
        while not (self.lost or self.full):
            sending = window.sending
            piece = self._pending or (sending and self._piece(sending, max_replies, max_bytes))
            if not piece:
                break
            if max_bytes is not None:
                max_bytes = max(0, max_bytes - len(piece))
            try:
                if self._tls:
                    self._send_tls(sending, piece)
                else:
                    assert sending is not None
                    # One call in C writes and notes the size. No signal handler can run in
                    # between, so a Ctrl-C never makes us lose or repeat a byte.
                    sending.written.extend(map(self._socket.send, (piece,)))
                    self.full = sending.written[-1] < len(piece)
                went = True
            except WOULD_BLOCK:
                self.full = True
            except OSError as error:
                self.lost = error
        return went

    def _piece(self, sending: Sending, replies: int | None, size: int | None) -> memoryview:
        if replies is not None:
            replies -= sending.first_reply
        most = TLS_WRITE_BYTES if self._tls else WRITE_BYTES
        return sending.piece(most if size is None else min(most, size), replies)

    def _send_tls(self, sending: Sending | None, piece: memoryview) -> None:
        self.sure = False
        if self._pending is None:
            # From now on, some bytes may have been sent.
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
    """Wait until any of the connections is ready."""
    if len(waits) == 1:
        stream, wait = waits[0]
        if stream.wait(wait):
            return
    poll = new_poll()
    seconds = math.inf
    for stream, wait in waits:
        if wait.read and stream.has_input:
            return
        read, write = stream.interest(read=wait.read, write=wait.write)
        poll.register(stream, (read and POLLIN) | (write and POLLOUT))
        seconds = min(seconds, wait.seconds)
    poll.poll(max(1, int(1000 * seconds)))
