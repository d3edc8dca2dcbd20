"""Whether a server would take a template's commands at all, found out without running one.

They are queued behind a MULTI and thrown away by DISCARD, on a connection of their own. A server
looks at the name, the number of arguments and the user's rights before it queues a command; so no
right is needed but that to MULTI, which ``COMMAND INFO`` and ``ACL DRYRUN`` do not give either.
Without it nothing is asked, and the load finds out by itself.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from ..encode.fields import Field, Items, Pairs
from ..encode.template import Template

__all__ = ["OF_A_CONNECTION", "Refused", "Rehearsed", "rehearsal_of", "rehearse"]

# They change the connection, and so what the commands after them mean there.
OF_A_CONNECTION = frozenset((
    "MULTI", "EXEC", "DISCARD", "WATCH", "UNWATCH", "SELECT", "AUTH", "CLIENT", "ASKING",
    "READONLY", "READWRITE",
))  # fmt: skip
# They are run at once also behind MULTI, or end it; EVALSHA is looked at where scripts are loaded.
NOT_QUEUED = {name.encode() for name in OF_A_CONNECTION | {"QUIT", "RESET", "HELLO", "EVALSHA"}}
# In the place of a value. What the ACL says of keys is left to the load, which has the real ones.
VALUE = b"1"


class Rehearsed(NamedTuple):
    """A command of a template, with something in the place of its values."""

    words: tuple[bytes, ...]
    counted: bool  # whether it has that many arguments for every row
    subcommand: bool  # whether its second argument is the template's, and no value


class Refused(NamedTuple):
    """What the server says of a command that it would not take for any row."""

    name: str
    words: str
    right: bool  # whether it is a right that is missing


def rehearsal_of(template: Template | None) -> list[Rehearsed]:
    """Give the commands of a template whose names do not come from the data."""
    found: list[Rehearsed] = []
    for command in () if template is None else template.commands:
        if any(isinstance(part, Field) for part in command[0]):
            continue
        words: list[bytes] = []
        counted = True
        for argument in command:
            several = [part for part in argument if isinstance(part, (Items, Pairs))]
            counted = counted and not several
            values = (part if isinstance(part, bytes) else VALUE for part in argument)
            words += (
                [VALUE] * (1 + isinstance(several[0], Pairs)) if several else [b"".join(values)]
            )
        if words[0].upper() not in NOT_QUEUED:
            second = command[1] if len(command) > 1 else ()
            constant = not any(isinstance(part, Field) for part in second)
            found.append(Rehearsed(tuple(words), counted, constant))
    return found


def rehearse(connection: Any, commands: list[Rehearsed]) -> Refused | None:
    """Queue commands on a redis-py connection whose MULTI was accepted, and throw them away.

    Returns:
        The first that is refused, whatever its values are; None where all may be taken.

    Raises:
        redis.RedisError, OSError: the connection fails.
    """
    for command in commands:
        connection.send_command(*command.words)
    connection.send_command("DISCARD")
    replies = [_reply(connection) for _ in commands]
    if _reply(connection) is not None:
        # The right to DISCARD is missing. A load on this connection would be queued for ever.
        connection.disconnect()
        connection.connect()
    found = (_refusal(each, error) for each, error in zip(commands, replies, strict=True))
    return next((refused for refused in found if refused is not None), None)


def _reply(connection: Any) -> Exception | None:
    """The error reply that comes next; None where it is none."""
    import redis

    try:
        connection.read_response()
    except redis.ConnectionError:
        raise
    except redis.ResponseError as error:
        return error
    return None


def _refusal(command: Rehearsed, error: Exception | None) -> Refused | None:
    import redis

    if error is None:
        return None
    words, name = str(error), command.words[0].decode(errors="backslashreplace").upper()
    if isinstance(error, redis.exceptions.NoPermissionError):
        return Refused(name, words, True) if "to run the" in words else None
    words = words.removeprefix("ERR ").partition(", with args")[0]
    kind = words.lower()
    if (
        kind.startswith("unknown command")
        or (kind.startswith("unknown subcommand") and command.subcommand)
        or (kind.startswith("wrong number of arguments") and command.counted)
    ):
        return Refused(name, f"ERR {words}", False)
    return None
