"""The columns of keys and values: patterns such as ``"user:{id}"``, and the names of fields."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from ..outcome.errors import SourceError
from ..outcome.messages import LINE_SHOWN, Hint, Message, shortened

__all__ = [
    "ENTRY_ID", "EXPIRES_AT", "MAX_FIELDS", "Pattern", "VALUE_COLUMNS", "as_pattern", "as_target",
    "binary_columns", "check_names", "checked_fields", "choose_fields", "column_names",
    "expiry_name",
]  # fmt: skip

# The maximum number of field names, each of which becomes a column.
MAX_FIELDS = 10_000
# The default name of the column with the time of expiry.
EXPIRES_AT = "expires_at"
# The column of the IDs of a stream's entries; the key's column is often named "id".
ENTRY_ID = "entry_id"
# The columns after the key's column, by type; in hashes and streams, the fields follow.
VALUE_COLUMNS: dict[str, tuple[str, ...]] = {
    "string": ("value",), "json": ("value",), "set": ("member",), "zset": ("member", "score"),
    "list": ("item",), "hash": (), "stream": (ENTRY_ID,),
}  # fmt: skip
# Doubled braces, a placeholder, an unbalanced brace, or text.
PIECES = re.compile(r"\{\{|\}\}|\{([^{}]*)\}|[{}]|[^{}]+")
# Special characters in the patterns of SCAN.
GLOB = re.compile(r"([*?\[\]\\^])")


@dataclass(frozen=True)
class Pattern:
    """A pattern of keys that names the part of a key to read as a column.

    Attributes:
        glob: the pattern for SCAN; the key if ``single`` is set.
        column: the name of the column.
        head, tail: the number of bytes before and after the part of a key that becomes the column.
        single: whether this is a single key, not a pattern.
    """

    glob: str
    column: str = "key"
    head: int = 0
    tail: int = 0
    single: bool = False


def as_pattern(text: str, *, single: bool = False) -> Pattern:
    """Parse a pattern such as ``user:*`` or ``user:{id}`` or, if ``single`` is set, a single key.

    Raises:
        ValueError: the text is not a pattern.
    """
    named = repr(shortened(text, LINE_SHOWN))
    literal = [""]
    names = []
    for piece in PIECES.finditer(text):
        if piece[1] is not None:
            names.append(piece[1])
            literal.append("")
        elif piece[0] in ("{", "}"):
            raise ValueError(
                f"{named} has an unbalanced brace; write '{{{{' or '}}}}' for a literal one"
            )
        else:
            literal[-1] += piece[0][0] if piece[0] in ("{{", "}}") else piece[0]
    if len(names) > 1 or any(not name or name[0] == "*" or "!" in name for name in names):
        raise ValueError(
            f"{named} is not a pattern; put exactly one name in braces, as in 'user:{{id}}'"
        )
    if names:
        before, after = literal
        glob = f"{_escaped(before)}*{_escaped(after)}"
        return Pattern(glob, names[0], len(before.encode()), len(after.encode()))
    if not GLOB.search(literal[0]):
        if single:
            return Pattern(literal[0], single=True)
        raise ValueError(
            f"{named} is one key, not a pattern such as 'user:*' or 'user:{{id}}'; for a single "
            "key use a list: [key]"
        )
    return Pattern(literal[0])


def _escaped(text: str) -> str:
    return GLOB.sub(r"\\\1", text)


def as_target(text: str) -> Pattern:
    """Parse a pattern such as ``user:{id}``, or a single key."""
    return as_pattern(text, single=True)


def expiry_name(ttl: bool | str | None) -> str | None:
    """Return the name of the column with the time of expiry; None if there is no such column."""
    name = EXPIRES_AT if ttl is True else ttl or None
    if name is not None and not isinstance(name, str):
        raise TypeError(f"ttl must be True or the name of a column, not {ttl!r}")
    return name


def column_names(fields: Iterable[bytes], kind: str, target: Pattern) -> list[str]:
    """Return the names of fields as str.

    Raises:
        SourceError: a name can't be the name of a column.
    """
    try:
        names = [name.decode() for name in fields]
    except UnicodeDecodeError as error:
        raise choose_fields(
            f"a {kind} has a field whose name is not UTF-8, {error.object[:40]!r}; choose others "
            "with "
        ) from error
    if target.column in names:
        raise choose_fields(
            f"a {kind} has a field {target.column!r}, which is also the name of the key's column; "
            "rename the column, as in 'user:{key_id}', or choose other fields with "
        )
    if kind == "stream" and ENTRY_ID in names:
        raise choose_fields(
            f"a stream has a field {ENTRY_ID!r}, which is also the name of the column of IDs; "
            "choose other fields with "
        )
    return checked_fields(names) if names else []


def choose_fields(message: str) -> SourceError:
    return SourceError(Message(message, Hint("fields", ...)))


def check_names(columns: list[str]) -> None:
    double = [name for name, count in Counter(columns).items() if count > 1]
    if double:
        raise ValueError(f"two columns are named {double[0]!r}; rename one")


def checked_fields(fields: Iterable[str]) -> list[str]:
    """Check the names of the fields, and return them as a list."""
    if isinstance(fields, (str, bytes)) or not hasattr(fields, "__iter__"):
        raise TypeError(f"fields must be a list of names, not one {type(fields).__name__}")
    names = [*fields]
    if not names:
        raise ValueError("fields is empty; name at least one")
    for name in names:
        if not isinstance(name, str):
            raise TypeError(f"the name of a field must be a str, not {name!r}")
        if "\0" in name:
            raise ValueError(f"{name!r} can't be a column: Arrow allows no NUL in names")
    return names


def binary_columns(binary: bool | Iterable[str], names: list[str]) -> set[str]:
    """Return the names of the columns to read as bytes."""
    if isinstance(binary, bool):
        return set(names) if binary else set()
    chosen = {binary} if isinstance(binary, str) else set(binary)
    if unknown := chosen.difference(names):
        message = f" names {min(unknown)!r}, but the columns are {', '.join(names)}"
        raise ValueError(Message(Hint("binary"), message))
    return chosen
