"""The fields of hashes to read, and what can be wrong with them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from ..outcome.errors import CommandError, DecodeError, EncodeError
from ..outcome.messages import with_advice
from ..resp.split import arguments
from .key_pattern import not_text, shown_key
from .reply_core import ReplyCore

__all__ = ["HashFields", "advising", "key_of"]


class HashFields:
    """The fields of a reading.

    Args:
        names: the names of the fields.
        text: for each field, whether it must be UTF-8.

    Attributes:
        found: whether the keys were found by a pattern.
    """

    def __init__(self, names: list[str], text: list[bool]) -> None:
        self.names = names
        self.text = text
        self.found = False

    def ignores(self, text: str) -> bool:
        """Return whether an error reply says that a key is no longer a hash since SCAN found it."""
        return self.found and text.startswith("WRONGTYPE ")

    def error(self, text: str, key: bytes, index: int) -> CommandError:
        """Return the exception for another error reply."""
        return CommandError(f"{text} (key {shown_key(key)})", index=index)

    def not_text(self, key: bytes, column: int) -> DecodeError:
        """Return the exception for a value that is not UTF-8."""
        field = self.names[column]
        return not_text(f"field {field!r} of key {shown_key(key)}", key, field)


def key_of(core: ReplyCore, index: int) -> bytes:
    """Return the key of a command in flight."""
    return arguments(core.window.command(index)[1])[1]


@contextmanager
def advising() -> Iterator[None]:
    """Replace advice in errors that names options of a load, which a fetch does not have."""
    try:
        yield
    except EncodeError as error:
        error.args = (with_advice(error.message, "keys must be str, bytes or numbers"),)
        raise
