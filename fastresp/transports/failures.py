"""Why a load can't continue: exceptions, and explanations of lost connections and refusals."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..outcome.errors import TransportError
from ..outcome.messages import Hint, Message, message_of
from ..outcome.passwords import without_passwords

if TYPE_CHECKING:
    from ..server.settings import Server

__all__ = [
    "ABORTED", "LIKELY_CAUSES", "TAKEN_OVER", "NotMarked", "NotRun", "Refused", "TakenOver",
    "closed_outputs", "idle_cause", "may_pass", "no_progress", "remedy_for", "with_second_look",
]  # fmt: skip

# Error prefix of a script that ran no command: another loader has taken the checkpoint over.
TAKEN_OVER = b"TAKENOVER "

# Error prefix of a refused EXEC. Source: execCommandAbort in multi.c of Redis.
ABORTED = b"EXECABORT Transaction discarded because of: "

# The server's 'timeout' setting is in whole seconds.
MIN_IDLE_S = 1.0
# Likely causes if the server closed a connection without an error reply.
LIKELY_CAUSES = (
    "the server was stopped or killed, or the connection was ended by CLIENT KILL or an output or "
    "query buffer limit"
)
# Error codes about the server's state, not about a command, and what to do.
# Source: the shared replies in server.c of Redis and Valkey.
REMEDIES = {
    "OOM": "raise its maxmemory, or free memory",
    "READONLY": "it is a replica now: pass its primary",
    "MISCONF": "it can't save its data: check its log and its disk",
    "NOREPLICAS": "connect its replicas, or lower its min-replicas-to-write",
    "MASTERDOWN": "restore its link to its primary",
    "CLUSTERDOWN": "check it with redis-cli --cluster check",
    "LOADING": "wait until it has loaded its data",
    "BUSY": "wait until its script has ended",
    "NOAUTH": "check the user and the password",
}


def remedy_for(message: bytes) -> str:
    """Return advice on an error reply; "" if its code is not one of REMEDIES."""
    code = message.removeprefix(ABORTED).partition(b" ")[0]
    return REMEDIES.get(code.decode(errors="replace"), "")


def may_pass(message: bytes) -> bool:
    """Return whether the server refused a command temporarily, and did not run it.

    NOAUTH is excluded, since only the user can resolve it.
    """
    return bool(remedy_for(message)) and not message.startswith(b"NOAUTH")


class Refused(OSError):
    """The server refused one of fastresp's own commands; a retry over a new connection may help."""


class NotRun(Exception):
    """The server refused a command or a transaction, and ran none of it; a retry won't help."""


class TakenOver(NotRun):
    """The server refused a transaction because another loader owns the checkpoint."""


class NotMarked(Exception):
    """The commands of a transaction ran, but its marker was not set."""


def idle_cause(seconds: float) -> str:
    """Return text that names the server's idle timeout as a likely cause of a lost connection.

    Return "" if there was traffic in the last second before the loss.

    Args:
        seconds: the time without traffic before the loss.
    """
    if seconds < MIN_IDLE_S:
        return ""
    return (
        f"; or the server closed it after a pause of {seconds:,.0f} s: its 'timeout' setting "
        "limits how long a connection may be idle (CONFIG GET timeout; 0 means no limit)"
    )


def with_second_look(message: str, server: Server, timeout: float | None) -> str:
    """Try a new connection, and append the result to the message. May take seconds."""
    try:
        server.ask(timeout)
    except TransportError as error:
        return Message(message, "\na new connection failed: ", message_of(error))
    return f"{message}\na new connection works"


def closed_outputs(timeout: float) -> Message:
    """Return the message for a redis-cli that closed its outputs, but keeps running."""
    return Message(
        f"redis-cli closed its outputs {timeout:g} s ago but kept running; it was killed (check "
        "which program FASTRESP_CLI, or redis-cli on the PATH, starts)"
    )


def no_progress(server: Server, timeout: float, last_error: str) -> Message:
    """Return the message for a redis-cli that makes no progress.

    Args:
        server: the server that redis-cli is connected to.
        timeout: seconds without progress.
        last_error: the last error reply; empty if there is none, or if commands are unread.
    """
    message = f"no progress for {timeout:g} s between redis-cli and {server}"
    if last_error:
        message += (
            f", after the error reply {without_passwords(last_error)!r}: if that answered "
            "redis-cli's closing ECHO, all commands were run"
        )
    else:
        message += (
            ": the server is frozen, or busy with a command, or with the last 500 KB of commands, "
            "during which redis-cli prints nothing"
        )
    return Message(
        f"{message}; redis-cli was killed (a larger ",
        Hint("timeout", ...),
        " waits longer; ",
        Hint("transport", "socket"),
        " sees every reply)",
    )
