"""The values that a command of the source writes or removes, and the reads that verify them."""

from ...encode.payload.duplicates cimport Numbers
from ...resp.buffer cimport Chunk, Reference
from ...resp.slots cimport Walk, end_of

cdef enum:
    LONGEST_NAME = 10


# The kind of value that a command writes; it determines the read.
cdef enum ValueForm:
    UNKNOWN         # a command that can't be verified
    NO_VALUE        # MULTI and EXEC
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
    INDEX           # LSET, only in a recheck
    DOCUMENT        # JSON.SET
    DELETED         # DEL
    TTL             # EXPIRE
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
    ValueForm form
    Clock clock
    bint recheck_only


# The name of the last parsed command; most commands have the same name.
cdef struct LastVerb:
    char name[LONGEST_NAME]
    long long size
    const Verb *verb


# A parsed command; its pointers refer to the chunk.
cdef struct WriteCommand:
    ValueForm form
    Clock clock
    long long ttl_ms
    bint keeps_ttl              # whether an existing time to live is kept
    bint whole                  # JSON.SET: whether the path is the whole document
    # COUNT: number of items. RPUSH, LPUSH: list index at which the items start.
    long long number
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
    bint keeps_ttl              # as in WriteCommand
    Py_ssize_t command          # index of the command in the chunk


# The names in capitals, without the commands that are used only in a recheck.
cdef frozenset verb_names()
cdef bint parse_command(
    WriteCommand *s, const Walk *start, LastVerb *last, bint recheck
) noexcept nogil
cdef void next_item(WriteCommand *s, Item *item) noexcept nogil


cdef inline bint is_list(ValueForm form) noexcept nogil:
    return form == RIGHT or form == LEFT


cdef inline bint is_absolute(Clock clock) noexcept nogil:
    return clock == AT_SECONDS or clock == AT_MILLISECONDS


# The kind of a reply.
cdef enum ReplyKind:
    PASSED          # no reply: the commands have no read
    ONE             # a bulk string: GET, JSON.GET
    SEVERAL         # an array of bulk strings: MGET, HMGET, ZMSCORE
    FLAGS           # an array of 0 and 1: SMISMEMBER
    RANGE           # an array of bulk strings, which may be shorter: LRANGE
    NAME            # a simple string: TYPE
    NUMBER          # an integer: EXISTS, PTTL, PEXPIRETIME, HLEN


# A read and the commands that it covers, or commands that need no read.
cdef struct Read:
    ReplyKind reply_kind
    ValueForm form
    Py_ssize_t command          # index of the first covered command
    Py_ssize_t commands         # number of covered commands
    Py_ssize_t skipped          # items of the first command that other reads cover
    Py_ssize_t items
    # COUNT: number of items in the source. RPUSH, LPUSH: list index at which the items start.
    # LSET: list index of the item.
    long long number


cdef class ReadPlan:
    cdef Chunk chunk
    cdef Read *reads                    # owned, from realloc
    cdef Py_ssize_t count
    cdef Py_ssize_t room
    cdef Read *last(self) noexcept
    cdef Read *add(self, ReplyKind reply_kind, ValueForm form, Py_ssize_t command) except NULL


# Iterates over the commands of a chunk.
cdef struct Cursor:
    Py_ssize_t command          # index of the command at ``walk``
    const Reference *large
    Py_ssize_t extra
    Walk walk


cdef inline void start_at(Cursor *c, Chunk chunk) noexcept:
    c.command = c.extra = 0
    c.large = chunk.references
    c.walk.base = c.walk.p = chunk.data
    c.walk.large = chunk.references
    c.walk.stop = chunk.references + chunk.n_references


cdef inline void next_command(Cursor *c, Chunk chunk) noexcept:
    c.walk.p = end_of(chunk, c.command, &c.large, &c.extra)
    c.walk.large = c.large
    c.command += 1


cdef class ExpectedItems:
    cdef Chunk chunk
    cdef Cursor cursor
    cdef LastVerb last
    cdef bint recheck
    cdef WriteCommand command           # the first command that the read covers
    cdef Item *items                    # owned, from realloc
    cdef Py_ssize_t count, room
    cdef int start(self, Chunk chunk) except -1
    cdef int move_to(self, Py_ssize_t command) except -1
    cdef int fill(self, const Read *read) except -1
    cdef int add_items(self, WriteCommand *s, const Read *read, Py_ssize_t command) except -1


cdef class OverwriteTracker:
    cdef object differences
    cdef bint exact
    cdef bint tracking          # whether anything was noted
    cdef unsigned char *key_filter  # owned: a bit for each hash of a key
    # With exact, by key: twice the number of overwrites, plus 1 if all items of the key are in the
    # source.
    cdef Numbers keys
    # By key and item: 1 if the item was found.
    cdef Numbers present
    # By key: 1 if the key may have expired, with the items that later rows write.
    cdef Numbers expired
    cdef list found             # hashes of the found items of the last read
    cdef int add_key(self, const char *key, Py_ssize_t size) except -1
    cdef bint may_have_differences(self, const char *key, Py_ssize_t size) noexcept
    cdef int overwrite(self, const WriteCommand *s, const Item *item) except -1
    cdef int pass_commands(self, ExpectedItems items, const Read *read) except -1
    cdef int erase(self, const char *key, Py_ssize_t size, bint keeps_ttl) except -1
    cdef int expire(self, const char *key, Py_ssize_t size) except -1
    cdef bint may_have_expired(self, const char *key, Py_ssize_t size) except -1
    cdef int find(self, const Item *item) except -1
    cdef int compare_count(
        self, const WriteCommand *s, long long n, long long known, long long row
    ) except -1
    cdef int set_count(
        self, bytes key, bytes verb, long long known, long long n, long long row
    ) except -1


cdef str group_of(ValueForm form)
