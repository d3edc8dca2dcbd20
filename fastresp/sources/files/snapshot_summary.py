"""Summarise an RDB file: its keys and bytes by type, prefix and expiry, and its largest keys."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from heapq import heappush, heapreplace
from typing import Any, NamedTuple

from ...outcome.errors import SourceError
from .checks import PACKED_BEGINNINGS
from .input import Input, StopEvent, name_of
from .rdb import KeyBatch, RdbReader, type_of
from .table import import_optional

__all__ = ["LargeKey", "SnapshotSummary", "Tally", "opened", "summarise"]

LARGEST_KEYS = 20
# Keys with further prefixes count as OTHERS.
MAX_PREFIXES = 10_000
OTHERS, NO_PREFIX = "(others)", "(no prefix)"
HOUR_MS = 3_600_000
# When keys expire, in milliseconds after the snapshot.
EXPIRIES = {
    "expired": 0,
    "within an hour": HOUR_MS,
    "within a day": 24 * HOUR_MS,
    "within a week": 7 * 24 * HOUR_MS,
    "within 30 days": 30 * 24 * HOUR_MS,
}
LIMITS_MS = tuple(EXPIRIES.values())
EXPIRY_NAMES = (*EXPIRIES, "later", "never")


@dataclass
class Tally:
    """The number of keys, and the number of bytes of these keys and their values in the file."""

    keys: int = 0
    bytes: int = 0

    def add(self, size: int, keys: int = 1) -> None:
        self.keys += keys
        self.bytes += size


class LargeKey(NamedTuple):
    """One of the largest keys; ``size`` is the number of bytes of the key and its value."""

    size: int
    key: bytes
    type: str
    database: int


@dataclass
class SnapshotSummary:
    """The contents of an RDB file.

    Attributes:
        file: the path.
        version: the RDB version.
        server: the server that wrote the file; empty if unknown.
        created: when the snapshot was made; None if unknown.
        total: all keys that match.
        types, databases, prefixes, expiries: a Tally for each type, database, prefix, and range of
            times to live.
        largest: the largest keys, the largest first.
        functions: the number of function libraries.
        unmatched: the number of keys that do not match the pattern.
        fault: why the file can't be read to its end; None if it is whole.
    """

    file: str
    version: int = 0
    server: str = ""
    created: datetime | None = None
    total: Tally = field(default_factory=Tally)
    types: dict[str, Tally] = field(default_factory=lambda: defaultdict(Tally))
    databases: dict[str, Tally] = field(default_factory=lambda: defaultdict(Tally))
    prefixes: dict[str, Tally] = field(default_factory=lambda: defaultdict(Tally))
    expiries: dict[str, Tally] = field(default_factory=lambda: {n: Tally() for n in EXPIRY_NAMES})
    largest: list[LargeKey] = field(default_factory=list)
    functions: int = 0
    unmatched: int = 0
    fault: SourceError | None = None


@contextmanager
def opened(source: Any) -> Iterator[Input]:
    """Open a path or a file object, which may be compressed, to read its bytes."""
    file = Input(source, StopEvent())
    try:
        packed = any(magic.match(file.peek()) for magic in PACKED_BEGINNINGS.values())
        yield import_optional("pyarrow", ".formats").decompressed(file) if packed else file
    finally:
        file.close()


def summarise(source: Any, *, match: str | None = None, depth: int = 1) -> SnapshotSummary:
    """Read an RDB file to its end or to the first damage, and summarise it.

    Args:
        source: a path, or a file object open for reading bytes.
        match: a pattern of the keys to count, as for SCAN; None for all keys.
        depth: the number of parts, each with its ``:``, in the prefix of a key.

    Raises:
        OSError: the file can't be opened.
        SourceError: the file is not an RDB file.
    """
    summary = SnapshotSummary(name_of(source))
    with opened(source) as data:
        reader = RdbReader(data.read, name=summary.file, match=match)
        try:
            while (batch := reader.batch(values=False)) is not None:
                _describe(summary, reader)
                _count(summary, batch, depth)
        except SourceError as error:
            summary.fault = error
        _describe(summary, reader)
    summary.largest.sort(reverse=True)
    return summary


def _describe(summary: SnapshotSummary, reader: RdbReader) -> None:
    """Store the file's version, server, time of creation, and number of functions."""
    aux = reader.aux
    summary.version = reader.version
    for product, name in (("Valkey", b"valkey-ver"), ("Redis", b"redis-ver")):
        if name in aux and not summary.server:
            summary.server = f"{product} {aux[name].decode(errors='replace')}"
    created = aux.get(b"ctime", b"")
    if created.isdigit() and len(created) < 12:
        summary.created = datetime.fromtimestamp(int(created), UTC)
    summary.functions = len(reader.functions)
    summary.unmatched = reader.unmatched


def _count(summary: SnapshotSummary, batch: KeyBatch, depth: int) -> None:
    created = summary.created or datetime.now(UTC)
    now_ms = round(created.timestamp() * 1000)
    types: dict[int, Tally] = defaultdict(Tally)
    total = Tally()
    largest, prefixes = summary.largest, summary.prefixes
    least = largest[0].size if len(largest) == LARGEST_KEYS else -1
    for key, expires, kind, value in zip(
        batch.keys, batch.expires, batch.types, batch.sizes, strict=True
    ):
        size = len(key) + value
        total.add(size)
        types[kind].add(size)
        if size > least:
            found = LargeKey(size, key, type_of(kind), batch.database)
            (heappush if len(largest) < LARGEST_KEYS else heapreplace)(largest, found)
            least = largest[0].size if len(largest) == LARGEST_KEYS else -1
        *parts, _ = key.split(b":", depth)
        prefix = b":".join(parts).decode(errors="backslashreplace") + ":" if parts else NO_PREFIX
        if len(prefixes) >= MAX_PREFIXES and prefix not in prefixes:
            prefix = OTHERS
        prefixes[prefix].add(size)
        name = -1 if expires < 0 else bisect_right(LIMITS_MS, expires - now_ms)
        summary.expiries[EXPIRY_NAMES[name]].add(size)
    for kind, tally in types.items():
        summary.types[type_of(kind)].add(tally.bytes, tally.keys)
    summary.databases[str(batch.database)].add(total.bytes, total.keys)
    summary.total.add(total.bytes, total.keys)
