"""The server of a load: its settings, as redis-py reads them, and what it says when asked."""

from __future__ import annotations

import os
import re
import socket
import ssl
import sys
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias
from urllib.parse import urlsplit

from ..encode.template import NO_SCRIPTS, Scripts
from ..outcome.errors import (
    CommandError,
    FastrespError,
    TransportError,
    TransportTimeout,
)
from ..outcome.messages import Hint, Message
from ..outcome.words import shown_reply
from .descriptors import ADVICE, are_exhausted, needed_for
from .forks import own
from .opening import Opening
from .rehearsal import Refused, Rehearsed, rehearse

__all__ = ["Answers", "Server", "ServerLike", "parse_info"]


class Client(Protocol):
    """A client of redis-py or of valkey-py, sync or asyncio."""

    connection_pool: Any


ServerLike: TypeAlias = str | Client | None

DEFAULT_URL = "redis://localhost:6379/0"
# A server that is up answers a connection and a PING well within this.
ASK_TIMEOUT_S = 5.0
# How long it may take to open all connections of a load, where nobody says.
OPEN_TIMEOUT_S = 30.0
# A plain port never answers a TLS handshake; after this time it is asked whether it is one,
# and a slow TLS port gets the whole time.
HANDSHAKE_TIMEOUT_S = 1.0
# A server that refuses a connection says so as soon as it is open.
GREETING_TIMEOUT_S = 0.2

# What Valkey calls them, and redis-py.
SCHEMES = {"valkey": "redis", "valkeys": "rediss"}
# Clients whose settings are translated, and those of a whole cluster.
CLIENTS = (("redis.asyncio", "Redis"), ("valkey", "Valkey"), ("valkey.asyncio", "Valkey"))
CLUSTERS = (
    ("redis", "RedisCluster"),
    ("redis.asyncio", "RedisCluster"),
    ("valkey", "ValkeyCluster"),
    ("valkey.asyncio", "ValkeyCluster"),
)
# What is taken over of such a client, besides ssl_*.
SETTINGS = {
    "client_name", "credential_provider", "db", "host", "password", "path", "port",
    "socket_keepalive", "socket_keepalive_options", "username",
}  # fmt: skip

# proto-max-bulk-len, where the server does not tell it. Source: redis.conf.
DEFAULT_BULK_BYTES = 512 << 20
# And the least that can be set. Source: config.c.
LEAST_BULK_BYTES = 1 << 20


@dataclass(frozen=True)
class Answers:
    """What a server said of itself."""

    version: str | None
    cluster: bool
    # The server's words when it refuses ECHO, which redis-cli --pipe needs to know the end.
    echo_refused: str | None
    # The largest argument that it takes.
    max_bulk_bytes: int
    # Where the connection went: Sentinel may have chosen it.
    host: str | None
    port: int | None


class Server:
    """Settings of one Redis or Valkey server. Opens nothing until asked.

    Args:
        server: a URL (``redis://``, ``rediss://``, ``valkey://``, ``valkeys://``, ``unix://``), a
            client of redis-py or valkey-py, sync or asyncio, or None for the environment's
            ``REDIS_URL``, else ``redis://localhost:6379/0``.
        reading: nothing will be written, so that a replica will do.

    Raises:
        ValueError: the URL can't be read.
        TypeError: it is neither a URL nor a client.
    """

    def __init__(self, server: ServerLike = None, *, reading: bool = False) -> None:
        import redis

        self.reading = reading
        if server is None:
            server = os.environ.get("REDIS_URL") or DEFAULT_URL
        if isinstance(server, str):
            pool: Any = _pool_from_url(server)
        elif isinstance(server, redis.Redis):
            pool = server.connection_pool
        elif _is_any(server, CLIENTS):
            pool = _Translated(server)
        elif _is_any(server, CLUSTERS):
            message = Message(
                "a load into a whole cluster is not in this version; load each master with the "
                "URL of that node and ",
                Hint("transport", "socket"),
            )
            raise TransportError(message)
        else:
            raise TypeError(
                "server is a URL or a client of redis-py or valkey-py, not a "
                f"{type(server).__name__}"
            )
        # Commands that are asked about as soon as there is a connection.
        self.rehearsal: list[Rehearsed] = []
        self.connection_class: type[Any] = pool.connection_class
        self.settings: dict[str, Any] = {
            name: value
            for name, value in pool.connection_kwargs.items()
            if not name.startswith(("maint_", "oss_cluster_maint_"))
        }

    @property
    def tls(self) -> bool:
        import redis

        return issubclass(self.connection_class, redis.SSLConnection)

    @property
    def credentials(self) -> tuple[str | None, str | None]:
        """User and password, from the provider where the client has one."""
        provider = self.settings.get("credential_provider")
        if provider is None:
            found = [self.settings.get("username"), self.settings.get("password")]
        else:
            found = [None, *provider.get_credentials()][-2:]
        user, password = (os.fsdecode(x) if isinstance(x, bytes) else x and str(x) for x in found)
        return user, password

    def __str__(self) -> str:
        path = self.settings.get("path")
        if path:
            return str(path)
        sentinel = self.settings.get("connection_pool")
        if sentinel is not None:
            return f"Sentinel service {sentinel.service_name}"
        return f"{self.settings.get('host', 'localhost')}:{self.settings.get('port', 6379)}"

    def connect(self, timeout: float | None, opening: Opening | None = None) -> Any:
        """Open a private redis-py connection: RESP2, no retries, nothing shared with a pool.

        Args:
            timeout: seconds to connect, and for each read.
            opening: what it is a part of, where there is a deadline for more.

        Raises:
            TransportError: with the server's own words.
        """
        import redis
        from redis.backoff import NoBackoff
        from redis.retry import Retry

        from .reply_parser import BoundedParser

        settings = self.settings | {
            "protocol": 2,
            "parser_class": BoundedParser,
            "decode_responses": False,
            "retry": Retry(NoBackoff(), 0),
            "retry_on_timeout": False,
            "retry_on_error": [],
            "health_check_interval": 0,
            "socket_timeout": timeout,
            "socket_connect_timeout": timeout,
        }
        try:
            with needed_for(f"can't use the server at {self}"):  # redis-py reads files for it
                connection = self.connection_class(**settings)
        except TypeError as error:
            raise TransportError(
                f"can't use the settings of the server at {self}: {error} (check the options "
                "behind the '?' of its URL)"
            ) from error
        # In a child redis-py closes its copy of the socket, and does not shut it down.
        own(connection, lambda connection: connection.disconnect())
        if opening is not None:
            opening.add(connection)
        try:
            connection.connect()
        except (redis.RedisError, OSError, UnicodeError) as error:
            connection.disconnect()
            raise self.failure(error) from error
        return connection

    def ask(self, timeout: float | None) -> Answers:
        """Find out whether the server can take a load, before anything is sent.

        Args:
            timeout: seconds to wait for each answer, at most 5, and for all of them, at least 5.

        Raises:
            TransportError: it can't be reached or used; the message has its own words.
            TransportTimeout: it does not answer.
        """
        connection, answers = self.open(timeout)
        connection.disconnect()
        return answers

    def open(self, timeout: float | None, scripts: Scripts = NO_SCRIPTS) -> tuple[Any, Answers]:
        """As ``ask()``, and keep the private redis-py connection that the answers came by.

        Raises:
            CommandError: the server refuses one of the scripts that it is to load.
        """
        [connection], answers = self.open_all(1, timeout, scripts)
        return connection, answers

    def open_all(
        self, count: int, timeout: float | None, scripts: Scripts = NO_SCRIPTS
    ) -> tuple[list[Any], Answers]:
        """As ``open()``, for several connections; when one can't be had none is kept.

        Only the first is asked all the questions, and loads the scripts: they are the server's.
        """
        each = ASK_TIMEOUT_S if timeout is None else min(timeout, ASK_TIMEOUT_S)
        with Opening(max(ASK_TIMEOUT_S, timeout or OPEN_TIMEOUT_S)) as opening:
            first, answers = self._open_first(each, scripts, opening)
            if count == 1:
                return [first], answers
            more = opening.several(count - 1, lambda: self._another(each, opening))
            return [first, *more], answers

    def _open_first(
        self, timeout: float, scripts: Scripts, opening: Opening
    ) -> tuple[Any, Answers]:
        if self.tls and timeout > HANDSHAKE_TIMEOUT_S:
            with suppress(TransportTimeout):
                connection, answers = self._open(HANDSHAKE_TIMEOUT_S, scripts, opening)
                connection._sock.settimeout(timeout)
                return connection, answers
        return self._open(timeout, scripts, opening)

    def _another(self, timeout: float, opening: Opening) -> Any:
        """One more connection, of which it is known that the server takes it."""
        import redis

        connection = self.connect(timeout, opening)
        try:
            with suppress(redis.exceptions.NoPermissionError):
                self._expect(b"PONG", _call(connection, "PING"), "PING")
            self._check_surplus(connection)
        except TransportError:
            raise
        except (redis.RedisError, OSError) as error:
            raise self.failure(error) from error
        return connection

    def _expect(self, reply: bytes, found: Any, question: str) -> None:
        """Refuse a server whose replies are not those to its commands."""
        if found != reply:
            raise TransportError(
                f"can't use the server at {self}: it answers {question} by {shown_reply(found)} "
                "(check that this is Redis or Valkey, and that what is in between passes on every "
                "reply)"
            )

    def _check_surplus(self, connection: Any) -> None:
        """Refuse a server that has said more than it was asked."""
        if connection._parser.surplus:
            raise TransportError(
                f"can't use the server at {self}: it sends more replies than there were commands "
                "(check that this is Redis or Valkey, and that nobody else writes to it over the "
                "same connection)"
            )

    def _open(self, timeout: float, scripts: Scripts, opening: Opening) -> tuple[Any, Answers]:
        connection = self.connect(timeout, opening)
        try:
            answers = self._question(connection)
            self._load(connection, scripts)
            self._check_surplus(connection)
            return connection, answers
        except BaseException:
            connection.disconnect()
            raise

    def _load(self, connection: Any, scripts: Scripts) -> None:
        """Load scripts, and see to it that they may be run."""
        import redis

        for sha1, script in scripts.items():
            try:
                self._expect(sha1, _call(connection, "SCRIPT", "LOAD", script), "SCRIPT LOAD")
                for name in ("EVALSHA", "EVAL"):
                    try:
                        # Runs nothing, for its number of keys is none: only the ACL is asked.
                        _call(connection, name, "", "none")
                    except redis.exceptions.NoPermissionError:
                        raise
                    except redis.ResponseError:
                        pass
            except redis.exceptions.NoPermissionError as error:
                raise TransportError(
                    f"can't use the server at {self}: {error} (a script needs the rights to SCRIPT "
                    "LOAD, EVALSHA and EVAL: ACL SETUSER ... +script|load +evalsha +eval)"
                ) from error
            except TransportError:
                raise
            except redis.ResponseError as error:
                raise _refusal(error, script) from error
            except (redis.RedisError, OSError) as error:
                raise self.failure(error) from error

    def _question(self, connection: Any) -> Answers:
        import redis

        def call(*command: str) -> Any:
            return _call(connection, *command)

        try:
            # An ACL may allow little else than the load.
            with suppress(redis.exceptions.NoPermissionError):
                self._expect(b"PONG", call("PING"), "PING")
            try:
                self._expect(b"fastresp", call("ECHO", "fastresp"), "ECHO fastresp")
                echo_refused = None
            except redis.exceptions.NoPermissionError as error:
                echo_refused = str(error)
            info: dict[str, str] = {}
            with suppress(redis.ResponseError):
                info = parse_info(call("INFO"))
            most = DEFAULT_BULK_BYTES
            connection.send_command("CONFIG", "GET", "proto-max-bulk-len")
            if self.rehearsal:
                connection.send_command("MULTI")  # together, to save a round trip
            with suppress(redis.ResponseError):
                most = _bulk_limit(connection.read_response())
            refused = None
            if self.rehearsal:
                with suppress(redis.ResponseError):
                    connection.read_response()
                    refused = rehearse(connection, self.rehearsal)
        except TransportError:
            raise
        except (redis.RedisError, OSError) as error:
            raise self.failure(error) from error
        replica = info.get("role") == "slave" and info.get("slave_read_only") == "1"
        if replica and not self.reading:
            raise TransportError(
                f"{self} is a read-only replica; load into its master, "
                f"{info.get('master_host')}:{info.get('master_port')}"
            )
        if info.get("loading") == "1":
            raise TransportError(f"{self} is still loading its data from disk; try again later")
        if refused is not None:
            raise self._refused(refused)
        return Answers(
            version=info.get("valkey_version") or info.get("redis_version"),
            cluster=info.get("cluster_enabled") == "1",
            echo_refused=echo_refused,
            max_bulk_bytes=most,
            host=getattr(connection, "host", None),
            port=getattr(connection, "port", None),
        )

    def _refused(self, refused: Refused) -> FastrespError:
        """The exception for a command of the template that the server takes for no row."""
        if refused.right:
            return TransportError(
                f"can't use the server at {self}: {refused.words} (nothing was sent; allow it "
                f"with ACL SETUSER ... +{refused.name.lower()})"
            )
        error = CommandError(refused.words)
        error.add_note(f"fastresp: the server refuses this {refused.name}; no command was sent")
        return error

    def failure(self, error: Exception) -> TransportError:
        """The exception for a server that can't be used: its words, and what to do."""
        import redis

        words = str(error).strip() or type(error).__name__
        if are_exhausted(error):
            return TransportError(f"can't use the server at {self}: {words} ({ADVICE})")
        if type(error) is redis.ConnectionError and "connection_pool" not in self.settings:
            words = self._greeting() or words
        hint = ""
        kind: type[TransportError] = TransportError
        if isinstance(error, redis.AuthenticationError):
            hint = "check the user and the password of the server's URL or client"
        elif isinstance(error, redis.BusyLoadingError):
            hint = "try again when it has loaded its data from disk"
        elif "Cannot assign requested address" in words:
            hint = (
                "every local port is in use, which is the mark of a client that opens a connection "
                "for each command; reuse connections, and see fastresp doctor"
            )
        elif "max number of clients" in words:
            hint = "close connections, or raise the server's maxclients"
        elif isinstance(error, redis.ResponseError):
            pass  # the server's words will do
        elif "connection_pool" in self.settings:
            hint = "check that the Sentinels run, and know a master of this name"
        elif self.tls and self._answers_plain():
            hint = "this port speaks plain RESP, not TLS; use redis:// instead of rediss://"
        elif not self.tls and "path" not in self.settings and self._answers_tls():
            hint = "this port speaks TLS; use rediss:// instead of redis://"
        elif isinstance(error, redis.TimeoutError | TimeoutError):
            kind, hint = TransportTimeout, "the server may be frozen, busy or behind a firewall"
        else:
            hint = "check that it runs, and the host and the port or the socket's path"
        return kind(f"can't use the server at {self}: {words}" + (f" ({hint})" if hint else ""))

    def _greeting(self) -> str:
        """What the server says unasked: why it closes a connection that redis-py could not use."""
        try:
            with self._raw_socket() as raw:
                raw.settimeout(GREETING_TIMEOUT_S)
                said = raw.recv(256)
        except OSError:
            return ""
        return said[1:].decode(errors="replace").strip() if said.startswith(b"-") else ""

    def _answers_plain(self) -> bool:
        try:
            with self._raw_socket() as raw:
                raw.sendall(b"PING\r\n")
                return raw.recv(1) in (b"+", b"-")
        except OSError:
            return False

    def _answers_tls(self) -> bool:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        try:
            with self._raw_socket() as raw, context.wrap_socket(raw):
                return True
        except OSError as error:
            # A server that wants a certificate of the client refuses late, and in TLS.
            return isinstance(error, ssl.SSLError) and "ALERT" in str(error)

    def _raw_socket(self) -> socket.socket:
        if "path" in self.settings:
            raw = socket.socket(socket.AF_UNIX)
            try:
                raw.settimeout(1.0)
                raw.connect(self.settings["path"])
            except OSError:
                raw.close()
                raise
            return raw
        address = (self.settings.get("host", "localhost"), int(self.settings.get("port", 6379)))
        return socket.create_connection(address, timeout=1.0)


def _is_any(client: object, classes: Iterable[tuple[str, str]]) -> bool:
    """Whether it is of one of these classes; their modules are not imported for this."""
    loaded = ((sys.modules.get(module), name) for module, name in classes)
    return any(
        module is not None and isinstance(client, getattr(module, name)) for module, name in loaded
    )


class _Translated:
    """The settings of a client of asyncio or valkey-py, for a connection of redis-py's own."""

    def __init__(self, client: Any) -> None:
        import redis

        pool = client.connection_pool
        if "connection_pool" in pool.connection_kwargs:
            raise TransportError(
                f"this Sentinel client of {type(client).__module__.partition('.')[0]} can't be "
                "used; give Sentinel(...).master_for(name) of redis, not of redis.asyncio or valkey"
            )
        names = {base.__name__ for base in pool.connection_class.__mro__}
        classes = (redis.SSLConnection, redis.UnixDomainSocketConnection, redis.Connection)
        # The first that it is derived from; an SSLConnection is a Connection, too.
        self.connection_class = next(each for each in classes if each.__name__ in names)
        self.connection_kwargs = {
            name: value
            for name, value in pool.connection_kwargs.items()
            if name in SETTINGS or name.startswith("ssl_")
        }


def _pool_from_url(url: str) -> Any:
    import redis

    scheme, colon, rest = url.partition(":")
    url = SCHEMES.get(scheme.lower(), scheme) + colon + rest
    try:
        parts = urlsplit(url)
        if parts.scheme in ("redis", "rediss") and not re.fullmatch(r"(/\d*)?", parts.path):
            raise ValueError  # redis-py would take database 0
        if parts.scheme != "unix" and "@" in parts.path + parts.query + parts.fragment:
            # The end of a password with an unescaped '/', '?' or '#' in it.
            raise ValueError
        return redis.ConnectionPool.from_url(url)
    except ValueError:
        # Neither the URL nor the parser's words may be shown: a password with '/', '#' or '@'
        # in it ends up in both.
        raise ValueError(
            "this server URL can't be read; it looks like redis://user:password@host:port/db, "
            "rediss:// for TLS, valkey:// and valkeys:// likewise, or unix:///path?db=0, with "
            "special characters in the password percent-encoded"
        ) from None


def _call(connection: Any, *command: str | bytes) -> Any:
    """The reply to a command over a redis-py connection; errors are redis-py's."""
    connection.send_command(*command)
    return connection.read_response()


def _refusal(error: Exception, script: bytes) -> CommandError:
    """The exception for a script that a server does not load."""
    words = str(error)
    # redis-py leaves out this code, and no other one.
    text = words if words.partition(" ")[0].isupper() else f"ERR {words}"
    refusal = CommandError(text, arguments=(b"SCRIPT", b"LOAD", script))
    refusal.add_note("fastresp: the server refuses the script; no command was sent")
    return refusal


def _bulk_limit(reply: Any) -> int:
    """The largest argument, from an answer to CONFIG GET; what is usual where it does not tell."""
    try:
        most = int(reply[1])
    except (TypeError, ValueError, IndexError):
        return DEFAULT_BULK_BYTES
    return most if LEAST_BULK_BYTES <= most <= sys.maxsize else DEFAULT_BULK_BYTES


def parse_info(reply: Any) -> dict[str, str]:
    """Read the fields of an answer to INFO; none where it is something else."""
    text = reply.decode(errors="replace") if isinstance(reply, bytes) else reply
    if not isinstance(text, str):
        return {}
    return dict(line.split(":", 1) for line in text.splitlines() if ":" in line)
