"""Likely causes of a lost connection."""

from __future__ import annotations

from ..outcome.errors import TransportError
from ..outcome.messages import Message, message_of
from ..server.settings import Server

__all__ = ["LIKELY_CAUSES", "NotMarked", "NotRun", "idle_cause", "with_second_look"]

# The server's 'timeout' setting is in whole seconds.
LEAST_IDLE_S = 1.0
# Of a connection that the server closed without an error reply.
LIKELY_CAUSES = (
    "the server was stopped or killed, or the connection was ended by CLIENT KILL or an output or "
    "query buffer limit"
)


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
