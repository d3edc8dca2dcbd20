"""Texts for messages about a missing field: the existing fields, and a suggestion."""

from __future__ import annotations

import re
from collections.abc import Sequence

__all__ = ["is_format", "listed", "meant", "spelled"]

NAMES_SHOWN = 20
# A format specification, such as ``05d`` in the f-string ``f"{id:05d}"``.
FORMAT = re.compile(r"(.?[<>=^])?[-+ ]?#?0?[0-9]*[,_]?(\.[0-9]+)?[bcdeEfFgGnosxX%]?")


def spelled(name: str) -> str:
    """Return a field name as written in a placeholder: in quotes if necessary."""
    plain = name and name == name.strip() and not set(name).intersection('{}!,"')
    return name if plain and name[0] != "*" else f'"{name}"'


def listed(names: Sequence[str]) -> str:
    """Return the first names as text, with the number of other names."""
    text = ", ".join([spelled(name) for name in names[:NAMES_SHOWN]])
    more = len(names) - NAMES_SHOWN
    return f"{text} and {more} more" if more > 0 else text


def is_format(name: str, names: Sequence[object]) -> bool:
    """Return whether a name of ``names``, a colon and a format make up ``name``: ``id:05d``."""
    field, colon, form = name.rpartition(":")
    return bool(colon and field in names and FORMAT.fullmatch(form))


def meant(path: Sequence[str], depth: int, names: Sequence[str]) -> str:
    """Return a suggestion, to end a message about a wrong placeholder; empty if there is none.

    Args:
        path: the names in the placeholder.
        depth: index in ``path`` of the missing name.
        names: the names that exist at this depth.
    """
    before = "".join([f"{name}." for name in path[:depth]])
    rest = ".".join(path[depth:])
    if is_format(rest, names):
        field, _, form = rest.rpartition(":")
        return (
            f"; a placeholder can't have a format such as ':{form}': write {{{before}{field}}}, "
            "and format the value in the data, with an f-string or in the query"
        )
    from difflib import get_close_matches

    folded = {name.strip().casefold(): name for name in reversed(names)}
    near = get_close_matches(path[depth].strip().casefold(), folded, 1)
    after = "".join([f".{name}" for name in path[depth + 1 :]])
    return f"; did you mean {{{before}{spelled(folded[near[0]])}{after}}}?" if near else ""
