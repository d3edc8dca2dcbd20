# cython: language_level=3, cdivision=True
"""Convert commands that write values into commands that read them."""

from libc.stdint cimport uint64_t
from libc.string cimport memcmp, strlen

from ...encode.payload.duplicates cimport Entry, Numbers, mixed
from ...encode.strings cimport hashed
from ...resp.buffer cimport (
    Buffer,
    Chunk,
    append_bulk,
    end_command,
    end_header,
    make_room,
    open_header,
    own_size,
    put_header,
    put_signed,
)
from ...resp.slots cimport Walk
from .write_command cimport (
    COUNT,
    DELETED,
    DOCUMENT,
    FIELDS,
    FLAGS,
    INDEX,
    LEFT,
    MEMBERS,
    NAME,
    NO_FIELDS,
    NO_MEMBERS,
    NO_SCORES,
    NO_VALUE,
    NUMBER,
    ONE,
    PASSED,
    RANGE,
    RIGHT,
    SCORES,
    SEVERAL,
    TEXT,
    TEXTS,
    TTL,
    UNKNOWN,
    UNTIMED,
    Cursor,
    Item,
    LastVerb,
    Read,
    ReadPlan,
    ReplyKind,
    ValueForm,
    WriteCommand,
    is_absolute,
    is_list,
    next_command,
    next_item,
    parse_command,
    start_at,
    verb_names,
)

from ...outcome.errors import EncodeError
from ...resp.shown import shown_command

cdef enum:
    # Maximum items and bytes of a read, the same as for merged commands. The server runs such a
    # read in less than 1 ms.
    MAX_ITEMS = 1000
    MAX_BYTES = 65536
    CHUNK_BYTES = 1 << 19
    # Maximum memory of chunks that are kept for the comparison, if none of them has reads.
    MAX_WAITING_BYTES = 8388608

NAMES = verb_names()
KNOWN = (
    "SET, HSET, SADD, ZADD, RPUSH, LPUSH, JSON.SET, DEL, EXPIRE and their variants can be, without "
    "options such as NX"
)


def can_be_verified(bytes command not None):
    """Return whether a command's outcome depends only on its arguments.

    Args:
        command: the command as RESP.
    """
    cdef LastVerb last
    cdef WriteCommand s
    cdef Walk walk
    last.size = -1
    walk.base = walk.p = command
    walk.large = walk.stop = NULL
    return parse_command(&s, &walk, &last, False)


cdef bint makes_key(const WriteCommand *s) noexcept:
    """Return whether a command replaces or deletes whole keys, even if it keeps times to live."""
    return s.form in (TEXT, TEXTS, DELETED) or s.form == DOCUMENT and s.whole


cdef long long list_index(const WriteCommand *s) except? -1:
    """Return the list index of an LSET command, which occurs only in a recheck."""
    cdef WriteCommand items = s[0]
    cdef Item item
    next_item(&items, &item)
    return int(item.name[:item.name_size])


cdef ReplyKind reply_kind_of(ValueForm form) noexcept:
    """Return the kind of reply to a read of this form."""
    if form == TEXT or form == DOCUMENT:
        return ONE
    if form == MEMBERS or form == NO_MEMBERS:
        return FLAGS
    if is_list(form) or form == INDEX:
        return RANGE
    return SEVERAL


cdef class ReadPlanner:
    """Creates a chunk of reads for each chunk of the source; passes both to the comparison.

    A read is a command that reads values back from the server.

    Args:
        comparison: compares the replies; see Comparison.
        share: the share of rows to compare, above 0 and at most 1. Rows are chosen by a hash of
            their number.
        seed: seed of the hash; each seed selects a different sample.
        exact: whether to read the number of items of each key.
        recheck: whether differences that were found earlier are being rechecked. If so, the type of
            each key is also read.
        repair: whether to refuse lists, which can't be repaired.
        replaces: whether each HSET has replaced its hash.

    Attributes:
        over_keys: whether one command may read several keys.
        recheck: the argument ``recheck``.
        error: the error for a command of the source that can't be verified; None if there is none.
            ``plan_reads()`` still returns the reads for all earlier commands.
    """

    cdef object comparison
    cdef Buffer out
    cdef uint64_t threshold
    cdef uint64_t seed
    cdef bint all, exact, repair, replaces
    cdef readonly bint recheck
    cdef public bint over_keys
    cdef readonly object error
    cdef Numbers lists          # by key: number of items pushed by RPUSH; negative for LPUSH
    cdef Numbers typed          # by key: 1 if the type was read
    cdef LastVerb last
    cdef long long row          # row of the last command
    cdef bint in_sample         # whether this row is in the sample
    cdef ReadPlan plan          # reads of the current chunk
    # The current read, which is the last of the plan:
    cdef ValueForm form         # UNKNOWN if no read has started
    cdef Py_ssize_t start       # offset of the read
    cdef Py_ssize_t arguments
    cdef Py_ssize_t bytes       # bytes of the covered commands
    cdef int digits
    cdef const char *key
    cdef long long key_size

    def __cinit__(
        self, comparison, *, double share=1.0, seed=0, bint exact=False,
        bint recheck=False, bint repair=False, bint replaces=False,
    ):
        self.comparison = comparison
        self.out = Buffer(CHUNK_BYTES + (CHUNK_BYTES >> 3))
        self.all = share >= 1
        self.threshold = 0 if self.all else <uint64_t>(share * 18446744073709551616.0)
        self.seed = mixed(0, seed & 0xFFFFFFFFFFFFFFFF)
        self.exact = exact
        self.recheck = recheck
        self.repair = repair
        self.replaces = replaces
        self.lists = Numbers()
        self.typed = Numbers()
        self.row = -1
        self.digits = 2

    def plan_reads(self, Chunk chunk not None):
        """Return a chunk with the reads for the commands of a chunk; None if none are needed."""
        cdef Cursor c
        cdef WriteCommand s
        cdef Py_ssize_t i
        cdef bint full = self.comparison.full
        self.plan = ReadPlan()
        self.plan.chunk = chunk
        start_at(&c, chunk)
        for i in range(len(chunk.ends)):
            if chunk.rows.data.as_longlongs[i] != self.row:
                self.row = chunk.rows.data.as_longlongs[i]
                self.in_sample = self.all or mixed(self.seed, self.row) < self.threshold
            if not parse_command(&s, &c.walk, &self.last, self.recheck):
                self.refuse(
                    chunk, i, "can't be verified, since its outcome depends on more than its "
                    f"arguments; {KNOWN}",
                )
                break
            if not self.set_list_index(&s, chunk, i):
                break
            next_command(&c, chunk)
            if self.replaces and s.form == FIELDS and s.verb.size == 4:  # HSET, not HMSET
                self.end_read()
                self.plan.add(PASSED, DELETED, i)
            if self.in_sample and not full and not self.is_moot(&s, &c, chunk):
                self.read_values(&s, chunk, i)
            else:
                self.skip(i)
        self.end_read()
        if not self.out.commands and self.comparison.waiting_bytes > MAX_WAITING_BYTES:
            self.pause(chunk)
        self.comparison.accept(self.plan)
        self.plan = None
        return self.out.take() if self.out.commands else None

    cdef bint is_moot(self, const WriteCommand *s, const Cursor *next, Chunk chunk) noexcept:
        """Return whether a command needs no read.

        True for MULTI, EXEC, and a DEL of a key that the next command sets.
        """
        cdef WriteCommand after
        if s.form == NO_VALUE:
            return True
        if s.form != DELETED or s.count != 1 or next.command >= len(chunk.ends):
            return False
        if not parse_command(&after, &next.walk, &self.last, self.recheck):
            return False
        if after.form in (NO_FIELDS, NO_MEMBERS, NO_SCORES, TTL, DELETED, COUNT, NO_VALUE):
            return False
        return after.key_size == s.key_size and memcmp(after.key, s.key, s.key_size) == 0

    cdef int pause(self, Chunk chunk) except -1:
        """Write a read whose reply is not compared, so that the caller waits for replies."""
        cdef Cursor c
        cdef WriteCommand s
        start_at(&c, chunk)
        for _ in range(len(chunk.ends)):
            # MULTI and EXEC have no key.
            if parse_command(&s, &c.walk, &self.last, self.recheck) and s.form != NO_VALUE:
                self.plan.add(NUMBER, NO_VALUE, len(chunk.ends) - 1).items = 0
                return self.put_read(b"EXISTS", s.key, s.key_size)
            next_command(&c, chunk)

    cdef int refuse(self, Chunk chunk, Py_ssize_t i, str reason) except -1:
        place, command = chunk.place(i), shown_command(chunk.command(i, i))
        message = f"row {self.row:,}, command {place:,}: {command} {reason}"
        self.error = EncodeError(message, command=place, row=self.row)
        return 0

    cdef bint set_list_index(self, WriteCommand *s, Chunk chunk, Py_ssize_t i) except -1:
        """For RPUSH and LPUSH, store in ``s.number`` the list index at which the items start.

        Returns:
            False if the command can't be verified or repaired.
        """
        cdef Entry *entry
        if is_list(s.form):
            if self.repair:
                self.refuse(
                    chunk, i, "can't be repaired: its items would be duplicated; delete the lists "
                    "that differ, and load them again",
                )
                return False
            entry = self.lists.find(hashed(s.key, s.key_size))
            if entry.number and (entry.number < 0) != (s.form == LEFT):
                self.refuse(
                    chunk, i, "extends a list that was extended at the other end before; leave out "
                    "its commands, which can't be verified",
                )
                return False
            s.number = entry.number
            entry.number += s.count if s.form == RIGHT else -s.count
        elif makes_key(s) and self.lists.count:
            self.forget_lists(s)
        return True

    cdef int forget_lists(self, WriteCommand *s) except -1:
        """Reset the next list index of keys that were removed or overwritten."""
        cdef WriteCommand keys = s[0]
        cdef Item item
        if s.form == TEXT or s.form == DOCUMENT:
            self.lists.find(hashed(s.key, s.key_size)).number = 0
            return 0
        for _ in range(s.count):
            next_item(&keys, &item)
            self.lists.find(hashed(item.name, item.name_size)).number = 0
        return 0

    cdef int skip(self, Py_ssize_t i) except -1:
        """Pass a command that needs no read to the comparison."""
        cdef Read *read
        self.end_read()
        if self.plan.count:
            read = self.plan.last()
            if read.reply_kind == PASSED and read.command + read.commands == i:
                read.commands += 1
                return 0
        self.plan.add(PASSED, NO_VALUE, i)
        return 0

    cdef int read_values(self, WriteCommand *s, Chunk chunk, Py_ssize_t i) except -1:
        """Write a read for the values of a command, or extend the previous read."""
        cdef Read *read
        cdef Py_ssize_t size = chunk.ends.data.as_longlongs[i] - (
            chunk.ends.data.as_longlongs[i - 1] if i else 0
        )
        if self.form != UNKNOWN and self.continues(s, size):
            read = self.plan.last()
            read.commands += 1
            read.items += s.count
            self.bytes += size
            self.put_names(s)
            return 0
        self.end_read()
        if s.form == DELETED:
            return self.read_each_key(s, i)
        if s.form == TTL:
            return self.read_ttl(s, i)
        if s.form == COUNT:
            return self.read_count(s.verb.name, s.key, s.key_size, s.number, i)
        self.open_read(s, i, size)
        if s.clock != UNTIMED:
            self.end_read()
            self.read_ttl(s, i)
        return 0

    cdef bint continues(self, const WriteCommand *s, Py_ssize_t size) noexcept:
        """Return whether the current read may be extended with this command."""
        cdef Read *read = self.plan.last()
        if read.items + s.count > MAX_ITEMS or self.bytes + size > MAX_BYTES:
            return False
        if self.form == TEXTS:
            return (s.form == TEXT and s.clock == UNTIMED) or s.form == TEXTS
        if s.form != self.form or self.form == TEXT or self.form == DOCUMENT or self.form == INDEX:
            return False
        return s.key_size == self.key_size and memcmp(s.key, self.key, s.key_size) == 0

    cdef int open_read(self, WriteCommand *s, Py_ssize_t i, Py_ssize_t size) except -1:
        """Start a read for the values of a command."""
        cdef ValueForm form = s.form
        cdef Read *read
        if form == TEXT and s.clock == UNTIMED and self.over_keys:
            form = TEXTS
        if form == TEXTS and not self.over_keys:
            return self.read_each_key(s, i)
        read = self.plan.add(reply_kind_of(form), form, i)
        read.items = s.count
        read.number = list_index(s) if form == INDEX else s.number
        self.form, self.key, self.key_size, self.bytes = form, s.key, s.key_size, size
        self.start = own_size(&self.out.out)
        self.arguments = 0
        if is_list(form) or form == INDEX:
            return self.put_names(s)
        open_header(self.out, self.digits)
        if form == TEXT:
            self.put_argument(b"GET", 3)
        elif form == TEXTS:
            self.put_argument(b"MGET", 4)
        elif form == FIELDS or form == NO_FIELDS:
            self.put_argument(b"HMGET", 5)
        elif form == MEMBERS or form == NO_MEMBERS:
            self.put_argument(b"SMISMEMBER", 10)
        elif form == SCORES or form == NO_SCORES:
            self.put_argument(b"ZMSCORE", 7)
        else:
            self.put_argument(b"JSON.GET", 8)
        if form != TEXTS:
            self.put_argument(s.key, s.key_size)
        return self.put_names(s)

    cdef int put_names(self, WriteCommand *s) except -1:
        """Add the names of a command's items to the read."""
        cdef WriteCommand items = s[0]
        cdef Item item
        if self.form == TEXTS and s.form == TEXT:
            self.put_argument(s.key, s.key_size)
        elif self.form == DOCUMENT:
            self.put_path(s)
        elif self.form != TEXT and self.form != INDEX and not is_list(self.form):
            for _ in range(s.count):
                next_item(&items, &item)
                self.put_argument(item.name, item.name_size)
        return 0

    cdef int put_path(self, WriteCommand *s) except -1:
        """Add a document's path with a leading $: then a missing path is not an error."""
        cdef WriteCommand items = s[0]
        cdef Item item
        cdef bytes path
        if s.whole:
            return 0
        next_item(&items, &item)
        path = item.name[:item.name_size]
        if not path.startswith(b"$"):
            path = b"$" + path if path[:1] in (b".", b"[") else b"$." + path
        return self.put_argument(path, len(path))

    cdef int end_read(self) except -1:
        """End the current read."""
        cdef Read *read
        cdef ValueForm form = self.form
        cdef long long first, row
        if form == UNKNOWN:
            return 0
        read = self.plan.last()
        self.form = UNKNOWN
        if is_list(form) or form == INDEX:
            first = read.number - read.items if form == LEFT else read.number
            self.put_range(first, first + read.items - 1)
        else:
            end_header(self.out, self.start, c'*', self.arguments, &self.digits)
        row = self.plan.chunk.rows.data.as_longlongs[read.command + read.commands - 1]
        end_command(self.out, row)
        if self.exact or is_list(form) and self.all and not self.recheck:  # find extra list items
            self.read_size(read, form)
        if self.recheck:
            self.read_type(read)
        return 0

    cdef int read_type(self, const Read *read) except -1:
        """Add a read of the key's type, if there is none yet, to report a wrong type."""
        cdef Entry *entry = self.typed.find(hashed(self.key, self.key_size))
        if entry.number:
            return 0
        entry.number = 1
        self.plan.add(NAME, NO_VALUE, read.command).items = 0
        return self.put_read(b"TYPE", self.key, self.key_size)

    cdef int read_size(self, const Read *read, ValueForm form) except -1:
        """Add a read of the key's number of items."""
        cdef const char *name
        cdef long long number = 0
        cdef Py_ssize_t last = read.command + read.commands - 1
        if form == FIELDS:
            name = b"HLEN"
        elif form == MEMBERS:
            name = b"SCARD"
        elif form == SCORES:
            name = b"ZCARD"
        elif is_list(form):
            name, number = b"LLEN", abs(read.number) + read.items
        else:
            return 0
        return self.read_count(name, self.key, self.key_size, number, last)

    cdef int read_count(
        self, const char *name, const char *key, long long key_size, long long number, Py_ssize_t i
    ) except -1:
        cdef Read *read = self.plan.add(NUMBER, COUNT, i)
        read.items, read.number = 0, number
        return self.put_read(name, key, key_size)

    cdef int read_each_key(self, WriteCommand *s, Py_ssize_t i) except -1:
        """Add a separate read for each key of MSET or DEL."""
        cdef WriteCommand items = s[0]
        cdef Item item
        cdef const char *name
        cdef Py_ssize_t j
        for j in range(s.count):
            next_item(&items, &item)
            self.plan.add(NUMBER if s.form == DELETED else ONE, s.form, i).skipped = j
            name = b"EXISTS" if s.form == DELETED else b"GET"
            self.put_read(name, item.name, item.name_size)
        return 0

    cdef int read_ttl(self, WriteCommand *s, Py_ssize_t i) except -1:
        """Add a read of the time to live of a command's key."""
        cdef Read *read = self.plan.add(NUMBER, TTL, i)
        read.items = 0
        return self.put_read(
            b"PEXPIRETIME" if is_absolute(s.clock) else b"PTTL", s.key, s.key_size
        )

    cdef int put_read(self, const char *name, const char *key, long long key_size) except -1:
        """Write a read of one key."""
        self.begin_command(2)
        self.put_argument(name, strlen(name))
        self.put_argument(key, key_size)
        return end_command(self.out, self.row)

    cdef int put_range(self, long long first, long long last) except -1:
        """Write LRANGE for the key of the read."""
        cdef char[24] text
        self.begin_command(4)
        self.put_argument(b"LRANGE", 6)
        self.put_argument(self.key, self.key_size)
        self.put_argument(text, put_signed(text, first) - text)
        return self.put_argument(text, put_signed(text, last) - text)

    cdef int begin_command(self, Py_ssize_t arguments) except -1:
        self.out.out.p = put_header(make_room(self.out, 32), c'*', arguments)
        return 0

    cdef int put_argument(self, const char *text, Py_ssize_t size) except -1:
        self.arguments += 1
        return append_bulk(self.out, text, size)
