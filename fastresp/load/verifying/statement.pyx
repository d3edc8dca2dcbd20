# cython: language_level=3, cdivision=True
"""Parse a command of the source: which values it writes, and where."""

from libc.string cimport memcmp, memcpy

from ...resp.grammar cimport integer_value, known_length_end
from ...resp.slots cimport next_argument
from ...resp.verbs cimport is_word

cdef enum:
    VERBS_SIZE = 28

# The longest time to live that a server accepts. Source: LLONG_MAX / 1000 in
# expireGenericCommand() of expire.c.
cdef long long MAX_SECONDS = 9223372036854775

# The commands whose outcome depends only on their arguments.
cdef Verb[VERBS_SIZE] VERBS = [
    Verb(b"SET", 3, TEXT, UNTIMED, False),
    Verb(b"SETEX", 5, TEXT, SECONDS, False),
    Verb(b"PSETEX", 6, TEXT, MILLISECONDS, False),
    Verb(b"MSET", 4, TEXTS, UNTIMED, False),
    Verb(b"HSET", 4, FIELDS, UNTIMED, False),
    Verb(b"HMSET", 5, FIELDS, UNTIMED, False),
    Verb(b"HDEL", 4, NO_FIELDS, UNTIMED, False),
    Verb(b"SADD", 4, MEMBERS, UNTIMED, False),
    Verb(b"SREM", 4, NO_MEMBERS, UNTIMED, False),
    Verb(b"ZADD", 4, SCORES, UNTIMED, False),
    Verb(b"ZREM", 4, NO_SCORES, UNTIMED, False),
    Verb(b"RPUSH", 5, RIGHT, UNTIMED, False),
    Verb(b"LPUSH", 5, LEFT, UNTIMED, False),
    Verb(b"JSON.SET", 8, DOCUMENT, UNTIMED, False),
    Verb(b"DEL", 3, GONE, UNTIMED, False),
    Verb(b"UNLINK", 6, GONE, UNTIMED, False),
    Verb(b"EXPIRE", 6, LIFE, SECONDS, False),
    Verb(b"PEXPIRE", 7, LIFE, MILLISECONDS, False),
    Verb(b"EXPIREAT", 8, LIFE, AT_SECONDS, False),
    Verb(b"PEXPIREAT", 9, LIFE, AT_MILLISECONDS, False),
    Verb(b"PERSIST", 7, LIFE, NEVER, False),
    Verb(b"MULTI", 5, NOTHING, UNTIMED, False),
    Verb(b"EXEC", 4, NOTHING, UNTIMED, False),
    Verb(b"LSET", 4, PLACE, UNTIMED, True),
    Verb(b"HLEN", 4, COUNT, UNTIMED, True),
    Verb(b"SCARD", 5, COUNT, UNTIMED, True),
    Verb(b"ZCARD", 5, COUNT, UNTIMED, True),
    Verb(b"LLEN", 4, COUNT, UNTIMED, True),
]

# Names in capitals, without the commands that occur only in a recheck.
NAMES = frozenset(
    VERBS[i].name.decode() for i in range(VERBS_SIZE) if not VERBS[i].again
)


def can_be_verified(bytes command not None):
    """Return whether a command's outcome depends only on its arguments.

    Args:
        command: the command as RESP.
    """
    cdef LastVerb last
    cdef Statement s
    cdef Walk walk
    last.size = -1
    walk.base = walk.p = command
    walk.large = walk.stop = NULL
    return read_statement(&s, &walk, &last, False)


cdef const Verb *find_verb(const char *name, long long size, LastVerb *last) noexcept nogil:
    cdef int i
    if size > LONGEST_NAME:
        return NULL
    if size == last.size and memcmp(name, last.name, size) == 0:
        return last.verb
    memcpy(last.name, name, size)
    last.size = size
    last.verb = NULL
    for i in range(VERBS_SIZE):
        # is_word() ignores the bit that distinguishes lower case, so compare the dot exactly.
        if VERBS[i].size != size:
            continue
        if VERBS[i].form == DOCUMENT:
            if is_word(name, 4, b"JSON") and name[4] == c'.' and is_word(name + 5, 3, b"SET"):
                last.verb = &VERBS[i]
        elif is_word(name, size, VERBS[i].name):
            last.verb = &VERBS[i]
    return last.verb


cdef bint read_time(Statement *s, const char *text, long long size, Clock clock) noexcept nogil:
    """Parse and store a time to live; return False if it is not a valid number."""
    s.clock = clock
    if not integer_value(text, text + size, &s.time):
        return False
    if clock == SECONDS or clock == AT_SECONDS:
        if not -MAX_SECONDS < s.time < MAX_SECONDS:
            return False
        s.time *= 1000
    return True


cdef bint read_options_of_set(Statement *s, Walk walk, long long words) noexcept nogil:
    """Parse the options of SET; return False if the outcome depends on more than the arguments."""
    cdef const char *text
    cdef long long size
    cdef Clock clock
    next_argument(&walk, &size)
    while words > 0:
        text = next_argument(&walk, &size)
        words -= 1
        clock = UNTIMED
        if size == 7 and is_word(text, 7, b"KEEPTTL"):
            s.keeps_time = True
        elif size == 2 and is_word(text, 2, b"EX"):
            clock = SECONDS
        elif size == 2 and is_word(text, 2, b"PX"):
            clock = MILLISECONDS
        elif size == 4 and is_word(text, 4, b"EXAT"):
            clock = AT_SECONDS
        elif size == 4 and is_word(text, 4, b"PXAT"):
            clock = AT_MILLISECONDS
        elif size != 3 or not is_word(text, 3, b"GET"):
            return False
        if clock != UNTIMED:
            if words == 0:
                return False
            text = next_argument(&walk, &size)
            words -= 1
            if not read_time(s, text, size, clock):
                return False
    return True


cdef bint read_scores(Statement *s, long long words) noexcept nogil:
    """Parse the arguments of ZADD after the key; return False for any option but CH."""
    cdef const char *text
    cdef long long size
    cdef Walk before = s.items
    text = next_argument(&s.items, &size)
    if words % 2:
        if words < 3 or size != 2 or not is_word(text, 2, b"CH"):
            return False
        words -= 1
        before = s.items
        text = next_argument(&s.items, &size)
    s.items = before
    # An option here is not a score.
    if size >= 2 and (
        is_word(text, size, b"NX") or is_word(text, size, b"XX") or is_word(text, size, b"GT")
        or is_word(text, size, b"LT") or is_word(text, size, b"INCR")
        or is_word(text, size, b"CH")
    ):
        return False
    s.count = words // 2
    return True


cdef bint read_statement(
    Statement *s, const Walk *start, LastVerb *last, bint again
) noexcept nogil:
    """Parse the command at ``start``; return False if it can't be verified.

    Args:
        again: whether differences that were found earlier are being rechecked.
    """
    cdef Walk walk = start[0]
    cdef Walk start_of_key
    cdef const char *text
    cdef long long words, size
    cdef Form form
    walk.p = known_length_end(walk.p + 1, &words)
    text = next_argument(&walk, &size)
    s.verb = find_verb(text, size, last)
    s.form = UNKNOWN
    if s.verb is NULL or s.verb.again and not again:
        return False
    form = s.verb.form
    s.clock, s.time, s.count, s.keeps_time = UNTIMED, 0, 1, False
    words -= 1
    s.items = walk
    s.key, s.key_size = text, 0
    if form == NOTHING:
        s.count = 0
    elif words < 1:
        return False
    elif form == TEXTS:
        s.key = next_argument(&walk, &s.key_size)
        s.count = words // 2
        if words % 2:
            return False
    elif form == GONE:
        s.key = next_argument(&walk, &s.key_size)
        s.count = words
    else:
        start_of_key = walk
        s.key = next_argument(&walk, &s.key_size)
        s.items = walk
        if not read_items(s, walk, form, words - 1):
            return False
        if form == LIFE and is_relative(s.clock) and s.time <= 0:  # like DEL
            form, s.clock, s.count, s.items = GONE, UNTIMED, 1, start_of_key
    s.form = form
    return True


cdef bint read_items(Statement *s, Walk walk, Form form, long long words) noexcept nogil:
    """Parse the arguments after the key; return False if they can't be verified."""
    cdef const char *text
    cdef long long size
    if form == LIFE:
        s.count = 0
        s.clock = s.verb.clock
        if s.clock == NEVER:
            return words == 0
        if words != 1:
            return False
        text = next_argument(&walk, &size)
        return read_time(s, text, size, s.verb.clock)
    if words < 1:
        return False
    if form == TEXT and s.verb.clock != UNTIMED:
        text = next_argument(&s.items, &size)
        return words == 2 and read_time(s, text, size, s.verb.clock)
    if form == TEXT:
        return read_options_of_set(s, walk, words - 1)
    if form == SCORES:
        return read_scores(s, words)
    if form == FIELDS:
        s.count = words // 2
        return words % 2 == 0
    if form == DOCUMENT or form == PLACE:
        text = next_argument(&walk, &size)
        # The path of the whole document is "$" or ".".
        s.time = size != 1 or text[0] != c'$' and text[0] != c'.'
        return words == 2
    if form == COUNT:
        text = next_argument(&walk, &size)
        return words == 1 and integer_value(text, text + size, &s.time)
    s.count = words
    return True


cdef void next_item(Statement *s, Item *item) noexcept nogil:
    """Read the next item of a statement."""
    cdef Form form = s.form
    cdef long long size
    item.name, item.name_size, item.wanted, item.wanted_size = NULL, 0, NULL, 0
    item.keeps_time = s.keeps_time
    if form == TEXT or is_list(form):
        item.wanted = next_argument(&s.items, &item.wanted_size)
    elif form == FIELDS or form == TEXTS or form == DOCUMENT or form == PLACE:
        item.name = next_argument(&s.items, &item.name_size)
        item.wanted = next_argument(&s.items, &item.wanted_size)
    elif form == SCORES:
        item.wanted = next_argument(&s.items, &item.wanted_size)
        item.name = next_argument(&s.items, &item.name_size)
    elif form == MEMBERS:
        item.name = next_argument(&s.items, &item.name_size)
        item.wanted, item.wanted_size = item.name, item.name_size
    elif form == COUNT:
        next_argument(&s.items, &size)
    else:
        item.name = next_argument(&s.items, &item.name_size)


cdef long long place_of(const Statement *s) except? -1:
    """Return the list index of an LSET command, which occurs only in a recheck."""
    cdef Statement items = s[0]
    cdef Item item
    next_item(&items, &item)
    return int(item.name[:item.name_size])
