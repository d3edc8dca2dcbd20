"""Parse key patterns, such as ``"user:{id}"``, and find matching keys."""

from __future__ import annotations

import re
from collections.abc import Generator
from contextlib import closing
from dataclasses import dataclass

from ..outcome.errors import DecodeError, TransportError
from ..outcome.messages import LINE_SHOWN, Hint, Message, shortened
from ..server.settings import Server
from .arrow_out import StringBatch
from .growing_columns import string_column
from .scan import Scan

__all__ = ["Found", "Pattern", "as_pattern", "is_text", "not_text", "shown_key"]

# Doubled braces, a placeholder, an unbalanced brace, or text.
PIECES = re.compile(r"\{\{|\}\}|\{([^{}]*)\}|[{}]|[^{}]+")
# Special characters in the patterns of SCAN.
GLOB = re.compile(r"([*?\[\]\\^])")
SHOWN_BYTES = 40


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
    """Parse a pattern such as ``user:*`` or ``user:{id}``.

    Args:
        text: the pattern.
        single: whether to accept a single key.

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


class Found:
    """Finds the keys of a pattern, and makes the column of keys.

    Args:
        pattern: the pattern.
        server: the server to search, over a separate connection.
        timeout: seconds to wait for each reply; None for no limit.
        slots: find only keys of these slots; None for all slots.

    Attributes:
        kept: the found keys whose rows are not returned yet.
    """

    def __init__(
        self, pattern: Pattern, server: Server, timeout: float | None, slots: range | None = None
    ) -> None:
        self.pattern = pattern
        self._server = server
        self.kept: list[bytes] = []
        self._scan = Scan(server, timeout, slots)

    def pages(self) -> Generator[list[bytes], None, None]:
        """Yield the keys in pages; each next page is requested in advance.

        Raises:
            CommandError, TransportError, TransportTimeout: as ``Scan.pages()``.
        """
        server, pattern = self._server, self.pattern
        if pattern.single:
            self.kept.append(pattern.glob.encode())
            yield [*self.kept]
            return
        with closing(self._scan.pages(pattern.glob, "hash")) as found:
            for page in found:
                check_keys_of(server, pattern, page)
                self.kept += page
                yield page

    def disconnect(self) -> None:
        """Interrupt a SCAN that another thread waits for."""
        self._scan.disconnect()

    def added(self, batch: StringBatch, *, text: bool) -> StringBatch:
        """Return the batch with the column of keys prepended.

        Raises:
            DecodeError: a key is not UTF-8.
        """
        keys, self.kept = self.kept[: len(batch)], self.kept[len(batch) :]
        pattern = self.pattern
        try:
            column = string_column(keys, head=pattern.head, tail=pattern.tail, text=text)
        except UnicodeDecodeError as error:
            key = next(key for key in keys if not is_text(key))
            raise not_text(f"key {shown_key(key)}", key, pattern.column) from error
        return StringBatch([pattern.column, *batch.names], [column, *batch.columns])


def check_keys_of(server: Server, pattern: Pattern, keys: list[bytes]) -> None:
    """Refuse keys that are too short for the pattern.

    Raises:
        TransportError: SCAN returned a key that does not match.
    """
    for key in keys:
        if len(key) < pattern.head + pattern.tail:
            raise TransportError(
                f"can't read from the server at {server}: SCAN returned {shown_key(key)}, which "
                "does not match the pattern"
            )


def not_text(what: str, key: bytes, column: str) -> DecodeError:
    message = Message(
        f"{what} is not UTF-8; name {column!r} ", Hint("binary", ..., "in"), " to get bytes"
    )
    return DecodeError(message, key=key, column=column)


def is_text(value: bytes) -> bool:
    """Return whether bytes are UTF-8."""
    try:
        value.decode()
    except UnicodeDecodeError:
        return False
    return True


def shown_key(key: bytes) -> str:
    """Return a key for a message, shortened if it is long."""
    if len(key) > SHOWN_BYTES:
        return f"{key[:SHOWN_BYTES]!r}..."
    return repr(key.decode() if is_text(key) else key)
