"""The base class of all exceptions, the location of an error's row, and error replies."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from redis import exceptions as redis_errors

from .messages import Hint, Message, visible
from .passwords import redacted, without_passwords

__all__ = [
    "CommandError", "FastrespError", "RowLocation", "RowLocator", "location_text",
]  # fmt: skip

# If the source is files: receives the index of a row in the whole source; returns the row's file,
# and the index of the row in this file.
RowLocator: TypeAlias = Callable[[int], tuple[str, int]]


class RowLocation:
    """The location of the row that an exception is about; attributes as in CommandError."""

    row: int | None = None
    file: str | None = None
    row_in_file: int | None = None
    line: int | None = None
    row_key: str = ""

    def set_file(self, file: str, row: int) -> None:
        """Set the file of the row, and the row's index in that file."""
        self.file, self.row_in_file = file, row

    def set_line(self, line: int) -> None:
        """Set the line of the row in its file."""
        self.line = line

    def set_row_key(self, row_key: str) -> None:
        """Set ``row_key``."""
        self.row_key = row_key

    @property
    def place(self) -> str:
        """The row's location, such as ``row 3 (id=17), line 5 of users.csv``; empty if unknown."""
        if self.row is None:
            return self.file or ""
        row = self.row if self.row_in_file is None else self.row_in_file
        return location_text(row, self.file, self.line, self.row_key)


def location_text(row: int, file: str | None, line: int | None, key: str = "") -> str:
    """Describe the location of a row. If ``file`` is set, ``row`` is the index in this file."""
    where = f"row {row:,} ({key})" if key else f"row {row:,}"
    if line is not None:
        where += f", line {line:,}"
    return where if file is None else f"{where} of {file}"


class FastrespError(Exception):
    """Base class of all exceptions of this package."""

    __repr__ = Exception.__repr__  # redis-py's __repr__ omits the text

    def __str__(self) -> str:
        return visible(super().__str__())

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle all attributes, whatever the arguments of ``__init__`` are."""
        return _made, (type(self), self.args), vars(self)

    @property
    def message(self) -> str:
        """The text of the exception; a Message if the text names options."""
        first = self.args[0] if self.args else None
        return first if isinstance(first, Message) else str(self)

    @property
    def hints(self) -> list[Hint]:
        """The options that the message names, with the recommended values."""
        message = self.message
        return message.hints if isinstance(message, Message) else []


def _made(kind: type[FastrespError], args: tuple[Any, ...]) -> FastrespError:
    """Create an exception without calling ``__init__``."""
    error = kind.__new__(kind, *args)
    error.args = args
    return error


class CommandError(RowLocation, FastrespError, redis_errors.ResponseError):
    """The server returned an error reply to a command.

    Attributes:
        text: the server's message, such as ``WRONGTYPE Operation against a key ...``.
        code: the first word of the text, such as ``WRONGTYPE``, ``OOM``, ``ERR``.
        index: index of the command in the load, counted from 0; None if unknown, as with
            ``redis-cli --pipe``.
        row: index of the source row in the whole load, counted from 0; None if unknown.
        file: the path of the row's file; None if unknown, or if the source is not files.
        row_in_file: the row's index in the file, counted from 0; None if ``file`` is None.
        line: the physical line of the (uncompressed) file in which the row begins, counted from 1.
            It is set at the end of the load, if the file is text and has not changed, and if the
            line is found within 10 seconds. Otherwise, and before that, it is None.
        row_key: the placeholder in a key of the row, and its value, each shortened to 40
            characters, such as ``id=17`` or, for a position, ``{0}=17``; ``key '17'`` if a position
            is the whole key. Empty if unknown, or if no key has exactly one placeholder.
        arguments: the command as it was sent, as a tuple of bytes; None if unknown, or once the
            arguments of earlier errors exceed 8 MiB. Possible passwords, such as in AUTH or CONFIG
            SET requirepass, are replaced by ``(redacted)``, as in SLOWLOG.
        redacted: whether an argument was replaced.
        node: host and port of the cluster node that replied; None for a single server.
        nested: whether the error is an element of a reply, such as the reply to EXEC.
    """

    redacted = False

    def __init__(
        self,
        text: str,
        *,
        index: int | None = None,
        row: int | None = None,
        file: str | None = None,
        row_in_file: int | None = None,
        arguments: tuple[bytes, ...] | None = None,
        nested: bool = False,
        node: str | None = None,
        row_key: str = "",
    ) -> None:
        text = without_passwords(text, arguments or ())
        if arguments:
            sent, arguments = arguments, redacted(arguments)
            self.redacted = arguments is not sent
        super().__init__(text)
        self.text = text
        self.code = text.partition(" ")[0]
        self.index = index
        self.row = row
        self.file = file
        self.row_in_file = row_in_file
        self.arguments = arguments
        self.nested = nested
        self.node = node
        self.row_key = row_key

    def __str__(self) -> str:
        where = f"{self.place}, " if self.place else ""
        text = visible(self.text).replace("\n", "\\n") or "(empty error reply)"
        node = "" if self.node is None else f" (node {self.node})"
        return text if self.index is None else f"{where}command {self.index:,}: {text}{node}"
