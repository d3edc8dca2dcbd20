"""Servers of the benchmarks, and redis-py with and without hiredis as their client."""

from __future__ import annotations

import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import psutil
import redis
from redis._parsers import Encoder, _HiredisParser, _RESP2Parser
from redis.connection import HiredisRespSerializer, PythonRespSerializer
from turns import NotAvailable, need

from fastresp.cli.demo.methods import Workbench, debug_options
from fastresp.server.local_server import LocalServer, need_program

sys.path.append(str(Path(__file__).parent.parent / "tests" / "support"))

from local_cluster import LocalCluster, free_port

__all__ = [
    "C", "PARSERS", "Address", "LocalCluster", "Server", "in_package", "processes",
    "python_packer", "running",
]  # fmt: skip

PARSERS = ("PythonParser", "hiredis")
# The parser's name in rows of the C client.
C = "hiredis (C)"
# redis-py's own limit: longer arguments are not joined.
BUFFER_CUTOFF = 6000


@dataclass(frozen=True)
class Address:
    """Where a server listens: a unix socket, or a port of the loopback."""

    where: Path | int

    @property
    def url(self) -> str:
        if isinstance(self.where, Path):
            return f"unix://{self.where}"
        return f"redis://127.0.0.1:{self.where}"

    def client(self, parser: str = "hiredis", database: int = 0) -> Any:
        """Return a connected redis-py client, with a parser and its packer.

        Args:
            parser: ``"PythonParser"`` or ``"hiredis"``, which the 2018 report calls HiredisParser.
            database: the number of the database.
        """
        reads, packs = {
            "PythonParser": (_RESP2Parser, python_packer()),
            "hiredis": (_HiredisParser, HiredisRespSerializer()),
        }[parser.replace("HiredisParser", "hiredis")]
        place: dict[str, Any] = {"connection_class": redis.Connection, "port": self.where}
        if isinstance(self.where, Path):
            path = str(self.where)
            place = {"connection_class": redis.UnixDomainSocketConnection, "path": path}
        pool = redis.ConnectionPool(
            **place,
            parser_class=reads,
            command_packer=packs,
            protocol=2,
            db=database,
            socket_timeout=None,
        )
        connection = pool.get_connection()
        assert type(connection._parser) is reads and connection._command_packer is packs
        pool.release(connection)
        return redis.Redis(connection_pool=pool)

    def connect(self) -> socket.socket:
        if isinstance(self.where, Path):
            connection = socket.socket(socket.AF_UNIX)
            connection.connect(str(self.where))
            return connection
        connection = socket.create_connection(("127.0.0.1", self.where))
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return connection


def python_packer() -> PythonRespSerializer:
    """Return redis-py's own packer, which it uses without hiredis."""
    return PythonRespSerializer(BUFFER_CUTOFF, Encoder("utf-8", "strict", False).encode)


class Server:
    """A running server.

    Attributes:
        unix: its unix socket.
        tcp: its port.
        client: a connected client, with hiredis and without a timeout.
        process: its process.
    """

    def __init__(self, local: LocalServer, tcp: Address) -> None:
        self.local = local
        self.unix, self.tcp = Address(local.socket), tcp
        self.url = self.unix.url
        self.client = self.unix.client()
        self.process = psutil.Process(local.process.pid)

    def empty(self, *_: object) -> None:
        """Remove all keys, and wait until their memory is free."""
        # SYNC, so that the server does not free old data in a thread during the next load.
        self.client.execute_command("FLUSHALL", "SYNC")

    def workbench(self, address: Address) -> Workbench:
        need_program("cli")  # raises if it is missing
        port = address.where if isinstance(address.where, int) else None
        return Workbench(self.local, self.client, port)

    def digest(self) -> bytes:
        return self.client.execute_command("DEBUG", "DIGEST")

    def need_keys(self, count: int, what: str) -> None:
        """End the program unless the server has this number of keys."""
        need(self.client.dbsize(), count, f"{what}, keys of the server")


@contextmanager
def running(*options: str, program: str | None = None) -> Iterator[Server]:
    """Run a server on a unix socket and on a free port."""
    port = free_port()
    arguments = ("--port", str(port), *debug_options(), *options)
    with LocalServer(*arguments, program=program) as local:
        yield Server(local, Address(port))


def processes(cluster: LocalCluster) -> list[psutil.Process]:
    return [psutil.Process(node.process.pid) for node in cluster.nodes]


def in_package(package: str, inside: str) -> Path:
    """Return the path of a file in an installed package.

    Raises:
        NotAvailable: the package is not installed, or does not have the file.
    """
    spec = find_spec(package)
    for folder in (spec and spec.submodule_search_locations) or ():
        if (path := Path(folder) / inside).exists():
            return path
    raise NotAvailable(f"{package} is not installed: pip install {package.replace('_', '-')}")
