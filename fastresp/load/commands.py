"""The commands of a load: their names, and options that rule them out."""

from __future__ import annotations

from ..encode.template import Template
from ..outcome.messages import Hint, Message
from ..resp.commands import commands_with
from ..server.answers import Answers
from ..server.options import ACKNOWLEDGED, Options
from ..server.preflight import OF_A_CONNECTION
from ..sources.files.command_files import RejectsFile
from ..sources.files.resp import RespFile

__all__ = ["check_connection_state", "check_several_connections", "command_names"]

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
