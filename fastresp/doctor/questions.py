"""Read a server's state, and note which commands the server refuses."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ..outcome.errors import FastrespError, TransportError
from ..outcome.excerpts import shortened
from ..server.answers import parse_info
from ..server.settings import Server

__all__ = ["Questions", "text_of", "understanding"]

SLOWLOG_ENTRIES = 128


class Questions:
    """Sends commands that read a server's state, over one redis-py connection.

    Attributes:
        unread: the server's error replies to refused commands, by the first word of the command.
    """

    def __init__(self, server: Server, connection: Any) -> None:
        self.server = server
        self.connection = connection
        self.unread: dict[str, str] = {}

    def ask(self, *command: str) -> Any:
        """Send a command, and return the reply; None if the server refuses the command.

        Raises:
            TransportError: the connection was lost.
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
        """Return all fields of INFO."""
        return parse_info(self.ask("INFO", "all"))

    def slow_log(self) -> list[Any]:
        return self.ask("SLOWLOG", "GET", str(SLOWLOG_ENTRIES)) or []


def text_of(value: Any) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)


@contextmanager
def understanding(server: Server) -> Iterator[None]:
    """If the block raises because it can't parse a reply, raise a TransportError instead.

    Raises:
        TransportError: a reply can't be parsed.
    """
    try:
        yield
    except FastrespError:
        raise
    except (
        ValueError, TypeError, LookupError, AttributeError, ArithmeticError,
        RecursionError, MemoryError,
    ) as error:  # fmt: skip
        words = shortened(f"{type(error).__name__}: {error}")
        raise TransportError(
            f"the server at {server} sent a reply that the doctor can't parse ({words}; check that "
            "it is Redis or Valkey, and that no proxy changes its replies)"
        ) from error
