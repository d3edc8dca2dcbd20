# cython: language_level=3, cdivision=True
"""Find duplicate keys in bounded memory, and duplicate names within a value."""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport uint64_t
from libc.stdlib cimport free, realloc
from libc.string cimport memcmp, memcpy, memset

from .encoding cimport Word
from .format cimport crc64
from .hashed cimport fetch, hashed

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
