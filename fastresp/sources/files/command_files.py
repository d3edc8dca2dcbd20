"""Files of commands as text: lines as for redis-cli, and rejects files."""

from __future__ import annotations

import base64
import json
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from typing import IO, Any

from ...outcome.errors import SourceError
from ...outcome.messages import Hint, Message, shown_argument
from ...outcome.tracebacks import public
from ...resp.values import pack
from ...server.file_io import read_some
from .paths import InitialState
from .resp import CommandSource, RespFile

__all__ = ["CommandsFile", "RejectsFile", "argument_of", "read_rejects", "arguments_of_line"]

BLOCK_BYTES = 1 << 20
# An argument of a line consists of text without quotes, and of quoted parts; a space follows each
# closing quote. Source: sdssplitargs() of Redis.
# Possessive quantifiers can miss matches in Python 3.11.0 to 3.11.4.
PLAIN = rb"""[^ \t\r\n\0"']+"""
DOUBLE = rb"""[^"\\]*(?:\\.[^"\\]*)*"""
SINGLE = rb"""[^'\\]*(?:\\(?:'|(?!'))[^'\\]*)*"""
ARGUMENT = re.compile(
    rb"\s*((?:" + PLAIN + rb'|"' + DOUBLE + rb'"(?!\S)|' + rb"'" + SINGLE + rb"'(?!\S))+)",
    re.DOTALL,
)
PART = re.compile(PLAIN + rb'|"(' + DOUBLE + rb""")"|'(""" + SINGLE + rb")'", re.DOTALL)
# Lines without these characters are split at their spaces.
SPECIAL = re.compile(rb"[\"'\v\f\0]")
ESCAPE = re.compile(rb"\\(?:x([0-9a-fA-F]{2})|(.))", re.DOTALL)
ESCAPED = {b"n": b"\n", b"r": b"\r", b"t": b"\t", b"b": b"\b", b"a": b"\a"}


class CommandsFile(RespFile):
    """A RespFile with one command per line, quoted as for redis-cli.

    The lines are converted to RESP while they are read. Empty lines are left out.
    """

    _format = "commands"
    _is_resp = False

    @contextmanager
    def _opened(self) -> Iterator[IO[bytes]]:
        with super()._opened() as file:
            yield RespConverter(file, self.name)  # type: ignore[misc]


class RespConverter:
    """A file object that converts lines of commands to RESP."""

    def __init__(self, file: Any, name: str) -> None:
        self._file = file
        self._name = name
        self._line = 0
        self._rest: list[bytes] = []
        self._ready = b""
        self._ended = False

    def read(self, size: int) -> bytes:
        """Return 1 to ``size`` bytes of RESP; empty at the end."""
        while not self._ready and not self._ended:
            block = read_some(self._file, BLOCK_BYTES)
            self._ended = not block
            lines, end, rest = block.rpartition(b"\n")
            if end or self._ended:
                self._ready = self._converted(b"".join([*self._rest, lines]))
                self._rest = []
            self._rest.append(rest)
        piece, self._ready = self._ready[:size], self._ready[size:]
        return piece

    def _converted(self, text: bytes) -> bytes:
        converted = []
        for line in text.split(b"\n"):
            self._line += 1
            arguments = arguments_of_line(line)
            if arguments is None:
                raise SourceError(
                    f"{self._name}, line {self._line:,}: its quotes are not balanced, or text "
                    f"follows a closing quote: {shown_argument(line)}; quote it as for "
                    'redis-cli, and a NUL as "\\x00"',
                    line=self._line,
                    file=self._name,
                )
            if arguments:
                converted.append(pack(*arguments))
        return b"".join(converted)


def arguments_of_line(line: bytes) -> list[bytes] | None:
    """Split a line into arguments by the rules of redis-cli; None if quotes are not balanced."""
    if SPECIAL.search(line) is None:
        return line.split()
    arguments, at = [], 0
    line = line.rstrip()
    while at < len(line):
        found = ARGUMENT.match(line, at)
        if found is None:
            return None
        arguments.append(PART.sub(_unquoted, found[1]))
        at = found.end()
    return arguments


def _unquoted(part: re.Match[bytes]) -> bytes:
    if part[1] is not None:
        return ESCAPE.sub(_unescaped, part[1])
    if part[2] is not None:
        return part[2].replace(b"\\'", b"'")
    return part[0]


def _unescaped(escape: re.Match[bytes]) -> bytes:
    if escape[1] is not None:
        return bytes.fromhex(escape[1].decode())
    return ESCAPED.get(escape[2], escape[2])


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
        SourceError: later, when the commands are read: a line was not written by ``rejects=``; the
            error in a line is from a transaction or a script, which may have run in part; or the
            command of a line had a password (passwords are not stored).
    """
    return RejectsFile(path, limit=limit)


class RejectsFile(CommandSource):
    """The commands of a rejects file, which can be iterated several times: see read_rejects."""

    def __init__(self, path: str | os.PathLike[str], *, limit: int | None = None) -> None:
        self.name = os.fspath(path)
        os.stat(path)
        if limit is not None and limit < 0:
            raise ValueError(f"limit must be 0 commands or more, not {limit}")
        self._limit = limit
        self._names: list[str] | None = None
        self._initial = InitialState(path)

    def __iter__(self) -> Iterator[list[str | bytes]]:
        self.names()
        return self._commands()

    def arguments(self) -> dict[str, Any] | None:
        given = {"source": os.path.abspath(os.fsdecode(self.name)), "format": "rejects"}
        return given | ({} if self._limit is None else {"limit": self._limit})

    def names(self) -> list[str]:
        """Check the file, and return the names of its commands in capitals."""
        if self._names is None:
            self._initial = InitialState(self.name)
            self._names = list(dict.fromkeys(map(_name, self._commands())))
        return self._names

    def _commands(self) -> Iterator[list[str | bytes]]:
        with open(self.name, "rb") as file:
            lines = ((number, line) for number, line in enumerate(file, 1) if line.strip())
            for number, line in islice(lines, self._limit):
                yield self._parse(number, line)
        if self._limit is None:
            self._initial.check()

    def _parse(self, number: int, line: bytes) -> list[str | bytes]:
        try:
            fields = json.loads(line)
            if not isinstance(fields["arguments"], list) or not fields["arguments"]:
                raise ValueError
            command = list(map(argument_of, fields["arguments"]))
            why = _why_not_resent(fields, command)
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
            message = f"{self.name}, line {number:,}: {why} (nothing was sent)"
            raise SourceError(message, line=number, file=self.name)
        return command


def _why_not_resent(fields: dict[str, Any], command: list[str | bytes]) -> str:
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


def argument_of(value: object) -> str | bytes:
    """Decode an argument of a command in a rejects file; raise ValueError if it is invalid."""
    if isinstance(value, dict) and list(value) == ["base64"]:
        return base64.b64decode(value["base64"], validate=True)
    if isinstance(value, str):
        return value
    raise ValueError
