"""Questions to a server, and what it does not tell."""

from __future__ import annotations

from typing import Any

from ..server.answers import parse_info
from ..server.settings import Server

__all__ = ["Questions", "text_of"]

SLOWLOG_ENTRIES = 128


class Questions:
    """Asks a server over a redis-py connection; notes what it does not tell.

    Attributes:
        unread: the first word of each refused question, and the server's words.
    """

    def __init__(self, server: Server, connection: Any) -> None:
        self.server = server
        self.connection = connection
        self.unread: dict[str, str] = {}

    def ask(self, *command: str) -> Any:
        """The reply; None where the server refuses.

        Raises:
            TransportError: the server was lost.
        """
        import redis

        try:
            self.connection.send_command(*command)
            return self.connection.read_response()
        except redis.ResponseError as error:
            self.unread.setdefault(command[0], str(error))
            return None
        except (redis.RedisError, OSError) as error:
            raise self.server.failure(error) from error

    def info(self) -> dict[str, str]:
        """Everything that INFO tells."""
        return parse_info(self.ask("INFO", "all"))

    def slow_log(self) -> list[Any]:
        return self.ask("SLOWLOG", "GET", str(SLOWLOG_ENTRIES)) or []


def text_of(value: Any) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)
