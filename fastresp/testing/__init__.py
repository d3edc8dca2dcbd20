"""A server that misbehaves, to test clients of Redis and Valkey."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Collection
from contextlib import closing, suppress
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Self
from urllib.parse import quote

from redis.connection import parse_url

from .connection import Connection, HangUp, Reply
from .misbehaviours import MISBEHAVIOURS, Misbehaviour

__all__ = ["HANDSHAKE", "Connection", "HangUp", "Misbehaving", "Misbehaviour"]

# Commands with which clients set up a connection.
HANDSHAKE = frozenset({"AUTH", "CLIENT", "COMMAND", "HELLO", "INFO", "PING", "SELECT"})


class Misbehaving:
    """A server that misbehaves: it forwards commands to a real server, and sends wrong replies.

    Each connection has a thread, and sends one command after another to the real server, which
    executes all of them. Commands must have one reply: no SUBSCRIBE, MONITOR or CLIENT REPLY. The
    server starts and ends with a ``with`` statement.

    Args:
        misbehaviour: the name of a misbehaviour, such as ``"reply cut in half"``; or a function
            that is called with the `Connection`, the command as a list of bytes, and the real
            server's reply in RESP. The function returns the bytes to send instead, or raises
            `HangUp` to close the connection.
        server: the URL of the real server: ``redis://`` or ``unix://``, without TLS.
        listen: the TCP port on 127.0.0.1, 0 for any free port; or the path of a unix socket.
        only: the command with wrong replies, such as ``"GET"`` or ``"CLUSTER SLOTS"``; by default
            the ``command`` of the misbehaviour, usually all commands.
        honest: commands with honest replies: their names, such as ``HANDSHAKE``, or a function that
            is called with the `Connection` and a command, and returns a bool.
        after: number of commands at the start of each connection that have honest replies.
        flood_bytes: in a reply that never ends, the connection is closed after this many bytes.

    Attributes:
        url: the URL for clients, with the user, password and database of the real server's URL.

    Raises:
        ValueError: there is no misbehaviour of this name, or the URL is invalid.
        OSError: the real server can't be reached, or the port or path can't be used.
    """

    def __init__(
        self,
        misbehaviour: str | Reply,
        server: str,
        *,
        listen: int | str | Path = 0,
        only: str = "",
        honest: Collection[str] | Callable[[Connection, list[bytes]], bool] = (),
        after: int = 0,
        flood_bytes: int = 64 << 20,
    ) -> None:
        self._reply, command, at_once = _found(misbehaviour)
        self._only = f"{only or command} ".encode().upper()
        self._honest = honest if callable(honest) else _named(honest)
        self._after = after
        self._at_once = at_once and not (only or honest or after)
        self._flood_bytes = flood_bytes
        self._real = _settings(server)
        self._listen = listen
        self._threads: dict[Connection, threading.Thread] = {}
        self.url = ""

    @staticmethod
    def all() -> list[Misbehaviour]:
        """Return all misbehaviours."""
        return [*MISBEHAVIOURS.values()]

    def __enter__(self) -> Self:
        self._connect().close()  # fail now if it can't be reached
        if isinstance(self._listen, int):
            self._listener = socket.create_server(("127.0.0.1", self._listen), backlog=128)
            self._address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        else:
            self._address = str(self._listen)
            self._listener = _unix_socket(socket.socket.bind, self._address)
            self._listener.listen(128)
        self.url = self._url()
        self._accepting = threading.Thread(target=self._accept, daemon=True)
        self._accepting.start()
        return self

    def __exit__(self, *error: object) -> None:
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)  # wakes accept()
        self._listener.close()
        self._accepting.join(5)
        threads = self._threads.copy()
        for connection in threads:
            connection.end()
        for thread in threads.values():
            thread.join(5)
        if not isinstance(self._listen, int):
            Path(self._listen).unlink(missing_ok=True)

    def _url(self) -> str:
        words = [quote(self._real.get(key) or "", safe="") for key in ("username", "password")]
        login = f"{':'.join(words)}@" if any(words) else ""
        database = f"?db={self._real['db']}" if self._real.get("db") else ""
        if isinstance(self._listen, int):
            return f"redis://{login}{self._address}{database}"
        return f"unix://{login}{quote(self._address)}{database}"

    def _connect(self) -> socket.socket:
        if "path" not in self._real:
            address = self._real.get("host", "localhost"), self._real.get("port", 6379)
            return socket.create_connection(address)
        return _unix_socket(socket.socket.connect, self._real["path"])

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                try:
                    real = self._connect()
                except OSError:
                    client.close()
                    continue
                for each in (client, real):
                    if each.family != socket.AF_UNIX:
                        each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                connection = Connection(client, real, self._address, self._flood_bytes)
                thread = threading.Thread(target=self._serve, args=(connection,), daemon=True)
                self._threads[connection] = thread
                thread.start()

    def _serve(self, connection: Connection) -> None:
        with closing(connection), suppress(OSError, HangUp):
            if self._at_once:
                connection.send(self._reply(connection, [], b""))
            for number, command in enumerate(connection.commands()):
                reply = connection.honest(command)
                # Always call self._honest(), because it may count commands.
                honest = self._honest(connection, command) or number < self._after
                if not honest and self._matches(command):
                    connection.count += 1
                    reply = self._reply(connection, command, reply)
                connection.send(reply)
        self._threads.pop(connection, None)

    def _matches(self, command: list[bytes]) -> bool:
        return self._only == b" " or (b" ".join(command[:2]).upper() + b" ").startswith(self._only)


def _found(misbehaviour: str | Reply) -> tuple[Reply, str, bool]:
    """Return the function of a misbehaviour, its command, and whether it begins at once."""
    if callable(misbehaviour):
        return misbehaviour, "", False
    if found := MISBEHAVIOURS.get(misbehaviour):
        return found.reply, found.command, found.at_once
    similar = get_close_matches(misbehaviour, MISBEHAVIOURS, 1)
    hint = f"; did you mean {similar[0]!r}?" if similar else "; Misbehaving.all() returns them"
    raise ValueError(f"there is no misbehaviour {misbehaviour!r}{hint}")


def _named(names: Collection[str]) -> Callable[[Connection, list[bytes]], bool]:
    words = {name.upper().encode() for name in names}
    return lambda connection, command: command[0].upper() in words


def _unix_socket(method: Callable[[socket.socket, str], None], path: str) -> socket.socket:
    """Return a unix socket that is bound or connected to a path."""
    end = socket.socket(socket.AF_UNIX)
    try:
        method(end, path)
    except OSError:
        end.close()
        raise
    return end


def _settings(url: str) -> dict[str, Any]:
    """Return the parts of a server's URL.

    Raises:
        ValueError: the URL is invalid, or needs TLS.
    """
    plain = url.replace("valkey", "redis", 1) if url.startswith("valkey") else url
    if plain.startswith("rediss://"):
        raise ValueError("the real server's URL must be without TLS: redis:// or unix://")
    return dict(parse_url(plain))  # type: ignore[no-untyped-call]
