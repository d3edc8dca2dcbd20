"""RDB files as columns: the values of one type, and parts of their keys; or as a summary."""

from __future__ import annotations

import logging
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from heapq import heappush, heapreplace
from typing import TYPE_CHECKING, Any, NamedTuple

from ...encode.key_columns import (
    MAX_FIELDS,
    VALUE_COLUMNS,
    as_target,
    binary_columns,
    check_names,
    choose_fields,
    column_names,
)
from ...outcome.errors import SourceError
from ...outcome.messages import Hint, Message
from ...outcome.report import counted
from .input import Input, StopEvent, name_of
from .rdb import KeyBatch, RdbReader, type_of
from .rdb_columns import RdbColumns, field_names
from .reading import PACKED_BEGINNINGS, Batches, Reading, import_optional

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["LargeKey", "SnapshotSummary", "Tally", "open_rdb", "opened", "summarise"]

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


def open_rdb(
    data: Input, reading: Reading, again: Callable[[], AbstractContextManager[Input]] | None
) -> Batches:
    """Open an RDB file: the values of one type as columns.

    Args:
        again: opens the file again, to find the names of fields; None if it can be read only once.

    Raises:
        SourceError: the file is damaged, or has no such values, so the fields are unknown.
    """
    import pyarrow as pa

    snapshot = Snapshot(reading)
    fields = snapshot.fields(again)
    names = [snapshot.target.column, *VALUE_COLUMNS[snapshot.kind], *fields]
    ttl = reading.options.ttl
    check_names(names if ttl is None else [*names, ttl])
    binary = reading.options.binary
    as_bytes = binary_columns(binary if isinstance(binary, bool) else [*binary], names)
    text = [reading.request is None and name not in as_bytes for name in names]
    columns = [
        (name, pa.string() if is_text else pa.binary())
        for name, is_text in zip(names, text, strict=True)
    ]
    schema = pa.schema(columns if ttl is None else [*columns, (ttl, pa.timestamp("ms", "UTC"))])
    return Batches(schema, snapshot.batches(data, names, text, fields))


class Snapshot:
    """The keys of an RDB file to read.

    Attributes:
        target: the pattern of the keys.
        kind: the type of the values.
    """

    def __init__(self, reading: Reading) -> None:
        self._options = reading.options
        self._request = reading.request
        self.target = as_target(self._options.match or "*")
        self.kind = self._options.type or "hash"

    def _reader(self, data: Input) -> RdbReader:
        return RdbReader(
            data.read, match=self.target.glob, type=self.kind, database=self._options.db or 0
        )

    def fields(self, again: Callable[[], AbstractContextManager[Input]] | None) -> list[str]:
        """Return the field names from the user or the template; if neither has any, all names."""
        options, request = self._options, self._request
        if self.kind not in ("hash", "stream"):
            return []
        if options.fields is not None:
            return [*options.fields]
        if request is not None and request.columns is not None:
            others = {self.target.column, options.ttl, *VALUE_COLUMNS[self.kind]}
            return sorted(request.columns.difference(others))
        if again is None:
            raise choose_fields(
                f"the fields of each {self.kind} are unknown, as this source can be read only "
                "once; pass the path of a file, or name the fields with "
            )
        with again() as data:
            reader = self._reader(data)
            found = field_names(reader, MAX_FIELDS + 1, streams=self.kind == "stream")
            if not found and not data.unwanted:
                raise self._nothing(reader)
        if len(found) > MAX_FIELDS:
            raise choose_fields(
                f"{self.target.glob} has more than {MAX_FIELDS:,} different field names; choose "
                "some with "
            )
        return column_names(found, self.kind, self.target)

    def _nothing(self, reader: RdbReader) -> SourceError:
        """Return the error for a file without wanted values."""
        text = f"no {self.kind} of database {self._options.db or 0} matches {self.target.glob}"
        if reader.other is not None:
            key, kind = reader.other
            shown = key.decode(errors="backslashreplace")
            return SourceError(
                Message(f"{text}, but '{shown}' does, which is a {kind}; use ", Hint("type", kind))
            )
        return choose_fields(
            f"{text}, so the columns are unknown; check the pattern, or name the columns with "
        )

    def batches(
        self, data: Input, names: list[str], text: list[bool], fields: list[str]
    ) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        reader = self._reader(data)
        columns = RdbColumns(
            reader,
            names,
            text,
            fields=[name.encode() for name in fields] if self.kind in ("hash", "stream") else None,
            streams=self.kind == "stream",
            head=self.target.head,
            tail=self.target.tail,
            ttl=self._options.ttl,
        )
        rows = 0
        try:
            while (batch := columns.take()) is not None:
                rows += len(batch)
                yield pa.record_batch(batch)
        except SourceError:
            if data.unwanted:  # the bytes end early
                return
            raise
        self._warn(reader, rows)

    def _warn(self, reader: RdbReader, rows: int) -> None:
        """Log how many keys were skipped because the user chose no type or no database."""
        log = logging.getLogger("fastresp")
        if reader.other is not None and (self._options.type is None or not rows):
            key, kind = reader.other
            log.warning(
                "skipped %s of %s (other types than %s), such as '%s', a %s; read each type "
                "separately",
                counted(reader.other_types, "key"), self.target.glob, self.kind,
                key.decode(errors="backslashreplace"), kind,
            )  # fmt: skip
        if reader.other_databases and self._options.db is None:
            log.warning(
                "skipped %s of databases other than 0; choose a database with db=",
                counted(reader.other_databases, "key"),
            )


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
