"""Which commands a load sends, as far as template or file tell, and which belong together."""

from __future__ import annotations

from ..encode.template import Template
from ..outcome.messages import Hint, Message
from ..server.rehearsal import OF_A_CONNECTION
from ..sources.files.rejects import RejectsFile
from ..sources.files.resp import RespFile

__all__ = ["check_spread", "command_names"]

CONNECTIONS = Hint("connections", ...)

# What everything before it, or after it, depends on.
OF_ALL = frozenset(("FLUSHALL", "FLUSHDB", "SWAPDB", "SCRIPT", "FUNCTION"))


def command_names(source: object, template: Template | None) -> list[str] | None:
    """The names of the commands that a load sends, in capitals; None where only the data tells."""
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


def check_spread(source: object, template: Template | None, connections: int) -> None:
    """Refuse to spread over several connections what may belong together.

    The commands of one row always go over the same one, so that a template may have MULTI and EXEC.

    Raises:
        ValueError: some commands are about the connection, or only the data tells which they are.
        ProtocolError, EncodeError: it is a file of RESP that can't be sent.
    """
    if connections == 1:
        return
    names = command_names(source, template)
    if names is None and isinstance(source, RespFile):
        message = Message(
            f"several connections are for commands that are known beforehand, and {source.name} "
            "can be read only once; give the path of a file, or leave out ",
            CONNECTIONS,
        )
        raise ValueError(message)
    if names is None:
        message = Message(
            "several connections are for commands whose names are known beforehand, of which none "
            "belong together: give a template that begins with the name, or leave out ",
            CONNECTIONS,
        )
        raise ValueError(message)
    found = OF_ALL.intersection(names)
    if template is None:
        found |= OF_A_CONNECTION.intersection(names)
    if found:
        message = Message(
            f"{', '.join(sorted(found))} and the commands around belong on one connection, in "
            "their order; leave out ",
            CONNECTIONS,
        )
        raise ValueError(message)
