"""What redis-py reads replies with on our connections: bounded in size and in time."""

from __future__ import annotations

import time
from collections import deque
from typing import Any

from redis.connection import DefaultParser
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import InvalidResponse, ResponseError
from redis.exceptions import TimeoutError as RedisTimeoutError

from ..outcome.errors import CommandError, ProtocolError
from ..resp.read import ReplyReader

__all__ = ["BoundedParser"]

# The largest reply to a question of ours. CLIENT LIST has about 350 bytes for each client.
ANSWER_BYTES = 64 << 20
READ_BYTES = 65_536


class BoundedParser(DefaultParser):  # type: ignore[misc, valid-type]
    """Reads replies with our ReplyReader, each within the socket's timeout as a whole.

    redis-py's own waits that long for each piece, makes room for as many elements as a header
    promises, and holds whatever comes.
    """

    _replies: ReplyReader | None = None

    def on_connect(self, connection: Any, **options: Any) -> None:
        # Without a reader of hiredis, as redis-py's own has: where no memory is left for one, it
        # ends the process.
        self._raw = connection._sock
        self._replies = ReplyReader(max_reply_bytes=ANSWER_BYTES)
        self._come: deque[Any] = deque()

    def on_disconnect(self) -> None:
        super().on_disconnect()
        self._raw = self._replies = None

    @property
    def surplus(self) -> bool:
        """Whether more has come than was asked for."""
        return self._replies is not None and bool(self._come or self._replies.pending)

    def _error(self, words: str) -> Exception:
        try:
            error: Exception = self.parse_error(words)
        except (ValueError, IndexError):  # MOVED without a place
            error = ResponseError(words)
        return error

    def read_response(self, disable_decoding: bool = False, **options: Any) -> Any:
        """The next reply as bytes, int, None or a list of these; or a ResponseError.

        Raises:
            redis.InvalidResponse: what comes is no reply, or too large.
            redis.ConnectionError, redis.TimeoutError: it does not come.
        """
        if self._replies is None:
            raise RedisConnectionError("the connection is closed")
        seconds = self._raw.gettimeout()
        end = None if seconds is None else time.monotonic() + seconds
        while not self._come:
            data = self._raw.recv(READ_BYTES)
            if not data:
                raise RedisConnectionError("Connection closed by server.")
            try:
                self._replies.feed(data)
            except ProtocolError as error:
                raise InvalidResponse(f"it sent what can't be understood: {error}") from error
            finally:
                self._come.extend(self._replies.take())
            if not self._come and end is not None and time.monotonic() > end:
                raise RedisTimeoutError("Timeout reading from socket: a reply does not end")
        reply = self._come.popleft()
        if isinstance(reply, CommandError):
            reply = self._error(reply.text)
            if isinstance(reply, RedisConnectionError):
                raise reply
        return reply
