"""Lua scripts as commands of a template, and what is done when a server forgets them."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

from ..outcome.errors import TemplateError
from ..resp.buffer import Chunk
from ..resp.split import CommandSplitter, arguments
from ..resp.values import pack
from .fields import Items, Pairs
from .template import (
    BLANKS,
    Scripts,
    Template,
    part_of_command,
)

__all__ = ["ForgottenScripts", "Script", "is_forgotten", "resending_of", "script_of"]

# More than the code, which a script may return itself. Source: Redis 6.2 to 8.2, Valkey 8.1, 9.1.
FORGOTTEN = b"NOSCRIPT No matching script"
# A server turns to its other clients after it has read so much of a connection.
TURN_BYTES = 16 << 10
# The first time most commands go as EVALSHA again, the second all of them as EVAL, which no server
# can answer so.
MOST_REPEATS = 2


class Script:
    """A Lua script to be used as a command of a template.

    It reads, computes and writes in one go where the data is, so nothing comes in between::

        script = fastresp.Script("return redis.call('INCRBY', KEYS[1], ARGV[1])")
        fastresp.mass_insert(rows, script.command("user:{id}", "{n}"))

    Each connection loads the script (SCRIPT LOAD) before it sends a command, and then sends
    EVALSHA. When the server forgets it in mid-load (SCRIPT FLUSH, a restart behind a proxy), it
    answers NOSCRIPT and does not run the command, which is sent again: no row is lost, none is run
    twice. Such a reply is no error and is not counted, nor is the repetition, but its bytes are.
    What is sent again runs later than the commands behind it, also than those of its row;
    ``iter_replies`` sends nothing further until then. The script itself should not return an error
    ``NOSCRIPT No matching script``, which means that it has not run.

    The user needs the rights to EVALSHA, EVAL (for what is sent again) and SCRIPT LOAD.

    Args:
        text: the script, in Lua.

    Attributes:
        text: the script, as bytes.
        sha1: its SHA1, by which the server knows it, in hexadecimal.

    Raises:
        TypeError: it is not a text.
    """

    def __init__(self, text: str | bytes) -> None:
        if not isinstance(text, str | bytes):
            raise TypeError(
                f"a Script takes the text of a Lua script, not a {type(text).__name__}; that of a "
                "file is what Path(...).read_text() gives"
            )
        self.text = text.encode() if isinstance(text, str) else text
        self.sha1 = hashlib.sha1(self.text, usedforsecurity=False).hexdigest()

    def __repr__(self) -> str:
        return f"<Script {self.sha1}>"

    def command(self, keys: str = "", arguments: str = "") -> Template:
        """Make a template of it: the command that runs the script for a row.

        It may be given wherever a template may, also in a list with others, but not together
        with MULTI: a script that is missing in a transaction is known only when the rest of it
        has run. ``dump`` writes EVAL with the whole script, for whoever loads the file can't
        send again. With ``Writer`` it is EVALSHA, and nobody loads the script.

        Args:
            keys: the keys, KEYS in the script, as text of a template: ``"user:{id} city:{city}"``.
                They are counted, so each is one argument.
            arguments: the other arguments, ARGV in the script, likewise; ``{*list}`` and ``{**}``
                may be among them.

        Raises:
            TemplateError: a text can't be read, or makes keys of which the number is not known.
        """
        keys, arguments = keys.strip(BLANKS + "\n"), arguments.strip(BLANKS + "\n")
        found = part_of_command(keys)
        for parts in found:
            if isinstance(parts[0], Items | Pairs):
                raise TemplateError(
                    "the number of keys has to be known before the rows are: name each key by "
                    "itself, and give lists as arguments",
                    keys,
                    parts[0].at,
                )
        part_of_command(arguments)
        text = f"EVALSHA {self.sha1} {len(found)} {keys} {arguments}".rstrip(BLANKS)
        return Template(text, scripts={self.sha1.encode(): self.text})


def resending_of(template: Template | None) -> ForgottenScripts | None:
    """What knows which commands of a template are to be sent again; None where none are."""
    return ForgottenScripts(template.scripts) if template is not None and template.scripts else None


def is_forgotten(words: str | bytes) -> bool:
    """Whether an error reply says that the server does not know the script of a command."""
    text = words.encode(errors="replace") if isinstance(words, str) else words
    return text.startswith(FORGOTTEN)


def script_of(command: bytes) -> bytes:
    """The SHA1 of the script that a command runs; empty where it is another command."""
    name, *rest = arguments(command, 2)
    return rest[0] if name == b"EVALSHA" and rest else b""


class ForgottenScripts:
    """Which commands a server did not run for it had forgotten their script, and how they go again.

    Args:
        scripts: those that can be sent again.
    """

    def __init__(self, scripts: Scripts) -> None:
        self._scripts = scripts

    def refused(self, words: str | bytes) -> bool:
        """Whether an error reply says that a command was not run, and may be sent once more."""
        return is_forgotten(words)

    def can_repeat(self, command: bytes, tries: int) -> bool:
        """Whether a command can be sent again after this many tries."""
        return tries < MOST_REPEATS and script_of(command) in self._scripts

    def chunk(self, commands: Iterable[tuple[bytes, int]], most_bytes: int) -> tuple[Chunk, int]:
        """Make a chunk of the first commands that go again, with the scripts they need.

        The script goes with the first of them, as EVAL, and once for each turn of the server:
        another client may have it forgotten again in between. What was sent again before goes as
        EVAL.

        Args:
            commands: each as it was sent first, and how many times it has been sent until now.
            most_bytes: stop when the chunk has this size.

        Returns:
            The chunk, and how many commands are in it.
        """
        pieces: list[bytes] = []
        known: set[bytes] = set()
        turn = size = 0
        for command, tries in commands:
            sha1 = script_of(command)
            if sha1 not in known or tries >= MOST_REPEATS:
                command = pack("EVAL", self._scripts[sha1], *arguments(command)[2:])
                known.add(sha1)
            pieces.append(command)
            size += len(command)
            turn += len(command)
            if turn >= TURN_BYTES:
                known.clear()
                turn = 0
            if size >= most_bytes:
                break
        chunk = CommandSplitter().feed(b"".join(pieces))
        assert chunk is not None
        return chunk, len(pieces)
