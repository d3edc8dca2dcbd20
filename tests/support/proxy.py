"""A TCP proxy in front of a real server, with the faults of networks and attackers."""

from __future__ import annotations

import random
import select
import socket
import struct
import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from typing import Literal, Self

__all__ = ["FAITHFUL", "KINDS", "LYING", "UP", "DOWN", "Fault", "Proxy"]

UP, DOWN = "up", "down"
# Faults that pass only sent bytes, in order: counting replies can't go wrong.
FAITHFUL = ("none", "cut", "reset", "half-close", "freeze", "fragment")
LYING = ("garbage", "replies")
KINDS = FAITHFUL + LYING
# The number of bytes forwarded one by one.
FRAGMENTED_BYTES = 3_000
GARBAGE_BYTES = 20


@dataclass(frozen=True)
class Fault:
    """A fault that happens once to a stream of bytes.

    Attributes:
        kind: one of KINDS. ``"cut"`` closes both ends, ``"reset"`` with an RST; ``"half-close"``
            ends only this direction; ``"freeze"`` forwards nothing more, in both directions;
            ``"garbage"`` inserts random bytes, ``"replies"`` whole replies.
        way: ``"up"`` for commands, or ``"down"`` for replies.
        at: the fault happens after this many bytes in that direction, over all connections.
        seed: seed of the random bytes.
        delay_s: the delay of each piece in seconds, as over a distant link.
    """

    kind: str = "none"
    way: Literal["up", "down"] = "up"
    at: int = 0
    seed: int = 0
    delay_s: float = 0.0


class Proxy:
    """A proxy on a TCP port; use it in a ``with`` statement.

    One thread serves all connections. After the fault, new connections are forwarded unchanged.

    Args:
        target: the server's unix socket, or its TCP port.
        fault: the fault to cause.
        port: where to listen; 0 for any free port.

    Attributes:
        port: the port where it listens.
        inserted: number of inserted replies, or of inserted lines of garbage.
        done: whether the fault has happened.
        max_at_once: the largest number of simultaneous connections.
    """

    def __init__(self, target: str | int, fault: Fault = Fault(), *, port: int = 0) -> None:
        self.target = target
        self.fault = fault
        self.port = port
        self.inserted = self.max_at_once = 0
        self.done = fault.kind == "none"
        self._random = random.Random(fault.seed)
        self._counts = {UP: 0, DOWN: 0}
        self._slow = 0  # bytes still to forward one by one
        self._pairs: dict[socket.socket, tuple[socket.socket, str]] = {}
        self._frozen: list[socket.socket] = []
        self._ending = threading.Event()

    def __enter__(self) -> Self:
        self._listener = socket.create_server(("127.0.0.1", self.port), backlog=128)
        self.port = self._listener.getsockname()[1]
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._ending.set()
        self._thread.join(10)
        assert not self._thread.is_alive()
        for end in (*self._pairs, *self._frozen, self._listener):
            end.close()

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}"

    def _run(self) -> None:
        while not self._ending.is_set():
            ready, _, _ = select.select([self._listener, *self._pairs], [], [], 0.02)
            for end in ready:
                if end is self._listener:
                    self._accept()
                elif end in self._pairs:  # it may have been closed meanwhile
                    try:
                        self._pass_on(end)
                    except OSError:
                        self._close(end)

    def _accept(self) -> None:
        client, _ = self._listener.accept()
        if isinstance(self.target, int):
            server = socket.create_connection(("127.0.0.1", self.target))
        else:
            server = socket.socket(socket.AF_UNIX)
            server.connect(self.target)
        for end in (client, server):
            # The thread serves all connections, so it must never block.
            end.settimeout(5)
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._pairs[client] = (server, UP)
        self._pairs[server] = (client, DOWN)
        self.max_at_once = max(self.max_at_once, len(self._pairs) // 2)

    def _pass_on(self, source: socket.socket) -> None:
        sink, way = self._pairs[source]
        data = source.recv(1 << 16)
        time.sleep(self.fault.delay_s)
        if not data:
            del self._pairs[source]  # the other direction may continue
            if sink in self._pairs:
                self._frozen.append(source)
                sink.shutdown(socket.SHUT_WR)
            else:
                source.close()
                sink.close()
            return
        before = self._counts[way]
        self._counts[way] += len(data)
        fault = self.fault
        if self.done or fault.way != way or self._counts[way] <= fault.at:
            self._send(sink, data)
            return
        self.done = True
        self._send(sink, data[: fault.at - before])
        self._happen(source, sink, data[fault.at - before :])

    def _happen(self, source: socket.socket, sink: socket.socket, rest: bytes) -> None:
        kind = self.fault.kind
        if kind == "cut":
            self._close(source)
        elif kind == "reset":
            for end in (source, sink):
                end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self._close(source)
        elif kind == "half-close":
            sink.shutdown(socket.SHUT_WR)
            del self._pairs[source]
            self._frozen.append(source)
        elif kind == "freeze":
            for end in (source, sink):
                if self._pairs.pop(end, None) is not None:
                    self._frozen.append(end)
        elif kind == "fragment":
            self._slow = FRAGMENTED_BYTES
            self._send(sink, rest)
        elif kind == "garbage":
            self.inserted += GARBAGE_BYTES
            self._send(sink, self._random.randbytes(GARBAGE_BYTES) + rest)
        else:
            count = self._random.randrange(1, 50)
            self.inserted += count
            self._send(sink, b"+OK\r\n" * count + rest)

    def _send(self, sink: socket.socket, data: bytes) -> None:
        slow = min(self._slow, len(data))
        self._slow -= slow
        for at in range(slow):
            sink.sendall(data[at : at + 1])
        sink.sendall(data[slow:])

    def _close(self, end: socket.socket) -> None:
        other, _ = self._pairs.pop(end, (end, ""))  # its direction may have ended earlier
        self._pairs.pop(other, None)
        for each in (end, other):
            with suppress(OSError):
                each.close()
