"""Lua scripts as commands of a template; commands are resent if a server forgets a script."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

from ..outcome.errors import TemplateError
from ..outcome.tracebacks import public
from ..resp.split import arguments
from ..resp.values import pack
from .fields import Items, Pairs
from .template import BLANKS, Scripts, Template, part_of_command

__all__ = [
    "ForgottenScripts", "Script", "is_forgotten", "loading_of", "resending_of", "script_of",
]  # fmt: skip

# How the error for a missing script begins. The code NOSCRIPT alone is not enough: a script
# may return this code itself. Source: Redis 6.2 to 8.2, Valkey 8.1 and 9.1.
FORGOTTEN = b"NOSCRIPT No matching script"
# A server serves other clients after reading this many bytes from one connection.
TURN_BYTES = 16 << 10
# The first time, most commands are resent as EVALSHA. The second time, all are resent as EVAL,
# which is never answered with NOSCRIPT.
MAX_REPEATS = 2


@public
class Script:
    """A Lua script to use as a command of a template.

    A script reads, computes and writes atomically in the server::

        script = fastresp.Script("return redis.call('INCRBY', KEYS[1], ARGV[1])")
        fastresp.mass_insert(rows, script.command("user:{id}", "{n}"))

    Each connection loads the script (SCRIPT LOAD) before its first command, and then sends
    EVALSHA. If the server forgets the script during a load (SCRIPT FLUSH, a restart behind a
    proxy), it answers NOSCRIPT without running the command. The command is resent, so no row is
    lost or run twice. The NOSCRIPT reply and the resent command are not counted, but the resent
    bytes are. A resent command runs after later commands that were in flight, even commands of
    the same row; ``iter_replies`` sends nothing more until the resent command has run. The script
    must not return the error ``NOSCRIPT No matching script``: its command would be resent.

    The user needs permission for EVALSHA, EVAL (for resent commands) and SCRIPT LOAD.

    Args:
        text: the script, in Lua.

    Attributes:
        text: the script, as bytes.
        sha1: the SHA1 in hexadecimal, by which the server identifies the script.

    Raises:
        TypeError: ``text`` is not str or bytes.
    """

    def __init__(self, text: str | bytes) -> None:
        if not isinstance(text, str | bytes):
            raise TypeError(
                f"a Script needs the text of a Lua script, not a {type(text).__name__}; for a "
                "file, pass Path(...).read_text()"
            )
        self.text = text.encode() if isinstance(text, str) else text
        self.sha1 = hashlib.sha1(self.text, usedforsecurity=False).hexdigest()

    def __repr__(self) -> str:
        return f"<Script {self.sha1}>"

    def command(self, keys: str = "", arguments: str = "") -> Template:
        """Return a template with the command that runs the script for a row.

        Use the result wherever a template is accepted, including a list of templates, but not with
        MULTI: in a transaction, a missing script is reported only after other commands have run.
        ``dump`` writes EVAL with the whole script, because a loader of the file can't resend.
        ``Writer`` writes EVALSHA and does not load the script.

        Args:
            keys: the keys, KEYS in the script, as template text: ``"user:{id} city:{city}"``.
                Each key must be one argument, so that the keys can be counted.
            arguments: the other arguments, ARGV in the script, as template text; may contain
                ``{*list}`` and ``{**}``.

        Returns:
            The template, for the ``template`` argument of ``mass_insert``.

        Raises:
            TemplateError: a text can't be parsed, or the number of keys depends on the row.
        """
        keys, arguments = keys.strip(BLANKS + "\n"), arguments.strip(BLANKS + "\n")
        found = part_of_command(keys)
        for parts in found:
            if isinstance(parts[0], Items | Pairs):
                raise TemplateError(
                    "the number of keys must be the same for every row: write each key as one "
                    "argument, and pass lists in the script's arguments",
                    keys,
                    parts[0].at,
                )
        part_of_command(arguments)
        text = f"EVALSHA {self.sha1} {len(found)} {keys} {arguments}".rstrip(BLANKS)
        return Template(text, scripts={self.sha1.encode(): self.text})


def loading_of(scripts: Scripts) -> list[bytes]:
    """Return the commands that load scripts, as RESP."""
    return [pack("SCRIPT", "LOAD", text) for text in scripts.values()]


def resending_of(template: Template | None) -> ForgottenScripts | None:
    """Return the resending policy for a template's scripts; None if there are no scripts."""
    return ForgottenScripts(template.scripts) if template is not None and template.scripts else None


def is_forgotten(message: str | bytes) -> bool:
    """Return whether an error reply says that the server lacks a command's script."""
    text = message.encode(errors="replace") if isinstance(message, str) else message
    return text.startswith(FORGOTTEN)


def script_of(command: bytes) -> bytes:
    """Return the SHA1 of the script that an EVALSHA runs; empty for any other command."""
    name, *rest = arguments(command, 2)
    return rest[0] if name == b"EVALSHA" and rest else b""


class ForgottenScripts:
    """Resends commands that did not run because the server had forgotten their script.

    Args:
        scripts: the scripts that can be resent.
    """

    def __init__(self, scripts: Scripts) -> None:
        self._scripts = scripts

    def refused(self, message: str | bytes) -> bool:
        """Return whether an error reply says that the command was not run and may be resent."""
        return is_forgotten(message)

    def can_repeat(self, command: bytes, tries: int) -> bool:
        """Return whether a command that was resent ``tries`` times can be resent again."""
        return tries < MAX_REPEATS and script_of(command) in self._scripts

    def requests(self, commands: Iterable[tuple[bytes, int]], max_bytes: int) -> list[bytes]:
        """Return the first commands to resend, with the scripts that they need.

        In each part of TURN_BYTES, the first command of each script is sent as EVAL, to load the
        script: another client may flush the scripts between two parts. A command that was resent
        before is always sent as EVAL.

        Args:
            commands: each command as first sent, and the number of times that it was sent.
            max_bytes: stop when the requests reach this size.
        """
        requests: list[bytes] = []
        known: set[bytes] = set()
        turn = size = 0
        for command, tries in commands:
            sha1 = script_of(command)
            if sha1 not in known or tries >= MAX_REPEATS:
                command = pack("EVAL", self._scripts[sha1], *arguments(command)[2:])
                known.add(sha1)
            requests.append(command)
            size += len(command)
            turn += len(command)
            if turn >= TURN_BYTES:
                known.clear()
                turn = 0
            if size >= max_bytes:
                break
        return requests
