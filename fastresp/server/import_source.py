"""Mark connections as import sources: CLIENT IMPORT-SOURCE of Valkey 8.1 and later."""

from __future__ import annotations

from typing import Any

from ..outcome.errors import TransportError
from ..outcome.messages import Hint, Message

__all__ = ["mark_import_source"]


def mark_import_source(connection: Any, place: str) -> None:
    """Mark a connection as an import source, so that its commands see expired keys.

    Args:
        connection: a redis-py connection.
        place: the name of the server, for messages.

    Raises:
        TransportError: the server lacks or refuses the command, or is not in import mode.
        redis.RedisError: the connection is lost.
        OSError: the connection is lost.
    """
    import redis

    connection.send_command("CLIENT", "IMPORT-SOURCE", "ON")
    try:
        connection.read_response()
    except redis.ResponseError as error:
        words = str(error)
        if isinstance(error, redis.exceptions.NoPermissionError):
            advice = "allow it with ACL SETUSER ... +client|import-source"
        elif "import mode" in words:
            advice = "run CONFIG SET import-mode yes for the import, and CONFIG SET import-mode no"
            advice += " after it"
        else:
            advice = "this needs Valkey 8.1 or later"
        message = f"can't import into {place}: {words} (nothing was sent; {advice}, or leave out "
        raise TransportError(Message(message, Hint("import_source"), ")")) from error
