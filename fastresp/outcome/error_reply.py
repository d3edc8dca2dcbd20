"""The base class of all exceptions, and the exception for error replies."""

from __future__ import annotations

from typing import Any

from redis import exceptions as redis_errors

from .excerpts import visible
from .messages import Hint, Message
from .passwords import redacted, without_passwords
from .places import Placed

__all__ = ["CommandError", "FastrespError"]


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


class CommandError(Placed, FastrespError, redis_errors.ResponseError):
    """The server returned an error reply to a command.

    Attributes:
        text: the server's message, such as ``WRONGTYPE Operation against a key ...``.
        code: the first word of the text, such as ``WRONGTYPE``, ``OOM``, ``ERR``.
        index: index of the command in the load, counted from 0; None if unknown, as with
            ``redis-cli --pipe``.
        row: index of the source row in the whole load, counted from 0; None if unknown.
        file: the path of the row's file; None if unknown, or if the source is not files.
        row_in_file: the row's index in the file, counted from 0; None if ``file`` is None.
        line: the physical line of the file in which the row begins, counted from 1. It is found at
            the end of the load, if the file is text and has not changed. Otherwise None.
        row_key: the placeholder in a key of the row, and the placeholder's value, such as
            ``id=17``, shortened to 40 characters. Empty if no key has exactly one placeholder.
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
        words = visible(self.text).replace("\n", "\\n") or "(empty error reply)"
        node = "" if self.node is None else f" (node {self.node})"
        return words if self.index is None else f"{where}command {self.index:,}: {words}{node}"
