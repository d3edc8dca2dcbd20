"""Decide which commands are idempotent as a sequence: running all of them again changes nothing."""

from __future__ import annotations

from collections.abc import Sequence

from .slots import keys_of
from .split import CommandSplitter, arguments

__all__ = ["NAMES", "READS", "may_ask_again", "may_repeat", "only_reads"]

# The tables list commands that name their keys and write only data from their arguments. Excluded
# are RENAME, COPY and SUNIONSTORE, which read a key that a later command may have changed; LSET and
# ZREMRANGEBYRANK, whose positions other commands shift; and XADD with an ID, which fails if rerun.

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
        # The command alone determines whether the key exists afterwards.
        "whole": """
            SET SETEX PSETEX GETSET SETRANGE SETBIT MSET MSETEX DEL UNLINK GETDEL RESTORE
            HSET HMSET HSETEX SADD ZADD GEOADD PFADD JSON.SET JSON.MSET BF.ADD BF.MADD BF.INSERT
            VADD
            """,
        # Removes items; removing the last item removes the key.
        "remove": "HDEL SREM ZREM ZREMRANGEBYSCORE ZREMRANGEBYLEX VREM",
        # Changes only existing keys. A rerun restarts the time.
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
# Arguments that make a command depend on the previous state. The same words may occur as data;
# misreading data as an option only prevents resending.
CONDITIONS = frozenset(b"NX XX GT LT FNX FXX IFEQ IFNE IFDEQ IFDNE NOCREATE".split())
# Commands that are idempotent only without this argument (NOT_WITH), or only with it (ONLY_WITH).
NOT_WITH = {"ZADD": b"INCR"}
ONLY_WITH = {"RESTORE": b"REPLACE", "FUNCTION": b"REPLACE"}
# Commands with several keys, and the number of arguments from one key to the next.
STEPS = {"MSET": 2, "JSON.MSET": 3, "DEL": 1, "UNLINK": 1, "TOUCH": 1, "EXISTS": 1}
# The number of arguments to search for options.
MAX_OPTIONS = 10
# Commands that return the previous state, which a rerun can no longer return.
FETCHING = frozenset({"GETSET", "GETDEL", "SETBIT"})


def may_repeat(units: Sequence[Sequence[bytes]]) -> list[bool]:
    """Return for each unit whether it may be resent, if all units are resent in order.

    Any number of leading units may have run. The effect of a rerun depends on later commands, so
    all commands of a key are examined together.

    Args:
        units: the commands of each unit, as RESP. The commands of a unit are resent together.
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
    """Return for each command without a reply whether it may be resent.

    The rules of ``may_repeat()`` apply, and a rerun must return the same reply as the first run. So
    GETDEL and SETNX must not be resent, nor a GET if a later SET has the same key.

    Args:
        commands: the commands as RESP; any number of leading commands may have run.
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
    """Return whether a command returns the value that it replaced, or writes conditionally."""
    kind, (first, *_), _ = look_at(command)
    if first.decode(errors="replace") in FETCHING or kind == "condition":
        return True
    return first == b"SET" and b"GET" in [word.upper() for word in arguments(command)[3:]]


def only_reads(command: bytes) -> bool:
    """Return whether a command changes nothing."""
    return arguments(command)[0].upper().decode(errors="replace") in READS


def look_at(command: bytes) -> tuple[str, tuple[bytes, ...], list[bytes]]:
    """Examine one command.

    Returns:
        A tuple of three. First, the command's kind in ``NAMES``; empty if the command is not
        idempotent. Second, the command's name and conditions. Third, the command's keys.
    """
    first, *rest = arguments(command)
    name = first.upper().decode(errors="replace")
    kind = NAMES.get(name, "")
    words = [word.upper() for word in rest[1:MAX_OPTIONS]]
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
    """Return whether all commands of a key may run again, after any number of them have run."""
    commands = [each for each in commands if each[0] not in ("", "nothing")]
    kinds = [kind for kind, _ in commands]
    if "condition" in kinds:
        return len(set(commands)) == 1
    if "time" in kinds and set(kinds) != {"time"}:
        # A rerun might create a key without items, or without a time to live.
        return kinds[0] == "whole" and "remove" not in kinds
    return True
