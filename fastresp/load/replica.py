"""The server of a load by replication: check it, make it a replica, and later a primary again.

The fields of INFO and the settings are from replication.c and config.c of Redis and Valkey.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import suppress
from typing import Any, NamedTuple

import redis

from ..outcome.errors import FastrespError, TransportError
from ..outcome.messages import Hint, Message, message_of
from ..outcome.report import counted
from ..server.answers import Answers, replica_advice
from ..server.preflight import SampleCommand, call, preflight
from ..server.reply_parser import fields_of, integer_of, parse_info, stats_of
from ..server.settings import ASK_TIMEOUT_S, Server
from ..transports.signals import Undisturbed

__all__ = ["Keyspace", "Replica"]

REPLICAOF = SampleCommand((b"REPLICAOF", b"NO", b"ONE"), fixed_length=True, subcommand=False)
# Sentinels subscribe to this channel of each server that they monitor.
SENTINEL_CHANNEL = b"__sentinel__:hello"
# Settings of the server that a load by replication needs, and why.
SETTINGS = {
    b"repl-diskless-load": (b"disabled", "the server would load keys before all are checked"),
    b"replica-read-only": (b"yes", "other clients could write keys that the load then deletes"),
    b"tls-replication": (b"no", "fastresp has no certificate for the server's connection"),
}
ID_CHARACTERS = 40
# Seconds between two attempts to make the server a primary again.
RETRY_S = 0.1


class Keyspace(NamedTuple):
    """The numbers of keys, and of keys with a time to live, of a database."""

    keys: int
    expiring: int

    @classmethod
    def of(cls, info: dict[str, str]) -> dict[int, Keyspace]:
        """Return the databases that have keys, by number, from the fields of INFO."""
        found = stats_of(info, "db").items()
        return {
            int(number): cls(int(stats.get("keys", "0")), int(stats.get("expires", "0")))
            for number, stats in found
            if number.isdecimal()
        }


class Replica:
    """A server that becomes our replica, and then a primary again.

    Args:
        server: the server.
        connection: a redis-py connection to it.
        answers: its answers about itself.
        timeout: seconds without progress after which to give up; None to wait forever.

    Attributes:
        attached: whether REPLICAOF may have been sent, so that the server may be our replica.
        replication_id: the server's replication ID before REPLICAOF, which its PSYNC names.
        last_info: the fields of INFO when the server became a primary again; None if unknown.
    """

    def __init__(
        self, server: Server, connection: Any, answers: Answers, timeout: float | None
    ) -> None:
        self.server = server
        self.attached = False
        self.replication_id = ""
        self.last_info: dict[str, str] | None = None
        self._connection = connection
        self._answers = answers
        self._timeout = timeout
        self._primary = ("", "")

    @property
    def local_address(self) -> str:
        """The address of this machine in the connection to the server."""
        address = self._connection._sock.getsockname()
        return str(address[0]) if isinstance(address, tuple) else "127.0.0.1"

    def check(self) -> None:
        """Check that a load by replication deletes nothing and disturbs no other server.

        Raises:
            TransportError: the server can't be loaded by replication.
        """
        try:
            info = self.info()
            settings = fields_of(self._call("CONFIG", "GET", "*repl*"))
            sentinels = self._call("PUBSUB", "NUMSUB", SENTINEL_CHANNEL)
        except redis.ResponseError as error:
            advice = "allow it with ACL SETUSER ... +info +config|get +pubsub|numsub +replicaof"
            raise self.refusal(str(error), advice) from error
        for reason in self._refusals(info):
            raise self.refusal(*reason)
        self._check_permission()
        if integer_of("PUBSUB NUMSUB", fields_of(sentinels).get(SENTINEL_CHANNEL)):
            raise self.refusal(
                "Sentinel monitors it, and would replace it meanwhile", "remove it from Sentinel"
            )
        for name, (needed, why) in SETTINGS.items():
            found = settings.get(name, needed)
            if found != needed:
                option, value = name.decode(), found.decode(errors="replace")
                change = f"run CONFIG SET {option} {needed.decode()} for the load"
                raise self.refusal(f"its {option} is {value}, so {why}", change)

    def _check_permission(self) -> None:
        """Check the permission for REPLICAOF; skip the check if the server refuses MULTI."""
        with suppress(redis.ResponseError):
            self._call("MULTI")
            rejection, _ = preflight(self._connection, [REPLICAOF], [])
            if rejection is not None:
                allow = "allow it with ACL SETUSER ... +replicaof" if rejection.permission else ""
                raise self.refusal(rejection.message, allow)

    def _refusals(self, info: dict[str, str]) -> Iterator[tuple[str, str]]:
        """Yield (reason, advice) for everything that a load would delete or disturb."""
        if info.get("cluster_enabled") == "1":
            yield "it is a node of a cluster", ""
        elif info.get("role") != "master":
            yield "it is a replica", replica_advice(info)
        if info.get("connected_slaves", "0") != "0":
            noun = counted(int(info["connected_slaves"]), "replica")
            yield f"it has {noun}, whose data would be replaced", "run REPLICAOF NO ONE on each"
        yield from self._contents(info)
        if info.get("number_of_libraries", "0") != "0":
            yield "it has libraries of functions, which would be deleted", ""
        if self._answers.indexes:
            yield "it has search indexes, which would be deleted", ""

    def _contents(self, info: dict[str, str]) -> Iterator[tuple[str, str]]:
        for number, stats in Keyspace.of(info).items():
            keys = counted(stats.keys, "key")
            reason = f"its database {number} has {keys}, and all data would be deleted"
            yield reason, "load into an empty server"

    def refusal(self, reason: str, advice: str = "") -> TransportError:
        """Return the exception for a server that can't be loaded by replication."""
        advice = advice and f"{advice}, or "
        start = f"can't load {self.server} by replication: {reason}; {advice}use "
        return TransportError(Message(start, Hint("mode", "serialize"), " (nothing was loaded)"))

    def attach(self, host: str, port: int) -> None:
        """Make the server a replica of this address.

        From then on, the server refuses writes of other clients, so it stays empty.

        Raises:
            TransportError: the server refuses REPLICAOF, or is no longer empty.
        """
        self.replication_id = self.info().get("master_replid", "")
        if len(self.replication_id) != ID_CHARACTERS:
            raise self.refusal("INFO has no master_replid")
        self._primary = host, str(port)
        self.attached = True
        try:
            self._call("REPLICAOF", host, str(port))
        except redis.ResponseError as error:
            self.attached = False
            raise self.refusal(str(error), "allow REPLICAOF") from error
        for reason in self._contents(self.info()):
            raise self.refusal(*reason)

    def info(self) -> dict[str, str]:
        """Return the fields of INFO; raises as ``_call()`` does."""
        return parse_info(self._call("INFO"))

    def release(self) -> None:
        """Make the server a primary again, if it is our replica.

        While the server loads the data, it refuses REPLICAOF, so this call waits.

        Raises:
            TransportError: this was not possible; the server may still be a replica.
        """
        moved, last = time.monotonic(), ""
        while self.attached:
            try:
                last, before = self.release_now(), last
                moved = time.monotonic() if last != before else moved
                error: Exception | None = None
            except (FastrespError, redis.ResponseError) as caught:
                error = caught
            if self.attached:
                if self._timeout is not None and time.monotonic() - moved > self._timeout:
                    why = "it still loads data" if error is None else message_of(error)
                    text = f"can't make {self.server} a primary again: "
                    raise TransportError(Message(text, why)) from error
                time.sleep(RETRY_S)

    def release_now(self) -> str:
        """Try once to make the server a primary again, while signals are delayed.

        If the server is still loading data, return the number of loaded bytes; otherwise "".
        """
        with Undisturbed():
            info = self.info()
            if info.get("loading") == "1":
                return info.get("loading_loaded_bytes", "")
            self.last_info = info
            primary = info.get("master_host"), info.get("master_port")
            if info.get("role") == "slave" and primary == self._primary:
                self._call("REPLICAOF", "NO", "ONE")
            self.attached = False
        return ""

    @property
    def still_attached(self) -> str:
        """A warning if the server may still be our replica; otherwise ""."""
        if not self.attached:
            return ""
        place = ":".join(self._primary)
        return f"{self.server} may still be a replica of {place}; if so, send it REPLICAOF NO ONE"

    @property
    def keyspace(self) -> dict[int, Keyspace] | None:
        """Each database's Keyspace when the server became a primary again; None if unknown."""
        return None if self.last_info is None else Keyspace.of(self.last_info)

    @property
    def over_maxmemory(self) -> str:
        """A warning if the loaded keys need more memory than maxmemory; otherwise ""."""
        info = self.last_info or {}
        most, used = int(info.get("maxmemory", "0")), int(info.get("used_memory", "0"))
        policy = info.get("maxmemory_policy", "noeviction")
        if not most or used <= most:
            return ""
        return (
            f"{self.server} uses {used:,} bytes of memory, more than its maxmemory of {most:,} "
            f"(policy {policy}): raise it, or keys are evicted or writes refused"
        )

    def disconnect(self) -> None:
        """Close the connection; later calls open another."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.disconnect()

    def _call(self, *command: str | bytes) -> Any:
        """Send a command, and return its reply; reconnect first if the connection was lost.

        Raises:
            redis.ResponseError: an error reply.
            TransportError: the connection can't be opened, or is lost.
        """
        if self._connection is None:
            seconds = self._timeout or ASK_TIMEOUT_S
            self._connection = self.server.connect(min(seconds, ASK_TIMEOUT_S))
        try:
            return call(self._connection, *command)
        except redis.ResponseError:
            raise
        except (redis.RedisError, OSError) as error:
            self.disconnect()
            raise self.server.failure(error) from error
        except BaseException:
            self.disconnect()  # the reply was not read
            raise
