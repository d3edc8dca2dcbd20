# cython: language_level=3, cdivision=True
"""A hash table of numbers: 16 bytes per entry, at most half full."""

from libc.stdlib cimport calloc, free

cdef enum:
    MIN_ROOM = 1024


cdef class Numbers:
    """Maps hashes to numbers; the number of a new hash is 0."""

    def __dealloc__(self):
        free(self.entries)

    def __len__(self):
        return self.count

    cdef Entry *find(self, uint64_t hashed) except NULL:
        """Return the entry of a hash; add it if it is missing. Valid until the next call."""
        cdef uint64_t mask, at
        hashed = hashed or 1
        if 2 * self.count >= self.room:
            self.grow()
        mask = self.room - 1
        at = hashed & mask
        while self.entries[at].hashed != hashed:
            if self.entries[at].hashed == 0:
                self.entries[at].hashed = hashed
                self.count += 1
                break
            at = at + 1 & mask
        return &self.entries[at]

    cdef int grow(self) except -1:
        cdef Entry *before = self.entries
        cdef Py_ssize_t room = self.room, larger = max(2 * room, MIN_ROOM), i
        cdef uint64_t at
        cdef Entry *entries = <Entry *>calloc(larger, sizeof(Entry))
        if entries is NULL:
            raise MemoryError(f"no memory for the numbers of {self.count:,} keys")
        for i in range(room):
            if before[i].hashed:
                at = before[i].hashed & <uint64_t>(larger - 1)
                while entries[at].hashed:
                    at = at + 1 & <uint64_t>(larger - 1)
                entries[at] = before[i]
        self.entries, self.room = entries, larger
        free(before)
        return 0
