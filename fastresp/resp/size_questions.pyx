# cython: language_level=3, cdivision=True
"""Create commands that query the sizes of replies before the actual commands are sent."""

from libc.string cimport memcmp

from .buffer cimport Buffer, Chunk, append, append_bulk, end_command
from .grammar cimport known_length_end
from .out cimport Reference
from .slots cimport NOTHING, LastRule, Rules, Walk, all_keys, end_of, next_argument

from .repeatable import READS

# Commands whose replies are small for any key. SET is excluded because of its option GET.
cdef frozenset SMALL = frozenset(
    b"""
    PING ECHO DBSIZE TIME EXISTS TYPE TTL PTTL EXPIRETIME PEXPIRETIME TOUCH DEL UNLINK EXPIRE
    PEXPIRE EXPIREAT PEXPIREAT PERSIST RENAME RENAMENX COPY MEMORY OBJECT RESTORE
    STRLEN GETBIT SETBIT BITCOUNT BITPOS BITOP BITFIELD BITFIELD_RO INCR INCRBY INCRBYFLOAT DECR
    DECRBY APPEND SETEX PSETEX SETNX MSET MSETNX MSETEX SETRANGE
    HSET HMSET HSETNX HSETEX HDEL HEXISTS HLEN HSTRLEN HINCRBY HINCRBYFLOAT
    LPUSH RPUSH LPUSHX RPUSHX LLEN LREM LSET LTRIM LINSERT LPOS
    SADD SREM SCARD SISMEMBER SMISMEMBER SMOVE SINTERCARD
    ZADD ZREM ZCARD ZCOUNT ZLEXCOUNT ZSCORE ZMSCORE ZRANK ZREVRANK ZINCRBY ZINTERCARD
    ZREMRANGEBYSCORE ZREMRANGEBYRANK ZREMRANGEBYLEX
    XADD XLEN XACK XDEL XTRIM PFADD PFCOUNT PFMERGE GEOADD GEODIST
    JSON.SET JSON.MSET JSON.DEL JSON.TYPE BF.ADD BF.EXISTS CF.EXISTS PUBLISH SPUBLISH
    """.split()  # noqa: SIM905
)
cdef frozenset KEEPING = frozenset(name.encode() for name in READS)
cdef bytes MEMORY_USAGE = b"*3\r\n$6\r\nMEMORY\r\n$5\r\nUSAGE\r\n"
cdef bytes HSTRLEN = b"*3\r\n$7\r\nHSTRLEN\r\n"
# Module commands: the positions of the first and last key, and the step.
cdef Rules RULES_OF_READS = Rules({
    b"JSON.GET": (1, 1, 1), b"JSON.MGET": (1, -2, 1), b"TS.GET": (1, 1, 1),
    b"TS.RANGE": (1, 1, 1), b"TS.REVRANGE": (1, 1, 1),
})


def size_questions(Chunk chunk not None, Py_ssize_t first, Py_ssize_t stop):
    """Return commands that query how large the replies to some commands of a chunk may be.

    The queries return the length of the field for HGET, and the memory of the keys for other
    commands.

    Args:
        chunk: the chunk of the commands.
        first, stop: the range of the commands.

    Returns:
        None if a command changes the effect of later commands, as MULTI and SELECT do. Otherwise a
        tuple of three. First, a chunk of queries; None if no queries are needed. Second, a list
        with the number of queries for each command: 0 for a small reply, -1 for an unknown size.
        Third, a list with the number of bytes that earlier commands of the range write to the keys
        of each command.
    """
    cdef list counts = [], written = []
    cdef dict writes = {}
    cdef Buffer out = Buffer(1 << 16)
    cdef const Reference *large = chunk.references
    cdef const Reference *here
    cdef const char *start
    cdef Py_ssize_t i, before, extra = 0
    cdef Walk walk
    cdef LastRule last
    cdef tuple keys
    cdef bytes key, name = b"", known = b""
    cdef bint keeps = True, small = False, of_field = False
    RULES_OF_READS.start(&last)
    walk.base = walk.p = chunk.data
    walk.stop = large + chunk.n_references
    for i in range(stop):
        start, here = walk.p, large
        walk.large = large
        if i >= first:
            keys = all_keys(&walk, &last)
            if last.rule is not NULL and last.rule.bounds != NOTHING:
                return None
            if last.size != len(known) or memcmp(last.name, <const char *>known, len(known)) != 0:
                known = last.name[:max(last.size, 0)]
                name = known.upper()
                keeps, small, of_field = name in KEEPING, name in SMALL, name == b"HGET"
            before = 0
            if writes:
                for key in keys:
                    before += writes.get(key, 0)
            if not keeps:
                for key in keys:
                    writes[key] = writes.get(key, 0) + size_of(chunk, i)
            written.append(before)
            if small:
                counts.append(0)
            elif last.rule is NULL or not keys:
                counts.append(-1)
            else:
                counts.append(len(keys))
                if of_field:
                    walk.p, walk.large = start, here
                    ask_for_field(out, &walk, i)
                else:
                    for key in keys:
                        append(out, MEMORY_USAGE, len(MEMORY_USAGE))
                        append_bulk(out, key, len(key))
                        end_command(out, i)
        walk.p = end_of(chunk, i, &large, &extra)
    return (out.take() if out.commands else None), counts, written


cdef int ask_for_field(Buffer out, Walk *walk, Py_ssize_t row) except -1:
    """Append a query for the length of an HGET's field; ``walk`` is at the start of the HGET."""
    cdef const char *text
    cdef long long words, size
    cdef int i
    walk.p = known_length_end(walk.p + 1, &words)
    next_argument(walk, &size)
    append(out, HSTRLEN, len(HSTRLEN))
    for i in range(1, 3):
        text, size = "", 0
        if i < words:
            text = next_argument(walk, &size)
        append_bulk(out, text, size)
    end_command(out, row)
    return 0


cdef inline long long size_of(Chunk chunk, Py_ssize_t index):
    """Return the size of a command in bytes."""
    cdef long long *ends = chunk.ends.data.as_longlongs
    return ends[index] - (ends[index - 1] if index else 0)
