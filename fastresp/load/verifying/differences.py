"""Store differences until later rows overwrite the values, or the differences are rechecked.

A candidate is a difference that has not been rechecked. When later rows write parts of a JSON
document, these writes are applied to the document's candidate.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any, TypeAlias

__all__ = [
    "Candidate",
    "Differences",
    "apply_recheck",
    "missing_items",
    "repairable",
    "same_document",
    "same_score",
]

# Integers outside this range are stored as floats. Source: RedisJSON, serde_json's Number.
MIN_WHOLE, MAX_WHOLE = -(1 << 63), (1 << 64) - 1

# The location of a part in a document: field names and element indexes.
Location: TypeAlias = tuple[str | int, ...]

# A step of a path to a single location: .name, [0], ["name"] or ['name'].
STEP = re.compile(
    r"""\.(?P<name>[^\W\d][\w-]*) | \[(?P<index>\d{1,9})\] | \["(?P<double>[^"\\]*)"\] """
    r"""| \['(?P<single>[^'\\]*)'\]""",
    re.VERBOSE,
)
# Identifies a value in the server: the key, the group of the item in the key, and the item's name.
# For a part of a document, the name is its location, or its path if the location is unknown.
Slot: TypeAlias = tuple[bytes, str, bytes | int | Location | None]

# The groups whose items are counted per key.
COUNTED = ("field", "member", "score")
# Memory in bytes of a candidate, excluding its texts.
CANDIDATE_BYTES = 1000
# Maximum memory of all candidates.
MAX_BYTES = 512 << 20


def same_score(wanted: bytes, found: bytes) -> bool:
    """Return whether two strings are the same score."""
    first, second = _score(wanted), _score(found)
    return first is not None and first == second


def _score(text: bytes) -> float | None:
    try:
        # A server also accepts hexadecimal numbers: strtod() in C.
        return float.fromhex(text.decode()) if b"x" in text.lower() else float(text)
    except ValueError:
        return None


def same_document(wanted: bytes, found: bytes, whole: bool) -> bool:
    """Return whether two JSON texts are the same value.

    Args:
        wanted: the value in the source.
        found: the reply to JSON.GET.
        whole: whether ``found`` is the document; if not, ``found`` is a list of a path's matches.
    """
    try:
        first, second = document_of(wanted), document_of(found)
    except (ValueError, RecursionError):
        return False
    if whole:
        return _same(first, second)
    return isinstance(second, list) and bool(second) and all(_same(first, each) for each in second)


def document_of(text: bytes) -> Any:
    """Return a JSON text as Python objects, with numbers as RedisJSON stores them."""
    return json.loads(text, parse_int=_whole)


def _whole(text: str) -> int | float:
    number = int(text) if len(text) <= len(str(MAX_WHOLE)) else None
    return number if number is not None and MIN_WHOLE <= number <= MAX_WHOLE else float(text)


def _same(a: Any, b: Any) -> bool:
    """Return whether two values are equal; unlike in Python, true is not 1."""
    if isinstance(a, bool) or isinstance(b, bool):
        return a is b
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(_same(value, b[key]) for key, value in a.items())
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(map(_same, a, b))
    return bool(a == b)


def location_of(path: bytes) -> Location | None:
    """Return the location that a path of JSON.SET matches; None if it may match several."""
    try:
        text = path.decode()
    except UnicodeDecodeError:
        return None
    if text in ("$", "."):
        return ()
    text = text[1:] if text.startswith("$") else text
    text = text if text.startswith((".", "[")) else f".{text}"
    steps: list[str | int] = []
    at = 0
    while at < len(text):
        found = STEP.match(text, at)
        if found is None:
            return None
        name = found.lastgroup
        steps.append(int(found["index"]) if name == "index" else found[name or 0])
        at = found.end()
    return tuple(steps)


def replace_part(document: bytes, location: Location, part: bytes) -> bytes:
    """Return a document after a JSON.SET of a part.

    Raises:
        ValueError: ``document`` or ``part`` is not JSON, or the location does not exist.
    """
    try:
        root, value = document_of(document), document_of(part)
    except RecursionError as error:
        raise ValueError("it is nested too deep") from error
    *outer, last = location
    parent: Any = root
    for step in outer:
        parent = _at(parent, step)
    exists = isinstance(parent, dict) and isinstance(last, str)
    if not exists and not (isinstance(parent, list) and last in range(len(parent))):
        raise ValueError("there is no such location")
    parent[last] = value
    return json.dumps(root).encode()


def _at(parent: Any, step: str | int) -> Any:
    """Return a part of a JSON value; None if the part is missing."""
    if isinstance(parent, dict):
        return parent.get(step) if isinstance(step, str) else None
    if isinstance(parent, list) and isinstance(step, int) and step < len(parent):
        return parent[step]
    return None


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
        size: number of bytes of the found value, if the value is a string.
        patched: the found document with the writes of later rows applied; empty if unknown; None if
            no later row writes a part, or if the value is not a document.
        changed: whether the found value changed before the recheck.
        repaired: whether the value was repaired.
    """

    kind: str
    row: int
    key: bytes
    group: str
    name: Any
    wanted: Any
    found: Any
    size: int
    patched: bytes | None = None
    changed: bool = False
    repaired: bool = False

    @property
    def slot(self) -> Slot:
        if self.group in ("time", "count"):
            return self.key, self.group, None
        location = location_of(self.name) if self.group == "document" else None
        return self.key, self.group, self.name if location is None else location

    @property
    def memory(self) -> int:
        texts = (self.key, self.name, self.wanted, self.found, self.patched)
        return CANDIDATE_BYTES + sum(len(each) for each in texts if isinstance(each, bytes))

    def command(self) -> tuple[bytes | str | int, ...]:
        """Return a command that writes only this value, so that only this value is read again."""
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

    def repair_command(self) -> tuple[bytes | str | int, ...] | None:
        """Return a command that repairs only this value; None if no command can repair it."""
        if self.group in ("item", "count"):
            return None
        command = self.command()
        # The key's time to live is a separate candidate.
        return (*command, "KEEPTTL") if command[0] == "SET" else command


class Differences:
    """The differences found; the row of each is the last row that writes the value.

    Attributes:
        types: types of keys, by key, to report a wrong type.
        counts: for each key with more items than the source has: the command that counts the items,
            the number of items that are in the source, and the last row with an item of the key.
            The caller must clear ``counts`` if not all rows were compared.
        omitted_keys: number of keys in ``counts`` that ``candidates()`` left out.
        unknown_documents: number of documents that could not be compared, because later rows write
            unknown parts.
    """

    def __init__(self, max_differences: int, max_bytes: int = MAX_BYTES) -> None:
        self._max_differences = max_differences
        self._max_bytes = max_bytes
        self._bytes = 0
        self._candidates: dict[Slot, Candidate] = {}
        self._by_key: dict[bytes, set[Slot]] = {}
        # By key: the differences that exist if the key has expired.
        self._missing_by_key: dict[bytes, set[Slot]] = {}
        # By key and location: the document or part at this location, and all parts within that. The
        # location is None for parts whose location is unknown.
        self._within: dict[tuple[bytes, Location | None], set[Slot]] = {}
        # Keys with differences from which later rows remove items.
        self._keys_with_removals: set[bytes] = set()
        self.types: dict[bytes, bytes] = {}
        self.counts: dict[bytes, tuple[bytes, int, int]] = {}
        self.omitted_keys = 0
        self.unknown_documents = 0

    def __len__(self) -> int:
        return len(self._candidates)

    def __iter__(self) -> Iterator[Candidate]:
        for each in self._candidates.values():
            name = self.types.get(each.key) if each.kind == "type" else None
            yield each if name is None else replace(each, found=name, size=len(name))

    def add(
        self, kind: str, row: int, key: bytes, group: str, name: Any, wanted: Any, found: Any,
        size: int,
    ) -> bool:  # fmt: skip
        """Store a difference; return whether the maximum number or memory is reached."""
        candidate = Candidate(kind, row, key, group, name, wanted, found, size)
        slot = candidate.slot
        self._drop(slot)  # keeps the order of the rows
        self._candidates[slot] = candidate
        for sets, of in self._sets(candidate, slot):
            sets.setdefault(of, set()).add(slot)
        self._bytes += candidate.memory
        return len(self._candidates) >= self._max_differences or self._bytes >= self._max_bytes

    def _sets(self, candidate: Candidate, slot: Slot) -> Iterator[tuple[dict[Any, set[Slot]], Any]]:
        """Yield (dict, key) for each set ``dict[key]`` that contains the candidate's slot."""
        key, group, name = slot
        yield self._by_key, key
        if candidate.kind == "missing" or (group == "time" and candidate.found < 0):
            yield self._missing_by_key, key
        if isinstance(name, tuple):
            yield from ((self._within, (key, name[:size])) for size in range(len(name) + 1))
        elif group == "document":
            yield self._within, (key, None)

    def overwrite(
        self, key: bytes, group: str, name: bytes | Location | None, creates: bool
    ) -> None:
        """Forget the differences of a value that a later row writes or removes.

        Args:
            key: the key.
            group: as in Candidate.
            name: as in Slot.
            creates: whether the row creates a missing key; if not, the row only removes an item.
        """
        if key not in self._by_key:
            return
        if creates:
            self._drop((key, "value", None))  # an earlier DEL of the key no longer counts
        elif group != "time":
            self._keys_with_removals.add(key)
        self._drop((key, group, name))

    def update_document(self, key: bytes, path: bytes, part: bytes) -> None:
        """Update the differences of a document after a later row wrote a part of the document."""
        location = location_of(path)
        self.overwrite(key, "document", path if location is None else location, creates=True)
        uncertain = [*self._within.get((key, None), ())]
        if location is None:
            uncertain += self._within.get((key, ()), ())
        self.unknown_documents += len(uncertain)
        for slot in [*uncertain, *self._within.get((key, location), ())]:
            self._drop(slot)
        for size in range(len(location or ())):
            outer, inner = location[:size], location[size:]  # type: ignore[index]
            before = self._candidates.get((key, "document", outer))
            if before is not None:
                self._update_part(before, inner, part)

    def _update_part(self, before: Candidate, location: Location, part: bytes) -> None:
        try:
            after = apply_write(before, location, part)
        except ValueError:
            after = None
            self.unknown_documents += 1
        if after is None:
            self._drop(before.slot)
        else:
            self._bytes += after.memory - before.memory
            self._candidates[before.slot] = after

    def forget_missing(self, key: bytes) -> None:
        """Forget a key's missing items: the key may have expired, and a later row creates it."""
        for slot in [*self._missing_by_key.get(key, ())]:
            self._drop(slot)

    def erase(self, key: bytes, keeps_ttl: bool) -> None:
        """Forget the differences of a key that a later row overwrites.

        Args:
            key: the key.
            keeps_ttl: whether to keep a difference in the key's time to live.
        """
        self.counts.pop(key, None)
        self._keys_with_removals.discard(key)
        for slot in [*self._by_key.get(key, ())]:
            if not (keeps_ttl and slot[1] == "time"):
                self._drop(slot)

    def _drop(self, slot: Slot) -> None:
        candidate = self._candidates.pop(slot, None)
        if candidate is None:
            return
        self._bytes -= candidate.memory
        for sets, of in self._sets(candidate, slot):
            sets[of].discard(slot)
            if not sets[of]:
                del sets[of]

    def candidates(self) -> list[Candidate]:
        """Return all differences and the keys with too many items, in the order of the source.

        A missing time to live is no difference if later rows remove items of the key, and no other
        value of the key is missing: removing the last item deletes the key and its time to live.
        """
        for key in self._keys_with_removals - missing_items(self):
            found = self._candidates.get((key, "time", None))
            if found is not None and found.kind == "missing":
                self._drop(found.slot)
        room = max(self._max_differences - len(self), 0)
        counts = [
            Candidate("extra", row, key, "count", verb, known, None, 0)
            for key, (verb, known, row) in islice(self.counts.items(), room)
        ]
        self.omitted_keys = len(self.counts) - len(counts)
        return sorted([*self, *counts], key=lambda each: each.row) if counts else [*self]


def apply_write(before: Candidate, location: Location, part: bytes) -> Candidate | None:
    """Apply a later row's write of a part to the candidate of a document.

    Returns:
        The candidate after the write; None if only the written part may still differ, which has
        its own candidate.

    Raises:
        ValueError: the effect of the write is unknown.
    """
    wanted = replace_part(before.wanted, location, part)
    if before.kind != "value":
        return replace(before, wanted=wanted)
    if before.size > len(before.found):
        return replace(before, wanted=wanted, patched=b"")
    is_document = location_of(before.name) == ()
    found = before.found if before.patched is None else before.patched
    # The reply to a path is a list of its matches.
    patched = replace_part(found, location if is_document else (0, *location), part)
    if same_document(wanted, patched, is_document):
        return None
    return replace(before, wanted=wanted, patched=patched)


def missing_items(candidates: Iterable[Candidate]) -> set[bytes]:
    """Return the keys that lack a value; a missing time to live does not count."""
    return {each.key for each in candidates if each.kind == "missing" and each.group != "time"}


def apply_recheck(first: list[Candidate], second: list[Candidate]) -> tuple[list[Candidate], int]:
    """Apply the results of a recheck to differences.

    Args:
        first: the differences before the recheck.
        second: the differences found by the recheck; their rows are indexes in ``first``.

    Returns:
        (the remaining differences, the number of values that no longer differ).
    """
    left = {each.row: each for each in second}
    # By key: the number of items that were missing when the items were counted, but exist now.
    appeared = Counter(
        each.key for at, each in enumerate(first)
        if each.kind == "missing" and each.group in COUNTED
        and (at not in left or left[at].kind == "value")
    )  # fmt: skip
    remaining = []
    for now in second:
        before = first[now.row]
        if before.group == "count":
            before = replace(before, wanted=before.wanted + appeared[before.key])
            if now.found <= before.wanted:
                continue
        if now.kind == "type":  # only a TYPE read returns the type
            changed = before.kind not in ("type", "missing")
        else:
            same = now.found == before.found or before.group in ("time", "count")
            changed = not same or before.kind != now.kind
        after = replace(before, kind=now.kind, found=now.found, size=now.size, changed=changed)
        remaining.append(after)
    # The first comparison of these candidates was inconclusive.
    unknown = sum(each.patched == b"" for at, each in enumerate(first) if at not in left)
    return remaining, len(first) - len(remaining) - unknown


def repairable(differing: Sequence[Candidate]) -> list[Candidate]:
    """Return the differences that can be repaired and do not depend on unrepairable differences.

    If a difference can't be repaired, for example because its key has the wrong type, all
    differences of the same key and all later differences of the same row are also omitted.
    """
    unrepairable = [each for each in differing if not _is_repairable(each)]
    keys = {each.key for each in unrepairable}
    rows: set[int] = set()
    chosen = []
    for each in differing:
        if not _is_repairable(each):
            rows.add(each.row)
        elif each.key not in keys and each.row not in rows:
            chosen.append(each)
    return chosen


def _is_repairable(each: Candidate) -> bool:
    """Return whether a difference can be repaired by a command, or needs no repair."""
    if each.group == "count":  # a number of items is not a value of the source
        return True
    return each.repair_command() is not None and (each.kind != "type" or each.group == "value")
