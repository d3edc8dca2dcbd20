"""Keys of a pattern, such as ``"user:{id}"``: found by SCAN, and told apart."""

from __future__ import annotations

import re
import socket
from collections.abc import Generator
from contextlib import closing, suppress
from dataclasses import dataclass
from typing import Any

from ..outcome.errors import CommandError, DecodeError, ProtocolError, TransportError
from ..outcome.excerpts import shown_reply
from ..outcome.messages import Hint, Message
from ..server.forks import Inherited, is_own
from ..server.settings import Server
from .arrow_out import StringBatch
from .growing_columns import string_column

__all__ = ["Found", "Pattern", "as_pattern", "is_text", "not_text", "scan", "shown_key"]

# How many keys a SCAN looks at: enough to hide its way there and back.
SCAN_COUNT = 1000
# Doubled braces, a placeholder, a brace alone, text.
PIECES = re.compile(r"\{\{|\}\}|\{([^{}]*)\}|[{}]|[^{}]+")
# What has a meaning in the patterns of SCAN.
GLOB = re.compile(r"([*?\[\]\\^])")
SHOWN_BYTES = 40


@dataclass(frozen=True)
class Pattern:
    """Which keys to look for, and what of them becomes a column.

    Attributes:
        glob: for SCAN.
        column: the name of the column.
        head, tail: how many bytes of a key stand before that, and behind it.
        single: it is a key, and no pattern.
    """

    glob: str
    column: str = "key"
    head: int = 0
    tail: int = 0
    single: bool = False


def as_pattern(text: str, *, single: bool = False) -> Pattern:
    """Read ``user:*`` or ``user:{id}``; or also a single key.

    Raises:
        ValueError: it is neither.
    """
    literal = [""]
    names = []
    for piece in PIECES.finditer(text):
        if piece[1] is not None:
            names.append(piece[1])
            literal.append("")
        elif piece[0] in ("{", "}"):
            raise ValueError(f"a brace of {text!r} is alone; write '{{{{' or '}}}}' for a literal")
        else:
            literal[-1] += piece[0][0] if piece[0] in ("{{", "}}") else piece[0]
    if len(names) > 1 or any(not name or name[0] == "*" or "!" in name for name in names):
        raise ValueError(f"{text!r} is no pattern: it has one name in braces, as in 'user:{{id}}'")
    if names:
        before, after = literal
        glob = f"{_escaped(before)}*{_escaped(after)}"
        return Pattern(glob, names[0], len(before.encode()), len(after.encode()))
    if not GLOB.search(literal[0]):
        if single:
            return Pattern(literal[0], single=True)
        raise ValueError(
            f"{text!r} is one key, and keys is a pattern, such as 'user:*' or 'user:{{id}}', or an "
            "iterable of keys: put a single key in a list"
        )
    return Pattern(literal[0])


def _escaped(text: str) -> str:
    return GLOB.sub(r"\\\1", text)


class Found:
    """The keys of a pattern, and the column of them.

    Args:
        pattern: which keys.
        server: is asked, over a connection of its own.
        timeout: seconds to wait for each answer; None for ever.
    """

    def __init__(self, pattern: Pattern, server: Server, timeout: float | None) -> None:
        self.pattern = pattern
        self._server = server
        self._timeout = timeout
        # Those whose rows were not given yet.
        self.kept: list[bytes] = []
        self._connection: Any = None

    def pages(self) -> Generator[list[bytes], None, None]:
        """The keys; while some are taken the next are looked for.

        Raises:
            CommandError, TransportError, TransportTimeout: as ``scan()``.
        """
        server, pattern = self._server, self.pattern
        if pattern.single:
            self.kept.append(pattern.glob.encode())
            yield [*self.kept]
            return
        self._connection = server.connect(self._timeout)
        with closing(scan(server, self._connection, pattern.glob, "hash")) as found:
            for page in found:
                check_keys_of(server, pattern, page)
                self.kept += page
                yield page

    def disconnect(self) -> None:
        """End a SCAN that another thread waits for."""
        if self._connection is not None and is_own(self._connection):
            with suppress(OSError):
                self._connection._sock.shutdown(socket.SHUT_RDWR)

    def added(self, batch: StringBatch, *, text: bool) -> StringBatch:
        """The batch with the column of the keys before the others.

        Raises:
            DecodeError: one is not UTF-8.
        """
        keys, self.kept = self.kept[: len(batch)], self.kept[len(batch) :]
        pattern = self.pattern
        try:
            column = string_column(keys, head=pattern.head, tail=pattern.tail, text=text)
        except UnicodeDecodeError as error:
            key = next(key for key in keys if not is_text(key))
            raise not_text(f"key {shown_key(key)}", key, pattern.column) from error
        return StringBatch([pattern.column, *batch.names], [column, *batch.columns])


def scan(
    server: Server, connection: Any, glob: str, kind: str | None
) -> Generator[list[bytes], None, None]:
    """Find keys with SCAN; the next are asked for ahead.

    Args:
        connection: of its own, which is closed at the end.
        kind: the type of the keys, as TYPE calls it; None for any.

    Raises:
        CommandError: the server refuses it.
        TransportError, TransportTimeout: the server was lost, or does not answer.
    """
    import redis

    how: tuple[Any, ...] = ("MATCH", glob, "COUNT", SCAN_COUNT)
    if kind is not None:
        how += ("TYPE", kind)
    try:
        connection.send_command("SCAN", 0, *how)
        cursor = None
        while cursor != b"0":
            if not is_own(connection):
                raise TransportError(str(Inherited("connection")))
            cursor, found = _page_of(connection.read_response())
            if cursor != b"0":
                connection.send_command("SCAN", cursor, *how)
            yield found
    except ProtocolError as error:
        raise TransportError(f"can't read the server at {server}: {error.args[0]}") from error
    except redis.ResponseError as error:
        raise CommandError(f"SCAN: {error}") from error
    except (redis.RedisError, OSError) as error:
        raise server.failure(error) from error
    finally:
        connection.disconnect()


def _page_of(reply: Any) -> tuple[bytes, list[bytes]]:
    """The cursor and the keys of an answer to SCAN.

    Raises:
        ProtocolError: it is none.
    """
    match reply:
        case [bytes() as cursor, list() as keys] if all(type(key) is bytes for key in keys):
            return cursor, keys
    raise ProtocolError(f"it answers SCAN by {shown_reply(reply)}", 0)


def check_keys_of(server: Server, pattern: Pattern, keys: list[bytes]) -> None:
    """Refuse keys that are too short for the pattern.

    Raises:
        TransportError: one is.
    """
    for key in keys:
        if len(key) < pattern.head + pattern.tail:
            raise TransportError(
                f"can't read the server at {server}: it answers SCAN by the key {shown_key(key)}"
            )


def not_text(what: str, key: bytes, column: str) -> DecodeError:
    message = Message(
        f"{what} is not UTF-8; name {column!r} ", Hint("binary", ..., "in"), " for its bytes"
    )
    return DecodeError(message, key=key, column=column)


def is_text(value: bytes) -> bool:
    """Whether it is UTF-8."""
    try:
        value.decode()
    except UnicodeDecodeError:
        return False
    return True


def shown_key(key: bytes) -> str:
    """A key for a message: its beginning if it is long."""
    if len(key) > SHOWN_BYTES:
        return f"{key[:SHOWN_BYTES]!r}..."
    return repr(key.decode() if is_text(key) else key)
