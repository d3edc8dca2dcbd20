"""What ``changed`` and ``delete`` need: find keys that differ, and keys that the source lacks."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import closing
from functools import partial

from ...encode.payload.restorer import Restorer
from ...outcome.errors import CommandError, SourceError, TransportError
from ...outcome.messages import message_of
from ...outcome.report import Report
from ...replies.key_pattern import replies_by_key
from ...replies.scan import Scan
from ...server.preflight import Requirements
from ...server.settings import as_server
from ...sources.source import Entries, EntryRow, in_parts
from ...transports.driver import Blocking, Steps
from ..load import Feature, Load
from ..mirror import OWN_KEYS, UNLINK
from .by_value import FOOTER_BYTES
from .options import CopyOptions
from .server_entries import DUMP, DumpReader, ServerEntries
from .value_reader import different_part

__all__ = ["ChangedEntries", "Deleting"]


class ChangedEntries(Entries):
    """The keys of a source that the target lacks, or has with another payload or expiry.

    Equal values may have different payloads, for example sets whose members are stored in different
    orders; then their keys count as changed.
    """

    def __init__(self, entries: Entries, options: CopyOptions) -> None:
        super().__init__()
        self._entries = entries
        needs = Requirements(reading=True, nodes=True, commands=(DUMP,))
        self._target = as_server(options.server, needs)
        self._timeout = options.timeout
        self._dumps = DumpReader(self._target, options.timeout)

    def open(self) -> None:
        """Check that source and target can be read."""
        self._entries.open()
        self._target.ask(self._timeout)
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
        with closing(self._dumps.pairs([row[0] for row in rows])) as pairs:
            found = zip(rows, pairs, strict=True)
            return [row for row, stored in found if not self._is_equal(row, *stored)]

    def _is_equal(self, row: EntryRow, expiry: int, payload: bytes | None) -> bool:
        """Return whether the target has the value and the expiry of a row."""
        if payload is None or max(expiry, 0) != row[1]:
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


class Deleting(Feature):
    """Deletes keys of the target that the source lacks, after the copy."""

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
