"""Read small values with the commands of their types, without DUMP."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import closing
from itertools import chain, pairwise
from typing import Any, NamedTuple, TypeAlias

from ...encode.payload.format import Format, checksum
from ...encode.payload.restorer import Restorer
from ...encode.payload.serializer import Serializer
from ...encode.writer import Writer
from ...outcome.errors import CommandError, SourceError
from ...outcome.messages import Hint, Message, message_of, shown_argument
from ...replies.iter_replies import iter_replies
from ...replies.key_pattern import expiry_command
from ...replies.large_keys import WRONGTYPE
from ...server.settings import Server
from ...sources.source import PART_BYTES, EntryRow

__all__ = [
    "CREATING", "FIRST_ITEMS", "FOOTER_BYTES", "LENGTHS", "SCANS", "Command", "Found", "Values",
    "in_order", "knows_times", "only_dumped", "unreadable", "why_by_value",
]  # fmt: skip

# The number of items in the first request for a value; a value with more is read in parts.
FIRST_ITEMS = 1_000
# The RDB version and the checksum, at the end of a DUMP payload.
FOOTER_BYTES = 10
CHECKSUM_BYTES = 8
# No batch of values is larger; the serializer multiplies this number, so it is below 2**63.
MAX_BYTES = 1 << 40
# In error replies for a command that is forbidden, renamed or missing.
REFUSED = ("NOPERM", "unknown command", "not allowed", "not supported", "disabled")
# In error replies for a key that is forbidden.
OF_KEY = ("access a key", "access one of the keys")
# Keys of the values that become payloads: all of one length, so that each value's offset is known.
NUMBERED = b"k%07d"
BEFORE_VALUE = 1 + 1 + len(NUMBERED % 0)
CREATING = {b"string": "SET", b"list": "RPUSH", b"set": "SADD", b"zset": "ZADD", b"hash": "HSET"}
SCANS = {b"set": "SSCAN", b"zset": "ZSCAN", b"hash": "HSCAN"}

LENGTHS = {
    b"string": "STRLEN", b"list": "LLEN", b"set": "SCARD", b"zset": "ZCARD", b"hash": "HLEN",
    b"stream": "XLEN",
}  # fmt: skip
# Estimated bytes of an item, if only the number of items is known.
ITEM_BYTES = 64

Command: TypeAlias = tuple[Any, ...]


def why_by_value(reply: Any) -> str:
    """Return why a reply to DUMP means that values must be read without DUMP; empty if DUMP works.

    Raises:
        CommandError: DUMP failed for a different reason, such as a forbidden key.
    """
    if isinstance(reply, CommandError):
        refused = any(words in reply.text for words in REFUSED)
        if not refused or any(words in reply.text for words in OF_KEY):
            raise reply
        return reply.text
    if type(reply) is not bytes:
        return ""
    crc = int.from_bytes(reply[-CHECKSUM_BYTES:], "little")
    if len(reply) <= FOOTER_BYTES or checksum(reply[:-CHECKSUM_BYTES]) != crc:
        return "its DUMP does not return a payload of Redis or Valkey"
    return ""


class Found(NamedTuple):
    """A key, its expiry in ms since 1970 (below 0 for none), and its type in replies to TYPE."""

    key: bytes
    expiry: int
    kind: bytes

    @property
    def is_gone(self) -> bool:
        """Whether the key does not exist or has expired."""
        return self.kind == b"none" or 0 <= self.expiry <= time.time() * 1000


class Values:
    """Reads types, expiries, and whole small values.

    Args:
        server: the server, or a node of a cluster.
        timeout: seconds to wait for each reply; None to wait forever.
        limit: maximum bytes of a small value.
    """

    def __init__(self, server: Server, timeout: float | None, limit: int) -> None:
        self._server = server
        self._timeout = timeout
        self._limit = limit
        self._expiry = ""
        self._times_of_fields = True  # whether the server may support times to live of fields

    def expiry(self) -> str:
        """Return the template of the command that reads a key's expiry."""
        self._expiry = self._expiry or expiry_command(self._server, self._timeout)
        return self._expiry

    def look(self, keys: list[bytes]) -> list[Found]:
        """Return the expiries and types of keys; the type of a missing key is b"none"."""
        template = [self.expiry(), "TYPE {0}"]
        replies: Any = iter_replies(keys, template, server=self._server, timeout=self._timeout)
        with closing(replies):
            found = zip(keys, replies, replies, strict=True)
            return [Found(key, int(expiry), bytes(kind)) for key, expiry, kind in found]

    def large(self, keys: list[bytes]) -> set[bytes]:
        """Return the keys whose values are large by length, for servers without MEMORY USAGE."""
        found = [each for each in self.look(keys) if each.kind in LENGTHS]
        lengths = self._replies([(LENGTHS[each.kind], each.key) for each in found])
        return {
            each.key
            for each, length in zip(found, lengths, strict=True)
            if isinstance(length, int)
            and length * (1 if each.kind == b"string" else ITEM_BYTES) > self._limit
        }

    def _replies(self, commands: Sequence[Command]) -> Any:
        return iter_replies(
            commands, server=self._server, on_error="collect", timeout=self._timeout
        )

    def rows(
        self, keys: list[bytes], restorer: Restorer, aside: Callable[[bytes], object]
    ) -> Generator[list[EntryRow], None, None]:
        """Yield lists of rows, in the order of the keys; pass keys without a row to ``aside``.

        These are streams, hashes whose fields expire, and values that are too large for one reply.
        """
        held: list[tuple[Found, list[bytes]]] = []
        size = 0
        found = self.look(keys)
        readable = [each for each in found if each.kind in CREATING]
        for each in found:
            if each.kind == b"none":
                restorer.dumped_rows([-2, None], iter((each.key,)))
            elif each.kind not in CREATING:
                aside(each.key)
        with closing(self._replies(list(map(self._first_look, readable)))) as replies:
            for each, reply in zip(readable, replies, strict=True):
                items = self._whole(each, reply)
                if items is None:
                    aside(each.key)
                    continue
                held.append((each, items))
                size += sum(map(len, items))
                if size >= PART_BYTES:
                    yield self._made(held, restorer, aside)
                    held, size = [], 0
        yield self._made(held, restorer, aside)

    def _first_look(self, found: Found) -> Command:
        if found.kind == b"string":
            return "GETRANGE", found.key, 0, self._limit
        if found.kind == b"list":
            return "LRANGE", found.key, 0, FIRST_ITEMS - 1
        return SCANS[found.kind], found.key, 0, "COUNT", FIRST_ITEMS

    def _whole(self, found: Found, reply: Any) -> list[bytes] | None:
        """Return the items of a value from a reply; None if items may be missing."""
        if isinstance(reply, CommandError):
            if reply.text.startswith(WRONGTYPE):  # the key's type has changed
                return None
            raise unreadable(found.key, reply)
        try:
            if found.kind == b"string":
                items, whole = [reply], 0 < len(reply) <= self._limit
            elif found.kind == b"list":
                items, whole = reply, 0 < len(reply) < FIRST_ITEMS
            else:
                cursor, items = reply
                whole = cursor == b"0" and bool(items)
            size = sum(map(len, items))
        except (TypeError, ValueError):
            raise unreadable(found.key, f"unexpected reply: {reply!r:.100}") from None
        return items if whole and size <= self._limit else None

    def _made(
        self,
        held: list[tuple[Found, list[bytes]]],
        restorer: Restorer,
        aside: Callable[[bytes], object],
    ) -> list[EntryRow]:
        """Return the rows of values; pass hashes whose fields expire to ``aside`` instead."""
        timed = self._with_times(held)
        for key in timed:
            aside(key)
        held = [each for each in held if each[0].key not in timed]
        expiries, keys = [each.expiry for each, _ in held], [each.key for each, _ in held]
        return restorer.stored_rows(stored(held, restorer.version), expiries, keys)

    def _with_times(self, held: list[tuple[Found, list[bytes]]]) -> set[bytes]:
        """Return the keys of hashes in which a field has a time to live."""
        hashes = [(each.key, items[::2]) for each, items in held if each.kind == b"hash"]
        if not (hashes and self._times_of_fields):
            return set()
        commands = [("HPEXPIRETIME", key, "FIELDS", len(fields), *fields) for key, fields in hashes]
        timed = set()
        with closing(self._replies(commands)) as replies:
            for (key, _), reply in zip(hashes, replies, strict=True):
                if isinstance(reply, CommandError):
                    self._times_of_fields = knows_times(key, reply)
                    if not self._times_of_fields:
                        break
                elif reply and max(reply) >= 0:
                    timed.add(key)
        return timed


def knows_times(key: bytes, error: CommandError) -> bool:
    """Return whether a server that refused HPEXPIRETIME knows this command.

    Raises:
        SourceError: the command was refused for another reason, such as a missing permission.
    """
    if "unknown command" in error.text.lower():
        return False
    if WRONGTYPE not in error.text:
        raise unreadable(key, error)
    return True


def stored(held: list[tuple[Found, list[bytes]]], rdb_version: int) -> list[bytes]:
    """Serialize values as an RDB file stores them: the type byte, and the bytes of the value."""
    if not held:
        return []
    serializer = Serializer(Format(rdb_version), file=True, max_bytes=MAX_BYTES)
    commands = (
        (CREATING[each.kind], NUMBERED % at, *(in_order(each.kind, items)))
        for at, (each, items) in enumerate(held)
    )
    chunks = [made for each in Writer().chunks(commands) for made in serializer.serialize(each)]
    chunks += filter(None, serializer.finish())
    if serializer.error is not None:
        key = held[getattr(serializer.error, "row", 0) or 0][0].key
        raise unreadable(key, message_of(serializer.error))
    values = []
    for chunk in chunks:
        data = bytes(chunk)
        for start, end in pairwise([0, *chunk.ends]):
            values.append(data[start : start + 1] + data[start + BEFORE_VALUE : end])
    return values


def in_order(kind: bytes, items: list[bytes]) -> Iterable[bytes]:
    """Return items in the argument order of the command that adds them: ZADD has scores first."""
    if kind != b"zset":
        return items
    return chain.from_iterable(zip(items[1::2], items[::2], strict=True))


def unreadable(key: bytes, why: str | CommandError) -> SourceError:
    text = why.text if isinstance(why, CommandError) else why
    return SourceError(Message(f"key {shown_argument(key)} can't be read: ", text))


def only_dumped(found: Found) -> SourceError:
    """Return the error for a key whose value belongs to a module."""
    kind = found.kind.decode(errors="replace")
    text = f"its type is {kind}, which only DUMP can read; copy other types with "
    return unreadable(found.key, Message(text, Hint("type", ...)))
