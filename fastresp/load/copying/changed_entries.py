"""What ``changed`` and ``delete`` need: find keys that differ, and keys that the source lacks."""

from __future__ import annotations

import time
from collections.abc import Generator
from contextlib import closing
from functools import partial
from itertools import chain
from typing import Any, NamedTuple

from ...encode.payload.converter import Converter
from ...encode.payload.restorer import Restorer
from ...encode.payload.stored_values import elements, stream_nodes_end
from ...encode.template import Template
from ...outcome.errors import CommandError, SourceError, TransportError
from ...outcome.messages import message_of
from ...outcome.report import Report
from ...replies.key_pattern import expiry_command, replies_by_key
from ...replies.scan import Scan
from ...server.preflight import Requirements
from ...server.settings import as_server
from ...sources.entries import Entries, EntryRow, in_parts
from ...sources.files.rdb import type_of
from ...transports.driver import Blocking, Steps
from ..load import Feature, Load
from ..mirror import OWN_KEYS, UNLINK
from .by_value import FOOTER_BYTES
from .options import CopyOptions
from .server_entries import DUMP, ServerEntries, read_values

__all__ = ["ChangedEntries", "Deleting", "different_part"]

# Types of stored values. Source: rdb.h of Redis and Valkey.
MODULE = 7
TIMED_HASHES = (22, 24, 25)


class ChangedEntries(Entries):
    """The keys of a source that the target lacks, or has with another payload or expiry.

    Equal values may have different payloads, for example sets whose members are stored in different
    orders; then their keys count as changed.

    Args:
        entries: the source.
        options: the options of the copy.
    """

    def __init__(self, entries: Entries, options: CopyOptions) -> None:
        super().__init__()
        self._entries = entries
        needs = Requirements(reading=True, nodes=True, commands=(DUMP,))
        self._target = as_server(options.server, needs)
        self._timeout = options.timeout
        self._template = Template("DUMP {0}")

    def open(self) -> None:
        """Check that source and target can be read.

        Raises:
            SourceError: the source can't be read.
            TransportError: the target can't be read.
        """
        self._entries.open()
        self._target.ask(self._timeout)
        self._template = Template(expiry_command(self._target, self._timeout), "DUMP {0}")
        self.valkey, self.databases = self._entries.valkey, self._entries.databases
        self.rows = self._entries.rows

    def prepare(self, restorer: Restorer) -> None:
        super().prepare(restorer)
        self._entries.prepare(restorer)

    def _read(self) -> Generator[list[EntryRow], None, None]:
        for rows in filter(None, in_parts(self._entries)):
            try:
                changed = self._changed(rows)
            except (TransportError, CommandError) as error:
                text = f"can't read the target at {self._target}: {message_of(error)}"
                raise TransportError(text) from error
            self.unchanged += len(rows) - len(changed)
            yield changed

    def _changed(self, rows: list[EntryRow]) -> list[EntryRow]:
        keys = iter([row[0] for row in rows])
        with closing(read_values(self._target, self._template, keys, self._timeout)) as values:
            replies = chain.from_iterable(values)
            pairs = zip(rows, replies, replies, strict=True)
            return [row for row, *stored in pairs if not self._is_equal(row, *stored)]

    def _is_equal(self, row: EntryRow, expiry: Any, payload: Any) -> bool:
        """Return whether the target has the value and the expiry of a row.

        Raises:
            CommandError: the target refuses to read the key.
        """
        for reply in (payload, expiry):
            if isinstance(reply, CommandError):
                raise reply
        if type(payload) is not bytes or type(expiry) is not int or max(expiry, 0) != row[1]:
            return False
        value, wanted = payload[:-FOOTER_BYTES], row[2][:-FOOTER_BYTES]
        if value == wanted:
            return True
        # If values are read without DUMP, equal values may have different encodings.
        by_value = getattr(self._entries, "by_value", "")
        return bool(by_value) and different_part(wanted, value) is None

    def close(self) -> None:
        """Stop reading."""
        super().close()
        self._entries.close()


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
        oldest = Converter(9, valkey=False, source_valkey=False)
        converted = oldest.converted(kind, data)
        assert converted is not None
        kind, data = converted
    return elements(kind, data), data[stream_nodes_end(kind, data) :]


class Deleting(Feature):
    """Deletes keys of the target that the source lacks, after the copy.

    Args:
        entries: the source.
        options: the options of the copy.
    """

    def __init__(self, entries: ServerEntries, options: CopyOptions) -> None:
        self._source = entries.server.requiring(commands=())
        self._target = as_server(options.server, Requirements(nodes=True, commands=(UNLINK,)))
        self._scan = partial(
            Scan, timeout=options.timeout, glob=entries.match or "*", kind=entries.type
        )
        self._timeout = options.timeout
        self._delete = options.delete
        self._deleted = 0

    def opening(self, load: Load) -> Steps[Report | None]:
        yield Blocking(partial(self._target.ask, self._timeout))
        return None

    def finishing(self, load: Load) -> Steps[None]:
        if not (load.report.stopped or load.report.in_doubt):
            yield Blocking(self._run)

    def ended(self, load: Load) -> Steps[None]:
        yield from ()
        load.report.deleted = self._deleted

    def _run(self) -> None:
        """Count the keys that the source lacks, and delete them if ``delete`` allows this.

        Raises:
            SourceError: no key of the source matches, so the source may be the wrong server.
        """
        with closing(self._missing()) as missing:
            count = sum(1 for _ in missing)
        if not count:
            return
        with closing(self._scan(self._source).pages()) as pages:
            if not any(pages):
                raise SourceError(
                    f"the source at {self._source} has no keys that match, and the target has "
                    f"{count:,}; nothing was deleted (check the source)"
                )
        if callable(self._delete) and not self._delete(count):
            return
        with (
            closing(self._missing()) as missing,
            closing(replies_by_key(missing, "UNLINK {0}", self._target, self._timeout)) as replies,
        ):
            for _, reply in replies:
                if isinstance(reply, CommandError):
                    raise reply
                self._deleted += reply

    def _missing(self) -> Generator[bytes, None, None]:
        """Yield the keys of the target that the source lacks."""
        with closing(self._scan(self._target.requiring(commands=())).pages()) as pages:
            keys = (key for page in pages for key in page if not key.startswith(OWN_KEYS))
            found = replies_by_key(keys, "EXISTS {0}", self._source, self._timeout)
            with closing(found) as replies:
                for key, reply in replies:
                    if isinstance(reply, CommandError):
                        raise reply
                    if reply == 0:
                        yield key
