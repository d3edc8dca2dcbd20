"""The table of commands: which arguments are keys, and what a command does.

Source: COMMAND of Redis 6.2 to 8.2 and Valkey 9.1, the commands' pages, and the modules' pages.
"""

from __future__ import annotations

import re
from typing import NamedTuple

__all__ = [
    "COMMANDS", "FOR_ALL", "POSITIONS", "REPLACE_SCRIPT", "REPLACE_SCRIPT_IN_CLUSTER",
    "ZADD_OPTIONS", "Command", "Positions", "commands_with", "properties_of",
]  # fmt: skip

# Each row: an effect, key positions and flags, then the names of commands.
#
# Effects:
#   read        changes nothing
#   set, remove, time, condition, neutral
#               idempotent, if no later command changes the data; see ``idempotent.py``. Whether a
#               key exists after "set" does not depend on its previous state. "remove" removes
#               items; removing the last item removes the key. "time" sets the time to live of
#               existing keys, which a rerun restarts. The effect of "condition" depends on the
#               previous state. "neutral" changes no key
#   change      may change data, and is not idempotent
#   script      runs other commands, and its reply may contain their errors
#   multi, end, watch
#               begins a transaction, ends it, or makes it conditional
#   connection  changes the state of its connection, and so the meaning of later commands; "client"
#               does so with some subcommands
#   wait        waits for earlier commands of its connection
#   stream      stops, multiplies or changes replies, which then no longer match commands
#   flush       changes all data
#   server      concerns the server or a channel, and no key
#
# Key positions, as indices of arguments; the name is argument 0:
#   first       the first key; 0 if there is no key, ? if the keys follow an option
#   ..last      the last key, if there are more keys; a negative index counts from the end
#   #index      the argument with the number of keys
#   /step       the number of arguments from one key to the next
# GEORADIUS, GEORADIUSBYMEMBER and SORT may have a second key, after STORE. Names of module commands
# contain a dot.
#
# Flags:
#   small       the reply is small for any key. SET has no such flag, because of its option GET
#   deletes     deletes data or changes the server itself. COMMAND has no flag for all of these:
#               for example, it has one for CONFIG SET, but not for CONFIG
#   fields      writes fields of a hash
#   many        may be the result of merging commands for one key each
#
# Not idempotent are RENAME, COPY and SUNIONSTORE, which read a key that a later command may have
# changed; LSET and ZREMRANGEBYRANK, whose positions other commands shift; and XADD with an ID,
# which fails if rerun.
_TABLE = """
read 0: KEYS RANDOMKEY SCAN
read 0 small: DBSIZE ECHO PING
read 1:
    BF.CARD BF.INFO BF.MEXISTS CF.COUNT CF.MEXISTS CMS.QUERY DUMP GEOHASH GEOPOS
    GEORADIUSBYMEMBER_RO GEORADIUS_RO GEOSEARCH GET GETRANGE HEXPIRETIME HGET HGETALL HKEYS HMGET
    HPEXPIRETIME HPTTL HRANDFIELD HSCAN HTTL HVALS JSON.ARRINDEX JSON.ARRLEN JSON.GET JSON.OBJKEYS
    JSON.OBJLEN JSON.RESP JSON.STRLEN LINDEX LRANGE SMEMBERS SORT_RO SRANDMEMBER SSCAN SUBSTR
    TDIGEST.QUANTILE TOPK.LIST TOPK.QUERY TS.GET TS.INFO TS.RANGE TS.REVRANGE VCARD VDIM VEMB
    VGETATTR VINFO VISMEMBER VLINKS VRANDMEMBER VSIM XPENDING XRANGE XREVRANGE ZRANDMEMBER ZRANGE
    ZRANGEBYLEX ZRANGEBYSCORE ZREVRANGE ZREVRANGEBYLEX ZREVRANGEBYSCORE ZSCAN
read 1 small:
    BF.EXISTS BITCOUNT BITFIELD_RO BITPOS CF.EXISTS EXPIRETIME GEODIST GETBIT HEXISTS HLEN HSTRLEN
    JSON.TYPE LLEN LPOS PEXPIRETIME PTTL SCARD SISMEMBER SMISMEMBER STRLEN TTL TYPE XLEN ZCARD
    ZCOUNT ZLEXCOUNT ZMSCORE ZRANK ZREVRANK ZSCORE
read 1..-1: MGET SDIFF SINTER SUNION
read 1..-1 small: EXISTS PFCOUNT
read 1..-2: JSON.MGET
read 1..2: LCS
read 2: XINFO
read 2 small: OBJECT
read 2#1: ZDIFF ZINTER ZUNION
read 2#1 small: SINTERCARD ZINTERCARD
read 3#2: EVALSHA_RO EVAL_RO FCALL_RO
read ?: XREAD
set 1: BF.INSERT BF.MADD GETSET SET VADD
set 1 deletes: GETDEL
set 1 small: BF.ADD GEOADD JSON.SET PFADD PSETEX RESTORE SADD SETBIT SETEX SETRANGE ZADD
set 1 small fields: HMSET HSET HSETEX
set 1..-1 small deletes many: DEL UNLINK
set 1..-1/2 small many: MSET
set 1..-1/3 small: JSON.MSET
set 2#1/2 small many: MSETEX
remove 1: VREM
remove 1 small deletes: HDEL SREM ZREM ZREMRANGEBYLEX ZREMRANGEBYSCORE
time 1: HEXPIRE HEXPIREAT HPERSIST HPEXPIRE HPEXPIREAT
time 1 small: EXPIRE EXPIREAT PERSIST PEXPIRE PEXPIREAT
condition 1: GETEX JSON.MERGE VSETATTR
condition 1 small: SETNX
condition 1 small fields: HSETNX
neutral 0 deletes: FUNCTION SCRIPT
neutral 1..-1 small: TOUCH
change 1:
    CLUSTERSCAN DELIFEQ GEORADIUS GEORADIUSBYMEMBER HGETEX MOVE RESTORE-ASKING SORT XACKDEL
    XAUTOCLAIM XCLAIM XSETID
change 1 deletes: HGETDEL LPOP RPOP SPOP XDELEX ZPOPMAX ZPOPMIN
change 1 small:
    APPEND BITFIELD DECR DECRBY INCR INCRBY INCRBYFLOAT JSON.DEL LINSERT LPUSH LPUSHX LSET RPUSH
    RPUSHX SPUBLISH XACK XADD ZINCRBY
change 1 small deletes: LREM LTRIM XDEL XTRIM ZREMRANGEBYRANK
change 1 small fields: HINCRBY HINCRBYFLOAT
change 1#2 deletes: ZDIFFSTORE ZINTERSTORE ZUNIONSTORE
change 1..-1 deletes: SDIFFSTORE SINTERSTORE SUNIONSTORE
change 1..-1 small: PFMERGE
change 1..-1/2 small: MSETNX
change 1..-2: BLPOP BRPOP BZPOPMAX BZPOPMIN
change 1..2: BLMOVE BRPOPLPUSH GEOSEARCHSTORE LMOVE RPOPLPUSH ZRANGESTORE
change 1..2 small: COPY RENAMENX SMOVE
change 1..2 small deletes: RENAME
change 2: PFDEBUG
change 2 deletes: XGROUP
change 2 small: MEMORY
change 2#1 deletes: LMPOP ZMPOP
change 2..-1 small: BITOP
change 3#2: BLMPOP BZMPOP
script 3#2: EVAL EVALSHA FCALL
multi 0: MULTI
end 0: DISCARD EXEC
watch 1..-1: WATCH
connection 2: HIMPORT
connection 0: ASKING AUTH READONLY READWRITE SELECT UNWATCH
client 0: CLIENT
wait 0: WAIT WAITAOF
stream 0: HELLO MONITOR PSUBSCRIBE PSYNC PUNSUBSCRIBE QUIT REPLCONF RESET SUBSCRIBE SYNC UNSUBSCRIBE
stream 1..-1: SSUBSCRIBE SUNSUBSCRIBE
flush 0 deletes: FLUSHALL FLUSHDB SWAPDB
server 0:
    BGREWRITEAOF BGSAVE COMMAND COMMANDLOG FAILOVER INFO LASTSAVE LATENCY LOLWUT PFSELFTEST PUBSUB
    REPLICAOF ROLE SAVE SLAVEOF SLOWLOG
server 0 deletes: ACL CLUSTER CONFIG DEBUG MODULE SHUTDOWN
server 0 small: PUBLISH TIME
"""
_ROW = re.compile(r"(\w+) (\S+)((?: \w+)*):\s+([^:]+)(?:\n|$)")
_KEYS = re.compile(r"(\d+)(?:\.\.(-?\d+))?(?:#(\d+))?(?:/(\d+))?")

# Options of ZADD, before the scores.
ZADD_OPTIONS = frozenset((b"NX", b"XX", b"GT", b"LT", b"CH", b"INCR"))
# Commands without a key that must run on each node of a cluster. Primaries replicate FUNCTION, but
# not SCRIPT.
FOR_ALL = {
    (b"SCRIPT", b"LOAD"), (b"SCRIPT", b"FLUSH"),
    (b"FUNCTION", b"LOAD"), (b"FUNCTION", b"DELETE"), (b"FUNCTION", b"FLUSH"),
    (b"FUNCTION", b"RESTORE"),
}  # fmt: skip

# Replaces the hash KEYS[1] by the field-value pairs ARGV. The first HSET finds errors such as
# WRONGTYPE or OOM before anything is deleted. Lua's unpack() returns less than 8,000 values.
# Redis 6.2 reports OOM and READONLY as "@user_script: 1: -OOM ...".
REPLACE_SCRIPT = b"""\
local r = redis.pcall('HSET', KEYS[1], ARGV[1], ARGV[2])
if type(r) == 'table' and r.err then
return {err = string.gsub(r.err, '^@user_script: ?%d+: %-?', '')}
end
redis.call('DEL', KEYS[1])
for i = 1, #ARGV, 4000 do
redis.call('HSET', KEYS[1], unpack(ARGV, i, math.min(i + 3999, #ARGV)))
end
return 1"""
# The same for clusters. While a key's slot moves to another node, a script can't write the key
# after it has deleted it. So this script deletes only the other fields and the time to live, which
# takes the server 1.3 to 2.5 times as long if the hash exists.
REPLACE_SCRIPT_IN_CLUSTER = b"""\
local k, added, named, stale = KEYS[1], 0, {}, {}
for i = 1, #ARGV, 4000 do
local r = redis.pcall('HSET', k, unpack(ARGV, i, math.min(i + 3999, #ARGV)))
if type(r) == 'table' then
return {err = string.gsub(r.err, '^@user_script: ?%d+: %-?', '')}
end
added = added + r
end
if added < redis.call('HLEN', k) then
for i = 1, #ARGV, 2 do named[ARGV[i]] = 1 end
for _, f in ipairs(redis.call('HKEYS', k)) do
if not named[f] then stale[#stale + 1] = f end
end
for i = 1, #stale, 4000 do
redis.call('HDEL', k, unpack(stale, i, math.min(i + 3999, #stale)))
end
redis.call('PERSIST', k)
end
return 1"""


class Positions(NamedTuple):
    """The arguments of a command that are keys; the name is argument 0.

    Attributes:
        first: index of the first key; 0 if there is no key.
        last: index of the last key; a negative index counts from the end. Unused if ``number_at``
            is set.
        step: number of arguments from one key to the next.
        number_at: index of the argument with the number of keys, before the keys; 0 if there is no
            such argument.
    """

    first: int
    last: int = 0
    step: int = 1
    number_at: int = 0


class Command(NamedTuple):
    """A row of the table; ``positions`` is None if the keys follow an option."""

    effect: str
    positions: Positions | None
    flags: frozenset[str]


def _positions(keys: str) -> Positions | None:
    """Parse key positions of the table."""
    found = _KEYS.fullmatch(keys)
    if found is None:
        return None
    first, last, number_at, step = (int(each or 0) for each in found.groups())
    return Positions(first, last or (0 if number_at else first), step or 1, number_at)


UNKNOWN = Command("", None, frozenset())
# All commands, by name in capitals.
COMMANDS = {
    name.encode(): command
    for effect, keys, flags, row in _ROW.findall(_TABLE)
    for command in [Command(effect, _positions(keys), frozenset(flags.split()))]
    for name in row.split()
}
POSITIONS = {
    name: command.positions for name, command in COMMANDS.items() if command.positions is not None
}


def commands_with(*marks: str) -> frozenset[str]:
    """Return the names of commands with one of these effects or flags."""
    wanted = set(marks)
    return frozenset(
        name.decode()
        for name, command in COMMANDS.items()
        if command.effect in wanted or not wanted.isdisjoint(command.flags)
    )


def properties_of(name: bytes) -> Command:
    """Return the properties of a command; the effect of an unknown command is empty."""
    return COMMANDS.get(name.upper(), UNKNOWN)
