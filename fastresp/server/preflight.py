"""Check whether a server would accept a template's commands, without running them.

The commands are queued with MULTI and dropped with DISCARD. A server checks the name, the number of
arguments and the user's permissions before it queues a command. So permission is needed for MULTI,
but not for ``COMMAND INFO`` or ``ACL DRYRUN``. Without permission for MULTI, nothing is checked in
advance.
"""

from __future__ import annotations

from secrets import token_bytes, token_hex
from typing import Any, NamedTuple

from ..encode.fields import Field, Items, Pairs
from ..encode.template import Template

__all__ = [
    "OF_A_CONNECTION",
    "RESTORE",
    "Refused",
    "Rehearsed",
    "over_any_keys",
    "rehearsal_of",
    "rehearse",
    "without_items",
]

# Commands that change the state of the connection, and so the meaning of later commands.
OF_A_CONNECTION = frozenset((
    "MULTI", "EXEC", "DISCARD", "WATCH", "UNWATCH", "SELECT", "AUTH", "CLIENT", "ASKING",
    "READONLY", "READWRITE",
))  # fmt: skip
# Commands that are not queued after MULTI. They run immediately or end the transaction. EVALSHA is
# also excluded, since it is checked when scripts are loaded.
NOT_QUEUED = {name.encode() for name in OF_A_CONNECTION | {"QUIT", "RESET", "HELLO", "EVALSHA"}}
# The placeholder for each value. So ACL rules for keys are not checked in advance.
VALUE = b"1"


class Rehearsed(NamedTuple):
    """A command of a template, with placeholders for its values."""

    words: tuple[bytes, ...]
    counted: bool  # whether the number of arguments is the same in every row
    subcommand: bool  # whether the second argument is constant


# Replaces the template's commands in ``mode="serialize"``.
RESTORE = Rehearsed((b"RESTORE", VALUE, b"0", VALUE), counted=True, subcommand=False)


class Refused(NamedTuple):
    """A command that the server would refuse in every row, and its error reply."""

    name: str
    words: str
    right: bool  # whether the user lacks a permission


def rehearsal_of(template: Template | None) -> list[Rehearsed]:
    """Return the commands of a template with constant names."""
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


def without_items(template: Template | None) -> list[tuple[bytes, ...]]:
    """Return the commands with ``{*list}`` or ``{**}``, as sent for a row without any items."""
    found = []
    for command in () if template is None else template.commands:
        several = [any(isinstance(part, Items | Pairs) for part in parts) for parts in command]
        if any(several) and not any(isinstance(part, Field) for part in command[0]):
            constants = [[part for part in parts if isinstance(part, bytes)] for parts in command]
            words = zip(constants, several, strict=True)
            found.append(tuple(b"".join(parts) or VALUE for parts, items in words if not items))
    return found


def over_any_keys(template: Template | None, cluster: bool) -> list[tuple[bytes, ...]]:
    """Return commands over arbitrary keys, to find out whether the server accepts them.

    With ``mode="merge"``, SET, DEL and UNLINK are merged into commands with many keys only if the
    server accepts these commands. They are refused if the user lacks permission for some keys, or
    if a proxy shards keys. The keys start and end with every possible byte, so that an ACL rule for
    some keys does not allow all of them.

    Args:
        template: the load's template; None if the commands are unknown.
        cluster: whether the server is a cluster, so that all keys must be in one slot.
    """
    tag = b"{%s}" % token_hex(4).encode() if cluster else b""
    first = [bytes([n]) for n in range(256)]
    # A hash tag starts at the first brace.
    keys = [
        (tag if tag[:1] == byte else byte + tag) + token_bytes(8) + bytes([byte[0] ^ 0x55])
        for byte in first
    ]
    pairs = [part for key in keys for part in (key, VALUE)]
    wishes = {
        # A user with permission for MSET, but not for SET, gets errors.
        b"SET": [
            (b"SET", keys[0], VALUE),
            (b"MSET", *pairs),
            (b"MSETEX", b"%d" % len(keys), *pairs, b"EX", b"100"),
        ],
        b"DEL": [(b"DEL", *keys)],
        b"UNLINK": [(b"UNLINK", *keys)],
    }
    used = set(wishes)
    names = [command[0] for command in template.commands] if template else []
    if names and not any(isinstance(part, Field) for name in names for part in name):
        constants = ([part for part in name if isinstance(part, bytes)] for name in names)
        used &= {b"".join(parts).upper() for parts in constants}
    return [wish for name in wishes if name in used for wish in wishes[name]]


def rehearse(
    connection: Any, commands: list[Rehearsed], wishes: list[tuple[bytes, ...]]
) -> tuple[Refused | None, frozenset[str]]:
    """Queue commands on a redis-py connection, where MULTI was accepted, and discard them.

    Returns:
        The first command that would be refused in every row, or None; and the names of the
        optional commands (``wishes``) that were refused.

    Raises:
        redis.RedisError: the connection fails.
        OSError: the connection fails.
    """
    for command in commands:
        connection.send_command(*command.words)
    for wish in wishes:
        connection.send_command(*wish)
    connection.send_command("DISCARD")
    replies = [_reply(connection) for _ in commands]
    lacking = [wish[0].decode() for wish in wishes if _is_refusal(_reply(connection))]
    if _reply(connection) is not None:
        # Permission for DISCARD is missing. All later commands would be queued forever.
        connection.disconnect()
        connection.connect()
    found = (_refusal(each, error) for each, error in zip(commands, replies, strict=True))
    return next((refused for refused in found if refused is not None), None), frozenset(lacking)


def _is_refusal(error: Exception | None) -> bool:
    """Return whether an optional command was refused; a redirect is not a refusal."""
    import redis

    redirections = (redis.exceptions.MovedError, redis.exceptions.AskError)
    return error is not None and not isinstance(error, redirections)


def _reply(connection: Any) -> Exception | None:
    """Read the next reply; return it if it is an error, else None."""
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
