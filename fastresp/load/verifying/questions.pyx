# cython: language_level=3, cdivision=True
"""Convert commands that write values into commands that read them."""

from libc.stdint cimport uint64_t
from libc.string cimport memcmp

from ...encode.payload.hashed cimport hashed
from ...resp.buffer cimport (
    Buffer,
    Chunk,
    append_bulk,
    end_command,
    end_header,
    make_room,
    open_header,
)
from ...resp.out cimport own_size, put_header, put_signed
from .asks cimport (
    NAME,
    NUMBER,
    ONE,
    PASSED,
    Ask,
    Asks,
    Cursor,
    kind_of,
    next_command,
    start_at,
)
from .comparison cimport Comparison
from .statement cimport (
    COUNT,
    DOCUMENT,
    FIELDS,
    GONE,
    LEFT,
    LIFE,
    MEMBERS,
    NO_FIELDS,
    NO_MEMBERS,
    NO_SCORES,
    NOTHING,
    PLACE,
    RIGHT,
    SCORES,
    TEXT,
    TEXTS,
    UNKNOWN,
    UNTIMED,
    Form,
    Item,
    LastVerb,
    Statement,
    is_absolute,
    is_list,
    makes_key,
    next_item,
    place_of,
    read_statement,
)
from .tables cimport Entry, Numbers, mixed

from .unverifiable import grows_at_both_ends, not_repeatable, refusal

cdef enum:
    # Maximum items and bytes of a read, which a server runs in less than 1 ms, as for merged
    # commands.
    MAX_ITEMS = 1000
    MAX_BYTES = 65536
    CHUNK_BYTES = 1 << 19
    # Maximum memory of chunks that are kept for the comparison, if none of them has reads.
    HELD_BYTES = 8388608


cdef class Questions:
    """Creates a chunk of reads for each chunk of the source; passes both to the comparison.

    A read is a command that reads values back from the server.

    Args:
        comparison: compares the replies.
        share: the share of rows to compare, above 0 and at most 1. Rows are chosen by a hash of
            their number.
        seed: seed of the hash; each seed selects a different sample.
        exact: whether to read the number of items of each key.
        again: whether differences that were found earlier are being rechecked. If so, the type of
            each key is also read.
        repair: whether to refuse lists, which can't be repaired.

    Attributes:
        over_keys: whether one command may read several keys.
        again: as passed.
        error: why the first source command that no returned read covers can't be verified; None if
            there is no such command.
    """

    cdef Comparison comparison
    cdef Buffer out
    cdef uint64_t threshold
    cdef uint64_t seed
    cdef bint all, exact, repair
    cdef readonly bint again
    cdef public bint over_keys
    cdef readonly object error
    cdef Numbers lists          # by key: number of items pushed by RPUSH; negative for LPUSH
    cdef Numbers typed          # by key: 1 if the type was read
    cdef LastVerb last
    cdef long long row          # row of the last command
    cdef bint chosen            # whether this row is in the sample
    cdef Asks asks              # reads of the current chunk
    # The current read:
    cdef Form form              # UNKNOWN if no read has started
    cdef Py_ssize_t start       # offset of the read
    cdef Py_ssize_t words
    cdef Py_ssize_t index       # index in ``asks``
    cdef Py_ssize_t bytes       # bytes of the covered commands
    cdef int digits
    cdef const char *key
    cdef long long key_size

    def __cinit__(
        self, Comparison comparison not None, *, double share=1.0, seed=0, bint exact=False,
        bint again=False, bint repair=False,
    ):
        self.comparison = comparison
        self.out = Buffer(CHUNK_BYTES + (CHUNK_BYTES >> 3))
        self.all = share >= 1
        self.threshold = 0 if self.all else <uint64_t>(share * 18446744073709551616.0)
        self.seed = mixed(0, seed & 0xFFFFFFFFFFFFFFFF)
        self.exact = exact
        self.again = again
        self.repair = repair
        self.lists = Numbers()
        self.typed = Numbers()
        self.row = -1
        self.digits = 2

    def ask(self, Chunk chunk not None):
        """Return the reads for the commands of a chunk; None if no reads are needed."""
        cdef Cursor c
        cdef Statement s
        cdef Py_ssize_t i
        self.asks = Asks()
        self.asks.chunk = chunk
        start_at(&c, chunk)
        for i in range(len(chunk.ends)):
            if chunk.rows.data.as_longlongs[i] != self.row:
                self.begin_row(chunk.rows.data.as_longlongs[i])
            if not read_statement(&s, &c.walk, &self.last, self.again):
                self.refuse(chunk, i, refusal)
                break
            if not self.place(&s, chunk, i):
                break
            next_command(&c, chunk)
            if self.chosen and not self.comparison.full and not self.is_moot(&s, &c, chunk):
                self.look_up(&s, chunk, i, c.walk.p)
            else:
                self.skip(i)
        self.end_read(chunk)
        if not self.out.commands and self.comparison.held_bytes > HELD_BYTES:
            self.pause(chunk)
        self.comparison.accept(self.asks)
        self.asks = None
        return self.out.take() if self.out.commands else None

    cdef bint is_moot(self, const Statement *s, const Cursor *next, Chunk chunk) noexcept:
        """Return whether a command needs no read: MULTI, EXEC, or DEL of a key written next."""
        cdef Statement after
        if s.form == NOTHING:
            return True
        if s.form != GONE or s.count != 1 or next.command >= len(chunk.ends):
            return False
        if not read_statement(&after, &next.walk, &self.last, self.again):
            return False
        if after.form in (NO_FIELDS, NO_MEMBERS, NO_SCORES, LIFE, GONE, COUNT, NOTHING):
            return False
        return after.key_size == s.key_size and memcmp(after.key, s.key, s.key_size) == 0

    cdef int pause(self, Chunk chunk) except -1:
        """Write a read whose reply is not compared, so that the caller waits for replies."""
        cdef Cursor c
        cdef Statement s
        start_at(&c, chunk)
        for _ in range(len(chunk.ends)):
            # MULTI and EXEC have no key.
            if read_statement(&s, &c.walk, &self.last, self.again) and s.form != NOTHING:
                self.asks.add(NUMBER, NOTHING, len(chunk.ends) - 1).items = 0
                self.header(2)
                self.word(b"EXISTS", 6)
                self.word(s.key, s.key_size)
                return end_command(self.out, self.row)
            next_command(&c, chunk)

    cdef int begin_row(self, long long row) except -1:
        self.row = row
        self.chosen = self.all or mixed(self.seed, <uint64_t>row) < self.threshold
        return 0

    cdef int refuse(self, Chunk chunk, Py_ssize_t i, object why) except -1:
        self.error = why(chunk.command(i, i), self.row, chunk.place(i))
        return 0

    cdef bint place(self, Statement *s, Chunk chunk, Py_ssize_t i) except -1:
        """For RPUSH and LPUSH, store in ``s.time`` the list index at which the items start.

        Returns:
            False if the command was refused.
        """
        cdef Entry *entry
        if is_list(s.form):
            if self.repair:
                self.refuse(chunk, i, not_repeatable)
                return False
            entry = self.lists.find(hashed(s.key, s.key_size))
            if entry.number and (entry.number < 0) != (s.form == LEFT):
                self.refuse(chunk, i, grows_at_both_ends)
                return False
            s.time = entry.number
            entry.number += s.count if s.form == RIGHT else -s.count
        elif makes_key(s) and len(self.lists):
            self.forget_lists(s)
        return True

    cdef int forget_lists(self, Statement *s) except -1:
        """Restart the list indexes of keys that are removed or overwritten."""
        cdef Statement keys = s[0]
        cdef Item item
        if s.form == TEXT or s.form == DOCUMENT:
            self.lists.find(hashed(s.key, s.key_size)).number = 0
            return 0
        for _ in range(s.count):
            next_item(&keys, &item)
            self.lists.find(hashed(item.name, item.name_size)).number = 0
        return 0

    cdef int skip(self, Py_ssize_t i) except -1:
        """Pass a command without a read to the comparison."""
        cdef Ask *ask
        self.end_read(self.asks.chunk)
        if self.asks.count:
            ask = &self.asks.asks[self.asks.count - 1]
            if ask.kind == PASSED and ask.command + ask.commands == i:
                ask.commands += 1
                return 0
        self.asks.add(PASSED, NOTHING, i)
        return 0

    cdef int look_up(self, Statement *s, Chunk chunk, Py_ssize_t i, const char *end) except -1:
        """Write a read for the values of a command, or extend the previous read."""
        cdef Ask *ask
        cdef Py_ssize_t size = chunk.ends.data.as_longlongs[i] - (
            chunk.ends.data.as_longlongs[i - 1] if i else 0
        )
        if self.form != UNKNOWN and self.continues(s, size):
            ask = &self.asks.asks[self.index]
            ask.commands += 1
            ask.items += s.count
            self.bytes += size
            self.put_names(s)
            return 0
        self.end_read(chunk)
        if s.form == GONE:
            return self.look_up_each(s, i)
        if s.form == LIFE:
            return self.look_up_time(s, i)
        if s.form == COUNT:
            return self.look_up_count(s.verb.name, s.verb.size, s.key, s.key_size, s.time, i)
        self.open_read(s, i, size)
        if s.clock != UNTIMED:
            self.end_read(chunk)
            self.look_up_time(s, i)
        return 0

    cdef bint continues(self, const Statement *s, Py_ssize_t size) noexcept:
        """Return whether the current read may be extended with this command."""
        cdef Ask *ask = &self.asks.asks[self.index]
        if ask.items + s.count > MAX_ITEMS or self.bytes + size > MAX_BYTES:
            return False
        if self.form == TEXTS:
            return (s.form == TEXT and s.clock == UNTIMED) or s.form == TEXTS
        if s.form != self.form or self.form == TEXT or self.form == DOCUMENT or self.form == PLACE:
            return False
        return s.key_size == self.key_size and memcmp(s.key, self.key, s.key_size) == 0

    cdef int open_read(self, Statement *s, Py_ssize_t i, Py_ssize_t size) except -1:
        """Start a read for the values of a command."""
        cdef Form form = s.form
        cdef Ask *ask
        if form == TEXT and s.clock == UNTIMED and self.over_keys:
            form = TEXTS
        if form == TEXTS and not self.over_keys:
            return self.look_up_each(s, i)
        ask = self.asks.add(kind_of(form), form, i)
        ask.items = s.count
        ask.number = place_of(s) if form == PLACE else s.time
        self.index = self.asks.count - 1
        self.form, self.key, self.key_size, self.bytes = form, s.key, s.key_size, size
        self.start = own_size(&self.out.out)
        self.words = 0
        if is_list(form) or form == PLACE:
            return self.put_names(s)
        open_header(self.out, self.digits)
        if form == TEXT:
            self.word(b"GET", 3)
        elif form == TEXTS:
            self.word(b"MGET", 4)
        elif form == FIELDS or form == NO_FIELDS:
            self.word(b"HMGET", 5)
        elif form == MEMBERS or form == NO_MEMBERS:
            self.word(b"SMISMEMBER", 10)
        elif form == SCORES or form == NO_SCORES:
            self.word(b"ZMSCORE", 7)
        else:
            self.word(b"JSON.GET", 8)
        if form != TEXTS:
            self.word(s.key, s.key_size)
        return self.put_names(s)

    cdef int put_names(self, Statement *s) except -1:
        """Add the names of a command's items to the read."""
        cdef Statement items = s[0]
        cdef Item item
        if self.form == TEXTS and s.form == TEXT:
            self.word(s.key, s.key_size)
        elif self.form == DOCUMENT:
            self.put_path(s)
        elif self.form != TEXT and self.form != PLACE and not is_list(self.form):
            for _ in range(s.count):
                next_item(&items, &item)
                self.word(item.name, item.name_size)
        return 0

    cdef int put_path(self, Statement *s) except -1:
        """Add the path of a document, in the syntax for which a missing path is not an error."""
        cdef Statement items = s[0]
        cdef Item item
        cdef bytes path
        if s.time == 0:
            return 0
        next_item(&items, &item)
        path = item.name[:item.name_size]
        if not path.startswith(b"$"):
            path = b"$" + path if path[:1] in (b".", b"[") else b"$." + path
        return self.word(path, len(path))

    cdef int end_read(self, Chunk chunk) except -1:
        """End the current read."""
        cdef Ask *ask
        cdef Form form = self.form
        cdef long long first, last
        if form == UNKNOWN:
            return 0
        ask = &self.asks.asks[self.index]
        self.form = UNKNOWN
        first = ask.number
        if is_list(form) or form == PLACE:
            if form == PLACE:
                last = first
            elif form == RIGHT:
                last = first + ask.items - 1
            else:
                last = first - 1
                first -= ask.items
            self.put_range(first, last)
        else:
            end_header(self.out, self.start, c'*', self.words, &self.digits)
        end_command(self.out, chunk.rows.data.as_longlongs[ask.command + ask.commands - 1])
        if self.exact or is_list(form) and self.all and not self.again:  # find extra list items
            self.ask_number(ask, form)
        if self.again:
            self.ask_type(ask)
        return 0

    cdef int ask_type(self, const Ask *ask) except -1:
        """Read the type of a key once, to report a wrong type."""
        cdef Entry *entry = self.typed.find(hashed(self.key, self.key_size))
        if entry.number:
            return 0
        entry.number = 1
        self.asks.add(NAME, NOTHING, ask.command).items = 0
        self.header(2)
        self.word(b"TYPE", 4)
        self.word(self.key, self.key_size)
        return end_command(self.out, self.row)

    cdef int ask_number(self, const Ask *ask, Form form) except -1:
        """Read the number of items of the key."""
        cdef long long number = ask.number
        cdef Py_ssize_t command = ask.command + ask.commands - 1
        if form == FIELDS:
            return self.look_up_count(b"HLEN", 4, self.key, self.key_size, 0, command)
        if form == MEMBERS:
            return self.look_up_count(b"SCARD", 5, self.key, self.key_size, 0, command)
        if form == SCORES:
            return self.look_up_count(b"ZCARD", 5, self.key, self.key_size, 0, command)
        if is_list(form):
            number = abs(number) + ask.items
            return self.look_up_count(b"LLEN", 4, self.key, self.key_size, number, command)
        return 0

    cdef int look_up_count(
        self, const char *name, int size, const char *key, long long key_size, long long number,
        Py_ssize_t i,
    ) except -1:
        cdef Ask *ask = self.asks.add(NUMBER, COUNT, i)
        ask.items, ask.number = 0, number
        self.header(2)
        self.word(name, size)
        self.word(key, key_size)
        return end_command(self.out, self.row)

    cdef int look_up_each(self, Statement *s, Py_ssize_t i) except -1:
        """Read each key of MSET or DEL with a separate command."""
        cdef Statement items = s[0]
        cdef Item item
        cdef Py_ssize_t j
        cdef bint gone = s.form == GONE
        for j in range(s.count):
            next_item(&items, &item)
            self.asks.add(NUMBER if gone else ONE, s.form, i).skipped = j
            self.header(2)
            if gone:
                self.word(b"EXISTS", 6)
            else:
                self.word(b"GET", 3)
            self.word(item.name, item.name_size)
            end_command(self.out, self.row)
        return 0

    cdef int look_up_time(self, Statement *s, Py_ssize_t i) except -1:
        """Read the time to live of a command's key."""
        cdef Ask *ask = self.asks.add(NUMBER, LIFE, i)
        ask.items = 0
        self.header(2)
        if is_absolute(s.clock):
            self.word(b"PEXPIRETIME", 11)
        else:
            self.word(b"PTTL", 4)
        self.word(s.key, s.key_size)
        return end_command(self.out, self.row)

    cdef int put_range(self, long long first, long long last) except -1:
        """Write LRANGE for the key of the read."""
        cdef char[24] text
        self.header(4)
        self.word(b"LRANGE", 6)
        self.word(self.key, self.key_size)
        self.word(text, put_signed(text, first) - text)
        return self.word(text, put_signed(text, last) - text)

    cdef int header(self, Py_ssize_t words) except -1:
        self.out.out.p = put_header(make_room(self.out, 32), c'*', words)
        return 0

    cdef int word(self, const char *text, Py_ssize_t size) except -1:
        self.words += 1
        return append_bulk(self.out, text, size)
