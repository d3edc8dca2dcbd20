# cython: language_level=3, cdivision=True
"""Merge neighbouring commands of a chunk: ``RPUSH k a``, ``RPUSH k b`` becomes ``RPUSH k a b``.

Only commands are merged that a server runs as a whole or not at all, and whose error can't depend
on one item. So an error reply to the merged command is what each of its commands would have got.
"""

cimport cython
from cpython.array cimport clone
from libc.string cimport memcmp, memcpy, memmove

from .buffer cimport Chunk
from .grammar cimport digits_end, known_length_end
from .out cimport digits, fill_header, put_copy, put_crlf, put_digits

import bisect

cdef extern from "Python.h":
    void Py_SET_SIZE(object, Py_ssize_t) noexcept

cdef enum:
    LONGEST_NAME = 8
    # repr() of a float has at most 24, and no number of this length is too large or too small.
    NUMBER_BYTES = 40
    # A number of 19 digits is below 2^64, which either part of a stream id must be.
    ID_DIGITS = 19
    # EX or PX, and the longest plain time.
    TAIL_BYTES = 32
    TIME_DIGITS = 9
    # A server accepts no more arguments. Source: processMultibulkBuffer() in networking.c.
    MOST_WORDS = 1048576

# What the arguments must be, so that no server can refuse an item and run the others.
cdef enum Check:
    ANYTHING
    PAIR            # the key and its value: with options it is another command
    TIMED           # the same, and EX or PX with a plain number
    SCORE           # and a member of a sorted set
    PLACE           # longitude, latitude, and a member
    STREAM_ID
    OPENS           # not merged: it begins a transaction
    CLOSES          # not merged: it ends one


cdef struct Verb:
    const char *name
    int name_size
    int shared                          # the arguments before the items: the name, and a key
    int size                            # arguments of an item
    Check check
    const char *merged                  # the merged command's name, if it has another


# The servers check the type of the key and all that could be refused before they change anything;
# tests/merge/test_verbs.py tries each verb. Source: t_list.c, t_set.c, t_hash.c, t_zset.c,
# t_string.c, t_stream.c, geo.c and db.c of Redis 6.2 to 8.2 and of Valkey. PFADD is not among them:
# it adds items until one meets a damaged part of the value.
cdef Verb[VERBS_SIZE] VERBS = [
    Verb(b"LPUSH", 5, 2, 1, ANYTHING, NULL),
    Verb(b"RPUSH", 5, 2, 1, ANYTHING, NULL),
    Verb(b"SADD", 4, 2, 1, ANYTHING, NULL),
    Verb(b"SREM", 4, 2, 1, ANYTHING, NULL),
    Verb(b"HSET", 4, 2, 2, ANYTHING, NULL),
    Verb(b"HMSET", 5, 2, 2, ANYTHING, NULL),
    Verb(b"HDEL", 4, 2, 1, ANYTHING, NULL),
    Verb(b"ZADD", 4, 2, 2, SCORE, NULL),
    Verb(b"ZREM", 4, 2, 1, ANYTHING, NULL),
    Verb(b"SET", 3, 1, 2, PAIR, b"MSET"),
    Verb(b"SET", -1, 1, 2, TIMED, b"MSETEX"),       # found by its options
    Verb(b"DEL", 3, 1, 1, ANYTHING, NULL),
    Verb(b"UNLINK", 6, 1, 1, ANYTHING, NULL),
    Verb(b"GEOADD", 6, 2, 3, PLACE, NULL),
    Verb(b"XDEL", 4, 2, 1, STREAM_ID, NULL),
    Verb(b"MULTI", 5, 1, 1, OPENS, NULL),
    Verb(b"EXEC", 4, 1, 1, CLOSES, NULL),
    Verb(b"DISCARD", 7, 1, 1, CLOSES, NULL),
]


# A command of the chunk, taken apart.
cdef struct Command:
    const char *name                    # its first argument, with the header
    const char *items                   # end of the shared arguments
    const char *tail                    # end of the items: options that are shared, too
    const char *end
    bint small                          # whether SET is written in small letters
    const Verb *verb                    # NULL: it can't be merged
    Py_ssize_t words                    # arguments in all
    Py_ssize_t item_words


# The last command written, which the next may join.
cdef struct Open:
    char *start
    char *name
    char *items
    const Verb *verb                    # NULL: none may join
    Py_ssize_t words
    Py_ssize_t item_words
    Py_ssize_t item_bytes
    Py_ssize_t first                    # index of the first command in it
    bint small
    char tail[TAIL_BYTES]
    Py_ssize_t tail_size


# The last name read; most commands have the same.
cdef struct Last:
    char name[LONGEST_NAME]
    long long size
    const Verb *verb


cdef inline const char *next_word(const char **p, long long *size) noexcept nogil:
    """Return the text of the argument at p, and move p behind it."""
    cdef const char *text = known_length_end(p[0] + 1, size)
    p[0] = text + size[0] + 2
    return text


cdef bint is_word(const char *text, long long size, const char *capitals) noexcept nogil:
    """Return whether this is a word, in any case."""
    cdef int i
    for i in range(<int>size):
        if capitals[i] == 0 or (text[i] & ~0x20) != capitals[i]:
            return False
    return capitals[size] == 0


cdef const Verb *find_verb(const char *name, long long size, Last *last) noexcept nogil:
    """Return the verb of a command's name; NULL if there is none."""
    cdef int i
    if size > LONGEST_NAME:
        return NULL
    if size != last.size or memcmp(name, last.name, size) != 0:
        memcpy(last.name, name, size)
        last.size = size
        last.verb = NULL
        for i in range(VERBS_SIZE):
            if VERBS[i].name_size == size and is_word(name, size, VERBS[i].name):
                last.verb = &VERBS[i]
    return last.verb


cdef bint is_score(const char *p, const char *end) noexcept nogil:
    """Return whether every server reads this as a score: ``12``, ``-1.5``, ``1e-7``, ``+inf``."""
    cdef const char *whole
    cdef const char *stop
    if p < end and (p[0] == c'-' or p[0] == c'+'):
        p += 1
    if end - p == 3 and memcmp(p, b"inf", 3) == 0:
        return True
    whole = stop = digits_end(p, end)
    if whole == p:
        return False
    if whole < end and whole[0] == c'.':
        stop = digits_end(whole + 1, end)
        if stop == whole + 1:
            return False
    if stop - p > NUMBER_BYTES:
        return False
    if stop < end and stop[0] == c'e':
        p = stop + 1
        if p < end and (p[0] == c'-' or p[0] == c'+'):
            p += 1
        stop = digits_end(p, end)
        if not 0 < stop - p <= 2:       # so the number is neither too large nor too small
            return False
    return stop == end


cdef bint is_degrees(const char *p, const char *end, int limit) noexcept nogil:
    """Return whether this is a plain decimal number between -limit and limit."""
    cdef const char *whole
    cdef int degrees = 0
    if p < end and p[0] == c'-':
        p += 1
    whole = digits_end(p, end)
    if not 0 < whole - p <= 3 or end - p > NUMBER_BYTES:
        return False
    while p < whole:
        degrees = degrees * 10 + (p[0] - c'0')
        p += 1
    if degrees >= limit:
        return False
    return whole == end or (
        whole[0] == c'.' and end > whole + 1 and digits_end(whole + 1, end) == end
    )


cdef bint is_stream_id(const char *p, const char *end) noexcept nogil:
    cdef const char *stop = digits_end(p, end)
    if not 0 < stop - p <= ID_DIGITS:
        return False
    if stop < end and stop[0] == c'-':
        p = stop + 1
        stop = digits_end(p, end)
        if not 0 < stop - p <= ID_DIGITS:
            return False
    return stop == end


cdef bint is_fit(const Verb *verb, int place, const char *text, const char *end) noexcept nogil:
    """Return whether no server can refuse an argument at this place in an item."""
    if verb.check == SCORE:
        return place > 0 or is_score(text, end)
    if verb.check == PLACE:
        # The limits are 180 and 85.05 degrees. Source: GEO_LONG_MAX and GEO_LAT_MAX in geohash.h.
        return place > 1 or is_degrees(text, end, 85 if place else 180)
    return verb.check != STREAM_ID or is_stream_id(text, end)


cdef bint are_fit(const Command *c) noexcept nogil:
    """Return whether no server can refuse one of the items."""
    cdef const char *p = c.items
    cdef const char *text
    cdef long long size
    cdef int place
    while p < c.end:
        for place in range(c.verb.size):
            text = next_word(&p, &size)
            if not is_fit(c.verb, place, text, text + size):
                return False
    return True


cdef const char *zadd_options_end(const char *p, Py_ssize_t *words) noexcept nogil:
    """Skip the options of ZADD, except INCR, which is not merged."""
    cdef const char *text
    cdef const char *after = p
    cdef long long size
    while words[0] > 0:
        text = next_word(&after, &size)
        if size != 2 or not (
            is_word(text, 2, b"NX") or is_word(text, 2, b"XX") or is_word(text, 2, b"GT")
            or is_word(text, 2, b"LT") or is_word(text, 2, b"CH")
        ):
            break
        p = after
        words[0] -= 1
    return p


cdef void read_options_of_set(Command *c) noexcept nogil:
    """Look at the arguments after the name of SET: a pair, and perhaps a time."""
    cdef const char *p = c.items
    cdef const char *text
    cdef long long size
    c.small = (p - 5)[0] & 0x20
    if memcmp(p - 5, b"set" if c.small else b"SET", 3) != 0:
        c.verb = NULL                   # the merged name must tell how this one was written
    elif c.item_words == 4:
        next_word(&p, &size)
        next_word(&p, &size)
        c.tail = p
        c.item_words = 2
        text = next_word(&p, &size)
        c.verb += 1
        if size != 2 or not (is_word(text, 2, b"EX") or is_word(text, 2, b"PX")):
            c.verb = NULL
        text = next_word(&p, &size)
        if (
            text[0] == c'0'
            or not 0 < size <= TIME_DIGITS
            or digits_end(text, text + size) != text + size
        ):
            c.verb = NULL
    elif c.item_words != 2:
        c.verb = NULL


cdef const char *read_name(Command *c, const char *p, Last *last) noexcept nogil:
    """Read a command's header and name; return the end of the name."""
    cdef const char *text
    cdef long long words, size
    p = known_length_end(p + 1, &words)
    c.name = p
    c.words = c.item_words = words
    text = next_word(&p, &size)
    c.verb = find_verb(text, size, last)
    return p


cdef void read_command(Command *c, const char *p, const char *end, Last *last) noexcept nogil:
    """Take a command apart."""
    cdef long long size
    p = read_name(c, p, last)
    c.end = end
    if c.verb is NULL or c.verb.check >= OPENS:
        return
    c.item_words -= c.verb.shared
    if c.verb.shared == 2 and c.item_words > 0:
        next_word(&p, &size)
    if c.verb.check == SCORE:
        p = zadd_options_end(p, &c.item_words)
    c.items = p
    c.tail = end
    if c.item_words <= 0 or c.item_words % c.verb.size:
        c.verb = NULL
    elif c.verb.check == PAIR:
        read_options_of_set(c)
    elif c.verb.check > TIMED and not are_fit(c):
        c.verb = NULL


cdef inline void shift(
    long long *starts, Py_ssize_t first, Py_ssize_t next, Py_ssize_t by
) noexcept nogil:
    """Note that the items of these commands were moved."""
    cdef Py_ssize_t i
    if by:
        for i in range(first, next):
            starts[i] += by


cdef class MergedChunk(Chunk):
    """A chunk in which some commands are merged.

    ``ends`` has the end of each merged command, which gets one reply; ``rows`` has the rows of the
    commands in them.
    """

    @property
    def commands(self):
        return len(self.rows)

    @property
    def memory(self):
        return self.capacity + 32 * len(self.rows)

    def covered(self, replies):
        return self.lasts[replies - 1] if replies > 0 else 0

    def within(self, commands):
        return bisect.bisect_right(self.lasts, commands)

    def parts(self, at):
        return range(self.covered(at), self.lasts[at])

    def command(self, at, part):
        """Return one command of a merged one, as it was before."""
        cdef Py_ssize_t first = self.covered(at), begin = self.ends[at - 1] if at else 0
        cdef Py_ssize_t last = self.lasts[at]
        if last - first == 1:
            return bytes(self.piece(begin, self.ends[at]))
        cdef Py_ssize_t stop = self.starts[part + 1] if part + 1 < last else self.ends[at]
        cdef bytes head = self.data[begin:self.starts[first]]
        cdef bytes items = self.data[self.starts[part]:stop], tail = b""
        head = head[head.index(b"\r\n") + 2:]
        if head[4:10].upper() == b"MSET\r\n":
            head = b"$3\r\n" + head[5:]
        elif head[4:12].upper() == b"MSETEX\r\n":
            head = b"$3\r\n" + head[5:8] + b"\r\n"
            tail = self.data[self.starts[last - 1]:self.ends[at]]
            tail = tail[words_end(tail, 2):]
            items = items[:words_end(items, 2)]
        words = head + items + tail
        return b"*%d\r\n%b" % (count_words(words), words)


cdef Py_ssize_t words_end(bytes words, Py_ssize_t most) noexcept:
    """Return the offset after the first arguments in a part of a command."""
    cdef const char *p = words
    cdef long long size
    for _ in range(most):
        next_word(&p, &size)
    return p - <const char *>words


cdef Py_ssize_t count_words(bytes words) noexcept:
    """Count the arguments in a part of a command."""
    cdef const char *p = words
    cdef const char *end = p + len(words)
    cdef Py_ssize_t count = 0
    cdef long long size
    while p < end:
        next_word(&p, &size)
        count += 1
    return count


cdef class Merger:
    """Merges the commands of consecutive chunks.

    Args:
        most_items: a merged command has at most this many items: elements, field-value pairs, keys.
        most_bytes: and at most this many bytes, unless it is one command.
        without: names that the server does not accept, in capitals: what needs one is not merged.
    """

    def __cinit__(self, Py_ssize_t most_items, Py_ssize_t most_bytes, without=frozenset()):
        cdef int i
        self.most_items = most_items
        self.most_bytes = most_bytes
        self.digits = self.key_digits = 4
        for i in range(VERBS_SIZE):
            names = {VERBS[i].name.decode()}
            if VERBS[i].merged is not NULL:
                names.add(VERBS[i].merged.decode())
            self.on[i] = names.isdisjoint(without)

    def merge(self, Chunk chunk):
        """Return a chunk with the same effect, in the memory of this one.

        A chunk with arguments that were not copied stays as it is: they are large.
        """
        # With the GIL, so that no other thread sees a chunk taken from a writer and not stored.
        with cython.critical_section(self):
            if chunk.n_references:
                self.look(chunk)
                return chunk
            return self.merged(chunk)

    cdef Chunk merged(self, Chunk chunk):
        cdef MergedChunk merged
        cdef Py_ssize_t count = len(chunk.ends)
        try:
            merged = MergedChunk()
            merged.lasts = clone(chunk.ends, count, False)
            merged.starts = clone(chunk.ends, count, False)
        except MemoryError:
            self.look(chunk)
            return chunk
        merged.first_command = chunk.first_command
        merged.rows, merged.ends = chunk.rows, chunk.ends
        merged.data, chunk.data = chunk.data, NULL
        merged.capacity, merged.spare = chunk.capacity, chunk.spare
        chunk.spare = None
        count = self.fold(merged, count)
        Py_SET_SIZE(merged.ends, count)
        Py_SET_SIZE(merged.lasts, count)
        merged.size = merged.total()
        return merged

    cdef Py_ssize_t fold(self, MergedChunk chunk, Py_ssize_t count) noexcept nogil:
        """Merge in place; return the number of commands left."""
        cdef char *base = chunk.data
        cdef char *p = base             # where the next command is written, never beyond the next
        cdef char *read = base          # command to be read
        cdef long long *ends = chunk.ends.data.as_longlongs
        cdef long long *lasts = chunk.lasts.data.as_longlongs
        cdef long long *starts = chunk.starts.data.as_longlongs
        cdef Py_ssize_t i, size, written = 0
        cdef Command c
        cdef Open o
        cdef Last last
        last.size = -1
        o.first = o.words = o.item_words = o.tail_size = 0
        o.verb = NULL
        o.start = base
        for i in range(count):
            read_command(&c, read, base + ends[i], &last)
            if c.verb is not NULL and self.joins(&o, &c):
                if o.first == i - 1:
                    p = self.widen(&o, p, starts)
                starts[i] = p - base
                size = c.tail - c.items
                memmove(p, c.items, size)
                o.words += c.item_words
                o.item_words += c.item_words
                o.item_bytes += size
            else:
                if i > 0:
                    p = self.end(&o, p, i, starts)
                    ends[written], lasts[written] = p - base, i
                    written += 1
                size = c.end - read
                self.open(&o, &c, p, read, i)
                starts[i] = o.items - base if o.verb is not NULL else 0
                if p != read:
                    memmove(p, read, size)
            p += size
            read = <char *>c.end
        p = self.end(&o, p, count, starts)
        ends[written], lasts[written] = p - base, count
        return written + 1

    cdef bint joins(self, const Open *o, const Command *c) noexcept nogil:
        """Return whether a command can become a part of the last one written."""
        cdef Py_ssize_t shared
        if o.verb is not c.verb:
            return False
        if c.verb.merged is NULL:
            shared = c.items - c.name
            if o.items - o.name != shared or memcmp(o.name, c.name, shared) != 0:
                return False
        else:
            shared = c.end - c.tail
            if o.small != c.small or o.tail_size != shared or memcmp(o.tail, c.tail, shared) != 0:
                return False
        return self.fits(o, c)

    cdef bint fits(self, const Open *o, const Command *c) noexcept nogil:
        """Return whether the merged command would be within the limits."""
        cdef Py_ssize_t items = o.item_words + c.item_words
        cdef Py_ssize_t words = o.words + c.item_words + 1
        cdef Py_ssize_t size = o.item_bytes + (c.end - c.items)
        if c.verb.merged is NULL:
            size += c.items - c.name
        elif c.verb.check == PAIR:
            size += 10                  # "$4", "MSET"
        else:
            size += 12 + 6 + digits(items // 2)
        return (
            items <= self.most_items * c.verb.size
            and words <= MOST_WORDS
            and size + 3 + digits(words) <= self.most_bytes
        )

    cdef void open(
        self, Open *o, const Command *c, char *p, const char *read, Py_ssize_t first
    ) noexcept nogil:
        """Note a command that is to be written at p."""
        o.start = p
        o.name = p + (c.name - read)
        o.first = first
        o.words = c.words
        o.item_words = c.item_words
        o.verb = NULL
        self.look_at(c.verb)
        if c.verb is NULL or c.verb.check >= OPENS or self.in_multi:
            return
        if self.on[c.verb - VERBS]:
            o.verb = c.verb
            o.items = p + (c.items - read)
            o.small = c.small
            o.item_bytes = c.tail - c.items
            o.tail_size = c.end - c.tail
            memcpy(o.tail, c.tail, o.tail_size)

    cdef void look_at(self, const Verb *verb) noexcept nogil:
        """Note the beginning or the end of a transaction; nothing in it is merged."""
        if verb is not NULL and verb.check >= OPENS:
            self.in_multi = verb.check == OPENS

    cdef char *widen(self, Open *o, char *p, long long *starts) noexcept nogil:
        """Make room for the longer header of a merged command, and rename it; return its end.

        The command that joins it loses more bytes than this one gains.
        """
        cdef char *name = o.start + self.digits + 3
        cdef const char *merged = b"$4\r\nMSET\r\n"
        cdef Py_ssize_t by = name - o.name, size = 10, keys = 0
        cdef int i
        p -= o.tail_size                # written again at the end
        if o.verb.merged is NULL:
            memmove(name, o.name, p - o.name)
        else:
            if o.verb.check == TIMED:
                merged, size = b"$6\r\nMSETEX\r\n", 12
                keys = self.key_digits + 6
                o.words += 1
            by = name + size + keys - o.items
            memmove(o.items + by, o.items, p - o.items)
            memcpy(name, merged, size)
            for i in range(4, <int>size - 2):
                name[i] |= 0x20 if o.small else 0
        o.name = name
        o.items += by
        starts[o.first] += by
        return p + by

    cdef char *end(self, Open *o, char *p, Py_ssize_t next, long long *starts) noexcept nogil:
        """Fill in what a merged command lacks; return its end."""
        cdef char *end
        if next - o.first == 1:
            return p
        if o.verb.check == TIMED:
            p = self.put_keys(o, p, next, starts)
            p = put_copy(p, o.tail, o.tail_size)
        end = fill_header(o.start, p, c'*', o.words, &self.digits)
        shift(starts, o.first, next, end - p)
        return end

    cdef char *put_keys(self, Open *o, char *p, Py_ssize_t next, long long *starts) noexcept nogil:
        """Write the number of keys of MSETEX before the first; return the end of the items."""
        cdef Py_ssize_t count = o.item_words // 2
        cdef int wanted = digits(count)
        cdef Py_ssize_t by = wanted - self.key_digits
        cdef char *number
        if by:
            memmove(o.items + by, o.items, p - o.items)
            shift(starts, o.first, next, by)
            o.items += by
            self.key_digits = wanted
        number = o.items - wanted - 6
        number[0] = c'$'
        put_crlf(put_digits(put_crlf(put_digits(number + 1, wanted)), count))
        return p + by

    cdef int look(self, Chunk chunk) except -1:
        """Note the transactions of a chunk that is left as it is."""
        cdef Py_ssize_t i, at = 0, before = 0, large = 0
        cdef Command c
        cdef Last last
        last.size = -1
        for i in range(len(chunk.ends)):
            read_name(&c, chunk.data + at, &last)
            self.look_at(c.verb)
            while (
                large < chunk.n_references
                and chunk.references[large].offset + before < chunk.ends.data.as_longlongs[i]
            ):
                before += chunk.references[large].size
                large += 1
            at = chunk.ends.data.as_longlongs[i] - before
        return 0
