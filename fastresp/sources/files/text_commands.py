"""Files of commands as text, one per line, as used with redis-cli."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, Any

from ...outcome.errors import SourceError
from ...outcome.excerpts import shown_argument
from ...resp.values import pack
from ..blocking import read_some
from .command_lines import lines_of_commands
from .resp import RespFile

__all__ = ["CommandsFile", "words_of_line"]

BLOCK_BYTES = 1 << 20
# An argument of a line consists of text without quotes, and of quoted parts; a space follows each
# closing quote. Source: sdssplitargs() of Redis.
# Possessive quantifiers would be wrong here in Python 3.11.0 to 3.11.4.
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
    """A file with one command per line, quoted as for redis-cli, which is sent as RESP.

    The lines are converted to RESP while they are read, and empty lines are left out. In all other
    respects, this is a RespFile.

    Raises:
        SourceError: later, when the file is read: a line has unbalanced quotes; the message names
            the line.
    """

    _is_resp = False

    _lines = staticmethod(lines_of_commands)

    @contextmanager
    def _opened(self) -> Iterator[IO[bytes]]:
        with super()._opened() as file:
            yield Converted(file, self.name)  # type: ignore[misc]


class Converted:
    """A file object that converts lines of commands to RESP.

    Args:
        file: the file with the lines.
        name: the name of the file, for messages.
    """

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
            whole, end, rest = block.rpartition(b"\n")
            if end or self._ended:
                self._ready = self._converted(b"".join([*self._rest, whole]))
                self._rest = []
            self._rest.append(rest)
        piece, self._ready = self._ready[:size], self._ready[size:]
        return piece

    def _converted(self, text: bytes) -> bytes:
        made = []
        for line in text.split(b"\n"):
            self._line += 1
            words = words_of_line(line)
            if words is None:
                raise SourceError(
                    f"{self._name}, line {self._line:,}: its quotes are not balanced, or text "
                    f"follows a closing quote: {shown_argument(line)}; quote it as for "
                    'redis-cli, and a NUL as "\\x00"',
                    line=self._line,
                    file=self._name,
                )
            if words:
                made.append(pack(*words))
        return b"".join(made)


def words_of_line(line: bytes) -> list[bytes] | None:
    """Split a line into arguments by the rules of redis-cli; None if quotes are not balanced."""
    if SPECIAL.search(line) is None:
        return line.split()
    words, at = [], 0
    line = line.rstrip()
    while at < len(line):
        found = ARGUMENT.match(line, at)
        if found is None:
            return None
        words.append(PART.sub(_unquoted, found[1]))
        at = found.end()
    return words


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
