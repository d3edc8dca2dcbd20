"""Parse the replies to our own commands, and check their types."""

from __future__ import annotations

import re
import time
from collections import deque
from collections.abc import Mapping
from typing import Any

from redis.connection import DefaultParser
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import InvalidResponse, ResponseError
from redis.exceptions import TimeoutError as RedisTimeoutError

from ..outcome.errors import CommandError, ProtocolError
from ..outcome.messages import shown_reply
from ..resp.read import ReplyReader

__all__ = [
    "BoundedParser", "bytes_of", "fields_of", "integer_of", "pairs_of", "parse_info", "stats_of",
    "texts_of", "unexpected",
]  # fmt: skip

# The largest reply to our own commands. CLIENT LIST needs about 350 bytes per client.
ANSWER_BYTES = 64 << 20
READ_BYTES = 65_536
# A module in INFO: its name, and the number of its version.
MODULE = re.compile(r"^module:name=([^,\r\n]+)(?:,ver=(\d{1,9})\b)?", re.MULTILINE | re.ASCII)


class BoundedParser(DefaultParser):  # type: ignore[misc, valid-type]
    """Reads replies with our ReplyReader. The socket's timeout limits the time for a whole reply.

    redis-py's parser applies the timeout to each read, allocates as many elements as a header
    announces, and has no size limit.
    """

    _replies: ReplyReader | None = None

    def on_connect(self, connection: Any, **options: Any) -> None:
        # Unlike redis-py's parser, create no hiredis reader, which aborts the process if it can't
        # allocate memory.
        self._raw = connection._sock
        self._replies = ReplyReader(max_reply_bytes=ANSWER_BYTES)
        self._arrived: deque[Any] = deque()

    def on_disconnect(self) -> None:
        super().on_disconnect()
        self._raw = self._replies = None

    @property
    def surplus(self) -> bool:
        """Whether more replies have arrived than were read."""
        return self._replies is not None and bool(self._arrived or self._replies.pending)

    def read_response(self, disable_decoding: bool = False, **options: Any) -> Any:
        """Return the next reply: bytes, int, None, a list of these, or a ResponseError.

        Raises:
            redis.InvalidResponse: the reply is invalid or too large.
            redis.ConnectionError: the connection is closed.
            redis.TimeoutError: the reply does not arrive in time.
        """
        if self._replies is None:
            raise RedisConnectionError("the connection is closed")
        seconds = self._raw.gettimeout()
        end = None if seconds is None else time.monotonic() + seconds
        while not self._arrived:
            data = self._raw.recv(READ_BYTES)
            if not data:
                raise RedisConnectionError("Connection closed by server.")
            try:
                self._replies.feed(data)
            except ProtocolError as error:
                raise InvalidResponse(f"it sent an invalid reply: {error}") from error
            finally:
                self._arrived.extend(self._replies.take())
            if not self._arrived and end is not None and time.monotonic() > end:
                raise RedisTimeoutError("Timeout reading from socket: incomplete reply")
        reply = self._arrived.popleft()
        if isinstance(reply, CommandError):
            message = reply.text
            try:
                reply = self.parse_error(message)
            except (ValueError, IndexError):  # MOVED without an address
                reply = ResponseError(message)
            if isinstance(reply, RedisConnectionError):
                raise reply
        return reply


def unexpected(question: str, reply: Any) -> ProtocolError:
    """Return the exception for a reply of an impossible type."""
    return ProtocolError(
        f"unexpected reply to {question}: {shown_reply(reply)} (check that this is Redis or "
        "Valkey, and that no proxy changes its replies)",
        None,
    )


def integer_of(question: str, reply: Any) -> int:
    """Return an integer reply; raise ProtocolError for any other reply."""
    if type(reply) is not int:
        raise unexpected(question, reply)
    return reply


def bytes_of(question: str, reply: Any) -> bytes:
    """Return a string reply; raise ProtocolError for any other reply."""
    if type(reply) is not bytes:
        raise unexpected(question, reply)
    return reply


def texts_of(question: str, reply: Any) -> list[bytes]:
    """Return a list of strings; raise ProtocolError for any other reply."""
    if type(reply) is not list or any(type(each) is not bytes for each in reply):
        raise unexpected(question, reply)
    return reply


def pairs_of(question: str, reply: Any) -> dict[bytes, bytes]:
    """Return the fields and values of a hash; raise ProtocolError for any other reply."""
    flat = texts_of(question, reply)
    if len(flat) % 2:
        raise unexpected(question, reply)
    return dict(zip(flat[::2], flat[1::2], strict=True))


def fields_of(reply: Any) -> dict[bytes, Any]:
    """Convert a flat list of names and values to a dict; empty for any other reply."""
    if not isinstance(reply, list):
        return {}
    pairs = zip(reply[::2], reply[1::2], strict=False)
    return {name: value for name, value in pairs if isinstance(name, bytes)}


def parse_info(reply: Any) -> dict[str, str]:
    """Return the fields of a reply to INFO; empty for any other reply.

    Two additional fields, ``modules`` and ``module_versions``, have the names of all modules, and
    their versions.
    """
    text = reply.decode(errors="replace") if isinstance(reply, bytes) else reply
    if not isinstance(text, str):
        return {}
    fields = dict(line.split(":", 1) for line in text.splitlines() if ":" in line)
    modules = MODULE.findall(text)
    if modules:
        fields["modules"] = " ".join(name for name, _ in modules)
        fields["module_versions"] = " ".join(version or "0" for _, version in modules)
    return fields


def stats_of(info: Mapping[str, str], prefix: str) -> dict[str, dict[str, str]]:
    """Parse all fields of INFO with a prefix, such as ``cmdstat_get:calls=1,usec=2``.

    Returns:
        The statistics of each field, by the field's name without the prefix.
    """
    return {
        name.removeprefix(prefix): dict(part.partition("=")[::2] for part in value.split(","))
        for name, value in info.items()
        if name.startswith(prefix)
    }
