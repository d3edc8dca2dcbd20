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

    __repr__ = Exception.__repr__  # redis-py's returns "server:CommandError", without the text

    def __str__(self) -> str:
        return visible(super().__str__())

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle all attributes, whatever ``__init__`` accepts and an engine has put into args."""
        return _made, (type(self), self.args), vars(self)

    @property
    def message(self) -> str:
        """The text: a Message if it names options."""
        first = self.args[0] if self.args else None
        return first if isinstance(first, Message) else str(self)

    @property
    def hints(self) -> list[Hint]:
        """The options that the message names, with the values it recommends."""
        message = self.message
        return message.hints if isinstance(message, Message) else []


def _made(kind: type[FastrespError], args: tuple[Any, ...]) -> FastrespError:
    """Return an exception without calling ``__init__``."""
    error = kind.__new__(kind, *args)
    error.args = args
    return error


class CommandError(Placed, FastrespError, redis_errors.ResponseError):
    """An error reply: the server answered a command with an error.

    Attributes:
        text: the server's message, such as ``WRONGTYPE Operation against a key ...``.
        code: its first word, such as ``WRONGTYPE``, ``OOM``, ``ERR``.
        index: index of the command in the load, or None if the transport does not know it
            (``redis-cli --pipe`` does not).
        row: index of the source row in the whole load, counted from 0, or None.
        file, row_in_file: if the source is files, the file of the row, and the row's index in it,
            counted from 0. Else None.
        line: the physical line of the file in which the row begins, counted from 1. It is found at
            the end of the load, in a file of text that is still as it was. Else None.
        row_key: the placeholder in the key of the command, or of another command of its row, and
            its value, such as ``id=17``, shortened to 40 characters. Empty if no key has exactly
            one placeholder.
        arguments: the command as it was sent, a tuple of bytes, or None; also None if the
            arguments of earlier errors already fill 8 MiB. Possible passwords, such as those of
            AUTH or CONFIG SET requirepass, are replaced by ``(redacted)``, as in SLOWLOG.
        redacted: whether an argument was replaced.
        node: the host and port of the node of a cluster that answered; None for one server.
        nested: whether the error is inside a reply, such as EXEC's, rather than the whole reply.
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
