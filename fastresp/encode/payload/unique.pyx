# cython: language_level=3, cdivision=True
"""Keep one item for each field or member: duplicates in a listpack can crash a server later."""

from libc.stdint cimport uint64_t
from libc.stdlib cimport free, realloc
from libc.string cimport memcmp, memset

from .hashed cimport fetch, hashed
from .pieces cimport Word

cdef enum:
    # Names are hashed this many items before their lookup, to prefetch their table entries.
    HASHED_AHEAD = 32
    # Up to this many names are compared with each other; more names are hashed. Both methods take
    # the same time for about 20 names.
    FEW = 16


cdef void *larger(void *memory, Py_ssize_t size) except NULL:
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
    """Do the same as ``UniqueNames.keep()`` without a table, which is faster for a few items."""
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
            self.slots = <uint64_t *>larger(self.slots, room * sizeof(uint64_t))
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
