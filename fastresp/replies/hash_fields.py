"""The fields to read from hashes, and errors about them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from ..outcome.errors import CommandError, DecodeError, EncodeError
from ..outcome.messages import with_advice
from ..resp.split import arguments
from .arrow_out import StringBatch
from .key_pattern import not_text, shown_key
from .reply_columns import ReplyColumns
from .reply_core import ReplyCore

__all__ = ["HashFields", "advising", "key_of"]

# A batch also ends at this size.
BATCH_BYTES = 32 << 20


class HashFields:
    """The fields to read from each hash.

    Args:
        names: the names of the fields.
        batch_rows: the maximum number of rows in a batch.

    Attributes:
        found: whether the keys were found by a pattern.
    """

    def __init__(self, names: list[str], batch_rows: int) -> None:
        self.names = names
        self.batch_rows = batch_rows
        self.found = False

    def taken(self, columns: ReplyColumns, *, rest: bool = False) -> Iterator[StringBatch]:
        """Remove and yield full batches of rows; if ``rest`` is True, remove and yield all rows."""
        while rest or columns.rows >= self.batch_rows or columns.nbytes >= BATCH_BYTES:
            batch = columns.take(self.batch_rows)
            if batch is None:
                return
            yield batch

    def ignores(self, text: str) -> bool:
        """Return whether to ignore an error: a key changed its type after SCAN found the key."""
        return self.found and text.startswith("WRONGTYPE ")

    def error(self, text: str, key: bytes, index: int) -> CommandError:
        """Return the exception for an error reply."""
        return CommandError(f"{text} (key {shown_key(key)})", index=index)

    def not_text(self, key: bytes, column: int) -> DecodeError:
        """Return the exception for a value that is not UTF-8."""
        field = self.names[column]
        return not_text(f"field {field!r} of key {shown_key(key)}", key, field)


def key_of(core: ReplyCore, index: int) -> bytes:
    """Return the key of a command in flight; ``index`` is the command's index in the window."""
    return arguments(core.window.command(index)[1])[1]


@contextmanager
def advising() -> Iterator[None]:
    """In an EncodeError, replace advice that is useful only for loads."""
    try:
        yield
    except EncodeError as error:
        error.args = (with_advice(error.message, "keys must be str, bytes or numbers"),)
        raise
