# cython: language_level=3, cdivision=True
"""Change the commands of a chunk into fewer, or into commands that replace whole hashes.

Merging: ``RPUSH k a``, ``RPUSH k b`` becomes ``RPUSH k a b``.

Replacing: ``HSET k f v`` becomes ``HIMPORT SET k fields v``, or a script that first deletes the
hash. ``fields`` is a field set: field names that its connection has declared with HIMPORT PREPARE.
The name of a set is a digest of its field names, so it is the same on all connections and in all
loads.
"""

cimport cython
from cpython.array cimport array, clone
from libc.stdint cimport uint64_t
from libc.string cimport memcmp, memcpy, memmove

from .buffer cimport (
    Buffer, Chunk, Out, Reference, digits, fill_header, make_room, mark_command, no_memory,
    put_copy, put_crlf, put_digits, put_header, put_with_large, reserve, rollback,
)
from .grammar cimport known_length_end
from .slots cimport end_of, key_slot
from .mergeable cimport (
    OPENS, PAIR, TIMED, FieldSet, HashWrite, ParsedCommand, LastName, MergeRule, digest_of,
    field_names, has_fields, names_of, next_word, put_values, read_command, read_hset, read_name,
)

import bisect
from base64 import urlsafe_b64encode
from hashlib import blake2b

from .commands import REPLACE_SCRIPT, REPLACE_SCRIPT_IN_CLUSTER

cdef extern from "Python.h":
    void Py_SET_SIZE(object, Py_ssize_t) noexcept

cdef enum:
    # The most arguments of a command. Source: processMultibulkBuffer() in networking.c.
    MAX_WORDS = 1048576
    # Maximum number of field sets of a load; the script writes rows with other fields.
    MAX_SETS = 64
    # Maximum bytes of the names of a field set.
    MAX_NAMES_BYTES = 1 << 16
    # Room for a chunk, which usually shrinks.
    START_BYTES = (1 << 19) + (1 << 17)
    # Upper bound of the bytes by which a command grows, without the script.
    ROOM = 128


cdef inline void shift(
    long long *starts, Py_ssize_t first, Py_ssize_t next, Py_ssize_t by
) noexcept nogil:
    """Add ``by`` to the item offsets of the commands ``first`` to ``next - 1``."""
    cdef Py_ssize_t i
    if by:
        for i in range(first, next):
            starts[i] += by


cdef class MergedChunk(Chunk):
    """A chunk in which some commands are merged.

    ``ends`` contains the end of each merged command, which gets one reply. ``rows`` contains the
    row of each original command.
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
        """Return one of the original commands of a merged command."""
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
    """Return the offset after the first ``most`` arguments in a part of a command."""
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


cdef class Converter:
    """Changes the commands of consecutive chunks, without holding the GIL."""

    def merge(self, Chunk chunk not None):
        """Return a chunk with the same effect, perhaps in the memory of ``chunk``.

        Raises:
            RuntimeError: another thread is in this method.
        """
        cdef bint busy
        with cython.critical_section(self):
            busy, self.busy = self.busy, True
        if busy:
            raise RuntimeError(f"another thread is using this {type(self).__name__}")
        try:
            return self.converted(chunk)
        finally:
            self.busy = False

    cdef Chunk converted(self, Chunk chunk):
        raise NotImplementedError


cdef class Merger(Converter):
    """Merges the commands of consecutive chunks, in the chunks' memory.

    A chunk that refers to large arguments instead of copying them is returned unchanged.

    Args:
        max_items: the maximum number of items of a merged command, such as elements, field-value
            pairs or keys.
        max_bytes: the maximum size of a merged command; a single command may be larger.
        without: names, in capitals, of commands that the server lacks, so merging can't use them.
        by_slot: whether all keys of a command must be in the same slot, as in a cluster.
    """

    def __cinit__(
        self, Py_ssize_t max_items, Py_ssize_t max_bytes, without=frozenset(), *, by_slot=False
    ):
        cdef int i
        self.max_items = max_items
        self.max_bytes = max_bytes
        self.by_slot = by_slot
        self.digits = self.key_digits = 4
        for i in range(RULES_SIZE):
            self.on[i] = names_of(i).isdisjoint(without)

    cdef Chunk converted(self, Chunk chunk):
        cdef MergedChunk merged
        cdef Py_ssize_t count = len(chunk.ends)
        if chunk.n_references:
            self.track_all(chunk)
            return chunk
        try:
            merged = MergedChunk()
            merged.lasts = clone(chunk.ends, count, False)
            merged.starts = clone(chunk.ends, count, False)
        except MemoryError:
            self.track_all(chunk)
            return chunk
        merged.first_command, merged.lane = chunk.first_command, chunk.lane
        merged.places, merged.done = chunk.places, chunk.done
        merged.rows_before = chunk.rows_before
        merged.rows, merged.ends = chunk.rows, chunk.ends
        merged.data, chunk.data = chunk.data, NULL
        merged.capacity, merged.spare = chunk.capacity, chunk.spare
        chunk.spare = None
        with nogil:
            count = self.fold(merged, count)
        Py_SET_SIZE(merged.ends, count)
        Py_SET_SIZE(merged.lasts, count)
        merged.size = merged.total()
        return merged

    cdef Py_ssize_t fold(self, MergedChunk chunk, Py_ssize_t count) noexcept nogil:
        """Merge in place; return the number of remaining commands."""
        cdef char *base = chunk.data
        cdef char *p = base             # where to write the next command; never after read
        cdef char *read = base          # the next command to read
        cdef long long *ends = chunk.ends.data.as_longlongs
        cdef long long *lasts = chunk.lasts.data.as_longlongs
        cdef long long *starts = chunk.starts.data.as_longlongs
        cdef Py_ssize_t i, size, written = 0
        cdef int slot
        cdef ParsedCommand c
        cdef Open o
        cdef LastName last
        last.size = -1
        o.first = o.words = o.item_words = o.tail_size = 0
        o.slot = 0
        o.rule = NULL
        o.start = base
        for i in range(count):
            read_command(&c, read, base + ends[i], &last)
            slot = self.slot_of(&c)
            if c.rule is not NULL and self.joins(&o, &c, slot):
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
                o.slot = slot
                starts[i] = o.items - base if o.rule is not NULL else 0
                if p != read:
                    memmove(p, read, size)
            p += size
            read = <char *>c.end
        p = self.end(&o, p, count, starts)
        ends[written], lasts[written] = p - base, count
        return written + 1

    cdef int slot_of(self, const ParsedCommand *c) noexcept nogil:
        """Return the slot of a command whose items are keys; 0 if slots don't matter."""
        cdef const char *p = c.items
        cdef const char *key
        cdef long long size
        if not self.by_slot or c.rule is NULL or c.rule.shared > 1 or c.rule.check >= OPENS:
            return 0
        key = next_word(&p, &size)
        return key_slot(key, size)

    cdef bint joins(self, const Open *o, const ParsedCommand *c, int slot) noexcept nogil:
        """Return whether a command can be merged into the last written command."""
        cdef Py_ssize_t shared
        if o.rule is not c.rule or o.slot != slot:
            return False
        if c.rule.merged is NULL:
            shared = c.items - c.name
            if o.items - o.name != shared or memcmp(o.name, c.name, shared) != 0:
                return False
        else:
            shared = c.end - c.tail
            if o.small != c.small or o.tail_size != shared or memcmp(o.tail, c.tail, shared) != 0:
                return False
        return self.fits(o, c)

    cdef bint fits(self, const Open *o, const ParsedCommand *c) noexcept nogil:
        """Return whether the merged command would be within the limits."""
        cdef Py_ssize_t items = o.item_words + c.item_words
        cdef Py_ssize_t words = o.words + c.item_words + 1
        cdef Py_ssize_t size = o.item_bytes + (c.end - c.items)
        if c.rule.merged is NULL:
            size += c.items - c.name
        elif c.rule.check == PAIR:
            size += 10                  # "$4", "MSET"
        else:
            size += 12 + 6 + digits(items // 2)
        return (
            items <= self.max_items * c.rule.size
            and words <= MAX_WORDS
            and size + 3 + digits(words) <= self.max_bytes
        )

    cdef void open(
        self, Open *o, const ParsedCommand *c, char *p, const char *read, Py_ssize_t first
    ) noexcept nogil:
        """Record a command that will be written at p."""
        o.start = p
        o.name = p + (c.name - read)
        o.first = first
        o.words = c.words
        o.item_words = c.item_words
        o.rule = NULL
        self.track(c.rule)
        if c.rule is NULL or c.rule.check >= OPENS or self.in_multi:
            return
        if self.on[c.rule.number]:
            o.rule = c.rule
            o.items = p + (c.items - read)
            o.small = c.small
            o.item_bytes = c.tail - c.items
            o.tail_size = c.end - c.tail
            memcpy(o.tail, c.tail, o.tail_size)

    cdef void track(self, const MergeRule *rule) noexcept nogil:
        """Record whether a transaction is open after a command with this rule."""
        if rule is not NULL and rule.check >= OPENS:
            self.in_multi = rule.check == OPENS

    cdef char *widen(self, Open *o, char *p, long long *starts) noexcept nogil:
        """Rename a command for merging, and make room for a longer header; return the new end.

        There is room: merging the next command removes more bytes than this command gains.
        """
        cdef char *name = o.start + self.digits + 3
        cdef const char *merged = b"$4\r\nMSET\r\n"
        cdef Py_ssize_t by = name - o.name, size = 10, keys = 0
        cdef int i
        p -= o.tail_size                # written again at the end
        if o.rule.merged is NULL:
            memmove(name, o.name, p - o.name)
        else:
            if o.rule.check == TIMED:
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
        """Fill in the header of a merged command; return the command's end."""
        cdef char *end
        if next - o.first == 1:
            return p
        if o.rule.check == TIMED:
            p = self.put_keys(o, p, next, starts)
            p = put_copy(p, o.tail, o.tail_size)
        end = fill_header(o.start, p, c'*', o.words, &self.digits)
        shift(starts, o.first, next, end - p)
        return end

    cdef char *put_keys(self, Open *o, char *p, Py_ssize_t next, long long *starts) noexcept nogil:
        """Write the number of keys of MSETEX before the first key; return the end of the items."""
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

    cdef int track_all(self, Chunk chunk) except -1:
        """Record whether a transaction is open after a chunk that is returned unchanged."""
        cdef Py_ssize_t i, at = 0, before = 0, large = 0
        cdef ParsedCommand c
        cdef LastName last
        last.size = -1
        for i in range(len(chunk.ends)):
            read_name(&c, chunk.data + at, &last)
            self.track(c.rule)
            while (
                large < chunk.n_references
                and chunk.references[large].offset + before < chunk.ends.data.as_longlongs[i]
            ):
                before += chunk.references[large].size
                large += 1
            at = chunk.ends.data.as_longlongs[i] - before
        return 0


def bulk_string(bytes text not None):
    return b"$%d\r\n%b\r\n" % (len(text), text)


cdef list words_of(bytes command):
    """Return the arguments of a command."""
    cdef const char *p
    cdef const char *text
    cdef long long words, size
    cdef list found = []
    p = known_length_end(<const char *>command + 1, &words)
    for _ in range(words):
        text = next_word(&p, &size)
        found.append(text[:size])
    return found


cdef class ReplacedChunk(Chunk):
    """A chunk in which each HSET replaces its hash."""

    cdef dict fields                    # the field names of each field set, by its name

    def command(self, at, part):
        """Return the original command, so that rejects load into any server."""
        cdef bytes data = Chunk.command(self, at, part)
        cdef list words = words_of(data)
        if words[0] == b"EVAL" and words[1] in (REPLACE_SCRIPT, REPLACE_SCRIPT_IN_CLUSTER):
            words = [b"HSET", *words[3:]]
        elif words[0] == b"HIMPORT":
            pairs = zip(self.fields[words[3]], words[4:], strict=True)
            words = [b"HSET", words[2], *[word for pair in pairs for word in pair]]
        else:
            return data
        return b"*%d\r\n%b" % (len(words), b"".join(map(bulk_string, words)))


# A command of a chunk that is being converted.
cdef struct Current:
    Py_ssize_t index
    const char *start
    const char *end
    const Reference *first              # the range of its large arguments
    const Reference *stop
    Py_ssize_t extra                    # size of the chunk's large arguments before ``stop``


cdef class Replacer(Converter):
    """Makes each HSET replace its hash and the time to live.

    Args:
        declarations: receives the HIMPORT PREPARE of each field set, before the first chunk that
            uses it is returned; None for a server without HIMPORT.
        in_cluster: whether the script may run in a cluster.
    """

    cdef Buffer out
    cdef bytes call                     # the words of a script's call before the key
    cdef const char *call_data
    cdef Py_ssize_t call_size
    cdef list declarations
    cdef bint declares                  # whether the server has HIMPORT
    cdef dict fields
    cdef list kept                      # owners of the memory to which the field sets refer
    cdef FieldSet[MAX_SETS] sets
    cdef int count
    cdef int last                       # index of the field set used last

    def __cinit__(self, list declarations=None, *, bint in_cluster=False):
        cdef bytes script = REPLACE_SCRIPT_IN_CLUSTER if in_cluster else REPLACE_SCRIPT
        self.call = b"$4\r\nEVAL\r\n$%d\r\n%b\r\n$1\r\n1\r\n" % (len(script), script)
        self.call_data, self.call_size = self.call, len(self.call)
        self.declarations = declarations
        self.declares = declarations is not None
        self.out = Buffer(START_BYTES)
        self.fields, self.kept = {}, []

    cdef Chunk converted(self, Chunk chunk):
        cdef ReplacedChunk made = ReplacedChunk()
        cdef Py_ssize_t count = len(chunk.ends)
        cdef Current c = Current(-1, NULL, chunk.data, NULL, chunk.references, 0)
        cdef bint more = True
        rollback(self.out, 0)           # drop remains of a call that ran out of memory
        while self.out.room < count:
            self.out.grow_marks()
        while more:
            with nogil:
                more = self.put_plain(chunk, &c, count)
            if more:
                self.put_rare(chunk, &c)
        self.out.take_as(made)
        made.fields = self.fields
        made.first_command, made.lane = chunk.first_command, chunk.lane
        made.places, made.done = chunk.places, chunk.done
        made.rows_before = chunk.rows_before
        return made

    cdef bint put_plain(self, Chunk chunk, Current *c, Py_ssize_t count) noexcept nogil:
        """Append the commands after the current one; stop at one that ``put_rare()`` must append.

        Return False at the end of the chunk.
        """
        while c.index + 1 < count:
            c.index += 1
            c.start, c.first = c.end, c.stop
            c.end = end_of(chunk, c.index, &c.stop, &c.extra)
            if c.first != c.stop or not self.put(c, self.count == MAX_SETS):
                return True
            mark_command(self.out, chunk.rows.data.as_longlongs[c.index])
        return False

    cdef int put_rare(self, Chunk chunk, const Current *c) except -1:
        """Append a command that has large arguments or new fields, or that needs more memory."""
        cdef HashWrite h
        cdef const char *start = c.start
        cdef bint is_hset = read_hset(&h, start, c.end)
        if c.first == c.stop:
            if is_hset and self.declares and self.field_set(&h) is NULL and self.count < MAX_SETS:
                self.add(&h)
            if not self.put(c, True):
                no_memory(self.out, c.end - start)
        else:
            if is_hset:
                self.out.out.p = self.put_call(make_room(self.out, self.call_size + ROOM), &h)
                start = h.key
            put_with_large(self.out, chunk.data, start, c.end, c.first, c.stop)
        mark_command(self.out, chunk.rows.data.as_longlongs[c.index])
        return 0

    cdef char *put_call(self, char *p, const HashWrite *h) noexcept nogil:
        """Write the beginning of a script's call; the arguments of the HSET follow it."""
        p = put_header(p, c'*', 4 + 2 * h.count)
        return put_copy(p, self.call_data, self.call_size)

    cdef bint put(self, const Current *c, bint scripts) noexcept nogil:
        """Append a command without large arguments; return False if ``put_rare()`` must do it.

        Args:
            scripts: whether to write the script for an HSET without a field set.
        """
        cdef HashWrite h
        cdef const FieldSet *s = NULL
        cdef Out *out = &self.out.out
        cdef char *p = reserve(out, out.p, (c.end - c.start) + self.call_size + ROOM)
        if p is NULL:
            return False
        if not read_hset(&h, c.start, c.end):
            out.p = put_copy(p, c.start, c.end - c.start)
            return True
        if self.declares:
            s = self.field_set(&h)
            if s is NULL and not scripts:
                return False
        if s is NULL or s.scripted:
            out.p = put_copy(self.put_call(p, &h), h.key, c.end - h.key)
            return True
        p = put_copy(p, s.head, s.head_size)
        p = put_copy(p, h.key, h.pairs - h.key)
        p = put_copy(p, s.name, s.name_size)
        out.p = put_values(&h, s, p)
        return True

    cdef const FieldSet *field_set(self, HashWrite *h) noexcept nogil:
        """Return the field set with the fields of an HSET; NULL if there is none."""
        cdef FieldSet *s = &self.sets[self.last]
        cdef uint64_t digest
        cdef int i
        if self.count and has_fields(h, s):
            return s
        digest = digest_of(h)
        for i in range(self.count):
            s = &self.sets[i]
            if s.digest == digest and has_fields(h, s):
                self.last = i
                return s
        return NULL

    cdef int add(self, HashWrite *h) except -1:
        """Add a field set with the fields of an HSET, unless their names are too long to keep."""
        cdef FieldSet *s = &self.sets[self.count]
        cdef uint64_t digest = digest_of(h)
        cdef list names = field_names(h)
        cdef list bulks = [bulk_string(each) for each in names]
        cdef bytes joined = b"".join(bulks)
        if len(joined) > MAX_NAMES_BYTES:
            return 0
        cdef array sizes = array("q", map(len, bulks))
        cdef bytes title = urlsafe_b64encode(blake2b(joined, digest_size=6).digest())
        cdef bytes name = bulk_string(title)
        cdef bytes head = b"*%d\r\n$7\r\nHIMPORT\r\n$3\r\nSET\r\n" % (4 + len(names))
        s.names, s.sizes, s.count, s.digest = joined, sizes.data.as_longlongs, len(names), digest
        s.head, s.head_size = head, len(head)
        s.name, s.name_size = name, len(name)
        # HIMPORT PREPARE refuses repeated names.
        s.scripted = len(set(names)) < len(names) or title in self.fields
        if not s.scripted:
            self.fields[title] = tuple(names)
            self.declarations.append(
                b"*%d\r\n$7\r\nHIMPORT\r\n$7\r\nPREPARE\r\n%b%b" % (3 + len(names), name, joined)
            )
        self.kept.append((joined, sizes, head, name))
        self.count += 1
        return 0
