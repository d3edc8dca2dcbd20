from libc.stdint cimport uint64_t

from .statement cimport Form, Item, Statement
from .tables cimport Numbers


cdef class Watch:
    cdef object kept
    cdef bint exact
    cdef bint watching          # whether anything was noted
    cdef unsigned char *noted   # owned: a bit for each hash of a key
    # With exact, by key: twice the number of overwrites, plus 1 if the source has named all items
    # of the key.
    cdef Numbers keys
    # By key and item: 1 if the item was found.
    cdef Numbers present
    # By key: 1 if the key, including items written later, may have expired.
    cdef Numbers expired
    cdef list found             # hashes of the found items of the last read
    cdef int note(self, const char *key, Py_ssize_t size) except -1
    cdef bint is_noted(self, const char *key, Py_ssize_t size) noexcept
    cdef int overwrite(self, const Statement *s, const Item *item) except -1
    cdef int erase(self, const char *key, Py_ssize_t size, bint keeps_time) except -1
    cdef int expire(self, const char *key, Py_ssize_t size) except -1
    cdef bint may_have_expired(self, const char *key, Py_ssize_t size) except -1
    cdef int find(self, const Item *item) except -1
    cdef int take_count(
        self, const Statement *s, long long n, long long known, long long row
    ) except -1
    cdef int keep_count(
        self, bytes key, bytes verb, long long known, long long n, long long row
    ) except -1


cdef str group_of(Form form)
