"""Compare scores and documents whose bytes differ."""

from __future__ import annotations

import json
from typing import Any

__all__ = ["document_of", "same_document", "same_score"]

# Integers outside this range are stored as floats. Source: RedisJSON, serde_json's Number.
MIN_WHOLE, MAX_WHOLE = -(1 << 63), (1 << 64) - 1


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
