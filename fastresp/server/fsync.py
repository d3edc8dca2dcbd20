"""Check before a load whether a server can confirm that commands are on disk."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from ..outcome.errors import TransportError
from ..outcome.messages import Hint, Message

__all__ = ["check_fsync"]


def check_fsync(connection: Any, place: str) -> None:
    """Check that the server can confirm with WAITAOF that commands are on disk.

    Args:
        connection: a redis-py connection without earlier writes.
        place: the name of the server, for messages.

    Raises:
        TransportError: WAITAOF would not confirm commands; the message says what to change.
        redis.RedisError, OSError: the connection is lost.
    """
    import redis

    fault = ""
    try:
        # Answered immediately, since there is nothing to sync yet.
        connection.send_command("WAITAOF", 1, 0, 1)
        connection.read_response()
    except redis.exceptions.NoPermissionError as error:
        fault = f"{error} (allow it with ACL SETUSER ... +waitaof)"
    except redis.ResponseError as error:
        fault = str(error)
        if "appendonly" in fault:
            fault = "it has no append-only file (switch it on: CONFIG SET appendonly yes)"
        elif fault.lower().startswith("unknown command"):
            fault = "it has no WAITAOF (use Redis 7.2 or later, or Valkey)"
    if not fault and _setting(connection, "appendfsync") == b"no":
        fault = "it never syncs its append-only file (CONFIG SET appendfsync everysec)"
    if fault:
        words = f" is not possible with the server at {place}: {fault}"
        raise TransportError(Message(Hint("durable", "fsync"), words))


def _setting(connection: Any, name: str) -> bytes:
    """Return a setting of a server; empty if the server refuses CONFIG GET."""
    import redis

    with suppress(redis.ResponseError):
        connection.send_command("CONFIG", "GET", name)
        reply = connection.read_response()
        if isinstance(reply, list) and len(reply) > 1 and isinstance(reply[1], bytes):
            return reply[1]
    return b""
