"""All exceptions that fastresp raises."""

from __future__ import annotations

from redis import exceptions as redis_errors

from .command_error import CommandError, FastrespError, RowLocation
from .messages import LINE_SHOWN, Message, replace_start, shortened, visible
from .report import LoadErrors, PushError, Report

__all__ = [
    "CheckpointError", "CommandError", "DecodeError", "EncodeError", "FastrespError", "LeaseError",
    "LoadErrors", "ProtocolError", "PushError", "SourceError", "TemplateError", "TransportError",
    "TransportTimeout",
]  # fmt: skip

# Maximum characters in the message of a TemplateError.
MESSAGE_CHARACTERS = 1000


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
