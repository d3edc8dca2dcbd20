"""The exceptions that fastresp raises, and the location of an error's row.

``report.py`` has LoadErrors and PushError, which hold the failures of a whole load or push.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias

from redis import exceptions as redis_errors

from .messages import LINE_SHOWN, Hint, Message, replace_start, shortened, visible
from .passwords import redacted, without_passwords

if TYPE_CHECKING:
    from .report import Report

__all__ = [
    "CheckpointError", "CommandError", "DecodeError", "EncodeError", "FastrespError", "LeaseError",
    "ProtocolError", "RowLocation", "RowLocator", "SourceError", "TemplateError", "TransportError",
    "TransportTimeout", "location_text",
]  # fmt: skip

# Maximum characters in the message of a TemplateError.
MESSAGE_CHARACTERS = 1000
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


def with_line(text: str, error: RowLocation) -> str:
    """Insert the line of an error into a text that starts with the file and the row."""
    start = str(error.file)
    if error.line is None or not text.startswith(start):
        return text
    named = f"line {error.line:,}" if error.row_in_file is None else f", line {error.line:,}: "
    if named in text:
        return text
    row = "" if error.row_in_file is None else f"{start}: row {error.row_in_file:,}"
    start = row if row and text.startswith(row) else start
    return replace_start(text, f"{start}, line {error.line:,}", len(start))


class EncodeError(RowLocation, FastrespError, TypeError, ValueError):
    """A value can't be encoded, or a command can't be sent in a pipeline.

    No part of the command is sent; earlier commands are not affected.

    Attributes:
        command: index of the command, counted from 0; None outside a load.
        row: index of the source row in the whole load, counted from 0; None if the command is not
            from a row, as in ``pack()``.
        file, row_in_file, line: as in CommandError.
        argument: index of the argument in its command, where 0 is the command's name; None if the
            error is about the whole command.
    """

    def __init__(
        self,
        message: str,
        *,
        command: int | None = None,
        row: int | None = None,
        argument: int | None = None,
    ) -> None:
        super().__init__(message)
        self.command = command
        self.row = row
        self.argument = argument

    def __str__(self) -> str:
        return visible(self.message)

    @property
    def message(self) -> str:
        """The text, with the known details of the row's location."""
        text: str = self.args[0] if self.args else ""
        index = "" if self.row is None else f"row {self.row:,}"
        if index and text.startswith(index):
            return replace_start(text, self.place, len(index))
        return (
            with_line(text, self)
            if self.file is None or self.file in text
            else Message(self.place, ": ", text)
        )


class TemplateError(RowLocation, FastrespError, ValueError):
    """A command template is invalid, or names a field that is missing in a row.

    Attributes:
        template: the text of the template.
        position: index of the character that the caret points at.
        row: index of the source row in the whole load, counted from 0; None if the template itself
            is invalid.
        file, row_in_file, line: as in CommandError.
    """

    def __init__(
        self, message: str, template: str, position: int, *, row: int | None = None
    ) -> None:
        if len(message) > MESSAGE_CHARACTERS:  # it quotes the template
            message = shortened(message, MESSAGE_CHARACTERS)
        super().__init__(message, template, position)
        self.template = template
        self.position = position
        self.row = row

    def __str__(self) -> str:
        start = self.template.rfind("\n", 0, self.position) + 1
        end = self.template.find("\n", start)
        end = len(self.template) if end < 0 else end
        # If the line is long, show only the part around the position.
        first = max(start, min(self.position - LINE_SHOWN // 2, end - LINE_SHOWN))
        line = self.template[first : min(end, first + LINE_SHOWN)].replace("\t", " ")
        cut, more = "..." * (first > start), "..." * (end > first + LINE_SHOWN)
        caret = " " * (self.position - first + len(cut)) + "^"
        where = f"{self.place}: " if self.place else ""
        return visible(f"{where}{self.args[0]}\n    {cut}{line}{more}\n    {caret}")


class SourceError(RowLocation, FastrespError, ValueError):
    """The source of a load can't be read.

    Attributes:
        row_in_file: index in the file, counted from 0, of a row with the wrong number of fields or
            invalid JSON; None for other errors.
        file: the file of the row, or of an unclosed quote; None for other errors.
        line: the physical line of the row or the quote, as in CommandError.
    """

    def __init__(
        self,
        message: str,
        *,
        row_in_file: int | None = None,
        line: int | None = None,
        file: str | None = None,
    ) -> None:
        super().__init__(message)
        self.row_in_file, self.line, self.file = row_in_file, line, file

    def __str__(self) -> str:
        return visible(self.message)

    @property
    def message(self) -> str:
        """The text, with the line if it is known."""
        text: str = self.args[0] if self.args else ""
        return with_line(text, self)


class DecodeError(FastrespError, ValueError):
    """A value from the server is not valid UTF-8, but text was requested.

    Attributes:
        key: the key of the value; empty if the value is a reply.
        column: the column of the value; empty if the value is a reply.
    """

    def __init__(self, message: str, *, key: bytes = b"", column: str = "") -> None:
        super().__init__(message)
        self.key = key
        self.column = column


class CheckpointError(FastrespError, ValueError):
    """A load can't start, resume or continue with its checkpoint.

    Nothing was sent, except if another loader took over, the checkpoint was deleted, or a server
    was restarted during the load.

    Attributes:
        again: whether the load can be resumed later, with ``resume``. This is possible if another
            loader is active, or a server was restarted or replaced.
    """

    again = False


class ProtocolError(FastrespError, ValueError):
    """The input is not valid RESP.

    Attributes:
        offset: byte position of the error in the stream, counted from 0; None if there is no
            stream.
        before: a description of the whole commands that precede the error; empty if unknown.
    """

    def __init__(self, message: str, offset: int | None, before: str = "") -> None:
        super().__init__(message, offset, before)
        self.offset = offset
        self.before = before

    def __str__(self) -> str:
        return visible(self.message)

    @property
    def message(self) -> str:
        before = f"\n{self.before}" if self.before else ""
        where = "" if self.offset is None else f" (at byte {self.offset:,})"
        return Message(self.args[0], where, before)


class TransportError(FastrespError, redis_errors.ConnectionError, ConnectionError):
    """The server or redis-cli can't be used, or the connection was lost.

    Attributes:
        report: the report of the load; None if nothing was sent.
    """

    def __init__(self, message: str, report: Report | None = None) -> None:
        super().__init__(message)
        self.report = report

    def __str__(self) -> str:
        message = super().__str__()
        return message if self.report is None else f"{message}\n{self.report}"


class TransportTimeout(TransportError, redis_errors.TimeoutError, TimeoutError):
    """The server made no progress for ``timeout`` seconds."""


class LeaseError(FastrespError):
    """The lease of this consumer expired, and another consumer has put the items back."""
