"""Commands that change nothing more if they run twice, so that they may be sent again."""

from __future__ import annotations

from .split import arguments

__all__ = ["may_repeat"]

# Only commands that write what their arguments say, into one key, wherever the elements are, and
# whose second reply is no error. RENAME, COPY or SUNIONSTORE read a key that a later command may
# have changed; LSET and ZREMRANGEBYRANK count places, which other commands shift; XADD with an ID
# fails the second time. A time to live counts from the second run.
_NAMES = """
    SET SETEX PSETEX SETNX GETSET GETDEL GETEX SETRANGE SETBIT MSET MSETEX DEL UNLINK
    EXPIRE PEXPIRE EXPIREAT PEXPIREAT PERSIST TOUCH
    HSET HMSET HSETNX HDEL HSETEX HEXPIRE HPEXPIRE HEXPIREAT HPEXPIREAT HPERSIST
    SADD SREM ZADD ZREM ZREMRANGEBYSCORE ZREMRANGEBYLEX GEOADD PFADD RESTORE
    JSON.SET JSON.MSET JSON.MERGE BF.ADD BF.MADD BF.INSERT VADD VREM VSETATTR
    SCRIPT FUNCTION
    PING ECHO GET HGET HMGET HGETALL EXISTS TYPE TTL PTTL STRLEN HLEN LLEN SCARD ZCARD XLEN
    """
REPEATABLE = frozenset(_NAMES.split())
# Commands that are so only without, or only with one of these arguments.
NOT_WITH = {"ZADD": b"INCR"}
ONLY_WITH = {"RESTORE": b"REPLACE", "FUNCTION": b"REPLACE"}
# How many arguments to look at for them. ZADD's options come before the first score.
MOST_OPTIONS = 10


def may_repeat(command: bytes) -> bool:
    """Return whether a command can run twice in a row with the result and the reply of once.

    Args:
        command: as RESP.
    """
    first, *rest = arguments(command, MOST_OPTIONS)
    name = first.upper().decode(errors="replace")
    if name not in REPEATABLE:
        return False
    if name not in NOT_WITH and name not in ONLY_WITH:
        return True
    options = {argument.upper() for argument in rest[1:]}
    if name in NOT_WITH:
        return NOT_WITH[name] not in options
    return ONLY_WITH[name] in options
