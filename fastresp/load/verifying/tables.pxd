"""A compact hash table of numbers."""

from libc.stdint cimport int64_t, uint64_t


cdef struct Entry:
    uint64_t hashed     # 0 if the entry is free
    int64_t number


cdef class Numbers:
    cdef Entry *entries                 # owned, from calloc
    cdef Py_ssize_t room                # number of entries: a power of two, or 0
    cdef Py_ssize_t count
    cdef Entry *find(self, uint64_t hashed) except NULL
    cdef int grow(self) except -1


cdef inline uint64_t mixed(uint64_t first, uint64_t second) noexcept nogil:
    """Return a hash of two hashes. Source: the finalizer of splitmix64."""
    cdef uint64_t z = first + <uint64_t>0x9E3779B97F4A7C15 * (second | 1) + second
    z = (z ^ (z >> 30)) * <uint64_t>0xBF58476D1CE4E5B9
    z = (z ^ (z >> 27)) * <uint64_t>0x94D049BB133111EB
    return z ^ (z >> 31)
