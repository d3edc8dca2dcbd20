"""Compare the keys of a source with their copies."""

from __future__ import annotations

import time
import zlib
from array import array
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from typing import ClassVar

from ...outcome.messages import Message, shown_argument
from ...outcome.report import counted
from ...server.settings import Server
from ...sources.source import Entries, EntryRow, in_parts
from ...transports.driver import Blocking, Steps
from ..verifying.report import Difference, VerifyReport, max_share
from .by_value import FOOTER_BYTES
from .options import CopyOptions
from .server_entries import DumpReader, ServerEntries
from .value_reader import ValueReader, different_part, digest_of

__all__ = ["CopiedKeys", "CopyVerifyReport", "Sample", "Verification"]

# Number of keys that are rechecked together.
STEP_KEYS = 2_000
# Seconds to wait before differences are rechecked.
PAUSE_S = 0.3
# The comparison stops when this number of keys differs.
MAX_DIFFERENCES = 10_000
CHANGED_SHOWN = 100
SHOWN_BYTES = 4096
# Tolerance for expiries: servers before 7.0 report only the remaining time.
EXACT_MS = 1


class Sample:
    """A share of keys, chosen by a hash of their names in the target.

    Args:
        share: above 0 and at most 1; None for all keys.

    Attributes:
        seen: number of keys, chosen or not.
    """

    def __init__(self, share: float | None) -> None:
        self.share = share
        self.seen = 0

    def has(self, key: bytes) -> bool:
        """Count a key; return whether it is in the sample."""
        self.seen += 1
        return self.share is None or zlib.crc32(key) < self.share * (1 << 32)


class CopiedKeys:
    """Remembers which keys of a sample were copied with which values, in 8 bytes per key."""

    def __init__(self, share: float | None) -> None:
        self._sample = Sample(share)
        self._digests = array("q")

    def note(self, row: EntryRow) -> EntryRow:
        """Remember a copied row, and return the row."""
        if self._sample.has(row[0]):
            self._digests.append(digest(*row))
        return row

    def among(self, digests: set[int]) -> set[int]:
        """Return the digests whose rows were copied."""
        return digests.intersection(self._digests)


def digest(key: bytes, expiry: int, payload: bytes) -> int:
    """Return a hash of a row; the checksum at the end of the payload represents the value."""
    return hash((key, expiry, payload[-8:]))


@dataclass(repr=False)
class CopyVerifyReport(VerifyReport):
    """The result of ``copy(verify=True)``, as the report's ``verification``.

    Like VerifyReport, but for keys instead of rows. A key differs if its value or its time to live
    differs; the ``field`` of its Difference is the first part of the value that differs.

    Attributes:
        changed_since: number of keys that differ because, after they were copied, the source
            changed or deleted them, or they expired. ``differing`` does not include these keys.
        changed_keys: the first 100 keys of ``changed_since``, in quotes.
    """

    UNIT: ClassVar[str] = "key"

    changed_since: int = 0
    changed_keys: list[str] = field(default_factory=list)

    @property
    def same(self) -> bool:
        """Whether all keys were compared, and no differences remain; True if there are no keys."""
        return super().same or not (self.rows or self.stopped)

    def add_changed(self, key: bytes) -> None:
        """Count a key that the source has changed since it was copied."""
        self.changed_since += 1
        if len(self.changed_keys) < CHANGED_SHOWN:
            self.changed_keys.append(shown_argument(key))

    @property
    def message(self) -> Message:
        """The report as text."""
        if not self.changed_since:
            return super().message
        keys = counted(self.changed_since, "key")
        text = f"\n{keys} changed in the source after the copy, first: {self.changed_keys[0]}"
        return Message(super().message, text)

    def first(self, difference: Difference) -> str:
        """Describe the first difference of a kind."""
        name = difference.field
        shown = shown_argument(name) if isinstance(name, bytes) else name
        where = "" if name is None else f" {shown}"
        return f", first: {shown_argument(difference.key)}{where}"


class Verification:
    """Compares the keys of a source with a target.

    Args:
        entries: the keys of the source, prepared for the target.
        target: the server or cluster with the copies.
        options: the options of the copy.
        copied: the rows that were copied; None if unknown.
        sample: the keys to compare.
        write: called with each difference at the end.
    """

    def __init__(
        self,
        entries: Entries,
        target: Server,
        options: CopyOptions,
        copied: CopiedKeys | None,
        sample: Sample,
        write: Callable[[Difference], object],
    ) -> None:
        self.report = CopyVerifyReport(sample=sample.share)
        self._entries = entries
        self._dumps = DumpReader(target, options.timeout)
        self._restorer = entries.restorer
        self._copied = copied
        self._original = options.original
        self._write = write
        self._sample = sample
        rows = iter(entries)
        if isinstance(entries, ServerEntries):  # which reads only the sample
            entries.when_full(partial(self._compare_in_parts, entries))
        else:
            rows = filter(lambda row: sample.has(row[0]), rows)
        self._parts = in_parts(rows)
        # Keys, by their names in the target, whose values were read in parts.
        self._in_parts: set[bytes] = set()
        # "drop", because the copy has succeeded: it dropped times to live that the target lacks.
        readers = (
            ValueReader(server, options.timeout, self._restorer.version, "drop")
            for server in (getattr(entries, "server", target), target)
        )
        self._reader, self._copy_reader = readers
        # The differences before the recheck, by the keys in the target.
        self._candidates: dict[bytes, Difference] = {}

    def run(self) -> Steps[CopyVerifyReport]:
        """Compare all keys (core)."""
        report, began = self.report, time.monotonic()
        try:
            while (yield Blocking(self._compare_next)):
                pass
            for difference in (yield Blocking(self._recheck)):
                report.add(difference)
                self._write(difference)
        except BaseException:
            report.stopped = "not all keys were compared"
            raise
        finally:
            self._entries.close()
            self._reader.close()
            self._copy_reader.close()
            report.seconds = time.monotonic() - began
        report.rows = max(self._sample.seen, report.rows_compared)
        report.rows_differing = report.differing
        if report.sample is not None and report.rows_compared and not report.stopped:
            differing = min(report.differing, report.rows_compared)
            report.at_most = max_share(differing, report.rows_compared, report.rows)
        return report

    def _compare_next(self) -> bool:
        """Compare the next keys; return whether there may be more keys."""
        rows = next(self._parts, [])
        for row, expiry, dump in self._pairs(rows):
            self._count(row, compared(row, expiry, dump, self.report.rows_compared))
        if isinstance(self._entries, ServerEntries):
            self._compare_in_parts(self._entries)
        if len(self._candidates) >= MAX_DIFFERENCES:
            self.report.stopped = f"stopped after {MAX_DIFFERENCES:,} keys that differ"
            return False
        return bool(rows)

    def _compare_in_parts(self, entries: ServerEntries) -> None:
        """Compare, in parts, the keys that the source has deferred."""
        while entries.aside:
            key = entries.aside.popleft()
            row, difference = self._compared_in_parts(key, self.report.rows_compared)
            if row is not None:
                self._count(row, difference)
                self._in_parts.add(row[0])

    def _count(self, row: EntryRow, difference: Difference | None) -> None:
        self.report.rows_compared += 1
        self.report.values += 1 + bool(row[1])
        if difference is not None:
            self._candidates[row[0]] = difference

    def _compared_in_parts(
        self, original: bytes, at: int
    ) -> tuple[EntryRow | None, Difference | None]:
        """Read a key in parts from both servers; return (row, difference).

        The row, with a digest as its payload, is None if the source no longer has the key.

        Args:
            original: the key in the source.
            at: index of the key, for the Difference.
        """
        found = self._reader.look(original)
        if found.kind == b"none":
            return None, None
        key = self._restorer.renamed(original)
        value = digest_of(self._reader.parts(found, key))
        expires = max(found.expiry, 0)
        row = key, expires, value.to_bytes(8, "little")
        other = self._copy_reader.look(key)
        if other.kind == b"none":
            return row, Difference(at, key, None, "missing", None, None)
        if other.kind != found.kind:
            return row, Difference(at, key, None, "type", None, other.kind)
        if digest_of(self._copy_reader.parts(other, key)) != value:
            return row, Difference(at, key, None, "value", None, None)
        return row, different_expiry(at, key, expires, max(other.expiry, 0))

    def _pairs(self, rows: list[EntryRow]) -> Iterator[tuple[EntryRow, int, bytes | None]]:
        """Read the target's copies of rows; yield (row, expiry, payload)."""
        with closing(self._dumps.pairs([row[0] for row in rows])) as pairs:
            for row, (expiry, payload) in zip(rows, pairs, strict=True):
                yield row, expiry, payload

    def _recheck(self) -> list[Difference]:
        """Recheck differing keys; return differences of keys that are unchanged in the source."""
        entries = self._entries
        if not isinstance(entries, ServerEntries):  # a file does not change
            return [*self._candidates.values()]
        time.sleep(PAUSE_S if self._candidates else 0)
        found: list[tuple[Difference, set[int]]] = []
        keys = iter(self._candidates)
        while part := list(islice(keys, STEP_KEYS)):
            found += self._still_differing(part, entries)
        known = None
        if self._copied is not None:
            known = self._copied.among({each for _, digests in found for each in digests})
        remaining = []
        for difference, digests in found:
            if known is None or digests & known:
                remaining.append(difference)
            else:
                self.report.add_changed(difference.key)
        return remaining

    def _still_differing(
        self, keys: list[bytes], entries: ServerEntries
    ) -> Iterator[tuple[Difference, set[int]]]:
        """Compare keys again; yield (difference, possible digests of the source's row)."""
        for key, original, rows in self._read_again(keys, entries):
            at, row, difference = self._candidates[key].row or 0, None, None
            if rows is None:
                row, difference = self._compared_in_parts(original, at)
            else:
                for row, expiry, dump in self._pairs(rows):
                    difference = compared(row, expiry, dump, at)
            if row is None:
                self.report.add_changed(key)
            elif difference is None:
                self.report.written_meanwhile += 1
            else:
                _, expires, payload = row
                # The expiry may be read with an error of 1 ms.
                times = range(expires - EXACT_MS, expires + EXACT_MS + 1)
                yield difference, {digest(key, at, payload) for at in times}

    def _read_again(
        self, keys: list[bytes], entries: ServerEntries
    ) -> Iterator[tuple[bytes, bytes, list[EntryRow] | None]]:
        """Read keys of the source again; yield (key, name in the source, rows).

        ``rows`` is a list with the key's row; empty if the key is gone; None if the key must be
        read in parts.
        """
        whole = []
        for key in keys:
            original = self._original(key)
            if key in self._in_parts:
                yield key, original, None
            elif entries.by_value:
                rows = entries.rows_of([original])
                yield key, original, None if entries.aside else rows
                entries.aside.clear()
            else:
                whole.append(key)
        originals = list(map(self._original, whole))
        with closing(entries.dumps.pairs(originals)) as pairs:
            for key, original, pair in zip(whole, originals, pairs, strict=True):
                yield key, original, self._restorer.dumped_rows([*pair], iter([original]))


def compared(row: EntryRow, expiry: int, dump: bytes | None, at: int) -> Difference | None:
    """Return the difference between a key and its copy; None if they are equal.

    Args:
        row: the row of the source.
        expiry, dump: the expiry and the payload in the target.
        at: index of the key, for the Difference.
    """
    key, expires, payload = row
    if dump is None:
        return Difference(at, key, None, "missing", None, None)
    if dump != payload:
        source, target = (each[:-FOOTER_BYTES] for each in (payload, dump))
        part = None if source == target else different_part(source, target)
        if part is not None:
            size = len(part.found) if isinstance(part.found, bytes) else 0
            return Difference(
                at, key, part.name, part.kind, cut(part.wanted), cut(part.found), size
            )
    return different_expiry(at, key, expires, max(expiry, 0))


def different_expiry(at: int, key: bytes, expires: int, found: int) -> Difference | None:
    """Return the difference between two expiries (0: none); None if they are equal."""
    if abs(expires - found) > EXACT_MS:
        return Difference(at, key, None, "ttl", expires or None, found or None)
    return None


def cut(value: bytes | int | None) -> bytes | int | None:
    return value[:SHOWN_BYTES] if isinstance(value, bytes) else value
