"""The commands of a load: their names, options that rule them out, and COMMAND INFO."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Any

from ..encode.template import Template
from ..outcome.messages import Hint, Message, shown_reply
from ..replies.iter_replies import iter_replies
from ..resp.commands import commands_with
from ..server.answers import Answers
from ..server.options import ACKNOWLEDGED, Options
from ..server.preflight import OF_A_CONNECTION
from ..server.settings import Server, ServerLike, one_server
from ..sources.files.command_files import RejectsFile
from ..sources.files.resp import RespFile

__all__ = [
    "CommandInfo",
    "check_connection_state",
    "check_several_connections",
    "command_info",
    "command_names",
    "deleting",
]

CONNECTIONS = Hint("connections", ...)

# MULTI, EXEC and DISCARD: the commands of a transaction share a connection.
TRANSACTION = commands_with("multi", "end")
# Commands whose order relative to all other commands matters.
OF_ALL = commands_with("flush") | {"SCRIPT", "FUNCTION"}


def command_names(source: object, template: Template | None) -> list[str] | None:
    """Return the command names of a load in capitals; None if they depend on the data."""
    if template is None and isinstance(source, RejectsFile):
        return source.names()
    if template is None:
        summary = source.check() if isinstance(source, RespFile) else None
        return None if summary is None else list(summary.names)
    names = []
    for first, *_ in template.commands:
        if not all(isinstance(part, bytes) for part in first):
            return None
        names.append(b"".join(first).decode(errors="replace").upper())  # type: ignore[arg-type]
    return list(dict.fromkeys(names))


def check_connection_state(
    source: object, template: Template | None, options: Options, answers: Answers | None
) -> None:
    """Refuse commands that change connection state, if a lost connection may be replaced.

    In a cluster, such a command is refused later, when its row is sent.

    Raises:
        ValueError: the load has a command that changes connection state, or its command names
            depend on the data.
    """
    option = Hint("retry", options.retry)
    if options.durable != ACKNOWLEDGED:
        option = Hint("durable", options.durable)
    elif options.retry in (None, "never"):
        return
    if answers is not None and answers.topology is not None:
        return
    names = command_names(source, template)
    if names is None:
        words = " needs the command names beforehand; give a template that begins with the name"
        raise ValueError(Message(option, words))
    found = OF_A_CONNECTION.intersection(names)
    if template is not None:
        found -= TRANSACTION
    if found:
        words = f" can't be used with {', '.join(sorted(found))}, which change the connection"
        raise ValueError(Message(option, words))


def check_several_connections(source: object, template: Template | None, connections: int) -> None:
    """Refuse several connections for commands that may depend on each other.

    MULTI and EXEC in a template are allowed: the commands of a transaction share a connection.

    Raises:
        ValueError: a command changes the state of its connection or all data, or the command
            names depend on the data.
        ProtocolError, EncodeError: the source is a RESP file that can't be sent.
    """
    if connections == 1:
        return
    names = command_names(source, template)
    if names is None and isinstance(source, RespFile):
        message = Message(
            f"several connections need the command names beforehand, and {source.name} can be "
            "read only once; give the path of a file, or leave out ",
            CONNECTIONS,
        )
        raise ValueError(message)
    if names is None:
        message = Message(
            "several connections need the command names beforehand; give a template that begins "
            "with the command name, or leave out ",
            CONNECTIONS,
        )
        raise ValueError(message)
    found = OF_ALL.intersection(names) | OF_A_CONNECTION.intersection(names)
    if template is not None:
        found -= TRANSACTION
    if found:
        message = Message(
            f"commands before and after {', '.join(sorted(found))} must stay in order on one "
            "connection; leave out ",
            CONNECTIONS,
        )
        raise ValueError(message)


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
