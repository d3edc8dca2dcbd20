"""Values that later commands overwrite."""

from ...encode.payload.duplicates cimport Numbers
from .write_command cimport ExpectedItems, Item, Read, ValueForm, WriteCommand


cdef class OverwriteTracker:
    cdef object differences
    cdef bint exact
    cdef bint tracking          # whether anything was noted
    cdef unsigned char *key_filter  # owned: a bit for each hash of a key
    # With exact, by key: twice the number of overwrites, plus 1 if all items of the key are in the
    # source.
    cdef Numbers keys
    # By key and item: 1 if the item was found.
    cdef Numbers present
    # By key: 1 if the key may have expired, with the items that later rows write.
    cdef Numbers expired
    cdef list found             # hashes of the found items of the last read
    cdef int add_key(self, const char *key, Py_ssize_t size) except -1
    cdef bint may_have_differences(self, const char *key, Py_ssize_t size) noexcept
    cdef int overwrite(self, const WriteCommand *s, const Item *item) except -1
    cdef int pass_commands(self, ExpectedItems items, const Read *read) except -1
    cdef int erase(self, const char *key, Py_ssize_t size, bint keeps_ttl) except -1
    cdef int expire(self, const char *key, Py_ssize_t size) except -1
    cdef bint may_have_expired(self, const char *key, Py_ssize_t size) except -1
    cdef int find(self, const Item *item) except -1
    cdef int compare_count(
        self, const WriteCommand *s, long long n, long long known, long long row
    ) except -1
    cdef int set_count(
        self, bytes key, bytes verb, long long known, long long n, long long row
    ) except -1


cdef str group_of(ValueForm form)
