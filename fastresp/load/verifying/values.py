"""Compare scores and JSON documents, and apply later writes to parts of documents."""

from __future__ import annotations

import json
import re
from typing import Any, TypeAlias

__all__ = [
    "Location",
    "location_of",
    "replace_part",
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


def same_score(wanted: bytes, found: bytes) -> bool:
    """Return whether two texts are the same score."""
    first, second = _score(wanted), _score(found)
    return first is not None and first == second


def _score(text: bytes) -> float | None:
    try:
        # A server also accepts hexadecimal numbers: strtod() in C.
        return float.fromhex(text.decode()) if b"x" in text.lower() else float(text)
    except ValueError:
        return None


def same_document(wanted: bytes, found: bytes, whole: bool) -> bool:
    """Return whether two texts are the same JSON value.

    Args:
        wanted: the value in the source.
        found: the reply to JSON.GET.
        whole: whether ``found`` is the whole document; if not, it is a list of a path's matches.
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


def replace_part(document: bytes, location: Location, part: bytes) -> bytes:
    """Return a document after JSON.SET of a part.

    Raises:
        ValueError: a text is not JSON, or the document has no place for the part.
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
        raise ValueError("there is no such place")
    parent[last] = value
    return json.dumps(root).encode()


def _at(parent: Any, step: str | int) -> Any:
    """Return a part of a JSON value; None if the part is missing."""
    if isinstance(parent, dict):
        return parent.get(step) if isinstance(step, str) else None
    if isinstance(parent, list) and isinstance(step, int) and step < len(parent):
        return parent[step]
    return None
