"""Decide which commands are idempotent: running all of them twice has the same effect as once."""

from __future__ import annotations

from collections.abc import Sequence

from .slots import keys_of
from .split import CommandSplitter, arguments

__all__ = ["NAMES", "READS", "may_ask_again", "may_repeat", "only_reads"]

# The tables list commands on keys that they name, and that write only data from their arguments.
# RENAME, COPY or SUNIONSTORE read a key that a later command may have changed; LSET and
# ZREMRANGEBYRANK use positions, which other commands shift; XADD with an ID fails the second time.
# Commands that change nothing. Source: the flag "readonly" of COMMAND, and the modules' pages.
# PING and ECHO lack the flag.
READS = frozenset(
    """
    PING ECHO GET MGET STRLEN GETRANGE SUBSTR LCS GETBIT BITCOUNT BITPOS BITFIELD_RO EXISTS TYPE
    TTL PTTL EXPIRETIME PEXPIRETIME DUMP OBJECT KEYS SCAN RANDOMKEY DBSIZE SORT_RO HGET HMGET
    HGETALL HKEYS HVALS HLEN HEXISTS HSTRLEN HRANDFIELD HSCAN HTTL HPTTL HEXPIRETIME HPEXPIRETIME
    LRANGE LLEN LINDEX LPOS SCARD SMEMBERS SISMEMBER SMISMEMBER SRANDMEMBER SSCAN SINTER SUNION
    SDIFF SINTERCARD ZCARD ZCOUNT ZLEXCOUNT ZRANGE ZREVRANGE ZRANGEBYSCORE ZREVRANGEBYSCORE
    ZRANGEBYLEX ZREVRANGEBYLEX ZRANK ZREVRANK ZSCORE ZMSCORE ZRANDMEMBER ZSCAN ZINTER ZUNION ZDIFF
    ZINTERCARD GEOPOS GEODIST GEOHASH GEOSEARCH GEORADIUS_RO GEORADIUSBYMEMBER_RO PFCOUNT XLEN
    XRANGE XREVRANGE XREAD XPENDING XINFO EVAL_RO EVALSHA_RO FCALL_RO JSON.GET JSON.MGET JSON.TYPE
    JSON.STRLEN JSON.ARRLEN JSON.ARRINDEX JSON.OBJLEN JSON.OBJKEYS JSON.RESP BF.EXISTS BF.MEXISTS
    BF.INFO BF.CARD CF.EXISTS CF.MEXISTS CF.COUNT CMS.QUERY TOPK.QUERY TOPK.LIST TDIGEST.QUANTILE
    TS.GET TS.RANGE TS.REVRANGE TS.INFO VSIM VCARD VDIM VEMB VGETATTR VINFO VLINKS VRANDMEMBER
    VISMEMBER
    """.split()  # noqa: SIM905
)
NAMES = dict.fromkeys(READS, "nothing") | {
    name: kind
    for kind, names in {
        # Afterwards the key exists or doesn't, whatever its previous state.
        "whole": """
            SET SETEX PSETEX GETSET SETRANGE SETBIT MSET MSETEX DEL UNLINK GETDEL RESTORE
            HSET HMSET HSETEX SADD ZADD GEOADD PFADD JSON.SET JSON.MSET BF.ADD BF.MADD BF.INSERT
            VADD
            """,
        # Removes items, and the key with its last item.
        "remove": "HDEL SREM ZREM ZREMRANGEBYSCORE ZREMRANGEBYLEX VREM",
        # Changes only existing keys. The time counts from the second run.
        "time": """
            EXPIRE PEXPIRE EXPIREAT PEXPIREAT PERSIST
            HEXPIRE HPEXPIRE HEXPIREAT HPEXPIREAT HPERSIST
            """,
        # The effect depends on the previous state.
        "condition": "SETNX HSETNX GETEX JSON.MERGE VSETATTR",
        "nothing": "SCRIPT FUNCTION TOUCH",
    }.items()
    for name in names.split()
}
# Arguments that make a command depend on the previous state. In other positions they may be data;
# misreading data only makes us more careful.
CONDITIONS = frozenset(b"NX XX GT LT FNX FXX IFEQ IFNE IFDEQ IFDNE NOCREATE".split())
# Commands that are idempotent only without, or only with this argument.
NOT_WITH = {"ZADD": b"INCR"}
ONLY_WITH = {"RESTORE": b"REPLACE", "FUNCTION": b"REPLACE"}
# Commands with several keys: the step from one to the next.
STEPS = {"MSET": 2, "JSON.MSET": 3, "DEL": 1, "UNLINK": 1, "TOUCH": 1, "EXISTS": 1}
# The number of arguments to search for these.
MOST_OPTIONS = 10
# Commands that return the previous state, which is lost after the second run.
FETCHING = frozenset({"GETSET", "GETDEL", "SETBIT"})


def may_repeat(units: Sequence[Sequence[bytes]]) -> list[bool]:
    """Return which units may be resent; the caller must resend all of them, in order.

    Any number of the first units may have run. The effect of a second run depends on later
    commands, so the commands of a key are examined together.

    Args:
        units: the commands of each unit, as RESP.
    """
    looked_at = [[look_at(command) for command in unit] for unit in units]
    of_keys: dict[bytes, list[tuple[str, tuple[bytes, ...]]]] = {}
    for unit in looked_at:
        for kind, options, keys in unit:
            for key in keys:
                of_keys.setdefault(key, []).append((kind, options))
    wrong = {key for key, commands in of_keys.items() if not is_as_once(commands)}
    return [all(kind and wrong.isdisjoint(keys) for kind, _, keys in unit) for unit in looked_at]


def may_ask_again(commands: Sequence[bytes]) -> list[bool]:
    """Return which commands with lost replies may be resent, in order.

    The rules of ``may_repeat()`` apply, and a second run must be able to return the reply of the
    first: GETDEL returns the deleted value, SETNX whether the key was missing, and GET a value that
    a later SET may have replaced.

    Args:
        commands: any number of the first commands may have run.
    """
    chunk = CommandSplitter().feed(b"".join(commands))
    keys_of_each = [] if chunk is None else keys_of(chunk)
    allowed = may_repeat([[each] for each in commands])
    written: set[bytes] = set()
    for at in reversed(range(len(commands))):
        keys = keys_of_each[at]
        if not only_reads(commands[at]):
            written.update(keys)
            allowed[at] = allowed[at] and not _finds_out(commands[at])
        elif not written.isdisjoint(keys):
            allowed[at] = False
    return allowed


def _finds_out(command: bytes) -> bool:
    """Return whether a command returns a replaced value, or writes only on a condition."""
    kind, (first, *_), _ = look_at(command)
    if first.decode(errors="replace") in FETCHING or kind == "condition":
        return True
    return first == b"SET" and b"GET" in [word.upper() for word in arguments(command)[3:]]


def only_reads(command: bytes) -> bool:
    """Return whether a command changes nothing."""
    return arguments(command)[0].upper().decode(errors="replace") in READS


def look_at(command: bytes) -> tuple[str, tuple[bytes, ...], list[bytes]]:
    """Return the kind of a command (empty if not idempotent), its options, and its keys."""
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
    """Return whether rerunning all commands of a key changes nothing, whichever of them ran."""
    commands = [each for each in commands if each[0] not in ("", "nothing")]
    kinds = [kind for kind, _ in commands]
    if "condition" in kinds:
        return len(set(commands)) == 1
    if "time" in kinds and set(kinds) != {"time"}:
        # A second run might create a key without items, or without a time to live.
        return kinds[0] == "whole" and "remove" not in kinds
    return True
