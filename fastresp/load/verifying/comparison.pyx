# cython: language_level=3, cdivision=True
"""Compare replies with the source, without creating Python objects for equal values."""

from collections import deque
from time import time

from libc.string cimport memcmp

from ...resp.grammar cimport integer_value, is_crlf, length_end, pass_crlf
from .asks cimport FLAGS, NAME, NUMBER, ONE, PASSED, RANGE
from .statement cimport (
    COUNT,
    DOCUMENT,
    GONE,
    LEFT,
    LIFE,
    NEVER,
    NOTHING,
    PLACE,
    SCORES,
    TEXTS,
    Form,
    Statement,
    is_absolute,
    is_list,
)
from .items cimport Items
from .watch cimport Watch, group_of

from .values import same_document, same_score

cdef enum:
    # Maximum bytes kept of a value that differs.
    FOUND_BYTES = 65536

# A time to live may be this many ms shorter than the loaded time minus the elapsed time.
cdef double SLACK_MS = 1000.0


cdef class Comparison(Incoming):
    """Compares replies, as the bytes arrive, with the values in the commands of the source.

    A read is a command that reads these values back.

    Args:
        kept: stores the differences; see Kept.
        exact: whether items that the source does not name are differences.
        again: whether differences that were found earlier are being rechecked.
        since: when the load began, in seconds since 1970; -1 if unknown.

    Attributes:
        full: whether no more differences are stored.
        replies: number of whole replies.
        values: number of compared values.
        rows: number of rows that the compared values belong to.
        held_bytes: memory of the chunks of the source that are not compared yet.
        refused: index and text of the first unexpected error reply; None if there was no such
            reply.
    """

    def __cinit__(
        self, kept, *, bint exact=False, bint again=False, double since=-1, max_reply_bytes=None
    ):
        self.what = "replies to these reads"
        self.kept = kept
        self.queue = deque()
        self.exact, self.again, self.since = exact, again, since
        self.row = -1
        self.found = bytearray()
        self.watch = Watch(kept, exact)
        self.source = Items(again)

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

    cpdef int accept(self, Asks asks) except -1:
        """Add the reads for the next chunk; their replies arrive in the same order."""
        self.queue.append(asks)
        self.held_bytes += asks.chunk.memory
        return self.settle()

    cdef int settle(self) except -1:
        """Skip commands without reads, and release chunks that were compared."""
        cdef const Ask *ask
        while True:
            if self.asks is None:
                if not self.queue:
                    return 0
                self.asks = self.queue.popleft()
                self.at = 0
                self.source.start(self.asks.chunk)
            if self.at == self.asks.count:
                self.held_bytes -= self.asks.chunk.memory
                self.asks = None
                continue
            ask = &self.asks.asks[self.at]
            if ask.kind != PASSED:
                return 0
            if self.watch.watching:
                self.source.pass_commands(ask, self.watch)
            self.at += 1

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
                    self.understand(self.text, self.text_end)
                continue
            self.begin_line(p)
            p = value
            if end - p < n + 2:
                self.begin_text(n)
                continue
            if self.left == 0:
                self.begin_reply()
            if n < 0:
                self.take_text(NULL, 0)
                continue
            if not is_crlf(p + n):
                raise self.excess(p + n + (p[n] == c'\r'))
            self.take_text(p, n)
            p += n + 2
        self.count_unanswered(self.replies > before, end - begin)
        return 0

    cdef Ask *begin_reply(self) except NULL:
        """Start a reply at the current line; return the read that the reply answers."""
        cdef Ask *ask
        if self.asks is None:
            raise self.error("more replies than commands", self.at_line())
        ask = &self.asks.asks[self.at]
        self.source.fill(ask)
        if not self.full and ask.form != NOTHING:
            self.rows += self.rows_until(ask)
        if ask.items and self.exact:
            self.watch.found.clear()
        self.index = 0
        self.left = self.size = 1
        if self.kind == c'-':
            return ask
        if self.kind != (
            c'$' if ask.kind == ONE else c':' if ask.kind == NUMBER
            else c'+' if ask.kind == NAME else c'*'
        ):
            raise self.error("a reply is of another type than its command", self.at_line())
        return ask

    cdef Py_ssize_t rows_until(self, const Ask *ask) noexcept:
        """Return the number of rows that a read covers and that no earlier read covered."""
        cdef const long long *rows = self.asks.chunk.rows.data.as_longlongs
        cdef Py_ssize_t i, count = 0
        for i in range(ask.command, ask.command + ask.commands):
            count += rows[i] != self.row
            self.row = rows[i]
        return count

    cdef const char *at_line(self) noexcept:
        return (<Incoming>self).at

    cdef int understand(self, const char *p, const char *end) except -1:
        """Handle a whole line. ``read()`` handles string headers that arrived within one piece."""
        cdef long long n
        cdef Ask *ask
        if self.kind == c'-' and self.left == 0:
            self.begin_reply()
            return self.take_error(p[:end - p])
        if self.kind == c'$':
            if length_end(p, end + 2, &n) is NULL:
                raise self.error("a length is invalid", self.at_line())
            return self.begin_text(n)
        if self.left == 0:
            ask = self.begin_reply()
        else:
            ask = &self.asks.asks[self.at]
            if ask.kind != FLAGS or self.kind != c':':
                raise self.error("an element is of another type", self.at_line())
        if ask.kind == NAME:
            key = self.source.statement.key[:self.source.statement.key_size]
            self.kept.note_type(key, p[:end - p])
            return self.end_element()
        if not integer_value(p, end, &n):
            raise self.error("a number is invalid", self.at_line())
        if self.kind == c'*':
            return self.begin_array(ask, n)
        return self.take_number(ask, n)

    cdef int begin_array(self, const Ask *ask, long long n) except -1:
        if not (n == self.source.count or ask.kind == RANGE and 0 <= n < self.source.count):
            words = f"an array of {n:,} elements, not {self.source.count:,}"
            raise self.error(words, self.at_line())
        self.left = self.size = n
        return self.end_reply() if n == 0 else 0

    cdef int end_element(self) except -1:
        self.index += 1
        self.left -= 1
        return self.end_reply() if self.left == 0 else 0

    cdef int end_reply(self) except -1:
        """End the current reply; if a list is too short, store the absent items as missing."""
        cdef Py_ssize_t i
        if self.asks.asks[self.at].kind == RANGE:
            for i in range(self.size, self.source.count):
                self.open_item(i)
                self.differ("missing", &self.source.items[i], i, None, 0)
        self.left = 0
        self.replies += 1
        self.at += 1
        return self.settle()

    cdef Py_ssize_t item_at(self) noexcept:
        """Return the index of the item that the next element belongs to; LPUSH reverses items."""
        return self.size - 1 - self.index if self.source.statement.form == LEFT else self.index

    cdef Item *open_item(self, Py_ssize_t index) except NULL:
        """Return an item to compare, and count it."""
        cdef Item *item = &self.source.items[index]
        self.values += not self.full
        # In a recheck, no command overwrites the value of another command; SET keeps the time.
        if self.watch.watching and not self.again:
            self.watch.overwrite(&self.source.statement, item)
        return item

    cdef int begin_text(self, long long n) except -1:
        """Start a string whose end has not arrived."""
        cdef const Item *item
        if self.left == 0:
            self.begin_reply()
        elif self.asks.asks[self.at].kind == FLAGS:
            raise self.error("an element is of another type", self.at_line())
        if n < 0:
            return self.take_text(NULL, 0)
        if n > self.most:
            raise self.too_large(self.line_offset)
        item = &self.source.items[self.item_at()]
        self.missing = n + 2
        self.value_size, self.value_at = n, 0
        self.equal = item.wanted is not NULL and n == item.wanted_size
        del self.found[:]
        return 0

    cdef const char *read_value(self, const char *p, const char *end) except NULL:
        """Compare the next part of a string that arrives in parts."""
        cdef const Item *item = &self.source.items[self.item_at()]
        cdef long long part = min(self.missing - 2, <long long>(end - p)), kept
        cdef Form form = self.source.statement.form
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
            item = self.open_item(self.item_at())
            if not self.equal:
                self.take_unequal(item, bytes(self.found), self.value_size)
            elif self.exact and item.name is not NULL:
                self.watch.find(item)
            self.end_element()
        elif self.missing <= 2 and p < end:
            raise self.excess(p)
        return p

    cdef int take_text(self, const char *data, long long n) except -1:
        """Compare a whole string; ``data`` is NULL if the value is missing in the server."""
        cdef const Item *item
        if self.left == 0 or self.asks.asks[self.at].kind == FLAGS:
            raise self.error("an element is of another type", self.at_line())
        item = self.open_item(self.item_at())
        if data is NULL:
            if item.wanted is not NULL:
                self.differ("missing", item, self.item_at(), None, 0)
        elif (
            n != item.wanted_size or item.wanted is NULL or memcmp(data, item.wanted, n) != 0
        ):
            if n > FOUND_BYTES and self.source.statement.form != DOCUMENT:
                self.take_unequal(item, data[:FOUND_BYTES], n)
            else:
                self.take_unequal(item, data[:n], n)
        elif self.exact and item.name is not NULL:
            self.watch.find(item)
        return self.end_element()

    cdef int take_unequal(self, const Item *item, bytes found, long long size) except -1:
        """Compare a value whose bytes differ; scores and documents may still be equal."""
        if self.exact and item.name is not NULL and item.wanted is not NULL:
            self.watch.find(item)
        if item.wanted is NULL:
            return self.differ("extra", item, self.item_at(), found, size)
        if self.source.statement.form == SCORES:
            if same_score(item.wanted[:item.wanted_size], found):
                return 0
        elif self.source.statement.form == DOCUMENT:
            whole = self.source.statement.time == 0
            if same_document(item.wanted[:item.wanted_size], found, whole):
                return 0
            found = found[:FOUND_BYTES]
        return self.differ("value", item, self.item_at(), found, size)

    cdef int take_number(self, const Ask *ask, long long n) except -1:
        """Compare a number: existence of a key or member, a time to live, or a count."""
        cdef const Item *item
        if ask.form == LIFE:
            self.take_time(ask, n)
        elif ask.form == COUNT:
            self.take_count(ask, n)
        elif ask.form != NOTHING:
            item = self.open_item(self.index)
            if n and item.wanted is NULL:
                self.differ("extra", item, self.index, None, 0)
            elif n == 0 and item.wanted is not NULL:
                self.differ("missing", item, self.index, None, 0)
            elif n and self.exact:
                self.watch.find(item)
        return self.end_element()

    cdef int take_time(self, const Ask *ask, long long found) except -1:
        """Compare a time to live in ms; -2 means that there is no key, -1 that it has no expiry."""
        cdef Statement *s = &self.source.statement
        cdef double now = time() * 1000, ends = s.time
        cdef Item item
        cdef bint over
        item.name, item.name_size, item.wanted, item.command = NULL, 0, NULL, ask.command
        self.values += not self.full
        if self.watch.watching and not self.again:
            self.watch.overwrite(s, &item)
        if s.clock == NEVER:
            if found != -1:
                self.differ("missing" if found == -2 else "ttl", &item, 0, found, 0)
            return 0
        if not is_absolute(s.clock):
            # If the time of the load is unknown, no time to live is too short.
            ends = s.time + (self.since * 1000 if self.since >= 0 else now)
        over = s.time <= 0 or ends <= now and (is_absolute(s.clock) or self.since >= 0)
        if over and found == -2:
            self.watch.erase(s.key, s.key_size, False)
        # An existing key may have been created again by a later row.
        if over:
            self.watch.expire(s.key, s.key_size)
        if found == -2:
            return 0 if over else self.differ("missing", &item, 0, found, 0)
        if is_absolute(s.clock):
            if found == s.time:
                return 0
        elif 0 < found <= s.time and (self.since < 0 or found >= ends - now - SLACK_MS):
            return 0
        return self.differ("ttl", &item, 0, found, 0)

    cdef int take_count(self, const Ask *ask, long long n) except -1:
        """Compare the number of items of a key with the number that the source names."""
        cdef const Statement *s = &self.source.statement
        cdef Item item
        if self.again:
            item.name, item.name_size, item.wanted, item.command = NULL, 0, NULL, ask.command
            if n > s.time:
                self.differ("extra", &item, 0, n, 0)
        elif not self.full:
            self.watch.take_count(
                s, n, ask.number, self.asks.chunk.rows.data.as_longlongs[ask.command]
            )
        return 0

    cdef int take_error(self, bytes words) except -1:
        """Handle an error reply: WRONGTYPE is a difference, other errors end the comparison."""
        cdef Py_ssize_t i
        if words.startswith(b"WRONGTYPE") or b"wrong Redis type" in words:
            for i in range(self.source.count):
                self.open_item(i)
                self.differ("type", &self.source.items[i], i, None, 0)
        elif self.refused is None:
            self.refused = self.replies, words
        self.size = self.source.count
        return self.end_reply()

    cdef int differ(
        self, str kind, const Item *item, Py_ssize_t index, object found, long long size
    ) except -1:
        """Store a difference."""
        cdef const Statement *s = &self.source.statement
        cdef const char *key = s.key
        cdef Py_ssize_t key_size = s.key_size
        cdef const Ask *ask = &self.asks.asks[self.at]
        cdef object name = None, wanted = None
        if self.full:
            return 0
        if item.wanted is not NULL:
            wanted = item.wanted[:item.wanted_size]
        if s.form == TEXTS or s.form == GONE:
            key, key_size = item.name, item.name_size
        elif s.form == PLACE:
            name = ask.number
        elif is_list(s.form):
            name = ask.number - index - 1 if s.form == LEFT else ask.number + index
        elif s.form == LIFE:
            name = b"PERSIST" if s.clock == NEVER else (
                b"PEXPIREAT" if is_absolute(s.clock) else b"PEXPIRE"
            )
            wanted = None if s.clock == NEVER else s.time
        elif s.form == COUNT:
            name, wanted = s.verb.name[:s.verb.size], s.time
        elif item.name is not NULL:
            name = item.name[:item.name_size]
        if kind == "missing" and self.watch.may_have_expired(key, key_size):
            return 0
        self.watch.note(key, key_size)
        self.full = self.kept.add(
            kind, self.asks.chunk.rows[item.command], key[:key_size], group_of(s.form), name,
            wanted, found, size,
        )
        return 0
