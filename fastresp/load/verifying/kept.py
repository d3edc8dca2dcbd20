"""Store differences until a later row overwrites the values, or a recheck settles them.

A candidate is a difference that was not rechecked yet.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any, TypeAlias

from .documents import Place, Places, place_in, with_part
from .values import same_document

__all__ = ["Candidate", "Kept", "settled"]

# Identifies a value in the server: the key, the group of the item in the key, and the item's name.
Slot: TypeAlias = tuple[bytes, str, bytes | int | None]

# The groups whose items are counted per key.
COUNTED = ("field", "member", "score")
# Memory in bytes of a candidate, excluding its texts.
CANDIDATE_BYTES = 1000
# Maximum memory of all candidates.
MAX_BYTES = 512 << 20


@dataclass(frozen=True, slots=True)
class Candidate:
    """A value that differed when it was compared.

    Attributes:
        kind: "missing", "value", "type", "ttl" or "extra".
        row: index of the source row.
        key: key in the server.
        group: kind of item in the key: "value", "field", "member", "score", "item", "document",
            "time" or "count".
        name: field, member, list index or JSON path; for a time or a count, the name of the command
            for the recheck.
        wanted: the value in the source; None if the server must not have the value.
        found: the value in the server.
        size: number of bytes of the found value, if the value is a text.
        rest: for a document, the found document with the writes of later rows applied; empty if
            unknown; None if no later row writes a part.
    """

    kind: str
    row: int
    key: bytes
    group: str
    name: Any
    wanted: Any
    found: Any
    size: int
    rest: bytes | None = None

    @property
    def slot(self) -> Slot:
        return self.key, self.group, None if self.group in ("time", "count") else self.name

    @property
    def memory(self) -> int:
        texts = (self.key, self.name, self.wanted, self.found, self.rest)
        return CANDIDATE_BYTES + sum(len(each) for each in texts if isinstance(each, bytes))

    def statement(self) -> tuple[bytes | str | int, ...]:
        """Return a command that writes only this value; the recheck reads what it writes."""
        key, name, wanted = self.key, self.name, self.wanted
        match self.group:
            case "value":
                return ("DEL", key) if wanted is None else ("SET", key, wanted)
            case "field":
                return ("HDEL", key, name) if wanted is None else ("HSET", key, name, wanted)
            case "member":
                return ("SREM" if wanted is None else "SADD", key, name)
            case "score":
                return ("ZREM", key, name) if wanted is None else ("ZADD", key, wanted, name)
            case "item":
                return "LSET", key, name, wanted
            case "document":
                return "JSON.SET", key, name, wanted
        return (name, key) if wanted is None else (name, key, wanted)

    def repairing(self) -> tuple[bytes | str | int, ...] | None:
        """Return a command that repairs only this value; None if no command can repair it."""
        if self.group in ("item", "count"):
            return None
        statement = self.statement()
        # The time to live is a separate candidate.
        return (*statement, "KEEPTTL") if statement[0] == "SET" else statement


class Kept:
    """The differences found, each at the last row that writes the value.

    Args:
        most: maximum number of differences.
        max_bytes: maximum memory in bytes.
    """

    def __init__(self, most: int, max_bytes: int = MAX_BYTES) -> None:
        self._most = most
        self._max_bytes = max_bytes
        self._bytes = 0
        self._found: dict[Slot, Candidate] = {}
        self._of_keys: dict[bytes, set[Slot]] = {}
        # By key: the differences that an expiry of the key would explain.
        self._lacking: dict[bytes, set[Slot]] = {}
        # Documents and their parts, by location.
        self._documents = Places()
        # The known types of keys.
        self._types: dict[bytes, bytes] = {}
        # Keys with differences from which later rows remove items.
        self._thinned: set[bytes] = set()
        # Keys that have more items than the source has named: the command that counts the items,
        # the number of named items, and the last row that named an item.
        self._open: dict[bytes, tuple[bytes, int, int]] = {}
        # Number of these keys that did not fit among the candidates.
        self.left_out = 0
        # Number of documents that could not be compared: later rows write unknown parts.
        self.unknown = 0

    def __len__(self) -> int:
        return len(self._found)

    def __iter__(self) -> Iterator[Candidate]:
        for each in self._found.values():
            name = self._types.get(each.key) if each.kind == "type" else None
            yield each if name is None else replace(each, found=name, size=len(name))

    def add(
        self, kind: str, row: int, key: bytes, group: str, name: Any, wanted: Any, found: Any,
        size: int,
    ) -> bool:  # fmt: skip
        """Store a difference; return whether the maximum number or memory is reached."""
        candidate = Candidate(kind, row, key, group, name, wanted, found, size)
        self._drop(candidate.slot)  # keeps the order of the rows
        self._found[candidate.slot] = candidate
        self._of_keys.setdefault(key, set()).add(candidate.slot)
        if kind == "missing" or (group == "time" and found < 0):
            self._lacking.setdefault(key, set()).add(candidate.slot)
        if group == "document":
            self._documents.add(candidate.slot, place_in(name))
        self._bytes += candidate.memory
        return len(self._found) >= self._most or self._bytes >= self._max_bytes

    def _replace(self, slot: Slot, candidate: Candidate | None) -> None:
        """Replace the candidate of a slot; drop it if the new candidate is None."""
        if candidate is None:
            self._drop(slot)
            return
        self._bytes += candidate.memory - self._found[slot].memory
        self._found[slot] = candidate

    def overwrite(self, key: bytes, group: str, name: bytes | None, makes: bool) -> None:
        """Forget the differences of a value that a later row writes or removes.

        Args:
            key: the key.
            group: as in Candidate.
            name: as in Candidate.
            makes: whether the row creates a missing key; if not, the row only removes an item.
        """
        slots = self._of_keys.get(key)
        if slots is None:
            return
        gone: list[Slot] = [(key, group, name)]
        if makes:
            gone.append((key, "value", None))  # an earlier DEL of the key no longer counts
        elif group != "time":
            self._thinned.add(key)
        for slot in gone:
            self._drop(slot)

    def change(self, key: bytes, path: bytes, part: bytes) -> None:
        """Update the differences of a document of which a later row writes a part."""
        self.overwrite(key, "document", path, makes=True)
        place = place_in(path)
        unclear = self._documents.unclear(key, place)
        self.unknown += len(unclear)
        for slot in [*unclear, *self._documents.within(key, place)]:
            self._drop(slot)
        for slot, rest in self._documents.around(key, place):
            try:
                self._replace(slot, with_later(self._found[slot], rest, part))
            except ValueError:
                self._drop(slot)
                self.unknown += 1

    def remake(self, key: bytes) -> None:
        """Forget the missing items of a key that may have expired before a later row created it."""
        for slot in [*self._lacking.get(key, ())]:
            self._drop(slot)

    def erase(self, key: bytes, keeps_time: bool) -> None:
        """Forget the differences of a key that a later row overwrites.

        Args:
            key: the key.
            keeps_time: whether to keep a difference in the key's time to live.
        """
        self._open.pop(key, None)
        self._thinned.discard(key)
        for slot in [*self._of_keys.get(key, ())]:
            if not (keeps_time and slot[1] == "time"):
                self._drop(slot)

    def _drop(self, slot: Slot) -> None:
        candidate = self._found.pop(slot, None)
        if candidate is None:
            return
        self._bytes -= candidate.memory
        for of_keys in (self._of_keys, self._lacking):
            if slots := of_keys.get(slot[0]):
                slots.discard(slot)
                if not slots:
                    del of_keys[slot[0]]
        if candidate.group == "document":
            self._documents.remove(slot, place_in(candidate.name))

    def note_type(self, key: bytes, name: bytes) -> None:
        """Note the type of a key, to report a wrong type."""
        self._types[key] = name

    def known(self, key: bytes) -> int:
        """Return the number of a key's items that the source has named.

        -1 unless ``open()`` noted that the key has more items than that.
        """
        found = self._open.get(key)
        return -1 if found is None else found[1]

    def open(self, key: bytes, verb: bytes, known: int, row: int) -> None:
        """Note a key that has more items than the source has named.

        Args:
            key: the key.
            verb: the name of the command that counts the items.
            known: number of items that the source has named.
            row: index of the last row that named an item.
        """
        self._open[key] = (verb, known, row)

    def close(self, key: bytes) -> None:
        """Note that a key has no more items than the source has named."""
        self._open.pop(key, None)

    def forget_counts(self) -> None:
        """Forget which keys have more items than the source has named.

        Called if not all rows were compared.
        """
        self._open.clear()

    def candidates(self) -> list[Candidate]:
        """Return all differences, and keys with too many items, in the order of the source.

        A missing time to live is not a difference if later rows remove items of the key: removing
        the last item deletes the key. It is a difference if other items of the key are missing.
        """
        missing = {each.key for each in self if each.kind == "missing" and each.group != "time"}
        for key in self._thinned - missing:
            found = self._found.get((key, "time", None))
            if found is not None and found.kind == "missing":
                self._drop(found.slot)
        room = max(self._most - len(self), 0)
        counts = [
            Candidate("extra", row, key, "count", verb, known, None, 0)
            for key, (verb, known, row) in islice(self._open.items(), room)
        ]
        self.left_out = len(self._open) - len(counts)
        return sorted([*self, *counts], key=lambda each: each.row) if counts else [*self]


def with_later(before: Candidate, place: Place, part: bytes) -> Candidate | None:
    """Apply a later row's write of a part to a document that differs.

    Returns:
        The candidate after the write; None if only the written part may differ, since that part has
        a separate candidate.

    Raises:
        ValueError: the effect of the write is unknown.
    """
    wanted = with_part(before.wanted, place, part)
    if before.kind != "value":
        return replace(before, wanted=wanted)
    if before.size > len(before.found):
        return replace(before, wanted=wanted, rest=b"")
    whole = place_in(before.name) == ()
    found = before.found if before.rest is None else before.rest
    # The reply to a path is a list of its matches.
    rest = with_part(found, place if whole else (0, *place), part)
    return None if same_document(wanted, rest, whole) else replace(before, wanted=wanted, rest=rest)


def settled(first: list[Candidate], second: Kept) -> tuple[list[tuple[Candidate, bool]], int]:
    """Compare differences with the result of their recheck.

    Args:
        first: the differences.
        second: the remaining differences; their rows are indexes in ``first``.

    Returns:
        The remaining differences, each with whether the found value changed before the recheck; and
        the number of values that no longer differ.
    """
    left = {each.row: each for each in second}
    # Items that have appeared since the items of their key were counted.
    back = Counter(
        each.key for at, each in enumerate(first)
        if each.kind == "missing" and each.group in COUNTED
        and (at not in left or left[at].kind == "value")
    )  # fmt: skip
    still = []
    for now in second:
        before = first[now.row]
        if before.group == "count":
            before = replace(before, wanted=before.wanted + back[before.key])
            if now.found <= before.wanted:
                continue
        if now.kind == "type":  # no read but TYPE returns the type
            changed = before.kind not in ("type", "missing")
        else:
            same = now.found == before.found or before.group in ("time", "count")
            changed = not same or before.kind != now.kind
        still.append((replace(before, kind=now.kind, found=now.found, size=now.size), changed))
    # Candidates for which the first comparison was inconclusive.
    unknown = sum(each.rest == b"" for at, each in enumerate(first) if at not in left)
    return still, len(first) - len(still) - unknown
