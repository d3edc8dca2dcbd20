"""The values that a command of the source writes or removes."""

from ...resp.slots cimport Walk

cdef enum:
    LONGEST_NAME = 10


# The kind of value that a command writes; it determines the read.
cdef enum Form:
    UNKNOWN         # a command without a read
    NOTHING         # MULTI and EXEC
    TEXT            # SET
    TEXTS           # MSET
    FIELDS          # HSET
    NO_FIELDS       # HDEL
    MEMBERS         # SADD
    NO_MEMBERS      # SREM
    SCORES          # ZADD
    NO_SCORES       # ZREM
    RIGHT           # RPUSH
    LEFT            # LPUSH
    PLACE           # LSET, only in a recheck
    DOCUMENT        # JSON.SET
    GONE            # DEL
    LIFE            # EXPIRE
    COUNT           # HLEN with a number, only in a recheck


# The unit and base of the time to live.
cdef enum Clock:
    UNTIMED
    SECONDS
    MILLISECONDS
    AT_SECONDS
    AT_MILLISECONDS
    NEVER


cdef struct Verb:
    const char *name
    int size
    Form form
    Clock clock
    bint again          # only in a recheck


# The name of the last parsed command; most commands have the same name.
cdef struct LastVerb:
    char name[LONGEST_NAME]
    long long size
    const Verb *verb


# A parsed command, whose texts stay in the chunk.
cdef struct Statement:
    Form form
    Clock clock
    # Time to live in ms. COUNT: number of items. RPUSH, LPUSH: list index at which the items start.
    # JSON.SET: 0 if the path is the whole document.
    long long time
    bint keeps_time             # whether an existing time to live is kept
    const Verb *verb
    const char *key
    long long key_size
    Walk items                  # where the first item begins
    Py_ssize_t count            # number of items


# One value that a command writes or removes.
cdef struct Item:
    const char *name            # field, member or key; NULL for a single value
    long long name_size
    const char *wanted          # NULL if the item must not exist
    long long wanted_size
    bint keeps_time             # as in Statement
    Py_ssize_t command          # index of the command in the chunk


cdef bint read_statement(
    Statement *s, const Walk *start, LastVerb *last, bint again
) noexcept nogil
cdef void next_item(Statement *s, Item *item) noexcept nogil
cdef long long place_of(const Statement *s) except? -1


cdef inline bint is_list(Form form) noexcept nogil:
    return form == RIGHT or form == LEFT


cdef inline bint is_relative(Clock clock) noexcept nogil:
    return clock == SECONDS or clock == MILLISECONDS


cdef inline bint is_absolute(Clock clock) noexcept nogil:
    return clock == AT_SECONDS or clock == AT_MILLISECONDS


cdef inline bint makes_key(const Statement *s) noexcept nogil:
    """Return whether a command replaces or deletes whole keys, even if it keeps times to live."""
    return s.form == TEXT or s.form == TEXTS or s.form == GONE or s.form == DOCUMENT and s.time == 0
