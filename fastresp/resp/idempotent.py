"""Decide which commands of a sequence are idempotent: rerunning them changes nothing."""

from __future__ import annotations

from collections.abc import Sequence

from .commands import properties_of
from .slots import keys_of
from .split import CommandSplitter, arguments

__all__ = ["IDEMPOTENT", "command_keys", "may_ask_again", "may_resend", "only_reads"]

# Effects of commands that are idempotent, unless other commands of their keys prevent it.
IDEMPOTENT = frozenset(("read", "set", "remove", "time", "condition", "neutral"))
# Options that make a command depend on the previous state. A value may be equal to an option; then
# the command is not resent, although it could be.
CONDITIONS = frozenset(b"NX XX GT LT FNX FXX IFEQ IFNE IFDEQ IFDNE NOCREATE".split())
# Commands that are idempotent only without this argument (NOT_WITH), or only with it (ONLY_WITH).
NOT_WITH = {b"ZADD": b"INCR"}
ONLY_WITH = {b"RESTORE": b"REPLACE", b"FUNCTION": b"REPLACE"}
# The number of arguments to search for options.
MAX_OPTIONS = 10
# Commands that return the previous state, which a rerun can no longer return.
FETCHING = frozenset({b"GETSET", b"GETDEL", b"SETBIT"})


def may_resend(units: Sequence[Sequence[bytes]]) -> list[bool]:
    """Return for each unit whether it may be resent, assuming that units are resent in order.

    Any number of leading units may have run already. What a rerun changes depends on later
    commands of the same key, so all commands of a key are examined together.

    Args:
        units: the commands of each unit, as RESP. The commands of a unit are resent together.
    """
    keys_of_each = iter(command_keys([command for unit in units for command in unit]))
    examined = [[(*examine(command), next(keys_of_each)) for command in unit] for unit in units]
    of_keys: dict[bytes, list[tuple[str, tuple[bytes, ...]]]] = {}
    for unit in examined:
        for effect, options, keys in unit:
            for key in keys:
                of_keys.setdefault(key, []).append((effect, options))
    wrong = {key for key, commands in of_keys.items() if not is_idempotent(commands)}
    return [all(effect and wrong.isdisjoint(keys) for effect, _, keys in unit) for unit in examined]


def may_ask_again(commands: Sequence[bytes]) -> list[bool]:
    """Return for each unanswered command whether it may be resent.

    The rules of ``may_resend()`` apply, and a rerun must return the same reply as the first run. So
    GETDEL and SETNX must not be resent, nor a GET if a later SET has the same key.

    Args:
        commands: the commands as RESP; any number of leading commands may have run.
    """
    keys_of_each = command_keys(commands)
    allowed = may_resend([[each] for each in commands])
    written: set[bytes] = set()
    for at in reversed(range(len(commands))):
        keys = keys_of_each[at]
        if not only_reads(commands[at]):
            written.update(keys)
            allowed[at] = allowed[at] and not _finds_out(commands[at])
        elif not written.isdisjoint(keys):
            allowed[at] = False
    return allowed


def command_keys(commands: Sequence[bytes]) -> list[tuple[bytes, ...]]:
    """Return the keys of each command; the commands are given as RESP."""
    chunk = CommandSplitter().feed(b"".join(commands))
    return [] if chunk is None else keys_of(chunk)


def _finds_out(command: bytes) -> bool:
    """Return whether a command returns the value that it replaced, or writes conditionally."""
    effect, (name, *_) = examine(command)
    if name in FETCHING or effect == "condition":
        return True
    return name == b"SET" and b"GET" in [word.upper() for word in arguments(command)[3:]]


def only_reads(command: bytes) -> bool:
    """Return whether a command changes nothing."""
    return properties_of(arguments(command)[0]).effect == "read"


def examine(command: bytes) -> tuple[str, tuple[bytes, ...]]:
    """Return (effect, (name, *conditions)); the effect is "" if the command is not idempotent."""
    first, *rest = arguments(command)
    name = first.upper()
    effect = properties_of(name).effect
    words = [word.upper() for word in rest[1:MAX_OPTIONS]]
    if (
        effect not in IDEMPOTENT
        or NOT_WITH.get(name) in words
        or (name in ONLY_WITH and ONLY_WITH[name] not in words)
    ):
        effect = ""
    options = tuple(sorted(CONDITIONS.intersection(words)))
    if options and effect in ("set", "time"):
        effect = "condition"
    return effect, (name, *options)


def is_idempotent(commands: Sequence[tuple[str, tuple[bytes, ...]]]) -> bool:
    """Return whether all commands of a key may run again after some or all of them have run."""
    commands = [each for each in commands if each[0] not in ("", "read", "neutral")]
    effects = [effect for effect, _ in commands]
    if "condition" in effects:
        return len(set(commands)) == 1
    if "time" in effects and set(effects) != {"time"}:
        # A rerun might create a key without items, or without a time to live.
        return effects[0] == "set" and "remove" not in effects
    return True
