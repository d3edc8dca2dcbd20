"""COMMAND INFO: a command's number of arguments, key positions and flags."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Any

from ..outcome.messages import shown_reply
from ..replies.iter_replies import iter_replies
from ..resp.commands import commands_with
from ..server.settings import Server, ServerLike, one_server

__all__ = ["CommandInfo", "command_info", "deleting"]

DELETING = commands_with("deletes")


@dataclass(frozen=True)
class CommandInfo:
    """COMMAND INFO's reply about one command.

    Attributes:
        arity: number of arguments, including the name; -N means at least N.
        flags: flags such as ``"write"``.
        first_key: index of the argument that is the first key; 0 if there is no key.
        last_key: index of the argument that is the last key, counted from the end if negative.
        key_step: number of arguments from one key to the next.
        categories: ACL categories such as ``"@string"``; empty before Redis 6.0.
    """

    name: str
    arity: int
    flags: frozenset[str]
    first_key: int
    last_key: int
    key_step: int
    categories: frozenset[str]

    @classmethod
    def of(cls, reply: Any) -> CommandInfo | None:
        """Parse the reply about one command; return None for an unknown command.

        Raises:
            ValueError: ``reply`` is not a reply to COMMAND INFO.
        """
        match reply:
            case None:
                return None
            case [str(name), int(arity), [*flags], int(first), int(last), int(step), *more] if (
                _are_words(flags) and (step > 0 or not first)
            ):
                categories = frozenset(more[0] if more and _are_words(more[0]) else ())
                return cls(name.upper(), arity, frozenset(flags), first, last, step, categories)
        raise ValueError(f"not an answer to COMMAND INFO: {shown_reply(reply)}")

    def accepts(self, count: int) -> bool:
        """Return whether the command accepts this number of arguments, including its name."""
        return count == self.arity if self.arity >= 0 else count >= -self.arity

    def keys(self, arguments: Collection[bytes]) -> list[bytes]:
        """Return the keys among the arguments of a command."""
        if not self.first_key:
            return []
        last = self.last_key if self.last_key >= 0 else len(arguments) + self.last_key
        return list(arguments)[self.first_key : last + 1 : self.key_step]


def command_info(
    names: Iterable[str], server: ServerLike | Server, *, timeout: float | None
) -> dict[str, CommandInfo | None] | None:
    """Ask a server about commands by COMMAND INFO.

    Returns:
        For each name, a CommandInfo, or None if the server does not know the command. If COMMAND
        INFO fails, None instead of the dict.

    Raises:
        TransportError: the server can't be used.
    """
    names = list(names)
    if not names:
        return {}
    question = [("COMMAND", "INFO", *names)]
    where = one_server(server)  # the command has no key, so in a cluster any node will do
    [reply] = iter_replies(question, server=where, on_error="collect", decode=True, timeout=timeout)
    if not isinstance(reply, list) or len(reply) != len(names):
        return None
    try:
        return {name: CommandInfo.of(each) for name, each in zip(names, reply, strict=True)}
    except ValueError:
        return None


def _are_words(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(each, str) for each in value)


def deleting(names: Iterable[str], server: ServerLike, *, timeout: float | None) -> list[str]:
    """Return the names of the commands that delete data, or that change the server itself.

    Commands in the server's ACL category @dangerous are included.

    Raises:
        TransportError: the server can't be used.
    """
    names = list(names)
    known = command_info(names, server, timeout=timeout) or {}
    return [
        name
        for name in names
        if name in DELETING or ((info := known.get(name)) and "@dangerous" in info.categories)
    ]
