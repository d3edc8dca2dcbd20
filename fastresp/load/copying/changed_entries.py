"""Select the keys of a source that the target lacks, or has with another value or expiry."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import closing
from itertools import chain
from typing import Any

from ...encode.payload.restorer import Restorer
from ...encode.template import Template
from ...outcome.errors import CommandError, TransportError
from ...outcome.messages import message_of
from ...replies.key_pattern import expiry_command
from ...server.preflight import Requirements
from ...server.settings import Server, ServerLike, as_server
from ...sources.entries import Entries, EntryRow, in_parts
from .by_value import FOOTER_BYTES
from .payload_difference import different_part
from .server_entries import DUMP, read_values

__all__ = ["ChangedEntries"]


class ChangedEntries(Entries):
    """The keys of a source that the target lacks, or has with another payload or expiry.

    Equal values may have different payloads, for example sets whose members are stored in different
    orders; then their keys count as changed.

    Args:
        entries: the source.
        target: the target.
        timeout: seconds to wait for each reply of the target; None to wait forever.
    """

    def __init__(
        self, entries: Entries, target: ServerLike | Server, timeout: float | None
    ) -> None:
        super().__init__()
        self._entries = entries
        needs = Requirements(reading=True, nodes=True, commands=(DUMP,))
        self._target = as_server(target, needs)
        self._timeout = timeout
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
