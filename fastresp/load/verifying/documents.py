"""Find stored differences in JSON documents of which a later row writes a part."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any, TypeAlias

from .values import document_of

__all__ = ["Place", "Places", "place_in", "with_part"]

# The location of a part in a document: field names and element indexes.
Place: TypeAlias = tuple[str | int, ...]

# A step of a path to a single location: .name, [0], ["name"] or ['name'].
STEP = re.compile(
    r"""\.(?P<name>[^\W\d][\w-]*) | \[(?P<index>\d{1,9})\] | \["(?P<double>[^"\\]*)"\] """
    r"""| \['(?P<single>[^'\\]*)'\]""",
    re.VERBOSE,
)


class Places:
    """Finds documents or parts that differ, by the location that a later row writes.

    Each is identified by its slot: see kept.py.
    """

    def __init__(self) -> None:
        # By key and location (None if unknown): slots at the location, and slots at or below it.
        self._at: dict[tuple[bytes, Place | None], set[Any]] = {}
        self._in: dict[tuple[bytes, Place | None], set[Any]] = {}

    def _sets(self, slot: Any, place: Place | None) -> Iterator[tuple[Any, Any]]:
        key = slot[0]
        yield self._at, (key, place)
        for size in range(0 if place is None else len(place) + 1):
            yield self._in, (key, place and place[:size])

    def add(self, slot: Any, place: Place | None) -> None:
        """Add the slot of a document or part that differs; the location is None if unknown."""
        for sets, name in self._sets(slot, place):
            sets.setdefault(name, set()).add(slot)

    def remove(self, slot: Any, place: Place | None) -> None:
        """Remove a slot."""
        for sets, name in self._sets(slot, place):
            sets[name].discard(slot)
            if not sets[name]:
                del sets[name]

    def unclear(self, key: bytes, place: Place | None) -> list[Any]:
        """Return the slots for which it is unknown whether a write to a location changes them."""
        unknown = [*self._at.get((key, None), ())]
        return [*unknown, *self._in.get((key, ()), ())] if place is None else unknown

    def within(self, key: bytes, place: Place | None) -> list[Any]:
        """Return the slots at or below a location."""
        return [] if place is None else [*self._in.get((key, place), ())]

    def around(self, key: bytes, place: Place | None) -> list[tuple[Any, Place]]:
        """Return the slots of parts that contain a location, each with the location in the part."""
        return [
            (slot, place[size:])
            for size in range(len(place))
            for slot in self._at.get((key, place[:size]), ())
        ] if place else []  # fmt: skip


def place_in(path: bytes) -> Place | None:
    """Return the location that a path of JSON.SET names; None if the path may match several."""
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


def with_part(document: bytes, place: Place, part: bytes) -> bytes:
    """Return a document after JSON.SET of a part.

    Raises:
        ValueError: a text is not JSON, or the document has no place for the part.
    """
    try:
        whole, value = document_of(document), document_of(part)
    except RecursionError as error:
        raise ValueError("it is nested too deep") from error
    *outer, last = place
    parent: Any = whole
    for step in outer:
        parent = _at(parent, step)
    known = isinstance(parent, dict) and isinstance(last, str)
    if not known and not (isinstance(parent, list) and last in range(len(parent))):
        raise ValueError("there is no such place")
    parent[last] = value
    return json.dumps(whole).encode()


def _at(parent: Any, step: str | int) -> Any:
    """Return a part of a JSON value; None if the part is missing."""
    if isinstance(parent, dict):
        return parent.get(step) if isinstance(step, str) else None
    if isinstance(parent, list) and isinstance(step, int) and step < len(parent):
        return parent[step]
    return None
