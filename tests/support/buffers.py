"""For tests of list buffers: a synchronous wrapper of the asyncio buffer, and a cutting proxy."""

from __future__ import annotations

import asyncio
import contextlib
import select
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeAlias

import redis
from waiting import until

import fastresp.aio

Open: TypeAlias = Callable[..., Any]

DELIVERIES = ("at-most-once", "at-least-once")


def numbers(count: int, start: int = 0) -> list[bytes]:
    return [b"%d" % i for i in range(start, start + count)]


def end_leases(client: redis.Redis) -> None:
    """End the leases of all consumers, as after a long silence."""
    leases = client.keys("*:lease:*")
    if leases:
        client.delete(*leases)


def wait_for_silence(client: redis.Redis) -> None:
    """Wait until all other connections are closed and all leases have ended."""
    until(lambda: len(client.client_list()) <= 1 and not client.keys("*:lease:*"), 60)


class Awaited:
    """The asyncio buffer with synchronous calls, so that each test covers both buffers."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        self.loop = asyncio.new_event_loop()
        self.buffer = fastresp.aio.ListBuffer(*arguments, **options)

    def __getattr__(self, name: str) -> Callable[..., Any]:
        method = getattr(self.buffer, name)
        return lambda *args, **options: self.loop.run_until_complete(method(*args, **options))

    def __len__(self) -> int:
        return self.loop.run_until_complete(self.buffer.length())

    @property
    def acknowledged(self) -> int:
        return self.buffer.acknowledged

    @property
    def _calls(self) -> Any:
        return self.buffer._calls

    def consume(self, *args: Any, **options: Any) -> Iterator[bytes]:
        return self._each(self.buffer.consume(*args, **options))

    def drain(self) -> Iterator[list[bytes]]:
        return self._each(self.buffer.drain())

    def _each(self, source: Any) -> Iterator[Any]:
        try:
            while True:
                try:
                    yield self.loop.run_until_complete(anext(source))
                except StopAsyncIteration:
                    return
        finally:
            if not self.loop.is_closed():
                self.loop.run_until_complete(source.aclose())

    def __enter__(self) -> Awaited:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()
        self.loop.close()


class Cutter:
    """A proxy on a unix socket that cuts a connection at a given command.

    Args:
        folder: the folder of its socket.
        server: path of the server's socket.

    Attributes:
        marker: bytes of a command at which to cut the connection, once; None for never.
        arrives: whether the server receives this command, so that only the reply is lost.
        cuts: the number of cuts.
    """

    def __init__(self, folder: Path, server: Path) -> None:
        self._path, self._server = folder / "cutter", server
        self.url = f"unix://{self._path}"
        self.marker: bytes | None = None
        self.arrives = True
        self.cuts = 0

    def __enter__(self) -> Cutter:
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(self._path))
        self._listener.listen()
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *error: object) -> None:
        # Wake accept(); close() alone doesn't.
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        server = socket.socket(socket.AF_UNIX)
        server.connect(str(self._server))
        other = {client: server, server: client}
        with client, server, contextlib.suppress(OSError):
            while True:
                for end in select.select([client, server], [], [])[0]:
                    data = end.recv(1 << 20)
                    if not data or (end is client and self._cut(data, server)):
                        return
                    other[end].sendall(data)

    def _cut(self, data: bytes, server: socket.socket) -> bool:
        if self.marker is None or self.marker not in data:
            return False
        self.marker = None
        self.cuts += 1
        if self.arrives:
            server.sendall(data)
            server.recv(1 << 20)
        return True
