"""Read large values in parts, as the commands that create them; compare values."""

from __future__ import annotations

import time
from collections.abc import Iterator
from itertools import chain
from typing import Any, NamedTuple

from ...encode.payload.restorer import Restorer
from ...encode.payload.stored_values import elements, stream_nodes_end
from ...outcome.errors import CommandError, SourceError, TransportError
from ...outcome.messages import Hint, Message, message_of
from ...replies.key_pattern import PEXPIRETIME
from ...replies.large_keys import WRONGTYPE, LargeKeyReader, entries_of, next_count
from ...server.settings import Server
from ...sources.files.rdb import type_of
from .by_value import (
    CREATING,
    FIRST_ITEMS,
    LENGTHS,
    SCANS,
    Command,
    Found,
    Values,
    in_order,
    knows_times,
    only_dumped,
    unreadable,
)

__all__ = ["Digest", "Extent", "ValueReader", "different_part", "digest_of", "same_values"]

STRING_PART_BYTES = 1 << 20
NO_LIMIT = 1 << 60
MASK = (1 << 64) - 1
# The first RDB version whose streams store how many entries were added, and the first one with
# times to live of fields.
REDIS_7_0, FIELD_TTL = 10, 12
# The first items of a list are compared, to notice that items were added or removed before them.
HEAD_ITEMS = 10
# Types of stored values. Source: rdb.h of Redis and Valkey.
MODULE = 7
TIMED_HASHES = (22, 24, 25)


class Extent(NamedTuple):
    """The length of a value, compared before and after the value is read, to detect changes.

    Attributes:
        length: the length; None if it can't be read; -1 if the key now has another type.
        head: the first items of a list; empty for other types.
    """

    length: int | None
    head: list[bytes]


class ValueReader:
    """Reads values in parts, and returns the commands that create the values in a target.

    Memory is bounded: a part has about 1 MiB, or one item. If a value changes while it is read, the
    result may be a state that the value never had; ``extent()`` detects most of these changes.

    Args:
        server: the server, or a node of a cluster.
        timeout: seconds to wait for each reply; None to wait forever.
        rdb_version: the RDB version of the target.
        field_ttl: as for ``copy()``.

    Attributes:
        dropped: the number of fields whose time to live was dropped.
    """

    def __init__(
        self, server: Server, timeout: float | None, rdb_version: int, field_ttl: str
    ) -> None:
        self.dropped = 0
        self._values = Values(server, timeout, NO_LIMIT)
        # Whether the target's streams store how many entries were added.
        self._knows_entries_added = rdb_version >= REDIS_7_0
        self._keys = LargeKeyReader(server, None, timeout)
        self._version = rdb_version
        self._field_ttl = field_ttl
        self._times_of_fields = True
        self._begun = False

    def look(self, key: bytes) -> Found:
        """Return a key's expiry and type."""
        if not self._begun:
            self._keys.begin()
            self._begun = True
        try:
            if self._values.expiry() != PEXPIRETIME:
                return self._values.look([key])[0]
            return Found(key, self._ask(key, "PEXPIRETIME", key), self._ask(key, "TYPE", key))
        except (CommandError, TransportError) as error:
            raise unreadable(key, message_of(error)) from error

    def extent(self, found: Found) -> Extent:
        """Return the current extent of a value; see Extent."""
        key, kind = found.key, found.kind
        if kind not in LENGTHS:
            return Extent(None, [])
        try:
            length = self._ask(key, LENGTHS[kind], key)
            head = self._ask(key, "LRANGE", key, 0, HEAD_ITEMS - 1) if kind == b"list" else []
            return Extent(length, head)
        except CommandError as error:
            return Extent(-1 if error.text.startswith(WRONGTYPE) else None, [])
        except TransportError as error:
            raise unreadable(key, message_of(error)) from error

    def parts(self, found: Found, to: bytes) -> Iterator[list[Command]]:
        """Yield lists of commands that create a value in the key ``to``.

        Raises:
            SourceError: the value can't be read, or has a type that only DUMP can read.
        """
        key = found.key
        try:
            match found.kind:
                case b"string":
                    yield from self._string(key, to)
                case b"list":
                    yield from self._list(key, to)
                case b"stream":
                    yield from self._stream(key, to)
                case b"set" | b"zset" | b"hash":
                    yield from self._scanned(key, to, found.kind)
                case _:
                    raise only_dumped(found)
        except (CommandError, TransportError) as error:
            raise unreadable(key, message_of(error)) from error

    def _ask(self, key: bytes, *command: Any) -> Any:
        """Send a command to the node of a key; return the reply."""
        return self._keys.request(key, *command)[0]

    def _scan(self, key: bytes, name: str) -> Iterator[list[bytes]]:
        """Yield the items of a set, sorted set or hash in parts; an item may be returned twice."""
        cursor, node, count = b"0", None, FIRST_ITEMS
        while True:
            (after, items), now = self._keys.request(key, name, key, cursor, "COUNT", count)
            if cursor != b"0" and now is not node:
                cursor = b"0"  # a cursor is valid on one node only, so begin again
                continue
            yield items
            cursor, node = after, now
            if cursor == b"0":
                return
            count = max(next_count(len(items), sum(map(len, items))), 10)

    def _times(self, key: bytes, fields: list[bytes], to: bytes) -> list[Command]:
        """Return the commands that set the times to live of a hash's fields in the key ``to``."""
        if not (fields and self._times_of_fields):
            return []
        try:
            reply = self._ask(key, "HPEXPIRETIME", key, "FIELDS", len(fields), *fields)
        except CommandError as error:
            self._times_of_fields = knows_times(key, error)
            return []
        timed = [(field, at) for field, at in zip(fields, reply or (), strict=False) if at >= 0]
        if timed and self._version < FIELD_TTL:
            if self._field_ttl != "drop":
                text = "fields of the hash have a time to live, which the target does not support; "
                raise unreadable(key, Message(text, "use ", Hint("field_ttl", "drop")))
            self.dropped += len(timed)
            return []
        return [("HPEXPIREAT", to, at, "FIELDS", 1, field) for field, at in timed]

    def _string(self, key: bytes, to: bytes) -> Iterator[list[Command]]:
        at = 0
        while part := self._ask(key, "GETRANGE", key, at, at + STRING_PART_BYTES - 1):
            yield [("SETRANGE", to, at, part)]
            at += len(part)
            if len(part) < STRING_PART_BYTES:
                break
        if at == 0 and self._ask(key, "EXISTS", key):
            yield [("SET", to, "")]

    def _list(self, key: bytes, to: bytes) -> Iterator[list[Command]]:
        at, count = 0, FIRST_ITEMS
        while items := self._ask(key, "LRANGE", key, at, at + count - 1):
            yield [("RPUSH", to, *items)]
            if len(items) < count:
                return
            at += len(items)
            count = next_count(len(items), sum(map(len, items)))

    def _scanned(self, key: bytes, to: bytes, kind: bytes) -> Iterator[list[Command]]:
        for items in self._scan(key, SCANS[kind]):
            if items:
                times = []
                if kind == b"hash":
                    times = self._times(key, items[::2], to)
                yield [(CREATING[kind], to, *in_order(kind, items)), *times]

    def _stream(self, key: bytes, to: bytes) -> Iterator[list[Command]]:
        start, count, empty = b"-", FIRST_ITEMS, True
        while True:
            reply = self._ask(key, "XRANGE", key, start, "+", "COUNT", count)
            entries = entries_of(reply)
            if entries:
                empty = False
                yield [("XADD", to, entry, *fields) for entry, fields in entries]
            if len(entries) < count:
                break
            start = b"(" + entries[-1][0]
            size = sum(len(field) for _, fields in entries for field in fields)
            count = next_count(len(entries), size)
        yield from self._state(key, to, empty)

    def _state(self, key: bytes, to: bytes, empty: bool) -> Iterator[list[Command]]:
        """Yield commands for a stream's last ID and groups, as the server writes them to an AOF."""
        if empty and not self._ask(key, "EXISTS", key):
            return
        info = named(self._ask(key, "XINFO", "STREAM", key))
        last = info["last-generated-id"]
        state: list[Command] = []
        if empty:
            at = b"0-1" if last == b"0-0" else last
            state.append(("XADD", to, "MAXLEN", 0, at, "x", "y"))
        more: tuple[Any, ...] = ()
        if self._knows_entries_added and "entries-added" in info:
            deleted = info["max-deleted-entry-id"]
            more = ("ENTRIESADDED", info["entries-added"], "MAXDELETEDID", deleted)
        yield [*state, ("XSETID", to, last, *more)]
        for group in map(named, self._ask(key, "XINFO", "GROUPS", key)):
            yield from self._group(key, to, group)

    def _group(self, key: bytes, to: bytes, group: dict[str, Any]) -> Iterator[list[Command]]:
        name, read = group["name"], group.get("entries-read")
        known = self._knows_entries_added and read is not None
        last = group["last-delivered-id"]
        more = ("ENTRIESREAD", read) if known else ()
        consumers = map(named, self._ask(key, "XINFO", "CONSUMERS", key, name))
        yield [
            ("XGROUP", "CREATE", to, name, last, *more),
            *(("XGROUP", "CREATECONSUMER", to, name, each["name"]) for each in consumers),
        ]
        start = b"-"
        while True:
            seconds, rest = self._ask(key, "TIME")
            now = int(seconds) * 1000 + int(rest) // 1000
            pending = self._ask(key, "XPENDING", key, name, start, "+", FIRST_ITEMS)
            yield [
                (
                    "XCLAIM", to, name, consumer, 0, entry,
                    "TIME", now - idle, "RETRYCOUNT", count, "FORCE", "JUSTID",
                )
                for entry, consumer, idle, count in pending
            ]  # fmt: skip
            if len(pending) < FIRST_ITEMS:
                return
            start = b"(" + pending[-1][0]

    def close(self) -> None:
        """Close the connections."""
        self._keys.close()


def named(items: Any) -> dict[str, Any]:
    """Return a flat reply of XINFO as a dict."""
    return {key.decode(): value for key, value in zip(items[::2], items[1::2], strict=True)}


class Digest:
    """A hash of the commands that create a value; the order of unordered items does not count.

    Attributes:
        value: the hash of the commands so far.
    """

    def __init__(self) -> None:
        self.value = 0

    def add(self, command: Command) -> None:
        """Add a command, without its key and without arguments that some servers can't set."""
        value = self.value
        match command:
            case "RPUSH", _, *items:
                for item in items:
                    value = hash((value, item))
            case "SETRANGE" | "XADD", _, *words:
                value = hash((value, *words))
            case "XSETID", _, last, *_:
                value = hash((value, last))
            case "SADD", _, *items:
                value += sum(map(hash, items))
            case "ZADD", _, *items:
                pairs = zip(map(float, items[::2]), items[1::2], strict=True)
                value += sum(map(hash, pairs))
            case "HSET", _, *items:
                value += sum(map(hash, zip(items[::2], items[1::2], strict=True)))
            case "XCLAIM", _, group, consumer, _, entry, *_:
                value += hash((group, consumer, entry))
            case "XGROUP", verb, _, *names:
                value += hash((verb, *names[:2]))
            case _, _, *words:
                value += hash(tuple(words))
        self.value = value & MASK


def digest_of(parts: Iterator[list[Command]]) -> int:
    """Return the digest of a value from its parts; see ``ValueReader.parts()``."""
    digest = Digest()
    for command in chain.from_iterable(parts):
        digest.add(command)
    return digest.value


def same_values(source: ValueReader, target: ValueReader, found: Found, to: bytes) -> bool:
    """Return whether a key of the target has the value and the expiry of a key of the source."""
    other = target.look(to)
    if other.kind != found.kind or max(other.expiry, 0) != max(found.expiry, 0):
        return False
    return digest_of(source.parts(found, b"")) == digest_of(target.parts(other, b""))


class Part(NamedTuple):
    """A part of a value that differs; the fields are as in Difference."""

    name: bytes | int | None
    kind: str
    wanted: bytes | int | None
    found: bytes | int | None


def different_part(source: bytes, target: bytes) -> Part | None:
    """Return the first part that differs between two values; None if they are equal.

    Args:
        source, target: the type byte and the bytes of each value.
    """
    types = type_of(source[0]), type_of(target[0])
    if types[0] != types[1]:
        return Part(None, "type", None, types[1].encode())
    other = Part(None, "value", None, None)
    if source[0] == MODULE:
        return other
    try:
        if types[0] == "stream":
            return None if stream_parts(source, target) == stream_parts(target, source) else other
        before, after = parts(source), parts(target)
    except SourceError:
        return other
    for name in before | after:
        wanted, found = before.get(name), after.get(name)
        if wanted is None or found is None:
            kind = "missing" if found is None else "extra"
            return Part(name, kind, *(each[0] if each else None for each in (wanted, found)))
        if wanted[0] != found[0]:
            return Part(name, "value", wanted[0], found[0])
        if wanted != found:
            return Part(name, "ttl", *(int(each[1]) for each in (wanted, found)))
    return None


def parts(value: bytes) -> dict[Any, tuple[bytes, ...]]:
    """Return the parts of a value by their names: fields, members, or indexes in a list."""
    items = elements(value[0], value[1:])
    pairs = zip(items[::2], items[1::2], strict=True)
    match type_of(value[0]):
        case "hash" if value[0] in TIMED_HASHES:
            now = time.time() * 1000
            fields = zip(items[::3], items[1::3], items[2::3], strict=True)
            return {name: (text, at) for name, text, at in fields if not 0 <= int(at) <= now}
        case "hash":
            return {name: (text, b"-1") for name, text in pairs}
        case "zset":
            return {name: (repr(float(score)).encode(),) for name, score in pairs}
        case "set":
            return {name: (name,) for name in items}
        case "string":
            return {None: (items[0],)}
    return {index: (item,) for index, item in enumerate(items)}


def stream_parts(value: bytes, other: bytes) -> tuple[list[bytes], bytes]:
    """Return the entries of a stream, and the bytes after them.

    If ``other`` has another RDB type, the stream is first converted to the oldest type, which lacks
    the metadata of later types.
    """
    kind, data = value[0], value[1:]
    if kind != other[0]:
        # 9 is the RDB version of Redis 6.2; every stream can be converted to it.
        oldest = Restorer(9, valkey=False, source_valkey=False)
        converted = oldest.to_target(kind, data)
        assert converted is not None
        kind, data = converted
    return elements(kind, data), data[stream_nodes_end(kind, data) :]
