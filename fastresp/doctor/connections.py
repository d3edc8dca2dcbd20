"""The doctor's connections: for reading the server's state, and for measuring.

If the connection is lost, methods raise TransportError.
"""

from __future__ import annotations

import os
import socket
import stat
import struct
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from statistics import median
from typing import Any, Self

import redis

from ..outcome.errors import CommandError, FastrespError, ProtocolError, TransportError
from ..outcome.messages import shortened
from ..resp.scan import ReplyScanner
from ..resp.values import pack
from ..server.preflight import Requirements
from ..server.reply_parser import parse_info
from ..server.settings import Server

__all__ = [
    "BoundedSocket", "PING", "RawConnection", "StateReader", "explain_parse_errors", "rate_of",
    "text_of", "unix_server", "usable_socket",
]  # fmt: skip

SLOWLOG_ENTRIES = 128
SOCKET_TIMEOUT_S = 1.0
PING = pack("PING")
PAUSE_S = 0.001
# Time for each measurement.
STEP_S = 0.2
MAX_ROUND_TRIPS = 2_000
ROUNDS = 3
# Maximum bytes of a reply, which is a status or an error.
REPLY_BYTES = 65536
# Maximum bytes that redis-py reads over one connection; the replies to LRANGE have 2.3 MB in all.
CLIENT_BYTES = 3 << 20
CLIENT_S = 30.0


class StateReader:
    """Sends commands that read a server's state, over one redis-py connection.

    Attributes:
        unread: the server's error replies to refused commands, by the first word of the command.
    """

    def __init__(self, server: Server, connection: Any) -> None:
        self.server = server
        self.connection = connection
        self.unread: dict[str, str] = {}

    def ask(self, *command: str) -> Any:
        """Send a command, and return the reply; None if the server refuses the command."""
        try:
            self.connection.send_command(*command)
            return self.connection.read_response()
        except redis.ResponseError as error:
            self.unread.setdefault(command[0], str(error))
            return None
        except (redis.RedisError, OSError) as error:
            raise self.server.failure(error) from error

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.connection.disconnect()

    def info(self) -> dict[str, str]:
        return parse_info(self.ask("INFO", "all"))

    def slow_log(self) -> list[Any]:
        return self.ask("SLOWLOG", "GET", str(SLOWLOG_ENTRIES)) or []


def text_of(value: Any) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)


@contextmanager
def explain_parse_errors(server: Server) -> Iterator[None]:
    """In the block, convert exceptions from parsing a reply to a TransportError."""
    try:
        yield
    except FastrespError:
        raise
    except (
        ValueError, TypeError, LookupError, AttributeError, ArithmeticError,
        RecursionError, MemoryError,
    ) as error:  # fmt: skip
        reason = shortened(f"{type(error).__name__}: {error}")
        raise TransportError(
            f"the server at {server} sent a reply that the doctor can't parse ({reason}; check "
            "that it is Redis or Valkey, and that no proxy changes its replies)"
        ) from error


def rate_of(step: Callable[[], object], count: int, most: int) -> float:
    """Run a step repeatedly in three rounds; return the commands per second of the fastest round.

    Args:
        step: runs ``count`` commands.
        count: commands per step.
        most: maximum number of commands in all rounds. The rounds end after STEP_S, but each round
            may overrun its share to finish its last step.
    """
    best = 0.0
    for _ in range(ROUNDS):
        done, elapsed, begin = 0, 0.0, time.perf_counter()
        while done == 0 or (elapsed < STEP_S / ROUNDS and done < most / ROUNDS):
            step()
            done += count
            elapsed = time.perf_counter() - begin
        best = max(best, done / elapsed)
    return best


class RawConnection:
    """Sends encoded commands over the socket of a redis-py connection, and counts the replies.

    This is what redis-benchmark does, but in a Python loop. Each reply is one line.
    """

    def __init__(self, server: Server, connection: Any) -> None:
        self.server = server
        self.connection = connection
        self.socket: socket.socket = connection._sock

    def ask(self, *command: Any) -> Any:
        """Send a command with redis-py, and return the reply; raises as redis-py does."""
        self.connection.send_command(*command)
        return self.connection.read_response()

    def call(self, commands: bytes, count: int) -> None:
        """Send commands, and read their replies, each of which is a status or an error.

        Raises:
            CommandError: a reply is an error.
            TransportError: the connection was lost, or the server does not reply.
        """
        scanner = ReplyScanner(max_reply_bytes=REPLY_BYTES)
        try:
            self.socket.sendall(commands)
            while scanner.replies < count:
                received = self.socket.recv(65536)
                if not received:
                    raise ConnectionResetError("the server closed the connection")
                scanner.feed(received)
        except ProtocolError as error:
            invalid = ConnectionError(f"it sent an invalid reply: {error}")
            raise self.server.failure(invalid) from error
        except OSError as error:
            raise self.server.failure(error) from error
        for _, text, _ in scanner.errors[:1]:
            raise CommandError(shortened(text.decode(errors="replace")))

    def round_trips(self) -> list[float]:
        """Send PINGs one at a time; return the times of their round trips in seconds, sorted."""
        taken: list[float] = []
        end = time.perf_counter() + STEP_S
        while not taken or (len(taken) < MAX_ROUND_TRIPS and time.perf_counter() < end):
            begin = time.perf_counter()
            self.call(PING, 1)
            taken.append(time.perf_counter() - begin)
        return sorted(taken)

    def split_round_trip(self, times: int) -> float:
        """Return the median round trip, in seconds, of a PING that is written in two parts."""
        taken = []
        for _ in range(times):
            begin = time.perf_counter()
            self.socket.sendall(PING[:6])
            self.call(PING[6:], 1)
            taken.append(time.perf_counter() - begin)
            time.sleep(PAUSE_S)
        return median(taken)


class BoundedSocket:
    """A socket for redis-py that limits the bytes and the time of all reads.

    redis-py's own parser has no limits, and is used here because redis-py's speed is measured.
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
            from redis.exceptions import InvalidResponse  # redis-py does not retry after this error

            raise InvalidResponse("its reply is too large, or never ends")


def unix_server(server: Server, path: str) -> Server:
    """Return a Server for the unix socket of ``server``, with the same user and database."""
    names = ("db", "username", "password", "credential_provider")
    settings = {name: server.settings[name] for name in names if name in server.settings}
    pool = redis.ConnectionPool(
        connection_class=redis.UnixDomainSocketConnection, path=path, **settings
    )
    return Server(redis.Redis(connection_pool=pool), Requirements(reading=True))


def usable_socket(server: Server, info: Mapping[str, str], path: str) -> str:
    """Return ``path`` if the server listens on this socket and accepts our login; otherwise "".

    Also return "" if ``server`` already uses a unix socket. If ``server`` is behind a tunnel, a
    different server may own this path. So the password is sent only if the listening process has
    the process ID that ``server`` reports.
    """
    if not path or "path" in server.settings:
        return ""
    try:
        if _listener(path) != info.get("process_id"):
            return ""
        other = unix_server(server, path)
        with StateReader(other, other.connect(SOCKET_TIMEOUT_S)) as reader:
            reply = reader.ask("INFO", "server")
    except OSError:  # base class of TransportError
        return ""
    return path if parse_info(reply).get("run_id", "-") == info.get("run_id") else ""


def _listener(path: str) -> str:
    """Return the ID of the process that listens on a unix socket, as text; empty if unknown.

    Raises:
        OSError: no process listens on the path.
    """
    if not stat.S_ISSOCK(os.stat(path).st_mode) or not hasattr(socket, "SO_PEERCRED"):
        return ""
    with socket.socket(socket.AF_UNIX) as probe:
        probe.settimeout(SOCKET_TIMEOUT_S)
        probe.connect(path)
        credentials = probe.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    return str(struct.unpack("3i", credentials)[0])
