# cython: language_level=3, cdivision=True
"""Compare replies with the source, without creating Python objects for equal values."""

from collections import deque
from time import time

from libc.string cimport memcmp

from ...resp.grammar cimport Incoming, integer_value, is_crlf, length_end, pass_crlf
from .write_command cimport (
    COUNT,
    DELETED,
    DOCUMENT,
    FLAGS,
    INDEX,
    LEFT,
    NAME,
    NEVER,
    NO_VALUE,
    NUMBER,
    ONE,
    PASSED,
    RANGE,
    SCORES,
    TEXTS,
    TTL,
    ExpectedItems,
    Item,
    OverwriteTracker,
    Read,
    ReadPlan,
    ValueForm,
    WriteCommand,
    group_of,
    is_absolute,
    is_list,
)

from .differences import same_document, same_score

cdef enum:
    # Maximum bytes kept of a value that differs.
    FOUND_BYTES = 65536

# A time to live may be this many ms below (time to live in the source - time since the load).
cdef double SLACK_MS = 1000.0


cdef class Comparison(Incoming):
    """Compares replies, as their bytes arrive, with the values in the commands of the source.

    A read is a command whose reply contains the values to compare.

    Args:
        differences: stores the differences; see Differences.
        exact: whether items that are not in the source are differences.
        recheck: whether differences that were found earlier are being rechecked.
        since: when the load began, in seconds since 1970; -1 if unknown.

    Attributes:
        full: whether no more differences are stored.
        replies: number of whole replies.
        values: number of compared values.
        rows: number of rows that the compared values belong to.
        waiting_bytes: memory of the chunks of the source that are not compared yet.
        error_reply: (index, text) of the first unexpected error reply; None if there was none.
    """

    cdef object differences
    cdef object queue                   # reads for later chunks
    cdef ReadPlan plan                  # reads for the current chunk; None if there is no chunk
    cdef Py_ssize_t read_index          # index of the current read
    cdef OverwriteTracker overwrites
    cdef bint exact, recheck
    cdef double since
    cdef readonly bint full
    cdef readonly Py_ssize_t replies, values, rows, waiting_bytes
    cdef readonly object error_reply
    cdef long long last_row             # the last compared row
    # The current reply:
    cdef const Read *answered
    cdef ExpectedItems expected
    cdef Py_ssize_t index               # index of the next element
    cdef Py_ssize_t left                # number of elements that have not arrived
    cdef Py_ssize_t size                # total number of elements
    # The current value, if it arrives in parts:
    cdef long long missing              # bytes that have not arrived, including the CRLF
    cdef long long value_size
    cdef long long value_at
    cdef bint equal                     # whether the value is equal so far
    cdef bytearray found

    def __cinit__(
        self, differences, *, bint exact=False, bint recheck=False, double since=-1,
        max_reply_bytes=None,
    ):
        self.what = "replies to these reads"
        self.differences = differences
        self.queue = deque()
        self.exact, self.recheck, self.since = exact, recheck, since
        self.last_row = -1
        self.found = bytearray()
        self.overwrites = OverwriteTracker(differences, exact)
        self.expected = ExpectedItems(recheck)

    @property
    def pending(self):
        """Whether a reply has started and is incomplete."""
        return self.cut or self.left > 0

    def feed(self, data):
        """Compare the next bytes of the replies, split at any position.

        Raises:
            ProtocolError: the bytes are not replies to the reads. All later calls raise the same
                error.
        """
        self.take_piece(data)

    def accept(self, ReadPlan plan not None):
        """Add the reads for the next chunk; their replies arrive in the same order."""
        self.queue.append(plan)
        self.waiting_bytes += plan.chunk.memory
        self.advance()

    cdef int advance(self) except -1:
        """Skip commands that need no read, and release chunks that were compared."""
        cdef const Read *read
        while True:
            if self.plan is None:
                if not self.queue:
                    return 0
                self.plan = self.queue.popleft()
                self.read_index = 0
                self.expected.start(self.plan.chunk)
            if self.read_index == self.plan.count:
                self.waiting_bytes -= self.plan.chunk.memory
                self.plan = None
                continue
            read = &self.plan.reads[self.read_index]
            if read.reply_kind != PASSED:
                return 0
            if self.overwrites.tracking:
                self.overwrites.pass_commands(self.expected, read)
            self.read_index += 1

    cdef int read(self, const char *p, const char *end) except -1:
        cdef Py_ssize_t before = self.replies
        cdef const char *value
        cdef const char *begin = p
        cdef long long n
        while p < end:
            if self.missing:
                p = self.read_value(p, end)
                continue
            value = NULL
            if p[0] == c'$' and not self.cut:
                value = length_end(p + 1, end, &n)
            if value is NULL:
                p = self.next_line(p, end)
                if self.text is not NULL:
                    self.process_line(self.text, self.text_end)
                continue
            self.begin_line(p)
            p = value
            self.begin_text()
            if n < 0 or end - p < n + 2:
                self.begin_value(n)
                continue
            if not is_crlf(p + n):
                raise self.excess(p + n + (p[n] == c'\r'))
            self.compare_text(p, n)
            p += n + 2
        self.count_unanswered(self.replies > before, end - begin)
        return 0

    cdef int begin_reply(self) except -1:
        """Start a reply at the current line."""
        cdef const Read *read
        if self.plan is None:
            raise self.error("more replies than commands", self.at)
        read = self.answered = &self.plan.reads[self.read_index]
        self.expected.fill(read)
        if not self.full and read.form != NO_VALUE:
            self.rows += self.count_rows(read)
        if read.items and self.exact:
            self.overwrites.found.clear()
        self.index = 0
        self.left = self.size = 1
        if self.kind != c'-' and self.kind != (
            c'$' if read.reply_kind == ONE else c':' if read.reply_kind == NUMBER
            else c'+' if read.reply_kind == NAME else c'*'
        ):
            raise self.error("a reply is of another type than its command", self.at)
        return 0

    cdef int begin_text(self) except -1:
        """Start a string, which is a reply or an element."""
        if self.left == 0:
            self.begin_reply()
        elif self.answered.reply_kind == FLAGS:
            raise self.error("an element is of another type", self.at)
        return 0

    cdef Py_ssize_t count_rows(self, const Read *read) noexcept:
        """Return the number of rows that a read covers, without rows that earlier reads covered."""
        cdef const long long *rows = self.plan.chunk.rows.data.as_longlongs
        cdef Py_ssize_t i, count = 0
        for i in range(read.command, read.command + read.commands):
            count += rows[i] != self.last_row
            self.last_row = rows[i]
        return count

    cdef int process_line(self, const char *p, const char *end) except -1:
        """Handle a line, except for string headers that arrive whole: ``read()`` handles these."""
        cdef long long n
        if self.kind == c'-' and self.left == 0:
            self.begin_reply()
            return self.process_error(p[:end - p])
        if self.kind == c'$':
            if length_end(p, end + 2, &n) is NULL:
                raise self.error("a length is invalid", self.at)
            self.begin_text()
            return self.begin_value(n)
        if self.left == 0:
            self.begin_reply()
        elif self.answered.reply_kind != FLAGS or self.kind != c':':
            raise self.error("an element is of another type", self.at)
        if self.answered.reply_kind == NAME:
            key = self.expected.command.key[:self.expected.command.key_size]
            self.differences.types[key] = p[:end - p]
            return self.end_element()
        if not integer_value(p, end, &n):
            raise self.error("a number is invalid", self.at)
        return self.begin_array(n) if self.kind == c'*' else self.compare_number(n)

    cdef int begin_array(self, long long n) except -1:
        cdef Py_ssize_t count = self.expected.count
        if not (n == count or self.answered.reply_kind == RANGE and 0 <= n < count):
            raise self.error(f"an array of {n:,} elements, not {count:,}", self.at)
        self.left = self.size = n
        return self.end_reply() if n == 0 else 0

    cdef int end_element(self) except -1:
        self.index += 1
        self.left -= 1
        return self.end_reply() if self.left == 0 else 0

    cdef int end_reply(self) except -1:
        """End the current reply; if a list is too short, store its missing items as differences."""
        cdef Py_ssize_t i
        if self.answered.reply_kind == RANGE:
            for i in range(self.size, self.expected.count):
                self.count_item(i)
                self.add_difference("missing", &self.expected.items[i], i, None, 0)
        self.left = 0
        self.replies += 1
        self.read_index += 1
        return self.advance()

    cdef Py_ssize_t item_index(self) noexcept:
        """Return the index of the item that belongs to the next element; LPUSH reverses items."""
        return self.size - 1 - self.index if self.expected.command.form == LEFT else self.index

    cdef Item *count_item(self, Py_ssize_t index) except NULL:
        """Count an item as compared, and return it."""
        cdef Item *item = &self.expected.items[index]
        self.values += not self.full
        # In a recheck, no command overwrites another command's value; SET keeps the time to live.
        if self.overwrites.tracking and not self.recheck:
            self.overwrites.overwrite(&self.expected.command, item)
        return item

    cdef int begin_value(self, long long n) except -1:
        """Start a value whose end has not arrived, or that is missing in the server (n < 0)."""
        cdef const Item *item
        if n < 0:
            return self.compare_text(NULL, 0)
        if n > self.most:
            raise self.too_large(self.line_offset)
        item = &self.expected.items[self.item_index()]
        self.missing = n + 2
        self.value_size, self.value_at = n, 0
        self.equal = item.wanted is not NULL and n == item.wanted_size
        del self.found[:]
        return 0

    cdef const char *read_value(self, const char *p, const char *end) except NULL:
        """Compare the next part of a string that arrives in parts."""
        cdef const Item *item = &self.expected.items[self.item_index()]
        cdef long long part = min(self.missing - 2, <long long>(end - p)), kept
        cdef ValueForm form = self.expected.command.form
        if part > 0:
            if self.equal and memcmp(item.wanted + self.value_at, p, part) != 0:
                self.equal = False
                self.found += item.wanted[:min(self.value_at, FOUND_BYTES)]
                if form == DOCUMENT:
                    self.found[:] = item.wanted[:self.value_at]
            if not self.equal:
                kept = part
                if form != DOCUMENT:
                    kept = min(part, FOUND_BYTES - len(self.found))
                self.found += p[:kept]
            self.value_at += part
            self.missing -= part
            p += part
        p = pass_crlf(p, end, &self.missing)
        if self.missing == 0:
            item = self.count_item(self.item_index())
            if not self.equal:
                self.compare_unequal(item, bytes(self.found), self.value_size)
            elif self.exact and item.name is not NULL:
                self.overwrites.find(item)
            self.end_element()
        elif self.missing <= 2 and p < end:
            raise self.excess(p)
        return p

    cdef int compare_text(self, const char *data, long long n) except -1:
        """Compare a string that has arrived; ``data`` is NULL if the server has no value."""
        cdef const Item *item = self.count_item(self.item_index())
        cdef long long kept
        if data is NULL:
            if item.wanted is not NULL:
                self.add_difference("missing", item, self.item_index(), None, 0)
        elif (
            n != item.wanted_size or item.wanted is NULL or memcmp(data, item.wanted, n) != 0
        ):
            kept = n if self.expected.command.form == DOCUMENT else min(n, FOUND_BYTES)
            self.compare_unequal(item, data[:kept], n)
        elif self.exact and item.name is not NULL:
            self.overwrites.find(item)
        return self.end_element()

    cdef int compare_unequal(self, const Item *item, bytes found, long long size) except -1:
        """Compare a value whose bytes differ; scores and documents may still be equal."""
        if self.exact and item.name is not NULL and item.wanted is not NULL:
            self.overwrites.find(item)
        if item.wanted is NULL:
            return self.add_difference("extra", item, self.item_index(), found, size)
        if self.expected.command.form == SCORES:
            if same_score(item.wanted[:item.wanted_size], found):
                return 0
        elif self.expected.command.form == DOCUMENT:
            whole = self.expected.command.whole
            if same_document(item.wanted[:item.wanted_size], found, whole):
                return 0
            found = found[:FOUND_BYTES]
        return self.add_difference("value", item, self.item_index(), found, size)

    cdef int compare_number(self, long long n) except -1:
        """Compare a number: existence of a key or member, a time to live, or a count."""
        cdef const Item *item
        cdef ValueForm form = self.answered.form
        if form == TTL:
            self.compare_ttl(n)
        elif form == COUNT:
            self.compare_count(n)
        elif form != NO_VALUE:
            item = self.count_item(self.index)
            if n and item.wanted is NULL:
                self.add_difference("extra", item, self.index, None, 0)
            elif n == 0 and item.wanted is not NULL:
                self.add_difference("missing", item, self.index, None, 0)
            elif n and self.exact:
                self.overwrites.find(item)
        return self.end_element()

    cdef int compare_ttl(self, long long found) except -1:
        """Compare a time to live in ms; -2: the key does not exist, -1: the key has no expiry."""
        cdef WriteCommand *s = &self.expected.command
        cdef double now = time() * 1000, ends = s.ttl_ms
        cdef Item item = Item(NULL, 0, NULL, 0, False, self.answered.command)
        cdef bint over
        self.values += not self.full
        if self.overwrites.tracking and not self.recheck:
            self.overwrites.overwrite(s, &item)
        if s.clock == NEVER:
            if found != -1:
                self.add_difference("missing" if found == -2 else "ttl", &item, 0, found, 0)
            return 0
        if not is_absolute(s.clock):
            # If the time of the load is unknown, no time to live is too short.
            ends = s.ttl_ms + (self.since * 1000 if self.since >= 0 else now)
        over = s.ttl_ms <= 0 or ends <= now and (is_absolute(s.clock) or self.since >= 0)
        if over and found == -2:
            self.overwrites.erase(s.key, s.key_size, False)
        # An existing key may have been created again by a later row.
        if over:
            self.overwrites.expire(s.key, s.key_size)
        if found == -2:
            return 0 if over else self.add_difference("missing", &item, 0, found, 0)
        if is_absolute(s.clock):
            if found == s.ttl_ms:
                return 0
        elif 0 < found <= s.ttl_ms and (self.since < 0 or found >= ends - now - SLACK_MS):
            return 0
        return self.add_difference("ttl", &item, 0, found, 0)

    cdef int compare_count(self, long long n) except -1:
        """Compare the number of items of a key with the number of its items in the source."""
        cdef const WriteCommand *s = &self.expected.command
        cdef Item item = Item(NULL, 0, NULL, 0, False, self.answered.command)
        if self.recheck:
            if n > s.number:
                self.add_difference("extra", &item, 0, n, 0)
        elif not self.full:
            self.overwrites.compare_count(
                s, n, self.answered.number,
                self.plan.chunk.rows.data.as_longlongs[self.answered.command],
            )
        return 0

    cdef int process_error(self, bytes message) except -1:
        """Handle an error reply: WRONGTYPE is a difference, other errors end the comparison."""
        cdef Py_ssize_t i
        if message.startswith(b"WRONGTYPE") or b"wrong Redis type" in message:
            for i in range(self.expected.count):
                self.count_item(i)
                self.add_difference("type", &self.expected.items[i], i, None, 0)
        elif self.error_reply is None:
            self.error_reply = self.replies, message
        self.size = self.expected.count
        return self.end_reply()

    cdef int add_difference(
        self, str kind, const Item *item, Py_ssize_t index, object found, long long size
    ) except -1:
        """Store a difference."""
        cdef const WriteCommand *s = &self.expected.command
        cdef const char *key = s.key
        cdef Py_ssize_t key_size = s.key_size
        cdef const Read *read = self.answered
        cdef object name = None, wanted = None
        if self.full:
            return 0
        if item.wanted is not NULL:
            wanted = item.wanted[:item.wanted_size]
        if s.form == TEXTS or s.form == DELETED:
            key, key_size = item.name, item.name_size
        elif s.form == INDEX:
            name = read.number
        elif is_list(s.form):
            name = read.number - index - 1 if s.form == LEFT else read.number + index
        elif s.form == TTL:
            name = b"PERSIST" if s.clock == NEVER else (
                b"PEXPIREAT" if is_absolute(s.clock) else b"PEXPIRE"
            )
            wanted = None if s.clock == NEVER else s.ttl_ms
        elif s.form == COUNT:
            name, wanted = s.verb.name[:s.verb.size], s.number
        elif item.name is not NULL:
            name = item.name[:item.name_size]
        if kind == "missing" and self.overwrites.may_have_expired(key, key_size):
            return 0
        self.overwrites.add_key(key, key_size)
        self.full = self.differences.add(
            kind, self.plan.chunk.rows[item.command], key[:key_size], group_of(s.form), name,
            wanted, found, size,
        )
        return 0
