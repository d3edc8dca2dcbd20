"""A client's connection to a misbehaving server."""

from __future__ import annotations

import select
import socket
import struct
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import TypeAlias

__all__ = ["Connection", "HangUp", "Reply"]

# poll() reports these although the client's last bytes are unread; only Linux has the second.
CLOSED = select.POLLHUP | getattr(select, "POLLRDHUP", 0)
# A client that sends nothing for this time counts as waiting for replies.
SILENCE_S = 0.05


class HangUp(Exception):
    """Raised by the function of a misbehaviour to close the connection."""


class Connection:
    """A client's connection to a misbehaving server, which has a connection to the real server.

    Attributes:
        count: number of commands so far that were not answered honestly.
        held: replies that the misbehaviour holds back.
        address: where the misbehaving server listens: ``127.0.0.1:port``, or a path.
    """

    def __init__(
        self, client: socket.socket, real: socket.socket, address: str, flood_bytes: int
    ) -> None:
        self.count = 0
        self.held: list[bytes] = []
        self.address = address
        self._client, self._real = client, real
        self._commands, self._replies = _Incoming(client), _Incoming(real)
        self._flood_bytes = flood_bytes

    def commands(self) -> Iterator[list[bytes]]:
        """Yield the client's commands, including inline commands without quotes.

        Empty commands are left out: servers don't reply to them.
        """
        incoming = self._commands
        with suppress(HangUp):
            while True:
                line = incoming.line()
                if line[:1] == b"*":
                    words = [incoming.bulk(incoming.line())[:-2] for _ in range(_length(line))]
                else:
                    words = line.split()
                if words:
                    yield words

    def honest(self, command: list[bytes]) -> bytes:
        """Execute a command on the real server; return its reply in RESP."""
        arguments = b"".join(b"$%d\r\n%b\r\n" % (len(each), each) for each in command)
        self._real.sendall(b"*%d\r\n%b" % (len(command), arguments))
        return self._replies.reply()

    def send(self, data: bytes) -> None:
        """Send bytes to the client."""
        self._client.sendall(data)

    def flood(self, data: bytes) -> None:
        """Send the same bytes repeatedly, and close the connection after ``flood_bytes`` bytes."""
        block = data * (65536 // len(data) or 1)
        for _ in range(0, self._flood_bytes, len(block)):
            self.send(block)
        raise HangUp

    def wait(self, seconds: float | None = None) -> None:
        """Wait without reading; with None, until the client closes the connection.

        Raises:
            HangUp: the client has closed the connection, or the server ends.
        """
        poll = select.poll()
        poll.register(self._client, CLOSED)
        if poll.poll(None if seconds is None else seconds * 1000):
            raise HangUp

    def wait_for_more(self) -> None:
        """Wait until the client has paused, and has then sent at least one byte."""
        poll = select.poll()
        poll.register(self._client, select.POLLIN)
        while poll.poll(SILENCE_S * 1000):
            self._commands.fill()
        self._commands.fill()

    def freeze(self) -> None:
        """Read and ignore everything that the client sends, until it closes the connection."""
        while self._client.recv(65536):
            pass
        raise HangUp

    def reset(self) -> None:
        """Close the connection with an RST packet."""
        self._client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        raise HangUp

    def half_close(self) -> None:
        """Close the sending direction; the client can still send."""
        self._client.shutdown(socket.SHUT_WR)

    def end(self) -> None:
        """Wake the thread that serves this connection, so that it ends."""
        for each in (self._client, self._real):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Close the connections to the client and to the real server."""
        self._client.close()
        self._real.close()


class _Incoming:
    """The bytes received from a socket."""

    def __init__(self, source: socket.socket) -> None:
        self._source = source
        self._data = bytearray()

    def fill(self) -> None:
        """Wait for more bytes."""
        data = self._source.recv(65536)
        if not data:
            raise HangUp
        self._data += data

    def take(self, size: int) -> bytes:
        while len(self._data) < size:
            self.fill()
        taken = bytes(self._data[:size])
        del self._data[:size]
        return taken

    def line(self) -> bytes:
        while (end := self._data.find(b"\n")) < 0:
            self.fill()
        return self.take(end + 1)

    def bulk(self, header: bytes) -> bytes:
        """Take the rest of a bulk string and its CRLF."""
        size = _length(header)
        return b"" if size < 0 else self.take(size + 2)

    def reply(self) -> bytes:
        """Take one reply of RESP2 or RESP3, with the push messages and attributes before it."""
        line = self.line()
        kind = line[:1]
        if kind in b"$=!":
            return line + self.bulk(line)
        if kind not in b"*~%|>":
            return line
        # Pairs of key and value; an attribute or a push message is followed by the reply.
        count = _length(line) * (2 if kind in b"%|" else 1) + (kind in b"|>")
        return b"".join([line, *(self.reply() for _ in range(count))])


def _length(header: bytes) -> int:
    try:
        return int(header[1:])
    except ValueError:
        raise HangUp from None


# Called with the connection, a command and the real server's reply; returns what to send instead.
Reply: TypeAlias = Callable[[Connection, list[bytes], bytes], bytes]
