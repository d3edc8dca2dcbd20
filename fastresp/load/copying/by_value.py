"""Read values with the commands of their types: without DUMP, or in parts if they are large."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import closing
from itertools import chain, pairwise
from typing import Any, NamedTuple, TypeAlias

from ...encode.payload.format import Format, checksum
from ...encode.payload.restorer import Restorer
from ...encode.payload.serializer import Serializer
from ...encode.writer import Writer
from ...outcome.errors import CommandError, SourceError, TransportError
from ...outcome.messages import Hint, Message, message_of, shown_argument
from ...replies.iter_replies import iter_replies
from ...replies.key_pattern import PEXPIRETIME, expiry_command
from ...replies.large_keys import WRONGTYPE, LargeKeyReader, entries_of, next_count
from ...server.settings import Server
from ...sources.entries import PART_BYTES, EntryRow

__all__ = [
    "Command",
    "Digest",
    "Extent",
    "Found",
    "LENGTHS",
    "ValueReader",
    "Values",
    "digest_of",
    "only_dumped",
    "why_by_value",
]

# The number of items in the first request for a value; a value with more is read in parts.
FIRST_ITEMS = 1_000
STRING_PART_BYTES = 1 << 20
FOOTER_BYTES = 10
CHECKSUM_BYTES = 8
NO_LIMIT = 1 << 60
# No batch of values is larger; the serializer multiplies this number, so it is below 2**63.
MAX_BYTES = 1 << 40
MASK = (1 << 64) - 1
# The first RDB version whose streams store how many entries were added, and the first one with
# times to live of fields.
REDIS_7_0, FIELD_TTL = 10, 12
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
# The first items of a list are compared, to notice that items were added or removed before them.
HEAD_ITEMS = 10
# Estimated bytes of an item, if only the number of items is known.
ITEM_BYTES = 64

Command: TypeAlias = tuple[Any, ...]


def why_by_value(reply: Any) -> str:
    """Return why a reply to DUMP means that values must be read without DUMP; empty to use DUMP.

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


class Extent(NamedTuple):
    """The length of a value, to notice changes while it is read.

    Attributes:
        length: the length; None if the server refuses the command for it.
        head: the first items of a list; empty for other types.
    """

    length: int | None
    head: list[bytes]


class Values:
    """Reads types, expiries, and small values as a whole.

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
        replies = iter_replies(
            keys, [self.expiry(), "TYPE {0}"], server=self._server, timeout=self._timeout
        )
        with closing(replies):  # type: ignore[type-var]
            found = zip(keys, replies, replies, strict=True)
            return [Found(key, int(expiry), bytes(kind)) for key, expiry, kind in found]

    def large(self, keys: list[bytes]) -> set[bytes]:
        """Return the keys with many bytes or items, for servers that refuse MEMORY USAGE."""
        found = [each for each in self.look(keys) if each.kind in LENGTHS]
        commands = [(LENGTHS[each.kind], each.key) for each in found]
        replies = iter_replies(
            commands, server=self._server, on_error="collect", timeout=self._timeout
        )
        return {
            each.key
            for each, length in zip(found, replies, strict=True)
            if isinstance(length, int)
            and length * (1 if each.kind == b"string" else ITEM_BYTES) > self._limit
        }

    def rows(
        self, keys: list[bytes], restorer: Restorer, aside: Callable[[bytes], object]
    ) -> Generator[list[EntryRow], None, None]:
        """Yield lists of rows, in the order of the keys; pass all other keys to ``aside``.

        Other keys have no row: streams, hashes whose fields expire, and values that are too large
        for one reply.
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
        replies = iter_replies(
            [self._first_look(each) for each in readable],
            server=self._server, on_error="collect", timeout=self._timeout,
        )  # fmt: skip
        with closing(replies):  # type: ignore[type-var]
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
                (cursor, items), whole = reply, True
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
        if timed:
            held = [each for each in held if each[0].key not in timed]
        values = stored(held, restorer.version)
        found = [each for each, _ in held]
        return restorer.stored_rows(
            values, [each.expiry for each in found], [each.key for each in found]
        )

    def _with_times(self, held: list[tuple[Found, list[bytes]]]) -> set[bytes]:
        """Return the keys of hashes in which a field has a time to live."""
        hashes = [(each.key, items[::2]) for each, items in held if each.kind == b"hash"]
        if not (hashes and self._times_of_fields):
            return set()
        commands = [("HPEXPIRETIME", key, "FIELDS", len(fields), *fields) for key, fields in hashes]
        timed = set()
        replies = iter_replies(
            commands, server=self._server, on_error="collect", timeout=self._timeout
        )
        with closing(replies):  # type: ignore[type-var]
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
        SourceError: it does, and the user lacks permission.
    """
    if "unknown command" in error.text.lower():
        return False
    if WRONGTYPE not in error.text:
        raise unreadable(key, error)
    return True


def stored(held: list[tuple[Found, list[bytes]]], rdb_version: int) -> list[bytes]:
    """Serialize values as an RDB file stores them: the type byte, and the bytes of the value.

    Raises:
        SourceError: an item is invalid, such as a score that is not a number.
    """
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
    """Return items in the order of the command that creates a value; ZADD has scores first."""
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
            return Found(key, self.ask(key, "PEXPIRETIME", key), self.ask(key, "TYPE", key))
        except (CommandError, TransportError) as error:
            raise unreadable(key, message_of(error)) from error

    def extent(self, found: Found) -> Extent:
        """Return the extent of a value, to compare its extents before and after it is read."""
        key, kind = found.key, found.kind
        if kind not in LENGTHS:
            return Extent(None, [])
        try:
            length = self.ask(key, LENGTHS[kind], key)
            head = self.ask(key, "LRANGE", key, 0, HEAD_ITEMS - 1) if kind == b"list" else []
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
        reading = PartReader(self, found.key, to)
        try:
            match found.kind:
                case b"string":
                    yield from reading.string()
                case b"list":
                    yield from reading.items()
                case b"stream":
                    yield from reading.stream()
                case b"set" | b"zset" | b"hash":
                    yield from reading.scanned(found.kind)
                case _:
                    raise only_dumped(found)
        except (CommandError, TransportError) as error:
            raise unreadable(found.key, message_of(error)) from error

    def ask(self, key: bytes, *command: Any) -> Any:
        """Send a command to the node of a key; return the reply."""
        return self._keys.request(key, *command)[0]

    def scan(self, key: bytes, name: str) -> Iterator[list[bytes]]:
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

    def times(self, key: bytes, fields: list[bytes], to: bytes) -> list[Command]:
        """Return the commands that set the times to live of a hash's fields in the key ``to``."""
        if not (fields and self._times_of_fields):
            return []
        try:
            reply = self.ask(key, "HPEXPIRETIME", key, "FIELDS", len(fields), *fields)
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

    @property
    def knows_entries_added(self) -> bool:
        return self._version >= REDIS_7_0

    def close(self) -> None:
        """Close the connections."""
        self._keys.close()


class PartReader:
    """Reads one value: each method yields lists of commands that create the value in ``to``."""

    def __init__(self, reader: ValueReader, key: bytes, to: bytes) -> None:
        self._reader = reader
        self._key = key
        self._to = to

    def _ask(self, *command: Any) -> Any:
        return self._reader.ask(self._key, *command)

    def string(self) -> Iterator[list[Command]]:
        at = 0
        while part := self._ask("GETRANGE", self._key, at, at + STRING_PART_BYTES - 1):
            yield [("SETRANGE", self._to, at, part)]
            at += len(part)
            if len(part) < STRING_PART_BYTES:
                break
        if at == 0 and self._ask("EXISTS", self._key):
            yield [("SET", self._to, "")]

    def items(self) -> Iterator[list[Command]]:
        at, count = 0, FIRST_ITEMS
        while items := self._ask("LRANGE", self._key, at, at + count - 1):
            yield [("RPUSH", self._to, *items)]
            if len(items) < count:
                return
            at += len(items)
            count = next_count(len(items), sum(map(len, items)))

    def scanned(self, kind: bytes) -> Iterator[list[Command]]:
        for items in self._reader.scan(self._key, SCANS[kind]):
            if items:
                times = []
                if kind == b"hash":
                    times = self._reader.times(self._key, items[::2], self._to)
                yield [(CREATING[kind], self._to, *in_order(kind, items)), *times]

    def stream(self) -> Iterator[list[Command]]:
        start, count, empty = b"-", FIRST_ITEMS, True
        while True:
            reply = self._ask("XRANGE", self._key, start, "+", "COUNT", count)
            entries = entries_of(reply)
            if entries:
                empty = False
                yield [("XADD", self._to, entry, *fields) for entry, fields in entries]
            if len(entries) < count:
                break
            start = b"(" + entries[-1][0]
            size = sum(len(field) for _, fields in entries for field in fields)
            count = next_count(len(entries), size)
        yield from self._state(empty)

    def _state(self, empty: bool) -> Iterator[list[Command]]:
        """Yield commands for a stream's last ID and groups, as the server writes them to an AOF."""
        if empty and not self._ask("EXISTS", self._key):
            return
        info = named(self._ask("XINFO", "STREAM", self._key))
        last = info["last-generated-id"]
        state: list[Command] = []
        if empty:
            at = b"0-1" if last == b"0-0" else last
            state.append(("XADD", self._to, "MAXLEN", 0, at, "x", "y"))
        more: tuple[Any, ...] = ()
        if self._reader.knows_entries_added and "entries-added" in info:
            deleted = info["max-deleted-entry-id"]
            more = ("ENTRIESADDED", info["entries-added"], "MAXDELETEDID", deleted)
        yield [*state, ("XSETID", self._to, last, *more)]
        for group in map(named, self._ask("XINFO", "GROUPS", self._key)):
            yield from self._group(group)

    def _group(self, group: dict[str, Any]) -> Iterator[list[Command]]:
        name, read = group["name"], group.get("entries-read")
        known = self._reader.knows_entries_added and read is not None
        last = group["last-delivered-id"]
        more = ("ENTRIESREAD", read) if known else ()
        consumers = map(named, self._ask("XINFO", "CONSUMERS", self._key, name))
        yield [
            ("XGROUP", "CREATE", self._to, name, last, *more),
            *(("XGROUP", "CREATECONSUMER", self._to, name, each["name"]) for each in consumers),
        ]
        start = b"-"
        while True:
            seconds, rest = self._ask("TIME")
            now = int(seconds) * 1000 + int(rest) // 1000
            pending = self._ask("XPENDING", self._key, name, start, "+", FIRST_ITEMS)
            yield [
                (
                    "XCLAIM", self._to, name, consumer, 0, entry,
                    "TIME", now - idle, "RETRYCOUNT", count, "FORCE", "JUSTID",
                )
                for entry, consumer, idle, count in pending
            ]  # fmt: skip
            if len(pending) < FIRST_ITEMS:
                return
            start = b"(" + pending[-1][0]


def named(items: Any) -> dict[str, Any]:
    """Return a flat reply of XINFO as a dict."""
    return {key.decode(): value for key, value in zip(items[::2], items[1::2], strict=True)}


class Digest:
    """A hash of a value, from the commands that create it, in any order for unordered values.

    Attributes:
        value: the hash of the commands so far.
    """

    def __init__(self) -> None:
        self.value = 0

    def add(self, command: Command) -> None:
        """Add a command, without its key and without what some servers can't set."""
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
