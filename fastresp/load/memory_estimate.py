"""Estimate from a sample of commands how much server memory a load will need.

The sizes are from Redis 7.0 on a 64-bit machine: a dictEntry of 24 bytes, a robj of 16, sds headers
of 1 to 9, listpack entries as in listpack.c, all rounded up to jemalloc's size classes with its
usual quantum of 16. With 100,000 commands on Redis 7.0, the estimate was 0.91 to 1.00 of the
measured memory. Valkey 8 stores keys next to their values and needs up to a third less.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from ..resp.commands import ZADD_OPTIONS, commands_with

__all__ = ["LIMITS", "Estimate", "Model", "growth", "size_class"]

DICT_ENTRY = 24
ROBJ = 16
DICT = 56
QUICKLIST = 40
QUICKLIST_NODE = 32
LISTPACK = 7
ZSKIPLIST = 32 + 536 + 16  # including its first node, of 32 levels, and the zset itself
# 24 bytes, and 16 for each level; a node has 1.33 levels on average.
ZSKIPLIST_NODE = 24 + 16 * 4 // 3
EMBSTR_BYTES = 44
# The limits of the compact encodings, with the defaults of redis.conf.
LIMITS = {
    "hash-max-listpack-entries": 128,
    "hash-max-listpack-value": 64,
    "list-max-listpack-size": -2,
    "set-max-intset-entries": 512,
    "set-max-listpack-entries": 0,  # 0: before Redis 7.2
    "set-max-listpack-value": 64,
    "zset-max-listpack-entries": 128,
    "zset-max-listpack-value": 64,
}
# Node sizes in bytes for a list-max-listpack-size from -1 to -5.
NODE_BYTES = {-1: 4096, -2: 8192, -3: 16384, -4: 32768, -5: 65536}
INTEGER = re.compile(rb"-?[1-9][0-9]{0,18}|0")


def size_class(size: float) -> int:
    """Round up to jemalloc's size classes: four per doubling, at least 16 bytes apart."""
    whole = math.ceil(size)
    if whole <= 8:
        return 8
    step = max(16, 1 << max(0, (whole - 1).bit_length() - 3))
    return -(-whole // step) * step


def sds_size(size: int) -> int:
    """Return the memory of an sds with ``size`` bytes of text, a header and a final NUL."""
    header = 1 if size < 32 else 3 if size < 256 else 5 if size < 65536 else 9
    return size_class(header + size + 1)


def string_size(value: bytes) -> int:
    """Return the memory of a string value: the robj, and the sds unless the robj contains it."""
    if INTEGER.fullmatch(value):
        return ROBJ
    if len(value) <= EMBSTR_BYTES:
        return size_class(ROBJ + 4 + len(value))
    return ROBJ + sds_size(len(value))


def entry_size(value: bytes) -> int:
    """Return the number of bytes of an element in a listpack."""
    if INTEGER.fullmatch(value):
        number = int(value)
        for bits, size in ((12, 2), (15, 3), (23, 4), (31, 5)):
            if -(1 << bits) <= number < 1 << bits:
                return (1 if 0 <= number < 128 else size) + 1
        return 10
    header = 1 if len(value) < 64 else 2 if len(value) < 4096 else 5
    size = header + len(value)
    return size + (1 if size < 128 else 2 if size < 16384 else 3)


def table_size(entries: float) -> int:
    """Return the memory of a dict's table: 8 bytes for each of 2**N slots."""
    return 8 * max(4, 1 << math.ceil(math.log2(max(entries, 1))))


@dataclass
class Value:
    """The elements of one key, as totals that can be scaled.

    Attributes:
        kind: the key's type, as TYPE returns it.
        count: number of elements.
        packed: number of bytes of all elements as listpack entries.
        loose: number of bytes of all elements as separate strings.
        largest: number of bytes of the largest string.
        integers: whether all strings are integers.
    """

    kind: str
    count: int = 0
    packed: int = 0
    loose: int = 0
    largest: int = 0
    integers: bool = True

    def add(self, *parts: bytes) -> None:
        """Add an element of one or two strings."""
        self.count += 1
        for part in parts:
            self.packed += entry_size(part)
            self.loose += sds_size(len(part))
            self.largest = max(self.largest, len(part))
            self.integers = self.integers and INTEGER.fullmatch(part) is not None

    def size(self, times: float, limits: Mapping[str, int]) -> float:
        """Return the memory of this value if it had ``times`` times as many elements."""
        return ROBJ + SIZES[self.kind](self, times, limits)


def _compact(value: Value, times: float, limits: Mapping[str, int]) -> bool:
    entries = limits[f"{value.kind}-max-listpack-entries"]
    most = limits[f"{value.kind}-max-listpack-value"]
    return value.count * times <= entries and value.largest <= most


def _hash_size(value: Value, times: float, limits: Mapping[str, int]) -> float:
    if _compact(value, times, limits):
        return size_class(LISTPACK + value.packed * times)
    count = value.count * times
    return DICT + table_size(count) + size_class(DICT_ENTRY) * count + value.loose * times


def _set_size(value: Value, times: float, limits: Mapping[str, int]) -> float:
    count = value.count * times
    if value.integers and count <= limits["set-max-intset-entries"]:
        return size_class(8 + 4 * count)
    return _hash_size(value, times, limits)


def _zset_size(value: Value, times: float, limits: Mapping[str, int]) -> float:
    if _compact(value, times, limits):
        return size_class(LISTPACK + value.packed * times)
    count = value.count * times
    # A skiplist node stores the score as a number; only listpacks store scores as text.
    each = size_class(DICT_ENTRY) + size_class(ZSKIPLIST_NODE)
    return DICT + ZSKIPLIST + table_size(count) + each * count + value.loose * times


def _list_size(value: Value, times: float, limits: Mapping[str, int]) -> float:
    most = limits["list-max-listpack-size"]
    total = value.packed * times
    average = value.packed / max(value.count, 1)
    node = NODE_BYTES.get(most, 8192) if most < 0 else most * average
    # Since Redis 7.2, a list that fits in one node is a plain listpack. Redis 7.2 also added the
    # limit for sets, which is 0 for earlier versions.
    if limits["set-max-listpack-entries"] and total <= node:
        return size_class(LISTPACK + total)
    # A node ends with the last element that fits.
    full = max(average, node // average * average if average < node else average)
    nodes, rest = divmod(total, full)
    last = QUICKLIST_NODE + size_class(LISTPACK + rest) if rest >= 1 else 0
    return size_class(QUICKLIST) + nodes * (QUICKLIST_NODE + size_class(LISTPACK + full)) + last


SIZES: dict[str, Callable[[Value, float, Mapping[str, int]], float]] = {
    "hash": _hash_size,
    "list": _list_size,
    "set": _set_size,
    "zset": _zset_size,
    "string": lambda value, times, limits: value.loose - ROBJ,
}


@dataclass(frozen=True)
class Estimate:
    """The memory that a load will use on an empty server.

    Attributes:
        keys: number of keys.
        memory: number of bytes.
        unknown: names of commands without a formula, which ``memory`` does not include.
    """

    keys: int
    memory: int
    unknown: tuple[str, ...]


@dataclass
class Model:
    """Estimates the memory of a load from the keys that a sample of its commands creates.

    Attributes:
        limits: limits of the compact encodings: see LIMITS.
    """

    limits: Mapping[str, int] = field(default_factory=lambda: LIMITS)

    def __post_init__(self) -> None:
        self._values: dict[bytes, Value] = {}
        self._elements: set[tuple[bytes, bytes]] = set()
        self._expiring: set[bytes] = set()
        self._unknown: dict[str, None] = {}
        self._count = 0  # number of all elements, including list elements

    def run(self, commands: Sequence[Sequence[bytes]], times: float) -> Estimate:
        """Estimate the memory of a load from a sample of its commands.

        The share of new keys and elements in the second half of the sample predicts their share in
        the rest of the load. That share is 0 if the same keys repeat.

        Args:
            commands: the sample.
            times: commands of the load / commands of the sample.
        """
        middle = len(commands) // 2
        self._take(commands[:middle])
        keys, elements = len(self._values), self._count
        self._take(commands[middle:])
        more = (times - 1) * len(commands) / max(len(commands) - middle, 1)
        key_growth = growth(keys, len(self._values), more)
        element_growth = growth(elements, self._count, more)
        each = element_growth / key_growth
        total_keys = len(self._values) * key_growth
        memory = sum(value.size(each, self.limits) for value in self._values.values())
        memory += sum(sds_size(len(key)) + size_class(DICT_ENTRY) for key in self._values)
        memory += sum(size_class(DICT_ENTRY) for _ in self._expiring)
        memory = memory * key_growth + (table_size(total_keys) if total_keys else 0)
        if self._expiring:
            memory += table_size(len(self._expiring) * key_growth)
        return Estimate(round(total_keys), round(memory), tuple(self._unknown))

    def _take(self, commands: Iterable[Sequence[bytes]]) -> None:
        for name, *arguments in commands:
            word = name.upper().decode(errors="replace")
            take = TAKES.get(word)
            if take is not None and arguments:
                take(self, arguments)
            elif word not in NO_MEMORY:
                self._unknown[word] = None

    def _value(self, key: bytes, kind: str) -> Value:
        value = self._values.get(key)
        if value is None or value.kind != kind:
            value = self._values[key] = Value(kind)
        return value

    def _string(self, key: bytes, content: bytes, expires: bool = False) -> None:
        value = self._value(key, "string")
        self._count += value.count == 0
        value.count, value.loose = 1, string_size(content)
        if expires:
            self._expiring.add(key)

    def _add(self, key: bytes, kind: str, *parts: bytes) -> None:
        """Add an element to a hash, set or zset, unless the element exists."""
        value = self._value(key, kind)
        if (key, parts[0]) not in self._elements:
            self._elements.add((key, parts[0]))
            self._count += 1
            value.add(*parts)

    def take_set(self, arguments: Sequence[bytes]) -> None:
        key, *values = arguments
        if values:
            expires = any(word.upper() in (b"EX", b"PX", b"EXAT", b"PXAT") for word in values[1:])
            self._string(key, values[0], expires)

    def take_setex(self, arguments: Sequence[bytes]) -> None:
        self._string(arguments[0], arguments[-1], True)

    def take_mset(self, arguments: Sequence[bytes]) -> None:
        for key, value in zip(arguments[::2], arguments[1::2], strict=False):
            self._string(key, value)

    def take_counter(self, arguments: Sequence[bytes]) -> None:
        self._string(arguments[0], b"1")

    def take_hash(self, arguments: Sequence[bytes]) -> None:
        key, *pairs = arguments
        for name, value in zip(pairs[::2], pairs[1::2], strict=False):
            self._add(key, "hash", name, value)

    def take_list(self, arguments: Sequence[bytes]) -> None:
        key, *elements = arguments
        value = self._value(key, "list")
        self._count += len(elements)
        for element in elements:
            value.add(element)

    def take_set_members(self, arguments: Sequence[bytes]) -> None:
        key, *members = arguments
        for member in members:
            self._add(key, "set", member)

    def take_zset(self, arguments: Sequence[bytes]) -> None:
        key, *words = arguments
        while words and words[0].upper() in ZADD_OPTIONS:
            words = words[1:]
        for score, member in zip(words[::2], words[1::2], strict=False):
            value = self._value(key, "zset")
            before = value.count
            self._add(key, "zset", member)
            if value.count > before:
                value.packed += entry_size(score)

    def take_expire(self, arguments: Sequence[bytes]) -> None:
        if arguments[0] in self._values:
            self._expiring.add(arguments[0])


def growth(half: int, whole: int, more: float) -> float:
    """Return (number of items in the load) / (number of items in the sample).

    Assumes that new items stay as frequent as in the second half of the sample.

    Args:
        half: number of items in the first half of the sample.
        whole: number of items in the sample.
        more: commands after the sample / commands in the second half of the sample.
    """
    return 1 + (whole - half) * more / whole if whole else 1.0


TAKES: dict[str, Callable[[Model, Sequence[bytes]], None]] = {
    **dict.fromkeys(("SET", "SETNX", "GETSET", "APPEND"), Model.take_set),
    **dict.fromkeys(("SETEX", "PSETEX"), Model.take_setex),
    **dict.fromkeys(("MSET", "MSETNX"), Model.take_mset),
    **dict.fromkeys(("INCR", "DECR", "INCRBY", "DECRBY"), Model.take_counter),
    **dict.fromkeys(("HSET", "HMSET", "HSETNX"), Model.take_hash),
    **dict.fromkeys(("LPUSH", "RPUSH"), Model.take_list),
    "SADD": Model.take_set_members,
    "ZADD": Model.take_zset,
    **dict.fromkeys(("EXPIRE", "PEXPIRE", "EXPIREAT", "PEXPIREAT"), Model.take_expire),
}
# Commands that add no memory worth counting.
NO_MEMORY = commands_with("read", "remove", "flush", "multi", "end", "connection") | {
    "DEL", "UNLINK", "GETDEL", "LREM", "LTRIM", "LPOP", "RPOP", "SPOP", "PERSIST", "TOUCH",
    "PUBLISH",
}  # fmt: skip
