"""The base of every exception, and what an error reply becomes."""

from __future__ import annotations

from redis import exceptions as redis_errors

from .messages import Hint, Message
from .passwords import redacted, without_passwords

__all__ = ["CommandError", "FastrespError"]


class FastrespError(Exception):
    """Base of every exception of this package."""

    __repr__ = Exception.__repr__  # redis-py's says "server:CommandError", without the text

    @property
    def message(self) -> str:
        """What it says: a Message where that names options."""
        first = self.args[0] if self.args else None
        return first if isinstance(first, Message) else str(self)

    @property
    def hints(self) -> list[Hint]:
        """The options that the message names, with the values that it advises."""
        message = self.message
        return message.hints if isinstance(message, Message) else []


class CommandError(FastrespError, redis_errors.ResponseError):
    """An error reply: the server's answer to one command.

    Attributes:
        text: the server's words, such as ``WRONGTYPE Operation against a key ...``.
        code: their first word, such as ``WRONGTYPE``, ``OOM``, ``ERR``.
        index: index of the command in the load, or None where the transport can't tell
            (``redis-cli --pipe`` can't).
        row: index in the whole load of the source row that the command came from, counted from
            0, or None.
        file, row_in_file: where the source is several files, the one that the row is in, and
            which of its rows it is, counted from 0. Else None.
        arguments: the command as it was sent, a tuple of bytes, or None; also None where those
            of earlier errors already take 8 MiB. In the place of what may be a password, as of
            AUTH or CONFIG SET requirepass, is ``(redacted)``, as in SLOWLOG.
        redacted: whether that is so of some argument.
        nested: whether it is part of the reply, as within that of EXEC, and not the whole of it.
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

    def __str__(self) -> str:
        row = self.row if self.file is None else self.row_in_file
        where = "" if row is None else f"row {row:,}, "
        if self.file is not None:
            where = f"{self.file}, {where}"
        words = self.text or "(an error reply without a word)"
        return words if self.index is None else f"{where}command {self.index:,}: {words}"
