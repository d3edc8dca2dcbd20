from libc.stdint cimport uint64_t

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
