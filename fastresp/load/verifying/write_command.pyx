# cython: language_level=3, cdivision=True
"""Parse the commands of the source: what they write, and which earlier values they overwrite."""

from libc.stdint cimport uint64_t
from libc.stdlib cimport calloc, free, realloc
from libc.string cimport memcmp, memcpy

from ...encode.payload.duplicates cimport Entry, Numbers, mixed
from ...encode.strings cimport hashed
from ...resp.grammar cimport integer_value, known_length_end
from ...resp.slots cimport next_argument
from ...resp.mergeable cimport is_word

cdef enum:
    VERBS_SIZE = 28
    MIN_ROOM = 64
    # Bits of the filter, which recognises most keys that have no differences.
    FILTER_BITS = 4194304

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
        if form == TTL and s.clock in (SECONDS, MILLISECONDS) and s.ttl_ms <= 0:  # like DEL
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


cdef str group_of(ValueForm form):
    """Return the difference group of a command; see Candidate."""
    if form == FIELDS or form == NO_FIELDS:
        return "field"
    if form == MEMBERS or form == NO_MEMBERS:
        return "member"
    if is_list(form) or form == INDEX:
        return "item"
    if form == DOCUMENT:
        return "document"
    if form == TEXT or form == TEXTS or form == DELETED:
        return "value"
    return "time" if form == TTL else "count" if form == COUNT else "score"


cdef class OverwriteTracker:
    """Tracks values that later commands overwrite.

    Args:
        differences: the differences; see Differences.
        exact: whether to count the items of each key in the source.
    """

    def __cinit__(self, differences, bint exact):
        self.differences = differences
        self.exact = self.tracking = exact
        self.keys, self.present, self.expired = Numbers(), Numbers(), Numbers()
        self.found = []
        self.key_filter = <unsigned char *>calloc(FILTER_BITS // 8, 1)
        if self.key_filter is NULL:
            raise MemoryError("no memory for a verification")

    def __dealloc__(self):
        free(self.key_filter)

    cdef int add_key(self, const char *key, Py_ssize_t size) except -1:
        """Record that a key has stored differences."""
        cdef uint64_t at = hashed(key, size) % FILTER_BITS
        self.key_filter[at >> 3] |= <unsigned char>(1 << (at & 7))
        self.tracking = True
        return 0

    cdef bint may_have_differences(self, const char *key, Py_ssize_t size) noexcept:
        """Return whether a key may have stored differences; seldom True for a key without any."""
        cdef uint64_t at = hashed(key, size) % FILTER_BITS
        return self.key_filter[at >> 3] >> (at & 7) & 1

    cdef int overwrite(self, const WriteCommand *s, const Item *item) except -1:
        """Forget the differences of an item that a later command writes or removes."""
        if s.form == TEXTS or s.form == DELETED:
            return self.erase(item.name, item.name_size, item.keeps_ttl)
        if s.form == TEXT or s.form == DOCUMENT and s.whole:
            return self.erase(s.key, s.key_size, item.keeps_ttl)
        if not self.may_have_differences(s.key, s.key_size):
            return 0
        if s.form == DOCUMENT:
            self.differences.update_document(
                s.key[:s.key_size], item.name[:item.name_size], item.wanted[:item.wanted_size]
            )
        else:
            name = None if s.form == TTL or is_list(s.form) else item.name[:item.name_size]
            self.differences.overwrite(
                s.key[:s.key_size], group_of(s.form), name, item.wanted is not NULL
            )
        if self.may_have_expired(s.key, s.key_size):
            if s.form == TTL:
                self.expired.find(hashed(s.key, s.key_size)).number = 0
            elif item.wanted is not NULL:
                self.differences.forget_missing(s.key[:s.key_size])
        return 0

    cdef int pass_commands(self, ExpectedItems items, const Read *read) except -1:
        """Note which values are overwritten by commands that need no read."""
        cdef WriteCommand s
        cdef Item item
        cdef Py_ssize_t i
        for i in range(read.command, read.command + read.commands):
            items.move_to(i)
            parse_command(&s, &items.cursor.walk, &items.last, items.recheck)
            if read.form == DELETED:  # the command replaces its hash
                self.erase(s.key, s.key_size, False)
                continue
            item.name_size, item.wanted = 0, NULL
            if s.form == TTL:
                self.overwrite(&s, &item)
            for _ in range(s.count):
                next_item(&s, &item)
                self.overwrite(&s, &item)
        return 0

    cdef int expire(self, const char *key, Py_ssize_t size) except -1:
        """Record that a key may have expired; items that later rows write may then be missing."""
        self.expired.find(hashed(key, size)).number = 1
        return self.add_key(key, size)

    cdef bint may_have_expired(self, const char *key, Py_ssize_t size) except -1:
        """Return whether missing items of a key may have expired."""
        if not self.expired.count or not self.may_have_differences(key, size):
            return False
        return self.expired.find(hashed(key, size)).number != 0

    cdef int erase(self, const char *key, Py_ssize_t size, bint keeps_ttl) except -1:
        """Forget the differences of a key that is overwritten as a whole."""
        cdef Entry *entry
        if self.may_have_differences(key, size):
            self.differences.erase(key[:size], keeps_ttl)
        if not keeps_ttl and self.may_have_expired(key, size):
            self.expired.find(hashed(key, size)).number = 0
        if self.exact:
            entry = self.keys.find(hashed(key, size))
            entry.number = (entry.number | 1) + 1
        return 0

    cdef int find(self, const Item *item) except -1:
        """Note an item of the source that exists in the server."""
        if item.name is not NULL:
            self.found.append(hashed(item.name, item.name_size))
        return 0

    cdef int compare_count(
        self, const WriteCommand *s, long long n, long long known, long long row
    ) except -1:
        """Compare the number of items of a key with the number of its items in the source.

        Args:
            s: the last command of the previous read, whose existing items are in ``found``.
            n: number of items of the key in the server.
            known: for a list, the number of its items in the source.
            row: row of the command.
        """
        cdef bytes key = s.key[:s.key_size]
        cdef Entry *entry
        cdef Entry *each
        cdef uint64_t base, salt
        if is_list(s.verb.form):
            return self.set_count(key, b"LLEN", known, n, row)
        base = hashed(s.key, s.key_size)
        entry = self.keys.find(base)
        if entry.number & 1:
            return 0
        known = len(set(self.found))
        named = self.differences.counts.get(key)
        if named is not None or known < n:
            known = 0 if named is None else named[1]
            salt = mixed(base, entry.number)
            for hash_of_item in self.found:
                each = self.present.find(mixed(salt, hash_of_item))
                known += each.number == 0
                each.number = 1
        entry.number |= known >= n
        verb = {FIELDS: b"HLEN", MEMBERS: b"SCARD", SCORES: b"ZCARD"}[s.verb.form]
        return self.set_count(key, verb, known, n, row)

    cdef int set_count(
        self, bytes key, bytes verb, long long known, long long n, long long row
    ) except -1:
        """Add a key to ``counts`` if it has more items than the source; otherwise, remove it."""
        if n > known:
            self.differences.counts[key] = verb, known, row
            self.add_key(key, len(key))
        else:
            self.differences.counts.pop(key, None)
        return 0
