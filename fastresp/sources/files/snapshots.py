"""RDB files as columns: the values of one type, and the parts of their keys."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager

import pyarrow as pa

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
from .input import Input
from .rdb import RdbReader
from .rdb_columns import RdbColumns, field_names
from .reading import Batches, Reading

__all__ = ["open_rdb"]

EXPIRES = pa.timestamp("ms", "UTC")


def open_rdb(
    data: Input, reading: Reading, again: Callable[[], AbstractContextManager[Input]] | None
) -> Batches:
    """Open an RDB file: the values of one type as columns.

    Args:
        again: opens the file again, to find the names of fields; None if it can be read only once.

    Raises:
        SourceError: the file is damaged, or has no such values, so the fields are unknown.
    """
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
    schema = pa.schema(columns if ttl is None else [*columns, (ttl, EXPIRES)])
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
