"""The commands of a load: their names, whether they are idempotent, which options exclude them."""

from __future__ import annotations

from collections.abc import Sequence

from ..encode.fields import Field, Items, Pairs
from ..encode.template import Template
from ..outcome.messages import Hint, Message
from ..resp.commands import commands_with
from ..server.answers import Answers
from ..server.options import Options
from ..server.preflight import OF_A_CONNECTION
from ..sources.files.command_files import RejectsFile
from ..sources.files.resp import RespFile

__all__ = ["check_connection_state", "check_several_connections", "command_names", "is_idempotent"]

# MULTI, EXEC and DISCARD: the commands of a transaction share a connection.
TRANSACTION = commands_with("multi", "end")
# Commands whose order relative to all other commands matters.
OF_ALL = commands_with("flush") | {"SCRIPT", "FUNCTION"}
# Commands that are idempotent without options, with their number of arguments after the key; 0 for
# any number. A further argument could be an option that comes from a row, such as INCR of ZADD.
PLAIN = {
    b"HSET": 0, b"HMSET": 0, b"SADD": 0, b"PFADD": 0, b"MSET": 0, b"DEL": 0, b"UNLINK": 0,
    b"SETEX": 2, b"PSETEX": 2, b"JSON.SET": 2, b"SET": 1, b"ZADD": 2,
}  # fmt: skip
# Commands allowed after a command of PLAIN for the same key, with their number of arguments after
# the key.
TIMES = {b"EXPIRE": 1, b"PEXPIRE": 1, b"EXPIREAT": 1, b"PEXPIREAT": 1}
# Idempotent options of SET.
OPTIONS = (b"EX", b"PX", b"EXAT", b"PXAT")
# Commands that are not idempotent together with other commands: a row may delete a value that
# another row sets.
DELETES = frozenset((b"DEL", b"UNLINK"))


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
    if options.confirms:
        option = Hint("durable", options.durable)
    elif options.retry in (None, "never"):
        return
    if answers is not None and answers.topology is not None:
        return
    names = command_names(source, template)
    if names is None:
        words = " needs the command names beforehand; give a template that begins with the name"
        raise ValueError(Message(option, words))
    found = OF_A_CONNECTION.intersection(names) - (TRANSACTION if template else set())
    if found:
        words = f" can't be used with {', '.join(sorted(found))}, which change the connection"
        raise ValueError(Message(option, words))


def check_several_connections(source: object, template: Template | None, connections: int) -> None:
    """Refuse several connections for commands that may depend on each other.

    MULTI and EXEC in a template are allowed: the commands of a transaction share a connection.

    Raises:
        ValueError: a command changes the state of its connection, or must stay in order with all
            others (such as FLUSHALL), or the command names depend on the data.
        ProtocolError, EncodeError: the source is a RESP file that can't be sent.
    """
    if connections == 1:
        return
    names = command_names(source, template)
    if names is None:
        advice = "; give a template that begins with the command name"
        if isinstance(source, RespFile):
            advice = f", and {source.name} can be read only once; give the path of a file"
        words = f"several connections need the command names beforehand{advice}, or leave out "
        raise ValueError(Message(words, Hint("connections", ...)))
    found = (OF_ALL | OF_A_CONNECTION).intersection(names) - (TRANSACTION if template else set())
    if found:
        words = f"commands before and after {', '.join(sorted(found))} must stay in order on one "
        raise ValueError(Message(words, "connection; leave out ", Hint("connections", ...)))


def is_idempotent(template: Template | None, nulls: str = "auto") -> bool:
    """Return whether a template is idempotent, so that its rows may be loaded again.

    Args:
        template: the template.
        nulls: as for ``mass_insert``.
    """
    if template is None or template.scripts or nulls == "delete":
        return False
    names = [_name(command) for command in template.commands]
    if not all(map(_is_plain, names, template.commands)):
        return False
    if len(names) > 1 and not DELETES.isdisjoint(names):
        return False
    # If EXPIRE comes before the command that creates the key, EXPIRE has an effect only when the
    # row runs again. With "skip", the command that creates the key may be omitted.
    if nulls == "skip" and len(names) > 1 and not TIMES.keys().isdisjoint(names):
        return False
    made: set[tuple[object, ...]] = set()
    for name, command in zip(names, template.commands, strict=True):
        key = tuple(getattr(part, "path", part) for part in command[1])
        if name in TIMES and len(names) > 1 and key not in made:
            return False
        made.add(key)
    return True


def _name(command: Sequence[Sequence[object]]) -> bytes:
    return _text(command[0]).upper() if _fixed(command[0]) else b""


def _text(parts: Sequence[object]) -> bytes:
    return b"".join(part for part in parts if isinstance(part, bytes))


def _fixed(parts: Sequence[object]) -> bool:
    return not any(isinstance(part, Field) for part in parts)


def _is_plain(name: bytes, command: Sequence[Sequence[object]]) -> bool:
    """Return whether a command is idempotent, whatever the server contains."""
    count = PLAIN.get(name, TIMES.get(name))
    if count is None:
        return False
    if count == 0:
        return True
    after = command[2:]
    if any(isinstance(part, Items | Pairs) for parts in after for part in parts):
        return False
    if name == b"JSON.SET" and after and not _is_place(after[0]):
        return False
    return len(after) == count or (name == b"SET" and _are_times(after[1:]))


def _is_place(path: Sequence[object]) -> bool:
    """Return whether a JSON path matches the same parts when its command runs again.

    A path with a filter or with ``..`` may match other parts the second time, since it may match
    the value written the first time.
    """
    text = _text(path)
    return _fixed(path) and b"?" not in text and b".." not in text


def _are_times(options: Sequence[Sequence[object]]) -> bool:
    """Return whether SET's options do nothing but set or keep the time to live."""
    words = [_text(parts).upper() for parts in options]
    if len(words) == 2:
        return _fixed(options[0]) and words[0] in OPTIONS
    return words == [b"KEEPTTL"] and _fixed(options[0])
