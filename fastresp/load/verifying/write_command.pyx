# cython: language_level=3, cdivision=True
"""Parse the commands of the source: the values that they write, and the reads that verify them."""

from libc.stdlib cimport free, realloc
from libc.string cimport memcmp, memcpy

from ...resp.grammar cimport integer_value, known_length_end
from ...resp.slots cimport next_argument
from ...resp.mergeable cimport is_word

cdef enum:
    VERBS_SIZE = 28
    MIN_ROOM = 64

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
    Verb(b"DEL", 3, DELETED, UNTIMED, False),
    Verb(b"UNLINK", 6, DELETED, UNTIMED, False),
    Verb(b"EXPIRE", 6, TTL, SECONDS, False),
    Verb(b"PEXPIRE", 7, TTL, MILLISECONDS, False),
    Verb(b"EXPIREAT", 8, TTL, AT_SECONDS, False),
    Verb(b"PEXPIREAT", 9, TTL, AT_MILLISECONDS, False),
    Verb(b"PERSIST", 7, TTL, NEVER, False),
    Verb(b"MULTI", 5, NO_VALUE, UNTIMED, False),
    Verb(b"EXEC", 4, NO_VALUE, UNTIMED, False),
    Verb(b"LSET", 4, INDEX, UNTIMED, True),
    Verb(b"HLEN", 4, COUNT, UNTIMED, True),
    Verb(b"SCARD", 5, COUNT, UNTIMED, True),
    Verb(b"ZCARD", 5, COUNT, UNTIMED, True),
    Verb(b"LLEN", 4, COUNT, UNTIMED, True),
]


cdef frozenset verb_names():
    return frozenset(
        VERBS[i].name.decode() for i in range(VERBS_SIZE) if not VERBS[i].recheck_only
    )


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


cdef bint parse_ttl(WriteCommand *s, const char *text, long long size, Clock clock) noexcept nogil:
    """Parse and store a time to live; return False if it is not a valid number."""
    s.clock = clock
    if not integer_value(text, text + size, &s.ttl_ms):
        return False
    if clock == SECONDS or clock == AT_SECONDS:
        if not -MAX_SECONDS < s.ttl_ms < MAX_SECONDS:
            return False
        s.ttl_ms *= 1000
    return True


cdef bint parse_set_options(WriteCommand *s, Walk walk, long long words) noexcept nogil:
    """Parse the options of SET; return False if one, such as NX, can't be verified."""
    cdef const char *text
    cdef long long size
    cdef Clock clock
    next_argument(&walk, &size)
    while words > 0:
        text = next_argument(&walk, &size)
        words -= 1
        clock = UNTIMED
        if size == 7 and is_word(text, 7, b"KEEPTTL"):
            s.keeps_ttl = True
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
            if not parse_ttl(s, text, size, clock):
                return False
    return True


cdef bint parse_scores(WriteCommand *s, long long words) noexcept nogil:
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
    # Refuse an option in place of the first score.
    if size >= 2 and (
        is_word(text, size, b"NX") or is_word(text, size, b"XX") or is_word(text, size, b"GT")
        or is_word(text, size, b"LT") or is_word(text, size, b"INCR")
        or is_word(text, size, b"CH")
    ):
        return False
    s.count = words // 2
    return True


cdef bint parse_command(
    WriteCommand *s, const Walk *start, LastVerb *last, bint recheck
) noexcept nogil:
    """Parse the command at ``start``; return False if it can't be verified.

    Args:
        recheck: whether differences that were found earlier are being rechecked.
    """
    cdef Walk walk = start[0]
    cdef Walk start_of_key
    cdef const char *text
    cdef long long words, size
    cdef ValueForm form
    walk.p = known_length_end(walk.p + 1, &words)
    text = next_argument(&walk, &size)
    s.verb = find_verb(text, size, last)
    s.form = UNKNOWN
    if s.verb is NULL or s.verb.recheck_only and not recheck:
        return False
    form = s.verb.form
    s.clock, s.ttl_ms, s.number, s.count = UNTIMED, 0, 0, 1
    s.keeps_ttl = s.whole = False
    words -= 1
    s.items = walk
    s.key, s.key_size = text, 0
    if form == NO_VALUE:
        s.count = 0
    elif words < 1:
        return False
    elif form == TEXTS:
        s.key = next_argument(&walk, &s.key_size)
        s.count = words // 2
        if words % 2:
            return False
    elif form == DELETED:
        s.key = next_argument(&walk, &s.key_size)
        s.count = words
    else:
        start_of_key = walk
        s.key = next_argument(&walk, &s.key_size)
        s.items = walk
        if not parse_items(s, walk, form, words - 1):
            return False
        if form == TTL and is_relative(s.clock) and s.ttl_ms <= 0:  # like DEL
            form, s.clock, s.count, s.items = DELETED, UNTIMED, 1, start_of_key
    s.form = form
    return True


cdef bint parse_items(WriteCommand *s, Walk walk, ValueForm form, long long words) noexcept nogil:
    """Parse the arguments after the key; return False if they can't be verified."""
    cdef const char *text
    cdef long long size
    if form == TTL:
        s.count = 0
        s.clock = s.verb.clock
        if s.clock == NEVER:
            return words == 0
        if words != 1:
            return False
        text = next_argument(&walk, &size)
        return parse_ttl(s, text, size, s.verb.clock)
    if words < 1:
        return False
    if form == TEXT and s.verb.clock != UNTIMED:
        text = next_argument(&s.items, &size)
        return words == 2 and parse_ttl(s, text, size, s.verb.clock)
    if form == TEXT:
        return parse_set_options(s, walk, words - 1)
    if form == SCORES:
        return parse_scores(s, words)
    if form == FIELDS:
        s.count = words // 2
        return words % 2 == 0
    if form == DOCUMENT or form == INDEX:
        text = next_argument(&walk, &size)
        # The path of the whole document is "$" or ".".
        s.whole = size == 1 and (text[0] == c'$' or text[0] == c'.')
        return words == 2
    if form == COUNT:
        text = next_argument(&walk, &size)
        return words == 1 and integer_value(text, text + size, &s.number)
    s.count = words
    return True


cdef void next_item(WriteCommand *s, Item *item) noexcept nogil:
    """Read the next item of a command."""
    cdef ValueForm form = s.form
    cdef long long size
    item.name, item.name_size, item.wanted, item.wanted_size = NULL, 0, NULL, 0
    item.keeps_ttl = s.keeps_ttl
    if form == TEXT or is_list(form):
        item.wanted = next_argument(&s.items, &item.wanted_size)
    elif form == FIELDS or form == TEXTS or form == DOCUMENT or form == INDEX:
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


cdef long long list_index(const WriteCommand *s) except? -1:
    """Return the list index of an LSET command, which occurs only in a recheck."""
    cdef WriteCommand items = s[0]
    cdef Item item
    next_item(&items, &item)
    return int(item.name[:item.name_size])


cdef class ReadPlan:
    """The reads for a chunk, in the order of their replies; keeps the chunk for the comparison."""

    def __dealloc__(self):
        free(self.reads)

    cdef Read *add(self, ReplyKind reply_kind, ValueForm form, Py_ssize_t command) except NULL:
        """Add a read that covers one command and one item; the caller updates both numbers."""
        cdef Py_ssize_t room = max(2 * self.room, MIN_ROOM)
        cdef Read *reads
        if self.count == self.room:
            reads = <Read *>realloc(self.reads, room * sizeof(Read))
            if reads is NULL:
                raise MemoryError(f"no memory for {room:,} reads")
            self.reads, self.room = reads, room
        self.count += 1
        self.reads[self.count - 1] = Read(reply_kind, form, command, 1, 0, 1, 0)
        return self.last()

    cdef Read *last(self) noexcept:
        return &self.reads[self.count - 1]


cdef ReplyKind reply_kind_of(ValueForm form) noexcept:
    """Return the kind of reply to a read of this form."""
    if form == TEXT or form == DOCUMENT:
        return ONE
    if form == MEMBERS or form == NO_MEMBERS:
        return FLAGS
    if is_list(form) or form == INDEX:
        return RANGE
    return SEVERAL


cdef class ExpectedItems:
    """The items that a read covers: names and expected values, in the order of the commands.

    Args:
        recheck: whether differences that were found earlier are being rechecked.
    """

    def __cinit__(self, bint recheck):
        self.recheck = recheck

    def __dealloc__(self):
        free(self.items)

    cdef int start(self, Chunk chunk) except -1:
        """Move to the first command of a chunk."""
        self.chunk = chunk
        start_at(&self.cursor, chunk)
        return 0

    cdef int move_to(self, Py_ssize_t command) except -1:
        """Move the cursor forward to a command of the chunk."""
        while self.cursor.command < command:
            next_command(&self.cursor, self.chunk)
        return 0

    cdef int fill(self, const Read *read) except -1:
        """Parse the items that a read covers."""
        cdef Cursor c
        cdef WriteCommand s
        cdef Py_ssize_t i
        self.count = 0
        self.move_to(read.command)
        c = self.cursor
        parse_command(&self.command, &c.walk, &self.last, self.recheck)
        self.command.form = read.form
        for i in range(read.command, read.command + read.commands):
            if read.items:
                parse_command(&s, &c.walk, &self.last, self.recheck)
                self.add_items(&s, read, i)
            if i + 1 < read.command + read.commands:
                next_command(&c, self.chunk)
        return 0

    cdef int add_items(self, WriteCommand *s, const Read *read, Py_ssize_t command) except -1:
        cdef Py_ssize_t room, count = s.count
        cdef Item *items
        cdef Item item
        if read.reply_kind == ONE or read.reply_kind == NUMBER:
            for _ in range(read.skipped):
                next_item(s, &item)
            count = 1
        if self.count + count > self.room:
            room = max(self.count + count, 2 * self.room, MIN_ROOM)
            items = <Item *>realloc(self.items, room * sizeof(Item))
            if items is NULL:
                raise MemoryError(f"no memory for {room:,} values")
            self.items, self.room = items, room
        for _ in range(count):
            items = &self.items[self.count]
            next_item(s, items)
            items.command = command
            if read.form == TEXTS and s.form == TEXT:
                items.name, items.name_size = s.key, s.key_size
            self.count += 1
        return 0
