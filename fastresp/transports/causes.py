"""What a connection is likely to have been lost by."""

from __future__ import annotations

from ..outcome.errors import TransportError
from ..outcome.messages import Message, message_of
from ..server.settings import Server

__all__ = ["LIKELY_CAUSES", "idle_cause", "with_second_look"]

# The setting 'timeout' of a server is in whole seconds.
LEAST_IDLE_S = 1.0
# Of a connection that was lost without a word.
LIKELY_CAUSES = (
    "the server was stopped or killed, or the connection was ended by CLIENT KILL or an output or "
    "query buffer limit"
)


def idle_cause(seconds: float) -> str:
    """One more likely cause of a lost connection, where nothing had moved for so long; or ""."""
    if seconds < LEAST_IDLE_S:
        return ""
    return (
        f"; or the server closed it after a pause of {seconds:,.0f} s: its setting 'timeout' says "
        "how long a connection may be idle (CONFIG GET timeout; 0 for no limit)"
    )


def with_second_look(message: str, server: Server, timeout: float | None) -> str:
    """The message of a lost connection, and what a new one says; asking may take seconds."""
    try:
        server.ask(timeout)
    except TransportError as error:
        return Message(message, "\na new connection says: ", message_of(error))
    return f"{message}\na new connection to it works"
