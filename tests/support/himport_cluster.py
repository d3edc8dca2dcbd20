"""A cluster whose nodes know HIMPORT, as Redis 8.10's do: real nodes behind translating proxies.

Clients and other nodes get the proxies' addresses from the nodes themselves, so redirections,
moved slots and failovers are real. A proxy runs HIMPORT SET as a script with the same result.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Sequence
from contextlib import suppress
from io import BufferedReader
from socketserver import StreamRequestHandler, ThreadingTCPServer
from typing import Any, Self

from local_cluster import LocalCluster

from fastresp.resp.commands import REPLACE_SCRIPT_IN_CLUSTER

__all__ = ["HimportCluster"]

# The key of the command with which a load finds out whether it may run HIMPORT.
PROBE = b"1"
KNOWN = b"*1\r\n*2\r\n$7\r\nhimport\r\n:-2\r\n"


def read_value(stream: BufferedReader) -> bytes:
    """Return the bytes of the next RESP value; raise EOFError at the end."""
    line = stream.readline()
    if not line.endswith(b"\r\n"):
        raise EOFError
    kind, count = line[:1], line[1:-2]
    if kind in b"$=!" and count != b"-1":
        body = stream.read(int(count) + 2)
        if len(body) < int(count) + 2:
            raise EOFError
        return line + body
    values = int(count) * (2 if kind == b"%" else 1) if kind in b"*~>%" else 0
    return line + b"".join(read_value(stream) for _ in range(values))


def read_command(stream: BufferedReader) -> list[bytes]:
    line = stream.readline()
    if not line.startswith(b"*"):
        raise EOFError
    values = [read_value(stream) for _ in range(int(line[1:]))]
    return [value[value.index(b"\n") + 1 : -2] for value in values]


def encoded(*words: bytes) -> bytes:
    return b"*%d\r\n%b" % (len(words), b"".join(b"$%d\r\n%b\r\n" % (len(w), w) for w in words))


class TranslatingProxy:
    """A proxy in front of a node, which translates HIMPORT.

    Attributes:
        port: where it listens.
        prepared: number of HIMPORT PREPARE commands.
        replaced: number of HIMPORT SET commands that the node ran without an error.
        redirected: number of HIMPORT SET commands that the node answered with MOVED or ASK.
        missing: number of HIMPORT SET commands whose field set the connection did not have.
    """

    def __init__(self, target: int) -> None:
        self.target = target
        self.prepared = self.replaced = self.redirected = self.missing = 0
        self._lock = threading.Lock()
        outer = self

        class Handler(StreamRequestHandler):
            disable_nagle_algorithm = True

            def handle(self) -> None:
                with (
                    suppress(OSError, EOFError),
                    socket.create_connection(("127.0.0.1", outer.target)) as node,
                ):
                    node.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                    outer._serve(self.rfile, self.connection, node)

        self._server = ThreadingTCPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.port: int = self._server.server_address[1]
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def _count(self, name: str) -> None:
        with self._lock:
            setattr(self, name, getattr(self, name) + 1)

    def _serve(self, commands: Any, client: socket.socket, node: socket.socket) -> None:
        replies = node.makefile("rb")
        field_sets: dict[bytes, list[bytes]] = {}
        while True:
            command = read_command(commands)
            words = [word.upper() for word in command[:2]]
            if words == [b"COMMAND", b"INFO"] and command[2].upper() == b"HIMPORT":
                client.sendall(KNOWN)
            elif words == [b"HIMPORT", b"PREPARE"]:
                self._count("prepared")
                field_sets[command[2]] = command[3:]
                # As any command, it uses up ASKING.
                node.sendall(encoded(b"PING"))
                read_value(replies)
                client.sendall(b"+OK\r\n")
            elif words == [b"HIMPORT", b"SET"]:
                node.sendall(self._replacing(field_sets, *command[2:]))
                client.sendall(self._judged(read_value(replies)))
            else:
                node.sendall(encoded(*command))
                if words[0] == b"PSYNC":
                    self._pass_on(commands, client, node, replies)
                client.sendall(read_value(replies))

    def _replacing(
        self, field_sets: dict[bytes, list[bytes]], key: bytes, name: bytes, *values: bytes
    ) -> bytes:
        if name not in field_sets:
            if key != PROBE:
                self._count("missing")
            return encoded(b"EVAL", b"return redis.error_reply('ERR no such fieldset')", b"1", key)
        pairs = [word for pair in zip(field_sets[name], values, strict=True) for word in pair]
        return encoded(b"EVAL", REPLACE_SCRIPT_IN_CLUSTER, b"1", key, *pairs)

    def _judged(self, reply: bytes) -> bytes:
        if reply == b":1\r\n":
            self._count("replaced")
            return b"+OK\r\n"
        if reply.startswith((b"-MOVED", b"-ASK")):
            self._count("redirected")
        return reply

    def _pass_on(
        self, commands: Any, client: socket.socket, node: socket.socket, replies: Any
    ) -> None:
        """Pass on a replica's stream until it ends."""

        def acknowledgements() -> None:
            with suppress(OSError, ValueError):
                while data := commands.read1(1 << 16):
                    node.sendall(data)

        threading.Thread(target=acknowledgements, daemon=True).start()
        while data := replies.read1(1 << 16):
            client.sendall(data)
        raise EOFError


class HimportCluster(LocalCluster):
    """A cluster behind proxies that know HIMPORT, in a ``with`` statement.

    ``clients`` connect to the nodes directly; ``url`` is the first node's proxy.
    """

    def __init__(self, primaries: int = 3, replicas: int = 0, program: str | None = None) -> None:
        super().__init__(primaries, replicas, program=program, options=self._announced)
        self._proxies: dict[int, TranslatingProxy] = {}

    def _announced(self, port: int) -> Sequence[str]:
        self._proxies[port] = proxy = TranslatingProxy(port)
        bus = ("--cluster-announce-bus-port", str(port + 10_000))
        return "--cluster-announce-port", str(proxy.port), *bus

    def __enter__(self) -> Self:
        try:
            return super().__enter__()
        except BaseException:
            self._close_proxies()
            raise

    def __exit__(self, *error: object) -> None:
        super().__exit__(*error)
        self._close_proxies()

    def _close_proxies(self) -> None:
        for proxy in self._proxies.values():
            proxy.close()

    @property
    def proxies(self) -> list[TranslatingProxy]:
        return [self._proxies[port] for port in self.ports]

    @property
    def url(self) -> str:
        return self.url_of(self.proxies[0].port)

    def total(self, name: str) -> int:
        """Return the sum of an attribute of all proxies."""
        return sum(getattr(proxy, name) for proxy in self._proxies.values())

    def _slots(self, number: int) -> Any:
        """Return CLUSTER SLOTS with the nodes' own ports."""
        own = {proxy.port: port for port, proxy in self._proxies.items()}
        return [
            [*slots, *([host, own.get(port, port), *rest] for host, port, *rest in nodes)]
            for *slots, nodes in (
                (first, last, found) for first, last, *found in super()._slots(number)
            )
        ]
