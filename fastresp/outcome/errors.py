"""Every exception that fastresp raises."""

from __future__ import annotations

from redis import exceptions as redis_errors

from .error_reply import CommandError, FastrespError
from .messages import Message
from .report import LoadErrors, Report

__all__ = [
    "CommandError",
    "DecodeError",
    "EncodeError",
    "FastrespError",
    "LeaseError",
    "LoadErrors",
    "ProtocolError",
    "SourceError",
    "TemplateError",
    "TransportError",
    "TransportTimeout",
]


class EncodeError(FastrespError, TypeError, ValueError):
    """A value has no RESP form, or a command may not be sent in a pipeline.

    The command that it belongs to was taken back whole; those before it are intact.

    Attributes:
        command: index of the command, counted from 0, or None where there is no stream.
        row: index of the source row in the whole load, counted from 0, or None where commands
            are given one by one.
        file, row_in_file: where the source is several files, the one that the row is in, and
            which of its rows it is, counted from 0. Else None.
        argument: index of the argument in its command, 0 being the command's name, or None
            when the command as a whole is meant.
    """

    file: str | None = None
    row_in_file: int | None = None

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


class TemplateError(FastrespError, ValueError):
    """A command template can't be read, or names a field that a row does not have.

    Attributes:
        template: the text of the template.
        position: index of the character that the caret points at.
        row: index of the source row in the whole load, counted from 0, or None when the template
            itself is at fault.
        file, row_in_file: as those of an EncodeError.
    """

    file: str | None = None
    row_in_file: int | None = None

    def __init__(
        self, message: str, template: str, position: int, *, row: int | None = None
    ) -> None:
        super().__init__(message, template, position)
        self.template = template
        self.position = position
        self.row = row

    def __str__(self) -> str:
        start = self.template.rfind("\n", 0, self.position) + 1
        line = self.template[start:].partition("\n")[0].replace("\t", " ")
        where = "" if self.row is None else f"row {self.row:,}: "
        return f"{where}{self.args[0]}\n    {line}\n    {' ' * (self.position - start)}^"


class SourceError(FastrespError, ValueError):
    """The source of a load can't be read."""


class DecodeError(FastrespError, ValueError):
    """A value that was read is not UTF-8, and was asked for as text.

    Attributes:
        key: the key that holds it; empty where it is a reply.
        column: the column that it was for, likewise.
    """

    def __init__(self, message: str, *, key: bytes = b"", column: str = "") -> None:
        super().__init__(message)
        self.key = key
        self.column = column


class ProtocolError(FastrespError, ValueError):
    """Bytes that should be RESP are not.

    Attributes:
        offset: where in the stream, in bytes from its beginning.
        before: what is known of the whole commands before it; empty where nothing is.
    """

    def __init__(self, message: str, offset: int, before: str = "") -> None:
        super().__init__(message, offset, before)
        self.offset = offset
        self.before = before

    def __str__(self) -> str:
        return str(self.message)

    @property
    def message(self) -> str:
        before = f"\n{self.before}" if self.before else ""
        return Message(self.args[0], f" (at byte {self.offset:,})", before)


class TransportError(FastrespError, redis_errors.ConnectionError, ConnectionError):
    """The server or redis-cli can't be used, or was lost.

    Attributes:
        report: what is known of the load so far; None when nothing was sent.
    """

    def __init__(self, message: str, report: Report | None = None) -> None:
        super().__init__(message)
        self.report = report

    def __str__(self) -> str:
        message = super().__str__()
        return message if self.report is None else f"{message}\n{self.report}"


class TransportTimeout(TransportError, redis_errors.TimeoutError, TimeoutError):
    """Nothing moved for ``timeout`` seconds; the load was ended."""


class LeaseError(FastrespError):
    """A consumer was silent for longer than its lease, and its items were put back by another."""
