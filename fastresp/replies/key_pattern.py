"""Find the keys of a pattern, such as ``"user:{id}"``, their types, and when they expire."""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Iterable, Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass
from itertools import chain
from typing import Any, NamedTuple

from ..encode.columns.arrow_out import (
    Column,
    StringBatch,
    StringColumn,
    TimeColumn,
    time_column,
)
from ..encode.key_columns import VALUE_COLUMNS, Pattern
from ..outcome.errors import CommandError, DecodeError, SourceError, TransportError
from ..outcome.messages import Hint, Message
from ..server.preflight import Requirements
from ..server.reply_parser import unexpected
from ..server.settings import Server, ServerLike, as_server
from .iter_replies import iter_replies
from .large_keys import FIRST_ENTRIES
from .reply_columns import string_column
from .scan import Scan

__all__ = [
    "KINDS", "Expiries", "KeyFinder", "KeyType", "SkippedKeys", "as_reading", "check_changed",
    "check_found", "column_of", "expiry_command", "hashes_of", "keys_of", "not_text",
    "replies_by_key", "shown_key", "type_of",
]  # fmt: skip

PEXPIRETIME = "PEXPIRETIME {0}"
# For servers without PEXPIRETIME (Redis 6.2): TTL and clock of the node that has the key.
BY_CLOCK = (
    "EVAL \"local left, now = redis.call('PTTL', KEYS[1]), redis.call('TIME') "
    'return left < 0 and left or left + now[1] * 1000 + math.floor(now[2] / 1000)" 1 {0}'
)


class KeyType(NamedTuple):
    """A type of keys.

    Attributes:
        type: the name of the type in replies to TYPE.
        names: the names of the columns after the key's column.
        first: the template of the command that reads a key's value or first entries.
        command: the command that reads further entries; None if a key has a single value.
    """

    type: str
    names: tuple[str, ...]
    first: str
    command: str | None


KINDS = {
    "string": KeyType("string", VALUE_COLUMNS["string"], "GET {0}", None),
    "json": KeyType("ReJSON-RL", VALUE_COLUMNS["json"], "JSON.GET {0}", None),
    "set": KeyType("set", VALUE_COLUMNS["set"], f"SSCAN {{0}} 0 COUNT {FIRST_ENTRIES}", "SSCAN"),
    "zset": KeyType("zset", VALUE_COLUMNS["zset"], f"ZSCAN {{0}} 0 COUNT {FIRST_ENTRIES}", "ZSCAN"),
    "list": KeyType("list", VALUE_COLUMNS["list"], f"LRANGE {{0}} 0 {FIRST_ENTRIES - 1}", "LRANGE"),
    # Followed by the names of the fields.
    "stream": KeyType(
        "stream", VALUE_COLUMNS["stream"], f"XRANGE {{0}} - + COUNT {FIRST_ENTRIES}", "XRANGE"
    ),
}


def as_reading(server: ServerLike | Server) -> Server:
    """Return a Server to read from, which connects to all primaries of a cluster."""
    return as_server(server, Requirements(reading=True, nodes=True))


def type_of(key: str | bytes, server: Server, timeout: float | None) -> str | None:
    """Return the type of a key, as ``kind_of()`` names it; None if the key does not exist."""
    [reply] = iter_replies([("TYPE", key)], server=server.any_node(), timeout=timeout, decode=True)
    return None if reply == "none" else kind_of(reply)


def kind_of(reply: Any) -> str:
    """Convert a reply to TYPE to a name in KINDS; return other types unchanged."""
    reply = reply.decode(errors="replace") if isinstance(reply, bytes) else reply
    if not isinstance(reply, str):
        raise TransportError(unexpected("TYPE", reply).args[0])
    return next((name for name, kind in KINDS.items() if kind.type == reply), reply)


def check_found(
    target: Pattern, kind: str | None, server: ServerLike | Server, timeout: float | None
) -> bool:
    """Check the type of the first existing key that SCAN finds for a pattern.

    Returns:
        True if the key has the wanted type, by default ``"hash"``; False if no key matches.

    Raises:
        SourceError: the key has a different type; the message names the key and its type.
    """
    kind = kind or "hash"
    where = as_reading(server)
    with closing(Scan(where, timeout, target.glob).pages()) as pages:
        for page in pages:
            for key in page:
                found = type_of(key, where, timeout)
                if found == kind:
                    return True
                if found is not None:
                    raise SourceError(
                        Message(
                            f"no {kind} matches, but {shown_key(key)} does, which is a {found}; "
                            "use ",
                            Hint("type", found),
                        )
                    )
    return False


def keys_of(
    target: Pattern, type_: str | None, server: Server, timeout: float | None
) -> Generator[bytes, None, None]:
    """Yield the keys of a type that match a pattern; for a single key, yield the key.

    SCAN may return a key twice, especially if a cluster node is lost. Loading a list twice would
    duplicate its items, and loading a stream twice would fail, because its entry IDs exist already.
    So keys of lists and streams are yielded only once.
    """
    if target.single:
        yield target.glob.encode()
        return
    with closing(Scan(server, timeout, target.glob, type_).pages()) as pages:
        seen: set[bytes] = set()
        for page in pages:
            if type_ in ("list", "stream"):
                page = [key for key in dict.fromkeys(page) if key not in seen]
                seen.update(page)
            yield from page


def replies_by_key(
    keys: Iterable[bytes], command: str, server: Server, timeout: float | None
) -> Generator[tuple[bytes, Any], None, None]:
    """Run a command for each key; yield each key with its reply, which may be a CommandError."""
    sent: deque[bytes] = deque()

    def remembered() -> Iterator[bytes]:
        for key in keys:
            sent.append(key)
            yield key

    replies: Any = iter_replies(
        remembered(), command, server=server, on_error="collect", timeout=timeout
    )
    with closing(replies):
        for reply in replies:
            yield sent.popleft(), reply


def check_changed(error: CommandError) -> None:
    """Ignore WRONGTYPE, from a key that changed its type after SCAN; raise any other error."""
    if not error.text.startswith("WRONGTYPE "):
        raise error


@dataclass
class SkippedKeys:
    """The keys of a pattern that are not hashes.

    Attributes:
        first: the first key that is not a hash, and its type; None if there is no such key.
        deleted: the number of keys that were deleted after SCAN found them.
    """

    count: int = 0
    first: tuple[bytes, str] | None = None
    deleted: int = 0


def hashes_of(
    keys: Iterable[bytes], skipped: SkippedKeys, server: Server, timeout: float | None
) -> Generator[bytes, None, None]:
    """Yield the keys that are hashes; count the other keys in ``skipped``."""
    with closing(replies_by_key(keys, "TYPE {0}", server, timeout)) as types:
        for key, found in types:
            if isinstance(found, CommandError):
                raise found
            if found == b"hash":
                yield key
            elif found == b"none":
                skipped.deleted += 1
            else:
                skipped.count += 1
                skipped.first = skipped.first or (key, kind_of(found))


SHOWN_BYTES = 40


def column_of(
    values: list[Any], keys: list[bytes], name: str, *, text: bool, pattern: Pattern | None = None
) -> StringColumn:
    """Return values, each bytes or None, as a column.

    Args:
        keys: the key of each value, for errors.
        text: whether the values must be UTF-8.
        pattern: for a column of keys, the pattern that names the part of each key to return.
    """
    head, tail = (pattern.head, pattern.tail) if pattern else (0, 0)
    try:
        return string_column(values, head=head, tail=tail, text=text)
    except UnicodeDecodeError as error:
        key = next(key for key, value in zip(keys, values, strict=True) if not is_text(value))
        what = f"key {shown_key(key)}"
        raise not_text(what if pattern else f"{name} of {what}", key, name) from error


def not_text(what: str, key: bytes, column: str) -> DecodeError:
    message = Message(
        f"{what} is not UTF-8; name {column!r} ", Hint("binary", ..., "in"), " to get bytes"
    )
    return DecodeError(message, key=key, column=column)


def is_text(value: bytes | None) -> bool:
    """Return whether bytes are UTF-8, or None."""
    try:
        (value or b"").decode()
    except UnicodeDecodeError:
        return False
    return True


def shown_key(key: bytes) -> str:
    """Return a key for a message, shortened if it is long."""
    if len(key) > SHOWN_BYTES:
        return f"{key[:SHOWN_BYTES]!r}..."
    return repr(key.decode() if is_text(key) else key)


def expiry_command(server: Server, timeout: float | None) -> str:
    """Return the template of the command that reads a key's expiry time, in ms since 1970."""
    [reply] = iter_replies(
        [("PEXPIRETIME", "")], server=server.any_node(), on_error="collect", timeout=timeout
    )
    lacking = isinstance(reply, CommandError) and "unknown command" in reply.text.lower()
    return BY_CLOCK if lacking else PEXPIRETIME


class Expiries:
    """Reads the expiry times of keys, and keeps the times until the keys' values arrive.

    A key's expiry time is read before its value. So a key that expires between the two reads has no
    value; in the reverse order, it would have a value and no time, as if it never expired.
    """

    def __init__(self, server: Server, timeout: float | None) -> None:
        self._server = server
        self._timeout = timeout
        self._times: deque[int | None] = deque()

    def keys(self, keys: Iterable[bytes]) -> Generator[bytes, None, None]:
        """Yield the keys; read each key's expiry time before yielding the key."""
        command = expiry_command(self._server, self._timeout)
        with closing(replies_by_key(keys, command, self._server, self._timeout)) as replies:
            for key, reply in replies:
                if isinstance(reply, CommandError):
                    raise reply
                if type(reply) is not int:
                    error = unexpected(command.partition(" ")[0], reply)
                    raise TransportError(f"can't read from the server at {self._server}: {error}")
                # -1: the key does not expire. -2: it is gone.
                self._times.append(reply if reply >= 0 else None)
                yield key

    def take(self) -> int | None:
        """Remove and return the next key's expiry time in ms since 1970; None for no expiry."""
        return self._times.popleft()

    def column(self, rows: int) -> TimeColumn:
        """Return the expiry times of the next ``rows`` keys as a column, and forget these times."""
        return time_column([self.take() for _ in range(rows)])


class KeyFinder:
    """Finds the keys of a pattern, and makes the columns of keys and of expiry times.

    Attributes:
        kept: the found keys whose rows are not returned yet.
    """

    def __init__(
        self,
        pattern: Pattern,
        server: Server,
        timeout: float | None,
        slots: range | None,
        ttl: str | None,
        *,
        text: bool,
    ) -> None:
        self.kept: list[bytes] = []
        self._pattern = pattern
        self._text = text
        self._server = server
        self._scan = Scan(server, timeout, pattern.glob, "hash", slots)
        self._ttl = ttl
        self._expiries = Expiries(server, timeout)

    def pages(self) -> Generator[list[bytes], None, None]:
        """Yield the keys in pages; the next page is always requested in advance."""
        with ExitStack() as stack:
            pages: Iterator[list[bytes]] = stack.enter_context(closing(self._found()))
            if self._ttl is not None:
                keys = self._expiries.keys(chain.from_iterable(pages))
                pages = ([key] for key in stack.enter_context(closing(keys)))
            for page in pages:
                self.kept += page
                yield page

    def _found(self) -> Generator[list[bytes], None, None]:
        pattern = self._pattern
        if pattern.single:
            yield [pattern.glob.encode()]
            return
        with closing(self._scan.pages()) as found:
            for page in found:
                for key in page:
                    if len(key) < pattern.head + pattern.tail:
                        raise TransportError(
                            f"can't read from the server at {self._server}: SCAN returned "
                            f"{shown_key(key)}, which does not match the pattern"
                        )
                yield page

    def disconnect(self) -> None:
        self._scan.disconnect()

    def with_keys(self, batch: StringBatch) -> StringBatch:
        """Return the batch with a first column of keys, and if wanted, a last column of times."""
        keys, self.kept = self.kept[: len(batch)], self.kept[len(batch) :]
        pattern = self._pattern
        column = column_of(keys, keys, pattern.column, text=self._text, pattern=pattern)
        names = [pattern.column, *batch.names]
        columns: list[Column] = [column, *batch.columns]
        if self._ttl is not None:
            names.append(self._ttl)
            columns.append(self._expiries.column(len(batch)))
        return StringBatch(names, columns)
