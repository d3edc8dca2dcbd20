from libc.stdint cimport int64_t, uint64_t

from .encoding cimport Word


# A key in the table: 88 bits of its hash, and its row in 40 bits.
cdef struct Fingerprint:
    uint64_t hashed
    uint64_t rest                       # 0 if empty; otherwise 24 bits of the hash, then row + 1


cdef class Keys:
    cdef Fingerprint *slots
    cdef Py_ssize_t room
    cdef readonly Py_ssize_t count
    cdef Py_ssize_t most
    cdef object log
    cdef Fingerprint next
    cdef int prepare(self, const char *key, Py_ssize_t size, long long row) noexcept
    cdef long long add(self) except -2
    cdef long long put(self, Fingerprint fingerprint) except -2
    cdef int grow(self) except -1


cdef class UniqueNames:
    cdef uint64_t *slots                # the slots of a hash table
    cdef Py_ssize_t room
    cdef Py_ssize_t keep(self, Word *words, Py_ssize_t size, int item, int name) except -1


cdef void *resize(void *memory, Py_ssize_t size) except NULL


cdef struct Entry:
    uint64_t key_hash   # 0 if the entry is free
    int64_t number


cdef class Numbers:
    cdef Entry *entries                 # owned, from calloc
    cdef Py_ssize_t room                # number of entries: a power of two, or 0
    cdef Py_ssize_t count
    cdef Entry *find(self, uint64_t key_hash) except NULL
    cdef int64_t get(self, uint64_t key_hash) noexcept
    cdef int grow(self) except -1


cdef inline uint64_t mixed(uint64_t first, uint64_t second) noexcept nogil:
    """Return a hash of two hashes. Source: the finalizer of splitmix64."""
    cdef uint64_t z = first + <uint64_t>0x9E3779B97F4A7C15 * (second | 1) + second
    z = (z ^ (z >> 30)) * <uint64_t>0xBF58476D1CE4E5B9
    z = (z ^ (z >> 27)) * <uint64_t>0x94D049BB133111EB
    return z ^ (z >> 31)
