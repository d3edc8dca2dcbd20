"""Values that later commands overwrite."""

from libc.stdint cimport int64_t, uint64_t

from .write_command cimport ExpectedItems, Item, Read, ValueForm, WriteCommand


cdef struct Entry:
    uint64_t key_hash   # 0 if the entry is free
    int64_t number


cdef class Numbers:
    cdef Entry *entries                 # owned, from calloc
    cdef Py_ssize_t room                # number of entries: a power of two, or 0
    cdef Py_ssize_t count
    cdef Entry *find(self, uint64_t key_hash) except NULL
    cdef int grow(self) except -1


cdef inline uint64_t mixed(uint64_t first, uint64_t second) noexcept nogil:
    """Return a hash of two hashes. Source: the finalizer of splitmix64."""
    cdef uint64_t z = first + <uint64_t>0x9E3779B97F4A7C15 * (second | 1) + second
    z = (z ^ (z >> 30)) * <uint64_t>0xBF58476D1CE4E5B9
    z = (z ^ (z >> 27)) * <uint64_t>0x94D049BB133111EB
    return z ^ (z >> 31)


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
