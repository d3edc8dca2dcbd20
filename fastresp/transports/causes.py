"""Why a load can't go on: causes of a lost connection, and what a server refuses."""

from __future__ import annotations

from ..outcome.errors import TransportError
from ..outcome.messages import Message, message_of
from ..server.settings import Server

__all__ = [
    "LIKELY_CAUSES",
    "NotMarked",
    "NotRun",
    "idle_cause",
    "of_the_server",
    "with_second_look",
]

# The server's 'timeout' setting is in whole seconds.
LEAST_IDLE_S = 1.0
# Of a connection that the server closed without an error reply.
LIKELY_CAUSES = (
    "the server was stopped or killed, or the connection was ended by CLIENT KILL or an output or "
    "query buffer limit"
)
# The codes of errors that are about the server's state, not about a command, and what to do.
# Source: the shared replies in server.c of Redis and Valkey.
REMEDIES = {
    "OOM": "raise its maxmemory, or make room",
    "READONLY": "it is a replica; write to its primary",
    "MISCONF": "see to its disk, where it can't save its data",
    "NOREPLICAS": "see to its replicas; it wants more of them than it has (min-replicas-to-write)",
    "MASTERDOWN": "see to its replication",
    "CLUSTERDOWN": "see to the cluster",
    "LOADING": "wait until it has loaded its data",
    "BUSY": "wait until its script has ended",
    "NOAUTH": "see to the user and the password",
}


def of_the_server(words: bytes) -> str:
    """Return what to do about an error reply; "" if it is about the command."""
    return REMEDIES.get(words.partition(b" ")[0].decode(errors="replace"), "")


class NotRun(Exception):
    """The server refused a transaction, and ran none of its commands."""


class NotMarked(Exception):
    """The commands of a transaction ran, but the row was not written down."""


def idle_cause(seconds: float) -> str:
    """Return one more likely cause after ``seconds`` without traffic; "" below a second."""
    if seconds < LEAST_IDLE_S:
        return ""
    return (
        f"; or the server closed it after a pause of {seconds:,.0f} s: its 'timeout' setting "
        "limits how long a connection may be idle (CONFIG GET timeout; 0 means no limit)"
    )


def with_second_look(message: str, server: Server, timeout: float | None) -> str:
    """Try a new connection, and add the result to the message. May take seconds."""
    try:
        server.ask(timeout)
    except TransportError as error:
        return Message(message, "\na new connection failed: ", message_of(error))
    return f"{message}\na new connection works"
