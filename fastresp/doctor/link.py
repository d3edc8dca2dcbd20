"""Ready bytes over a connection of redis-py's: what a loop in Python gets without a client."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable
from statistics import median
from typing import Any

from ..outcome.errors import CommandError, ProtocolError
from ..outcome.excerpts import shortened
from ..resp.scan import ReplyScanner
from ..resp.values import pack
from ..server.settings import Server

__all__ = ["PING", "BoundedSocket", "Link", "rate_of"]

PING = pack("PING")
PAUSE_S = 0.001
ROUNDS = 3
# A status, or an error.
REPLY_BYTES = 65536
# Of all that redis-py asks for over one connection: 2.3 MB in lists, when it is fast.
CLIENT_BYTES = 3 << 20
CLIENT_S = 30.0


def rate_of(step: Callable[[], object], count: int, *, seconds: float, most: int) -> float:
    """How many a second, when a step does so many: the best of three rounds.

    What disturbs a round on a busy machine is neither the server's nor the client's.

    Args:
        seconds: how long, at most, for all rounds; a step is done whole.
        most: how many to do, at most.
    """
    best = 0.0
    for _ in range(ROUNDS):
        done, elapsed, begin = 0, 0.0, time.perf_counter()
        while done == 0 or (elapsed < seconds / ROUNDS and done < most / ROUNDS):
            step()
            done += count
            elapsed = time.perf_counter() - begin
        best = max(best, done / elapsed)
    return best


class Link:
    """The socket of a redis-py connection: whole commands out, replies of one line counted.

    As redis-benchmark does, it makes its commands beforehand and builds nothing of the replies;
    unlike it, it is a loop in Python.
    """

    def __init__(self, server: Server, connection: Any) -> None:
        self.server = server
        self.connection = connection
        self.socket: socket.socket = connection._sock

    def call(self, commands: bytes, count: int) -> None:
        """Send commands, and take all their replies: a status or an error each.

        Raises:
            CommandError: one of them is an error.
            TransportError: the server was lost, or does not answer.
        """
        scanner = ReplyScanner(max_reply_bytes=REPLY_BYTES)
        try:
            self.socket.sendall(commands)
            while scanner.replies < count:
                scanner.feed(self._receive())
        except ProtocolError as error:
            words = ConnectionError(f"it sends what can't be understood: {error}")
            raise self.server.failure(words) from error
        except OSError as error:
            raise self.server.failure(error) from error
        for _, text, _ in scanner.errors[:1]:
            raise CommandError(shortened(text.decode(errors="replace")))

    def _receive(self) -> bytes:
        received = self.socket.recv(65536)
        if not received:
            raise ConnectionResetError("the server closed the connection")
        return received

    def round_trips(self, *, seconds: float, most: int) -> list[float]:
        """The seconds that PINGs take, one after another, sorted."""
        taken: list[float] = []
        end = time.perf_counter() + seconds
        while not taken or (len(taken) < most and time.perf_counter() < end):
            begin = time.perf_counter()
            self.call(PING, 1)
            taken.append(time.perf_counter() - begin)
        return sorted(taken)

    def split_round_trip(self, times: int) -> float:
        """The seconds of a PING that is written in two parts, as a careless client does."""
        taken = []
        for _ in range(times):
            begin = time.perf_counter()
            self.socket.sendall(PING[:6])
            self.call(PING[6:], 1)
            taken.append(time.perf_counter() - begin)
            time.sleep(PAUSE_S)
        return median(taken)


class BoundedSocket:
    """A socket for redis-py, whose parser holds whatever comes: no more, and no longer, than due.

    Our own bounded parser would not do: what is measured is how fast redis-py's is.
    """

    def __init__(self, raw: socket.socket) -> None:
        self._raw = raw
        self._left = CLIENT_BYTES
        self._end = time.monotonic() + CLIENT_S

    def __getattr__(self, name: str) -> Any:
        return getattr(self._raw, name)

    def recv(self, *arguments: Any) -> bytes:
        data = self._raw.recv(*arguments)
        self._count(len(data))
        return data

    def recv_into(self, *arguments: Any) -> int:
        size = self._raw.recv_into(*arguments)
        self._count(size)
        return size

    def _count(self, size: int) -> None:
        self._left -= size
        if self._left < 0 or time.monotonic() > self._end:
            from redis.exceptions import InvalidResponse  # which is not tried again

            raise InvalidResponse("it sends replies that do not end")
