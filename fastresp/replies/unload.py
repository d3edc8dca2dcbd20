"""Read all keys of a type as columns that a template can load again."""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator, Iterable, Iterator
from contextlib import ExitStack, closing
from itertools import chain
from typing import Any

from ..encode.columns.arrow_out import Column, StringBatch, time_column
from ..encode.key_columns import (
    MAX_FIELDS,
    Pattern,
    as_target,
    binary_columns,
    check_names,
    checked_fields,
    choose_fields,
    column_names,
    expiry_name,
)
from ..outcome.errors import CommandError, SourceError
from ..outcome.messages import Hint, Message
from ..outcome.report import counted
from ..outcome.tracebacks import public
from ..server.settings import Server, ServerLike
from .fetch_hashes import BATCH_ROWS, Columns, Hashes, fetch_hashes
from .key_pattern import (
    KINDS,
    Expiries,
    KeyType,
    SkippedKeys,
    as_reading,
    check_changed,
    check_found,
    column_of,
    hashes_of,
    keys_of,
    replies_by_key,
    shown_key,
    type_of,
)
from .large_keys import FIRST_ENTRIES, LargeKeyReader

__all__ = ["FIRST_ENTRIES", "Entries", "check_found", "unload"]

# A batch of columns also ends at this size.
BATCH_BYTES = 8 << 20


@public
def unload(
    pattern: str | Pattern,
    *,
    type: str | None = None,  # noqa: A002
    fields: Iterable[str] | None = None,
    ttl: bool | str = False,
    server: ServerLike = None,
    binary: bool | Iterable[str] = False,
    timeout: float | None = 30.0,
) -> Hashes | Entries:
    """Read all keys that match a pattern, or one key, as columns that a template can load again.

    Pass the result to any library that accepts Arrow data, or iterate over the result for dicts.
    Keys are read as the result is used, so memory stays bounded. ``fastresp unload`` writes the
    same rows to a file. In an event loop, call ``unload`` and read its result in a thread
    (``asyncio.to_thread``).

    Args:
        pattern: ``"user:{id}"``, with a column ``id`` for this part of the keys; ``"user:*"``, with
            a column ``key`` for whole keys; or a single key.
        type: ``"hash"``: one row per hash, and one column per field. All other types have one row
            per value: ``"string"`` and ``"json"`` with a column ``value``, ``"set"`` with
            ``member``, ``"zset"`` with ``member`` and ``score``, ``"list"`` with ``item``,
            ``"stream"`` with ``entry_id`` and one column per field. None means the type of a
            single key, and ``"hash"`` for a pattern. With None and a pattern, unless you name
            ``fields``, the logger ``fastresp`` warns how many keys were skipped because
            they are not hashes.
        fields: the fields of hashes or of stream entries. None for all fields: a first pass then
            finds their names. This pass reads only the field names of hashes, but streams in full.
        ttl: the name of an additional last column with the time when the key expires: a timestamp
            in UTC with milliseconds, null for a key without a time to live. True names the column
            ``"expires_at"``.
        server: as for ``fetch_hashes``; if the server is a node of a cluster, the keys of all nodes
            are read.
        binary: as for ``fetch_hashes``.
        timeout: give up after this many seconds without progress; None to wait forever.

    If keys change while they are read, keys and list items may be missing, and list items and set
    members may be returned twice. Streams are read without their consumer groups, and without the
    order of the fields within an entry. Times to live of individual hash fields are not read.

    Returns:
        The rows, as from ``fetch_hashes``.

    Raises:
        SourceError: the single key does not exist, or does not have this type; or, without
            ``fields``, no hash or stream matches. While the rows are read: an entry has a field
            twice.
        ValueError: an argument is invalid, or does not apply to the type.
        TransportError, TransportTimeout, CommandError: the server can't be read.
    """
    if type is not None and type not in ("hash", *KINDS):
        raise ValueError(f"type must be one of hash, {', '.join(KINDS)}, not {type!r}")
    target = as_target(pattern) if isinstance(pattern, str) else pattern
    kind = type or "hash"
    where = as_reading(server)
    if target.single:
        found = type_of(target.glob, where, timeout)
        if found is None:
            raise SourceError(
                f"there is no key {target.glob}; for several keys use a pattern, such as 'user:*'"
            )
        if type is not None and found != type:
            raise SourceError(Message(f"{target.glob} is a {found}; use ", Hint("type", found)))
        kind = found
    if kind != "hash" and kind not in KINDS:
        raise SourceError(
            f"can't unload {target.glob}: its type is {kind}, not one of hash, {', '.join(KINDS)}"
        )
    expiry = expiry_name(ttl)
    names = []
    if kind not in ("hash", "stream"):
        if fields is not None:
            raise ValueError(Message(f"a {kind} has no fields; omit ", Hint("fields")))
    elif fields is not None:
        names = checked_fields(fields)
    else:
        only_kind = target.single or type is not None
        names = all_fields(target, kind, where, timeout, only_kind=only_kind)
    if kind != "hash":
        return Entries(target, kind, names, expiry, server=where, binary=binary, timeout=timeout)
    hashes = fetch_hashes(target, names, server=server, binary=binary, timeout=timeout)
    return hashes if expiry is None else hashes.with_ttl(expiry)


def all_fields(
    target: Pattern, kind: str, server: Server, timeout: float | None, *, only_kind: bool
) -> list[str]:
    """Return the names of all fields of hashes or streams, in the order of their first appearance.

    Args:
        target: the pattern, or the single key.
        kind: ``"hash"`` or ``"stream"``.
        server, timeout: as for ``unload()``.
        only_kind: whether to search only for keys of this type; if False, all keys are searched,
            and the number of keys of other types is logged as a warning.
    """
    names: dict[bytes, None] = {}
    without = 0
    skipped = SkippedKeys()
    with ExitStack() as stack:
        keys = stack.enter_context(
            closing(keys_of(target, kind if only_kind else None, server, timeout))
        )
        if not only_kind:
            keys = stack.enter_context(closing(hashes_of(keys, skipped, server, timeout)))
        found = _fields_of_keys if kind == "hash" else _fields_of_entries
        for found_names in stack.enter_context(closing(found(keys, server, timeout))):
            without += not found_names
            names.update(dict.fromkeys(found_names))
            if len(names) > MAX_FIELDS:
                raise choose_fields(
                    f"{target.glob} has more than {MAX_FIELDS:,} different field names; choose "
                    "some with "
                )
    if not names and not (kind == "stream" and without):
        if without or skipped.deleted or check_found(target, kind, server, timeout):
            raise SourceError(
                f"the keys that match {target.glob} have changed while their fields were read; "
                "unload them again"
            )
        raise choose_fields(
            f"no {kind} matches {target.glob}, so the columns are unknown; check the pattern, or "
            "name the columns with "
        )
    if skipped.first is not None:
        import logging

        first, kind_of_first = skipped.first
        logging.getLogger("fastresp").warning(
            "skipped %s of %s (not hashes), such as %s, a %s; unload each type separately",
            counted(skipped.count, "key"), target.glob, shown_key(first), kind_of_first,
        )  # fmt: skip
    return column_names(names, kind, target)


def _fields_of_keys(
    keys: Iterable[bytes], server: Server, timeout: float | None
) -> Generator[list[bytes], None, None]:
    """Yield the names of the fields of each hash; no names for a hash that was deleted."""
    with closing(replies_by_key(keys, "HKEYS {0}", server, timeout)) as replies:
        for _, reply in replies:
            if isinstance(reply, CommandError):
                check_changed(reply)
            else:
                yield reply


def _fields_of_entries(
    keys: Iterable[bytes], server: Server, timeout: float | None
) -> Generator[list[bytes], None, None]:
    """Yield the names of the fields in each part of a stream; no names for an empty part."""
    with closing(parts_by_key(keys, KINDS["stream"], server, timeout)) as streams:
        for _, parts in streams:
            for part in parts:
                yield [*dict.fromkeys(chain.from_iterable(fields[::2] for _, fields in part))]


class Entries(Columns):
    """Strings, JSON documents, or the entries of sets, sorted sets, lists or streams, as columns.

    A row has the key (or the part that the pattern names) and a value: a string, a document as
    text, a set's member, a sorted set's member with its score, a list's item, or a stream entry's
    ID with its fields. All entries of a key are adjacent; list items and stream entries are in
    order. Keys are read as batches are used; large keys are read in parts.

    Attributes:
        names: the names of the columns.
        rows: the number of rows that the last iteration has read.
        nbytes: the number of bytes of keys and values that the last iteration has read.
        changed: the number of keys that, when they were read, were deleted, had another type, or
            were streams without entries.
    """

    def __init__(
        self,
        target: Pattern,
        kind: str,
        fields: list[str] | None = None,
        ttl: str | None = None,
        *,
        server: Server,
        binary: bool | Iterable[str] = False,
        timeout: float | None = 30.0,
    ) -> None:
        self.kind = KINDS[kind]
        if target.column in self.kind.names:
            raise ValueError(
                f"{target.column!r} is also the name of another column of a {kind}; rename it in "
                "the pattern, as in 'user:{id}'"
            )
        self._fields = [name.encode() for name in fields or ()]
        names = [target.column, *self.kind.names, *(fields or ())]
        check_names(names)
        as_bytes = binary_columns(binary, names)
        super().__init__(names, [name not in as_bytes for name in names], ttl)
        self._target = target
        self._server = server
        self._timeout = timeout
        self._ttl = ttl
        self._columns: list[list[Any]] = []
        self._times: list[int | None] = []
        self._held = 0
        self.changed = 0

    def _read(self) -> Generator[StringBatch, None, None]:
        self._columns, self._times, self._held = [[] for _ in self._text], [], 0
        self.changed = 0
        server, timeout, time = self._server, self._timeout, None
        with ExitStack() as stack:
            keys = stack.enter_context(
                closing(keys_of(self._target, self.kind.type, server, timeout))
            )
            expiries = Expiries(server, timeout)
            if self._ttl is not None:
                keys = stack.enter_context(closing(expiries.keys(keys)))
            found = parts_by_key(keys, self.kind, server, timeout)
            for key, parts in stack.enter_context(closing(found)):
                rows = self.rows
                if self._ttl is not None:
                    time = expiries.take()
                for part in parts:
                    self._add(key, part, time)
                    if self._held >= BATCH_BYTES or len(self._columns[0]) >= BATCH_ROWS:
                        yield self._batch()
                self.changed += self.rows == rows
        if self._columns[0]:
            yield self._batch()

    def _add(self, key: bytes, entries: list[Any], time: int | None) -> None:
        """Add the entries of a key; a sorted set has two values per entry."""
        keys, *columns = self._columns
        if self.kind.type == "stream":
            entries = [value for entry in entries for value in self._values(key, *entry)]
        width = len(columns)
        for place, column in enumerate(columns):
            column += entries[place::width]
        rows = len(entries) // width
        keys += [key] * rows
        if self._ttl is not None:
            self._times += [time] * rows
        size = rows * len(key) + sum(map(len, filter(None, entries)))
        self._held += size
        self.nbytes += size
        self.rows += rows

    def _values(self, key: bytes, entry_id: bytes, flat: list[bytes]) -> list[bytes | None]:
        """Return the values of an entry of a stream: its ID, and its fields."""
        values = dict(zip(flat[::2], flat[1::2], strict=True))
        if 2 * len(values) < len(flat):
            counts = Counter(flat[::2])
            twice = [name for name in self._fields if counts[name] > 1]
            if twice:
                raise choose_fields(
                    f"entry {entry_id.decode()} of the stream {shown_key(key)} has the field "
                    f"{twice[0].decode()!r} twice, and its column has one value per entry; choose "
                    "other fields with "
                )
        return [entry_id, *map(values.get, self._fields)]

    def _batch(self) -> StringBatch:
        """Remove the added entries, and return them as columns."""
        lists, self._columns = self._columns, [[] for _ in self._text]
        times, self._times = self._times, []
        self._held = 0
        keys, target = lists[0], self._target
        columns: list[Column] = [
            column_of(values, keys, name, text=text, pattern=None if place else target)
            for place, (values, name, text) in enumerate(
                zip(lists, self.names, self._text, strict=False)
            )
        ]
        if self._ttl is not None:
            columns.append(time_column(times))
        return StringBatch(self.names, columns)


def parts_by_key(
    keys: Iterable[bytes], kind: KeyType, server: Server, timeout: float | None
) -> Generator[tuple[bytes, Iterator[list[Any]]], None, None]:
    """Yield each key with an iterator of its entries, in parts.

    Exhaust the iterator before you request the next key. A key that was deleted, or has changed its
    type, has no entries.
    """
    with ExitStack() as stack:
        reader = LargeKeyReader(server, kind.command, timeout)
        stack.callback(reader.close)
        if kind.command is not None:
            reader.begin()
        replies = replies_by_key(keys, kind.first, server, timeout)
        for key, reply in stack.enter_context(closing(replies)):
            if isinstance(reply, CommandError):
                check_changed(reply)
                yield key, iter(())
            else:
                yield key, reader.parts(key, reply)
