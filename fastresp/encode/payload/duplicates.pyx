# cython: language_level=3, cdivision=True
"""Find duplicate keys and names, and remember the keys that a source names, by their hashes."""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport int64_t, uint64_t
from libc.stdlib cimport calloc, free, realloc
from libc.string cimport memcmp, memcpy, memset

from ...resp.buffer cimport Chunk, Reference
from ...resp.grammar cimport known_length_end
from ...resp.mergeable cimport is_word
from ...resp.slots cimport LastRule, Rule, Rules, Walk, all_keys, end_of, next_argument
from ..strings cimport fetch, hashed
from .encoding cimport Word
from .format cimport crc64

cdef extern from *:
    """
    #include <stdlib.h>
    #include <string.h>
    #if defined(__linux__)
    #include <sys/mman.h>
    #endif
    /* Return zeroed memory. For a large table, request huge pages: otherwise, address translation
       costs more than the search for the key. */
    static void *fastresp_table(size_t size) {
    #if defined(__linux__) && defined(MADV_HUGEPAGE)
        const size_t huge = 1 << 21;
        void *memory;
        if (size >= huge) {
            if (posix_memalign(&memory, huge, size) != 0)
                return NULL;
            (void)madvise(memory, size, MADV_HUGEPAGE);
            return memset(memory, 0, size);
        }
    #endif
        return calloc(1, size);
    }
    """
    void *table "fastresp_table"(size_t size) noexcept

# A table of this many keys needs 32 MiB.
MAX_KEYS = 1 << 20

cdef enum:
    ROW_BITS = 40
    # The number of files of a key log; the first bits of a key's hash select the file of the key.
    PARTS = 64
    PART_SHIFT = 58
    # A key's table entry is prefetched this many records before its lookup.
    AHEAD = 8

cdef uint64_t ROW_MASK = (<uint64_t>1 << ROW_BITS) - 1


cdef class Keys:
    """A table of keys and their rows, with a record of 16 bytes per key: see Fingerprint.

    Keys are compared by 88 bits of their hashes.

    Args:
        most: the maximum number of keys in memory.
        log: when ``most`` is reached, this function receives the records of all keys, and the table
            is cleared. If None, later keys are looked up, but not added.
    """

    def __cinit__(self, Py_ssize_t most=MAX_KEYS, log=None):
        self.most = most
        self.log = log

    def __dealloc__(self):
        free(self.slots)

    @property
    def full(self):
        """Whether later keys are looked up, but not added."""
        return self.count >= self.most

    cdef int prepare(self, const char *key, Py_ssize_t size, long long row) noexcept:
        """Hash the key that ``add()`` will add, and prefetch the key's table entry."""
        self.next.hashed = hashed(key, size)
        self.next.rest = (crc64(0, key, size) & ~ROW_MASK) | (<uint64_t>row + 1 & ROW_MASK)
        if self.room:
            fetch(&self.slots[self.next.hashed & <uint64_t>(self.room - 1)])
        return 0

    cdef long long add(self) except -2:
        """Add the last prepared key; return the row of an equal key, or -1 if there is none."""
        return self.put(self.next)

    cdef long long put(self, Fingerprint fingerprint) except -2:
        cdef uint64_t slot, mask
        cdef Fingerprint *found
        if self.count >= self.most and self.log is not None:
            self.log(self.records())
        if 2 * self.count >= self.room and self.count < self.most:
            self.grow()
        if self.room == 0:
            return -1
        mask = self.room - 1
        slot = fingerprint.hashed & mask
        while True:
            found = &self.slots[slot]
            if found.rest == 0:
                if self.count < self.most:
                    found[0] = fingerprint
                    self.count += 1
                return -1
            if (
                found.hashed == fingerprint.hashed
                and (found.rest ^ fingerprint.rest) >> ROW_BITS == 0
            ):
                return <long long>(found.rest & ROW_MASK) - 1
            slot = slot + 1 & mask

    cdef int grow(self) except -1:
        cdef Py_ssize_t room = self.room, i
        cdef Fingerprint *slots = self.slots
        cdef Fingerprint *larger = <Fingerprint *>table(max(2 * room, 1024) * sizeof(Fingerprint))
        if larger is NULL:
            raise MemoryError(f"no memory for a table of {self.count:,} keys")
        self.slots, self.room, self.count = larger, max(2 * room, 1024), 0
        for i in range(room):
            if slots[i].rest:
                self.put(slots[i])
        free(slots)
        return 0

    def records(self):
        """Clear the table; return the records of all keys, as bytes."""
        cdef bytes found = PyBytes_FromStringAndSize(NULL, self.count * sizeof(Fingerprint))
        cdef Fingerprint *p = <Fingerprint *>PyBytes_AS_STRING(found)
        cdef Py_ssize_t i
        for i in range(self.room):
            if self.slots[i].rest:
                p[0] = self.slots[i]
                p += 1
        self.forget()
        return found

    def forget(self):
        """Clear the table, but keep the memory."""
        if self.room:
            memset(self.slots, 0, self.room * sizeof(Fingerprint))
        self.count = 0

    def second_row(self, bytes records not None, Py_ssize_t step, Py_ssize_t steps):
        """Add the keys of one share of records, up to the first duplicate key.

        Args:
            records: bytes from ``records()``.
            step: the index of the share, from 0.
            steps: the number of shares; equal keys are in the same share.

        Returns:
            The two rows of the duplicate key; None if there is no duplicate.
        """
        cdef Fingerprint *p = <Fingerprint *>PyBytes_AS_STRING(records)
        cdef Py_ssize_t i, count = <Py_ssize_t>(len(records) // sizeof(Fingerprint))
        cdef long long row
        for i in range(count):
            if self.room and i + AHEAD < count:
                fetch(&self.slots[p[i + AHEAD].hashed & <uint64_t>(self.room - 1)])
            if (p[i].hashed >> 32 & 0xFFFF) % <uint64_t>steps == <uint64_t>step:
                row = self.put(p[i])
                if row >= 0:
                    return row, <long long>(p[i].rest & ROW_MASK) - 1
        return None


def split(bytes records not None):
    """Split records into one bytes object per file of a key log; keep equal keys together."""
    cdef Fingerprint *p = <Fingerprint *>PyBytes_AS_STRING(records)
    cdef Py_ssize_t count = len(records) // sizeof(Fingerprint), i, part
    cdef Py_ssize_t[PARTS] sizes
    cdef Fingerprint *ends[PARTS]
    cdef list parts = []
    for part in range(PARTS):
        sizes[part] = 0
    for i in range(count):
        sizes[p[i].hashed >> PART_SHIFT] += 1
    for part in range(PARTS):
        parts.append(PyBytes_FromStringAndSize(NULL, sizes[part] * sizeof(Fingerprint)))
        ends[part] = <Fingerprint *>PyBytes_AS_STRING(parts[part])
    for i in range(count):
        part = p[i].hashed >> PART_SHIFT
        memcpy(ends[part], &p[i], sizeof(Fingerprint))
        ends[part] += 1
    return parts


cdef enum:
    # Names are hashed this many items before their lookup, to prefetch their table entries.
    HASHED_AHEAD = 32
    # Up to this many names are compared with each other; more names are hashed. Both methods take
    # the same time for about 20 names.
    FEW = 16


cdef void *resize(void *memory, Py_ssize_t size) except NULL:
    """Return a larger block of memory with the same contents."""
    cdef void *found = realloc(memory, size)
    if found is NULL:
        raise MemoryError(f"no memory for {size:,} bytes")
    return found


cdef inline bint same(const Word *a, const Word *b) noexcept nogil:
    # Names such as "field1" and "field2" differ in the last byte.
    return a.size == b.size and (
        a.size == 0
        or (a.text[a.size - 1] == b.text[a.size - 1] and memcmp(a.text, b.text, a.size) == 0)
    )


cdef Py_ssize_t keep_of_few(Word *words, Py_ssize_t size, int item, int name) noexcept nogil:
    """Keep items as ``UniqueNames.keep()`` does, without a table: faster for a few items."""
    cdef Py_ssize_t i = 0, at, kept = 0
    while i < size:
        at = 0
        while at < kept and not same(&words[at + name], &words[i + name]):
            at += item
        if at == kept:
            words[kept], words[kept + item - 1] = words[i], words[i + item - 1]
            kept += item
        else:
            words[at + item - 1 - name] = words[i + item - 1 - name]
        i += item
    return kept


cdef class UniqueNames:
    """A hash table that finds duplicate names."""

    def __dealloc__(self):
        free(self.slots)

    cdef Py_ssize_t keep(self, Word *words, Py_ssize_t size, int item, int name) except -1:
        """Keep one item per name: the name's last item, at the position of the name's first item.

        Args:
            words: the items.
            size: the number of words.
            item: number of words in an item, 1 or 2.
            name: index of the name among an item's words.

        Returns:
            The number of words in the kept items.
        """
        cdef Py_ssize_t room = 16, i, last, first = 0, kept = 0
        cdef Word *word
        cdef uint64_t mask, slot, entry
        cdef uint64_t[HASHED_AHEAD] hashes
        if size <= FEW * item:
            return keep_of_few(words, size, item, name)
        while room < 2 * (size // item):
            room *= 2
        if room > self.room:
            self.slots = <uint64_t *>resize(self.slots, room * sizeof(uint64_t))
            self.room = room
        memset(self.slots, 0, room * sizeof(uint64_t))
        mask = room - 1
        while first < size:
            last = min(first + item * HASHED_AHEAD, size)
            for i in range((last - first) // item):
                word = &words[first + item * i + name]
                hashes[i] = hashed(word.text, word.size)
                fetch(&self.slots[hashes[i] & mask])
            for i in range((last - first) // item):
                word = &words[first + item * i]
                slot = hashes[i] & mask
                while True:
                    entry = self.slots[slot]
                    if entry == 0:
                        entry = kept // item + 1
                        self.slots[slot] = hashes[i] >> 32 << 32 | entry
                        words[kept], words[kept + item - 1] = word[0], word[item - 1]
                        kept += item
                        break
                    if entry >> 32 == hashes[i] >> 32:
                        entry = ((entry & 0xFFFFFFFF) - 1) * item
                        if same(&words[entry + name], &word[name]):
                            words[entry + item - 1 - name] = word[item - 1 - name]
                            break
                    slot = slot + 1 & mask
            first = last
        return kept


cdef enum:
    MIN_ROOM = 1024
    # The number of field names that have a bit of their own; see SourceKeys.
    FIELD_BITS = 61

cdef int64_t NAMED = <int64_t>1 << 62
cdef int64_t IS_HASH = <int64_t>1 << 61
# Commands that select another database, or may write a key that is not at a known position.
UNCLEAR = frozenset((b"SELECT", b"SWAPDB", b"SORT", b"GEORADIUS", b"GEORADIUSBYMEMBER"))


cdef class Numbers:
    """Maps hash values of keys to numbers; the number of a new hash value is 0."""

    def __dealloc__(self):
        free(self.entries)

    cdef Entry *find(self, uint64_t key_hash) except NULL:
        """Return the entry of a hash value, or add one; the entry is valid until the next call."""
        cdef uint64_t mask, at
        key_hash = key_hash or 1
        if 2 * self.count >= self.room:
            self.grow()
        mask = self.room - 1
        at = key_hash & mask
        while self.entries[at].key_hash != key_hash:
            if self.entries[at].key_hash == 0:
                self.entries[at].key_hash = key_hash
                self.count += 1
                break
            at = at + 1 & mask
        return &self.entries[at]

    cdef int64_t get(self, uint64_t key_hash) noexcept:
        """Return the number of a hash value; 0 if there is none."""
        cdef uint64_t mask = self.room - 1, at
        key_hash = key_hash or 1
        at = key_hash & mask
        while self.room and self.entries[at].key_hash:
            if self.entries[at].key_hash == key_hash:
                return self.entries[at].number
            at = at + 1 & mask
        return 0

    cdef int grow(self) except -1:
        cdef Entry *before = self.entries
        cdef Py_ssize_t room = self.room, larger = max(2 * room, MIN_ROOM), i
        cdef uint64_t at
        cdef Entry *entries = <Entry *>calloc(larger, sizeof(Entry))
        if entries is NULL:
            raise MemoryError(f"no memory for the numbers of {self.count:,} keys")
        for i in range(room):
            if before[i].key_hash:
                at = before[i].key_hash & <uint64_t>(larger - 1)
                while entries[at].key_hash:
                    at = at + 1 & <uint64_t>(larger - 1)
                entries[at] = before[i]
        self.entries, self.room = entries, larger
        free(before)
        return 0


cdef class SourceKeys:
    """The keys that the commands of a source name, and the fields of its hashes.

    A key needs 32 to 64 bytes: a hash of 64 bits, and a bit for each of its fields. A field whose
    name is not among the first 61 names needs as much as a key. A key that is not named has the
    hash of a named key with a probability of keys / 2^64; it then counts as named.

    Args:
        of_fields: whether to remember the fields of hashes.

    Attributes:
        unclear: the name of a command whose keys are unknown; empty if there is none.
    """

    cdef Rules rules
    cdef Numbers keys           # by key: NAMED, IS_HASH, and the bits of its fields
    cdef Numbers bits           # by field: 1 + the index of its bit
    cdef Numbers others         # by key and field without a bit: 1
    cdef bint of_fields
    cdef readonly bytes unclear

    def __cinit__(self, bint of_fields=False):
        self.rules = Rules()
        self.keys, self.bits, self.others = Numbers(), Numbers(), Numbers()
        self.of_fields = of_fields
        self.unclear = b""

    def see(self, Chunk chunk not None):
        """Remember what the commands of a chunk name, before they are merged; return the chunk."""
        cdef const Reference *large = chunk.references
        cdef const Rule *checked = NULL
        cdef Py_ssize_t i, extra = 0
        cdef Walk walk, start
        cdef LastRule last
        cdef tuple keys
        cdef bytes key
        self.rules.start(&last)
        start.base = start.p = chunk.data
        start.stop = large + chunk.n_references
        for i in range(len(chunk.ends)):
            start.large = large
            walk = start
            keys = all_keys(&walk, &last)
            if last.rule is NULL or last.rule is not checked:
                self.check(start, last.rule is NULL)
                checked = last.rule
            for key in keys:
                self.keys.find(hashed(key, len(key))).number |= NAMED
            if self.of_fields and keys and (last.name[0] == c"H" or last.name[0] == c"h"):
                self.see_fields(start, &last, keys[0])
            start.p = end_of(chunk, i, &large, &extra)
        return chunk

    cdef int check(self, Walk walk, bint unknown) except -1:
        """Set ``unclear`` if the keys of a command are unknown."""
        cdef long long words, size
        cdef const char *text
        walk.p = known_length_end(walk.p + 1, &words)
        text = next_argument(&walk, &size)
        if unknown or text[:size].upper() in UNCLEAR:
            self.unclear = text[:size]
        return 0

    cdef int see_fields(self, Walk walk, const LastRule *last, bytes key) except -1:
        """Remember the fields of a command of a hash: for commands other than HSET, all arguments.

        The number in HINCRBY, for example, then also counts as a field, which is harmless.
        """
        cdef uint64_t base = hashed(key, len(key)), field
        cdef Entry *entry = self.keys.find(base)
        cdef Entry *entry_of_name
        cdef long long words, size, i
        cdef const char *text
        cdef int64_t bit
        cdef int step = 1
        if last.size == 4 and is_word(last.name, 4, b"HSET"):
            step = 2
        elif last.size == 5 and is_word(last.name, 5, b"HMSET"):
            step = 2
        entry.number |= IS_HASH
        walk.p = known_length_end(walk.p + 1, &words)
        for i in range(words):
            text = next_argument(&walk, &size)
            if i < 2 or (i - 2) % step:
                continue
            field = hashed(text, size)
            bit = self.bits.get(field)
            if bit == 0 and self.bits.count < FIELD_BITS:
                entry_of_name = self.bits.find(field)
                bit = entry_of_name.number = self.bits.count
            if bit:
                entry.number |= <int64_t>1 << (bit - 1)
            else:
                self.others.find(mixed(base, field)).number = 1
        return 0

    def add(self, bytes key not None):
        """Add a key; return whether it is new."""
        cdef Entry *entry = self.keys.find(hashed(key, len(key)))
        cdef bint new = entry.number == 0
        entry.number |= NAMED
        return new

    def __len__(self):
        return self.keys.count

    def __contains__(self, bytes key not None):
        return self.keys.get(hashed(key, len(key))) != 0

    def unnamed(self, bytes key not None, fields not None):
        """Return the fields of a hash that the source does not name, as a list.

        Return [] if the source does not name the key as a hash.
        """
        cdef uint64_t base = hashed(key, len(key)), of_field
        cdef int64_t number = self.keys.get(base), bit
        cdef list found = []
        cdef bytes field
        if not number & IS_HASH:
            return found
        for field in fields:
            of_field = hashed(field, len(field))
            bit = self.bits.get(of_field)
            if bit and number >> (bit - 1) & 1:
                continue
            if not self.others.get(mixed(base, of_field)):
                found.append(field)
        return found
