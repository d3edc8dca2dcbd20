"""``read_rejects``: read the failed commands that ``rejects=`` wrote, byte for byte."""

from __future__ import annotations

import base64
import json
import os
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any

from ...outcome.errors import SourceError
from ...outcome.messages import Hint, Message
from ...outcome.tracebacks import public
from .command_lines import lines_of_commands
from .input import Watch
from .unchanged import Unchanged

__all__ = ["RejectsFile", "argument_of", "read_rejects"]


@public
def read_rejects(path: str | os.PathLike[str], *, limit: int | None = None) -> RejectsFile:
    """Read a rejects file, to send its commands again exactly as they were.

    ``mass_insert(read_rejects("rejects.jsonl"), rejects="again.jsonl")`` sends them, without a
    template. The whole file is checked before anything is sent.

    Args:
        path: the file written by ``rejects=``.
        limit: stop after this many commands.

    Returns:
        The commands, as the ``data`` argument of ``mass_insert``.

    Raises:
        FileNotFoundError: the file does not exist.
        SourceError: raised only when the commands are read: a line was not written by ``rejects=``;
            or its command had a password (passwords are not stored); or its error is from a
            transaction or a script.
    """
    return RejectsFile(path, limit=limit)


class RejectsFile:
    """The commands of a rejects file, which can be iterated several times: see read_rejects.

    Attributes:
        name: the path.
    """

    def __init__(self, path: str | os.PathLike[str], *, limit: int | None = None) -> None:
        self.name = os.fspath(path)
        os.stat(path)
        if limit is not None and limit < 0:
            raise ValueError(f"limit must be 0 commands or more, not {limit}")
        self._limit = limit
        self._names: list[str] | None = None
        self._unchanged = Unchanged(path)

    def __iter__(self) -> Iterator[list[str | bytes]]:
        self.names()
        return self._commands()

    def names(self) -> list[str]:
        """Check the file, and return the names of its commands in capitals.

        Raises:
            SourceError: a line can't be sent again.
            OSError: the file can't be read.
        """
        if self._names is None:
            self._unchanged = Unchanged(self.name)
            self._names = list(dict.fromkeys(map(_name, self._commands())))
        return self._names

    def place(self, row: int) -> tuple[str, int]:
        """Return the path and ``row``: each row is a command of this one file."""
        return self.name, row

    def line_numbers(self, rows: Iterable[int], stopped: Watch) -> dict[int, int]:
        """Return the line numbers of rows, as ``Table.line_numbers()`` does."""
        in_order = sorted(set(rows))
        lines = lines_of_commands(self.name, in_order, stopped) if self._unchanged.holds else []
        return dict(zip(in_order, lines, strict=False)) if self._unchanged.holds else {}

    def _commands(self) -> Iterator[list[str | bytes]]:
        with open(self.name, "rb") as file:
            lines = ((number, line) for number, line in enumerate(file, 1) if line.strip())
            for number, line in islice(lines, self._limit):
                yield self._read(number, line)
        if self._limit is None:
            self._unchanged.check()

    def _read(self, number: int, line: bytes) -> list[str | bytes]:
        try:
            fields = json.loads(line)
            command = _command(fields["arguments"])
            why = _not_to_be_sent(fields, command)
        except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
            raise SourceError(
                Message(
                    f"{self.name}, line {number:,}, was not written by ",
                    Hint("rejects", ...),
                    '; it must be a JSON object whose "arguments" are a command, each a string or '
                    '{"base64": "..."}',
                ),
                line=number,
                file=self.name,
            ) from None
        if why:
            words = f"{self.name}, line {number:,}: {why} (nothing was sent)"
            raise SourceError(words, line=number, file=self.name)
        return command


def _not_to_be_sent(fields: dict[str, Any], command: list[str | bytes]) -> str:
    """Return why a command can't be resent; empty if it can be resent."""
    if fields.get("redacted"):
        return (
            "this command had a password, which rejects do not contain; resend it from its "
            "source, and remove the line"
        )
    if fields.get("nested") or _name(command) == "EXEC":
        return (
            "this error is from a transaction or a script, which may have run in part, and rejects "
            "do not contain the commands of a transaction; check the keys, resend it from its "
            "source, and remove the line"
        )
    return ""


def _name(command: list[str | bytes]) -> str:
    first = command[0]
    return (first if isinstance(first, str) else first.decode(errors="replace")).upper()


def _command(arguments: object) -> list[str | bytes]:
    if not isinstance(arguments, list) or not arguments:
        raise ValueError
    return [argument_of(each) for each in arguments]


def argument_of(value: object) -> str | bytes:
    """Decode an argument of a command in a rejects file.

    Raises:
        ValueError: the value is not an argument.
    """
    if isinstance(value, dict) and list(value) == ["base64"]:
        return base64.b64decode(value["base64"], validate=True)
    if isinstance(value, str):
        return value
    raise ValueError
