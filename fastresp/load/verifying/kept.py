"""What differs so far, until a later row overwrites it or a second look settles it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any, TypeAlias

from .documents import Place, Places, place_in, with_part
from .values import same_document

__all__ = ["Candidate", "Kept", "settled"]

# What a candidate is about: a key, what kind of name it has in the key, and the name.
Slot: TypeAlias = tuple[bytes, str, bytes | int | None]

# The groups of items that a key has a number of.
COUNTED = ("field", "member", "score")
# Memory for each candidate besides its texts.
CANDIDATE_BYTES = 1000
# The most memory for all of them, whatever their number.
MOST_BYTES = 512 << 20


@dataclass(frozen=True, slots=True)
class Candidate:
    """A value that differs, as far as it was looked at.

    Attributes:
        kind: "missing", "value", "type", "ttl" or "extra".
        row: of the source.
        key: of the server.
        group: what it is in the key: "value", "field", "member", "score", "item", "document",
            "time" or "count".
        name: the field, the member, the index in the list, the path, or the command that says it.
        wanted: what the source says; None if nothing must be there.
        found: what the server said.
        size: of what was found, if it is a text, in bytes.
        rest: of a document, what was found, but parts that later rows write as they say; empty if
            that is unknown; None if no row does.
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
        """Return a command that says only this, for a second look."""
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
        """Return a command that makes it so, and nothing else; None if no command can."""
        if self.group in ("item", "count"):
            return None
        statement = self.statement()
        # The time to live was compared on its own.
        return (*statement, "KEEPTTL") if statement[0] == "SET" else statement


class Kept:
    """The differences found so far, each in the place of the last row that writes the value.

    Args:
        most: keep at most this many.
        most_bytes: keep no more once they have this many bytes.
    """

    def __init__(self, most: int, most_bytes: int = MOST_BYTES) -> None:
        self._most = most
        self._most_bytes = most_bytes
        self._bytes = 0
        self._found: dict[Slot, Candidate] = {}
        self._of_keys: dict[bytes, set[Slot]] = {}
        # Of these, what a key that has expired lacks.
        self._lacking: dict[bytes, set[Slot]] = {}
        # Documents and parts of them, by their places.
        self._documents = Places()
        # The types of keys, as far as they were asked for.
        self._types: dict[bytes, bytes] = {}
        # Keys with differences from which later rows remove items.
        self._thinned: set[bytes] = set()
        # Keys that have more items than the source named so far: which command says how many, how
        # many the source named, and the last row that did.
        self._open: dict[bytes, tuple[bytes, int, int]] = {}
        # How many of these were too many to be candidates.
        self.left_out = 0
        # How many documents could not be compared, since later rows write unknown parts of them.
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
        """Keep a difference; return whether there is no room for more."""
        candidate = Candidate(kind, row, key, group, name, wanted, found, size)
        self._drop(candidate.slot)  # so that it comes after those of the rows between
        self._found[candidate.slot] = candidate
        self._of_keys.setdefault(key, set()).add(candidate.slot)
        if kind == "missing" or (group == "time" and found < 0):
            self._lacking.setdefault(key, set()).add(candidate.slot)
        if group == "document":
            self._documents.add(candidate.slot, place_in(name))
        self._bytes += candidate.memory
        return len(self._found) >= self._most or self._bytes >= self._most_bytes

    def _replace(self, slot: Slot, candidate: Candidate | None) -> None:
        """Put a candidate in the place of another one; None drops that."""
        if candidate is None:
            self._drop(slot)
            return
        self._bytes += candidate.memory - self._found[slot].memory
        self._found[slot] = candidate

    def overwrite(self, key: bytes, group: str, name: bytes | None, makes: bool) -> None:
        """Forget what differs in a value that a later row writes.

        Args:
            makes: whether the key is there afterwards, and not only something less in it.
        """
        slots = self._of_keys.get(key)
        if slots is None:
            return
        gone: list[Slot] = [(key, group, name)]
        if makes:
            gone.append((key, "value", None))  # so it must not be gone
        elif group != "time":
            self._thinned.add(key)
        for slot in gone:
            self._drop(slot)

    def change(self, key: bytes, path: bytes, part: bytes) -> None:
        """Follow what a later row writes to a part of a document: the rest must be as before."""
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
        """Forget what is missing in a key that may have expired before a later row made it."""
        for slot in [*self._lacking.get(key, ())]:
            self._drop(slot)

    def erase(self, key: bytes, keeps_time: bool) -> None:
        """Forget what differs in a key that a later row overwrites."""
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
        """Note the type of a key, for the case that it is not the wanted one."""
        self._types[key] = name

    def known(self, key: bytes) -> int:
        """Return how many items of a key with more of them the source named so far; or -1."""
        found = self._open.get(key)
        return -1 if found is None else found[1]

    def open(self, key: bytes, verb: bytes, known: int, row: int) -> None:
        """Note a key that has more items than the source named so far."""
        self._open[key] = (verb, known, row)

    def close(self, key: bytes) -> None:
        """Note that a key has no more items than the source named."""
        self._open.pop(key, None)

    def forget_counts(self) -> None:
        """Forget which keys have more items: not all rows were compared."""
        self._open.clear()

    def candidates(self) -> list[Candidate]:
        """Return all that differ, in the order of the source, with keys that have more items.

        A key without a time to live, from which later rows remove items, was removed with the last
        of them, unless another one is missing.
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
    """Return a document that differs as it must be after a later row has written a part of it.

    Returns:
        None if nothing differs any more, but the part perhaps, which has its own candidate.

    Raises:
        ValueError: it is unknown what the row did to it.
    """
    wanted = with_part(before.wanted, place, part)
    if before.kind != "value":
        return replace(before, wanted=wanted)
    if before.size > len(before.found):
        return replace(before, wanted=wanted, rest=b"")
    whole = place_in(before.name) == ()
    found = before.found if before.rest is None else before.rest
    # A path is answered by a list of what it finds.
    rest = with_part(found, place if whole else (0, *place), part)
    return None if same_document(wanted, rest, whole) else replace(before, wanted=wanted, rest=rest)


def settled(first: list[Candidate], second: Kept) -> tuple[list[tuple[Candidate, bool]], int]:
    """Compare two looks.

    Args:
        first: what differed.
        second: what still does; its rows are indexes in ``first``.

    Returns:
        What still differs, each with whether it changed in between; and how many do not any more.
    """
    left = {each.row: each for each in second}
    # Items that were not there when those of their key were counted, but are now.
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
        if now.kind == "type":  # MGET finds nothing in such a key, and others do not say the type
            changed = before.kind not in ("type", "missing")
        else:
            same = now.found == before.found or before.group in ("time", "count")
            changed = not same or before.kind != now.kind
        still.append((replace(before, kind=now.kind, found=now.found, size=now.size), changed))
    # Of these, the first look did not know whether they differ.
    unknown = sum(each.rest == b"" for at, each in enumerate(first) if at not in left)
    return still, len(first) - len(still) - unknown
