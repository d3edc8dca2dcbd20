"""Servers with HIMPORT: fakeredis behind a socket of ours, and yodb if it is installed.

fakeredis is an independent implementation of Redis in Python. Its own TCP server closes the
connection after an error, and lacks INFO; this one adds both, and COMMAND INFO HIMPORT.
"""

from __future__ import annotations

import os
import select
import shutil
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from socketserver import BaseRequestHandler, ThreadingUnixStreamServer
from typing import Any

import redis
from needed import imported, lacking

from fastresp.resp.split import CommandSplitter, arguments

INFO = b"redis_version:8.10.0\r\nrole:master\r\ncluster_enabled:0\r\nloading:0\r\n"
# Seconds to wait for commands that must not be sent before the reply to HIMPORT PREPARE.
EARLY_S = 0.02
# Seconds for the start of yodb.
START_S = 20

# Called with (connection number, arguments) before a command runs. Returns an error, or a whole
# reply that ends with CRLF, to send instead; raises ConnectionError to close the connection.
Hook = Callable[[int, tuple[bytes, ...]], bytes | None]


@cache
def let_scripts_read_errors(scripting: Any) -> None:
    """Make the ``err`` of pcall() a Lua string, as in Redis: fakeredis has a Python object."""
    mixin = scripting.ScriptingCommandsMixin
    pcall = mixin._lua_redis_pcall

    def corrected(self: Any, *arguments: Any) -> Any:
        made = pcall(self, *arguments)
        error = made[b"err"] if scripting.LUA_MODULE.lua_type(made) == "table" else None
        if isinstance(error, str):
            made[b"err"] = error.encode()
        return made

    mixin._lua_redis_pcall = corrected


class HimportServer:
    """A server on a unix socket, whose data and commands are fakeredis'.

    Attributes:
        commands: (connection number, arguments) of each HIMPORT that arrived.
        early: the connections on which bytes followed a HIMPORT PREPARE before its reply.
        hook: see Hook.
        himport: whether COMMAND INFO knows HIMPORT.
    """

    def __init__(self) -> None:
        fake = imported("fakeredis")
        let_scripts_read_errors(imported("fakeredis.commands_mixins.scripting_mixin"))
        self.himport = True
        self.commands: list[tuple[int, tuple[bytes, ...]]] = []
        self.early: list[int] = []
        self.hook: Hook = lambda number, command: None
        self.fake = fake.FakeServer(server_type="redis", version=(8, 10))
        self.connections = 0
        self._folder = tempfile.TemporaryDirectory(prefix="fr-himport-")
        path = str(Path(self._folder.name, "s"))
        outer = self

        class Handler(BaseRequestHandler):
            def handle(self) -> None:
                with suppress(ConnectionError):
                    outer.serve(self.request)

        self._server = ThreadingUnixStreamServer(path, Handler)
        self._server.daemon_threads = True
        self.url = f"unix://{path}"

    def __enter__(self) -> HimportServer:
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()
        self.client = redis.Redis.from_url(self.url, protocol=2)
        return self

    def __exit__(self, *_: object) -> None:
        self.client.close()
        self._server.shutdown()
        self._server.server_close()
        self._folder.cleanup()

    def reset(self) -> None:
        """Remove all keys, and forget what arrived."""
        self.commands.clear()
        self.early.clear()
        self.hook = lambda number, command: None
        self.client.flushall()

    def serve(self, connection: socket.socket) -> None:
        clients = imported("fakeredis._clients")
        number = self.connections = self.connections + 1
        session = clients._sync.FakeRedisConnection(server=self.fake, protocol=2)
        session.connect()
        splitter = CommandSplitter()
        while data := connection.recv(1 << 16):
            chunk = splitter.feed(data)
            replies = []
            for at in range(chunk.commands if chunk else 0):
                assert chunk is not None
                command = arguments(chunk.command(at, at))
                if command[:2] == (b"HIMPORT", b"PREPARE"):
                    last = at + 1 == chunk.commands and not splitter.pending
                    if not last or select.select([connection], [], [], EARLY_S)[0]:
                        follows = chunk.command(at + 1, at + 1) if not last else b"HIMPORT"
                        if b"PREPARE" not in follows:
                            self.early.append(number)
                replies.append(self._reply(number, session, command))
            connection.sendall(b"".join(replies))

    def _reply(self, number: int, session: Any, command: tuple[bytes, ...]) -> bytes:
        tcp = imported("fakeredis._clients._tcp_server")
        name = command[0].upper()
        if name == b"HIMPORT":
            self.commands.append((number, command))
        error = self.hook(number, command)
        if error is not None:
            return error if error.endswith(b"\r\n") else b"-" + error + b"\r\n"
        if name == b"INFO":
            return b"$%d\r\n%b\r\n" % (len(INFO), INFO)
        if [word.upper() for word in command] == [b"COMMAND", b"INFO", b"HIMPORT"]:
            return b"*1\r\n*2\r\n$7\r\nhimport\r\n:-2\r\n" if self.himport else b"*1\r\n*-1\r\n"
        words = [b"$%d\r\n%b\r\n" % (len(word), word) for word in command]
        session._sock.sendall(b"*%d\r\n%b" % (len(words), b"".join(words)))
        value = session._sock.responses.get()
        if isinstance(value, Exception):
            text = str(value)
            code = text.partition(" ")[0]
            return f"-{text if code.isupper() else 'ERR ' + text}\r\n".encode()
        if isinstance(value, bytes) and value not in (b"OK", b"QUEUED", b"PONG"):
            return b"$%d\r\n%b\r\n" % (len(value), value)
        encoded: bytes = tcp.encode_reply(value, 2)
        return encoded


def yodb() -> str | None:
    """Return the path of yodb, a server with HIMPORT; None if it is not installed."""
    return os.environ.get("FASTRESP_YODB") or shutil.which("yodb")


def need_yodb() -> str:
    """Return the path of yodb; skip the test if it is not installed."""
    program = yodb()
    if program is None:
        lacking("yodb is not installed: cargo install yo-cli --locked", fails=False)
    return program


@contextmanager
def running_yodb(program: str) -> Iterator[tuple[redis.Redis, int]]:
    """Start yodb; yield a client and the process ID."""
    with tempfile.TemporaryDirectory(prefix="fr-yodb-") as folder:
        path = Path(folder, "s")
        command = [program, "serve", "--unixsocket", str(path), "--no-port"]
        process = subprocess.Popen(
            command, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        try:
            with redis.Redis.from_url(f"unix://{path}", protocol=2) as client:
                deadline = time.monotonic() + START_S
                while not path.exists() or not answers(client):
                    assert time.monotonic() < deadline and process.poll() is None
                    time.sleep(0.01)
                yield client, process.pid
        finally:
            process.terminate()
            process.wait()


def answers(client: redis.Redis) -> bool:
    try:
        return bool(client.ping())
    except redis.ConnectionError:
        return False
