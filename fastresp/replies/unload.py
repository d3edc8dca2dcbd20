"""Read all keys of a type as columns that a template can load again."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator
from contextlib import ExitStack, closing
from typing import Any

from ..outcome.errors import CommandError, SourceError
from ..outcome.messages import Hint, Message
from ..outcome.report import counted
from ..outcome.tracebacks import public
from ..server.settings import Server, ServerLike
from .arrow_out import StringBatch
from .fetch_hashes import Columns, Hashes, binary_columns, fetch_hashes
from .key_pattern import (
    FIRST_ENTRIES,
    KINDS,
    KeyType,
    Pattern,
    SkippedKeys,
    as_pattern,
    as_reading,
    check_changed,
    check_found,
    column_of,
    hashes_of,
    keys_of,
    other_type,
    replies_by_key,
    shown_key,
    type_of,
)
from .large_keys import LargeKeyReader

__all__ = ["FIRST_ENTRIES", "Entries", "as_target", "check_found", "unload"]

# Limits of a batch of columns.
BATCH_ROWS = 65_536
BATCH_BYTES = 8 << 20
# The maximum number of field names, each of which becomes a column.
MAX_FIELDS = 10_000


def as_target(text: str) -> Pattern:
    """Parse a pattern such as ``user:{id}``, or a single key."""
    return as_pattern(text, single=True)


@public
def unload(
    pattern: str | Pattern,
    *,
    type: str | None = None,  # noqa: A002
    fields: Iterable[str] | None = None,
    server: ServerLike = None,
    binary: bool | Iterable[str] = False,
    timeout: float | None = 30.0,
) -> Hashes | Entries:
    """Read all keys of a pattern, or one key, as columns that a template can load again.

    Pass the result to any library that accepts Arrow data, or iterate over the result for dicts.
    Keys are read as the result is used, so memory stays bounded. ``fastresp unload`` writes the
    same rows to a file. In an event loop, call ``unload`` and read its result in a thread
    (``asyncio.to_thread``).

    Args:
        pattern: ``"user:{id}"``, with a column ``id`` for this part of the keys; ``"user:*"``, with
            a column ``key`` for whole keys; or a single key.
        type: ``"hash"``: one row per hash, and one column per field. All other types have one row
            per value: ``"string"`` and ``"json"`` with a column ``value``, ``"set"`` with
            ``member``, ``"zset"`` with ``member`` and ``score``, ``"list"`` with ``item``. None for
            the type of a single key, or for the hashes of a pattern. In the latter case, unless you
            name ``fields``, the logger ``fastresp`` warns how many keys were skipped because they
            are not hashes.
        fields: the fields of hashes; None for all fields, after a first pass that reads only their
            names.
        server: as for ``fetch_hashes``; if the server is a node of a cluster, the keys of all nodes
            are read.
        binary: as for ``fetch_hashes``.
        timeout: give up after this many seconds without progress; None to wait forever.

    Times to live are not read. If keys change while they are read, keys or items of a list may be
    missing, and items of a list or members of a set may be returned twice.

    Returns:
        The rows, as from ``fetch_hashes``.

    Raises:
        SourceError: the single key does not exist, or does not have this type; or no hash matches,
            so the fields are unknown.
        ValueError: an argument is invalid, or does not apply to the type.
        TransportError, TransportTimeout, CommandError: the server can't be read.
    """
    if type is not None and type not in ("hash", *KINDS):
        raise ValueError(f"type must be one of hash, {', '.join(KINDS)}, not {type!r}")
    target = as_target(pattern) if isinstance(pattern, str) else pattern
    kind = type
    where = as_reading(server)
    if target.single:
        found = type_of(target.glob, where, timeout)
        if found is None:
            raise SourceError(
                f"there is no key {target.glob}; for several keys use a pattern, such as 'user:*'"
            )
        if kind is not None and found != kind:
            raise other_type(target.glob, found)
        kind = found
    kind = kind or "hash"
    if kind != "hash" and kind not in KINDS:
        raise SourceError(
            f"can't unload {target.glob}: its type is {kind}, not one of hash, {', '.join(KINDS)}"
        )
    if kind == "hash":
        if fields is None:
            only_hashes = target.single or type is not None
            fields = all_fields(target, where, timeout, only_hashes=only_hashes)
        names = [*fields]
        return fetch_hashes(target, names, server=server, binary=binary, timeout=timeout)
    if fields is not None:
        raise ValueError(Message(f"a {kind} has no fields; omit ", Hint("fields")))
    return Entries(target, kind, server=where, binary=binary, timeout=timeout)


def all_fields(
    target: Pattern, server: Server, timeout: float | None, *, only_hashes: bool = True
) -> list[str]:
    """Return the names of all fields of the hashes, in the order of their first appearance.

    Args:
        target: the pattern, or the single key.
        server, timeout: as for ``unload()``.
        only_hashes: whether to search only for hashes; if False, all keys are searched, and the
            number of keys that are not hashes is logged as a warning.
    """
    names: dict[bytes, None] = {}
    deleted = 0
    skipped = SkippedKeys()
    with ExitStack() as stack:
        type_ = "hash" if only_hashes else None
        keys = stack.enter_context(closing(keys_of(target, type_, server, timeout)))
        if not only_hashes:
            keys = stack.enter_context(closing(hashes_of(keys, skipped, server, timeout)))
        replies = replies_by_key(keys, "HKEYS {0}", server, timeout)
        for _, reply in stack.enter_context(closing(replies)):
            if isinstance(reply, CommandError):
                check_changed(reply)
                continue
            deleted += not reply
            names.update(dict.fromkeys(reply))
            if len(names) > MAX_FIELDS:
                raise _choose_fields(
                    f"the hashes have more than {MAX_FIELDS:,} different field names; choose some "
                    "with "
                )
    if not names:
        if deleted or skipped.deleted or check_found(target, "hash", server, timeout):
            raise SourceError(
                f"the keys that match {target.glob} have changed while their fields were read; "
                "unload them again"
            )
        raise _choose_fields(
            f"no hash matches {target.glob}, so the columns are unknown; check the pattern, or "
            "name the columns with "
        )
    if skipped.first is not None:
        _warn_of(skipped.count, target, *skipped.first)
    return _column_names(names, target)


def _warn_of(count: int, target: Pattern, first: bytes, first_type: str) -> None:
    import logging

    message = "skipped %s of %s (not hashes), such as %s, a %s; unload each type separately"
    logging.getLogger("fastresp").warning(
        message, counted(count, "key"), target.glob, shown_key(first), first_type
    )


def _column_names(fields: Iterable[bytes], target: Pattern) -> list[str]:
    """Return the names of fields as str.

    Raises:
        SourceError: a name can't be the name of a column.
    """
    try:
        names = [name.decode() for name in fields]
    except UnicodeDecodeError as error:
        raise _choose_fields(
            f"a hash has a field whose name is not UTF-8, {error.object[:40]!r}; choose others "
            "with "
        ) from error
    if target.column in names:
        raise _choose_fields(
            f"a hash has a field {target.column!r}, which is also the name of the key's column; "
            "rename the column, as in 'user:{key_id}', or choose other fields with "
        )
    return names


def _choose_fields(message: str) -> SourceError:
    return SourceError(Message(message, Hint("fields", ...)))


class Entries(Columns):
    """Strings, JSON documents, or the entries of sets, sorted sets or lists, as columns.

    A row has the key, or the part of the key that the pattern names, and a value: a string, a
    document as text, a member, a member and its score, or an item. All entries of a key are
    adjacent; list items are in order. Keys are read as batches are used; large keys are read in
    parts.

    Attributes:
        names: the names of the columns.
        rows: the number of rows that the last iteration has read.
        nbytes: the number of bytes of keys and values that the last iteration has read.
        changed: the number of keys that had been deleted, or had changed their type, when they were
            read.
    """

    def __init__(
        self,
        target: Pattern,
        kind: str,
        *,
        server: Server,
        binary: bool | Iterable[str] = False,
        timeout: float | None = 30.0,
    ) -> None:
        self.kind = KINDS[kind]
        names = [target.column, *self.kind.names]
        if target.column in self.kind.names:
            raise ValueError(
                f"{target.column!r} is also the name of another column of a {kind}; rename it in "
                "the pattern, as in 'user:{id}'"
            )
        as_bytes = binary_columns(binary, names)
        super().__init__(names, [name not in as_bytes for name in names])
        self._target = target
        self._server = server
        self._timeout = timeout
        self._columns: list[list[bytes]] = []
        self._held = 0
        self.changed = 0

    def _read(self) -> Generator[StringBatch, None, None]:
        self._columns, self._held = [[] for _ in self.names], 0
        self.changed = 0
        server, timeout = self._server, self._timeout
        with ExitStack() as stack:
            keys = stack.enter_context(
                closing(keys_of(self._target, self.kind.type, server, timeout))
            )
            rest = LargeKeyReader(server, self.kind.command, timeout)
            stack.callback(rest.close)
            if self.kind.command is not None:
                rest.begin()
            replies = replies_by_key(keys, self.kind.first, server, timeout)
            for key, reply in stack.enter_context(closing(replies)):
                if isinstance(reply, CommandError):
                    check_changed(reply)
                    self.changed += 1
                    continue
                rows = self.rows
                for part in _parts(self.kind, key, reply, rest):
                    self._add(key, part)
                    if self._held >= BATCH_BYTES or len(self._columns[0]) >= BATCH_ROWS:
                        yield self._batch()
                self.changed += self.rows == rows
        if self._columns[0]:
            yield self._batch()

    def _add(self, key: bytes, entries: list[bytes]) -> None:
        """Add the entries of a key; a sorted set has two values per entry."""
        keys, *columns = self._columns
        width = len(columns)
        for place, column in enumerate(columns):
            column += entries[place::width]
        rows = len(entries) // width
        keys += [key] * rows
        size = rows * len(key) + sum(map(len, entries))
        self._held += size
        self.nbytes += size
        self.rows += rows

    def _batch(self) -> StringBatch:
        """Remove the added entries, and return them as columns."""
        lists, self._columns = self._columns, [[] for _ in self.names]
        self._held = 0
        keys, target = lists[0], self._target
        columns = [
            column_of(values, keys, name, text=text, pattern=None if place else target)
            for place, (values, name, text) in enumerate(
                zip(lists, self.names, self._text, strict=True)
            )
        ]
        return StringBatch(self.names, columns)


def _parts(kind: KeyType, key: bytes, reply: Any, rest: LargeKeyReader) -> Iterator[list[bytes]]:
    """Yield the entries of a key: first the entries in the reply, then the remaining entries."""
    if kind.command is None:
        # The reply is None if the key was deleted after SCAN found it.
        yield [] if reply is None else [reply]
    elif kind.command == "LRANGE":
        yield reply
        if len(reply) >= FIRST_ENTRIES:
            yield from rest.rest_of_list(key, reply)
    else:
        cursor, entries = reply
        yield from [entries] if cursor == b"0" else rest.rest_of_set(key, cursor, entries)
