"""Which commands may be sent again although they may have run: all of them twice is as once."""

from __future__ import annotations

from collections.abc import Sequence

from .split import arguments

__all__ = ["NAMES", "may_repeat"]

# Only commands on keys that they name, that write what their arguments say. RENAME, COPY or
# SUNIONSTORE read a key that a later command may have changed; LSET and ZREMRANGEBYRANK count
# places, which other commands shift; XADD with an ID fails the second time.
NAMES = {
    name: kind
    for kind, names in {
        # Afterwards the key exists, or does not, whatever was there.
        "whole": """
            SET SETEX PSETEX GETSET SETRANGE SETBIT MSET MSETEX DEL UNLINK GETDEL RESTORE
            HSET HMSET HSETEX SADD ZADD GEOADD PFADD JSON.SET JSON.MSET BF.ADD BF.MADD BF.INSERT
            VADD
            """,
        # Removes items, and the key with the last of them.
        "remove": "HDEL SREM ZREM ZREMRANGEBYSCORE ZREMRANGEBYLEX VREM",
        # Changes only what exists. The time counts from the second run.
        "time": """
            EXPIRE PEXPIRE EXPIREAT PEXPIREAT PERSIST
            HEXPIRE HPEXPIRE HEXPIREAT HPEXPIREAT HPERSIST
            """,
        # Does what depends on what is there.
        "condition": "SETNX HSETNX GETEX JSON.MERGE VSETATTR",
        "nothing": """
            SCRIPT FUNCTION PING ECHO GET HGET HMGET HGETALL EXISTS TOUCH TYPE TTL PTTL STRLEN HLEN
            LLEN SCARD ZCARD XLEN
            """,
    }.items()
    for name in names.split()
}
# Arguments that make a command depend on what is there. Elsewhere they may be data, which only
# makes us more careful.
CONDITIONS = frozenset(b"NX XX GT LT FNX FXX IFEQ IFNE IFDEQ IFDNE NOCREATE".split())
# Commands that may run twice only without, or only with one of these arguments.
NOT_WITH = {"ZADD": b"INCR"}
ONLY_WITH = {"RESTORE": b"REPLACE", "FUNCTION": b"REPLACE"}
# Commands with several keys: the step from one to the next.
STEPS = {"MSET": 2, "JSON.MSET": 3, "DEL": 1, "UNLINK": 1, "TOUCH": 1, "EXISTS": 1}
# How many arguments to look at for these.
MOST_OPTIONS = 10


def may_repeat(units: Sequence[Sequence[bytes]]) -> list[bool]:
    """Return which units may be sent again, if all that may be are, in their order.

    Any number of the first of them may have run. What a command does the second time depends on
    those after it, so the commands of a key are looked at together.

    Args:
        units: the commands of each, as RESP.
    """
    looked_at = [[look_at(command) for command in unit] for unit in units]
    of_keys: dict[bytes, list[tuple[str, tuple[bytes, ...]]]] = {}
    for unit in looked_at:
        for kind, options, keys in unit:
            for key in keys:
                of_keys.setdefault(key, []).append((kind, options))
    wrong = {key for key, commands in of_keys.items() if not is_as_once(commands)}
    return [all(kind and wrong.isdisjoint(keys) for kind, _, keys in unit) for unit in looked_at]


def look_at(command: bytes) -> tuple[str, tuple[bytes, ...], list[bytes]]:
    """Return the kind of a command, empty if it may not run twice, its options, and its keys."""
    first, *rest = arguments(command)
    name = first.upper().decode(errors="replace")
    kind = NAMES.get(name, "")
    words = [word.upper() for word in rest[1:MOST_OPTIONS]]
    if NOT_WITH.get(name) in words or (name in ONLY_WITH and ONLY_WITH[name] not in words):
        kind = ""
    options = tuple(sorted(CONDITIONS.intersection(words)))
    if options and kind in ("whole", "time"):
        kind = "condition"
    step = STEPS.get(name)
    keys = rest[:1] if step is None else rest[::step]
    if name == "MSETEX" and rest and rest[0].isdigit():
        keys = rest[1 : 1 + 2 * int(rest[0]) : 2]
    return kind, (first.upper(), *options), keys


def is_as_once(commands: Sequence[tuple[str, tuple[bytes, ...]]]) -> bool:
    """Return whether running commands of a key again changes nothing, whichever of them ran."""
    commands = [each for each in commands if each[0] not in ("", "nothing")]
    kinds = [kind for kind, _ in commands]
    if "condition" in kinds:
        return len(set(commands)) == 1
    if "time" in kinds and set(kinds) != {"time"}:
        # A key without an item more may have been made without a time.
        return kinds[0] == "whole" and "remove" not in kinds
    return True
