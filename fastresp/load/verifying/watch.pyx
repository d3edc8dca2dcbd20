# cython: language_level=3, cdivision=True
"""Track values that later commands overwrite, and the items of a key that the source names."""

from libc.stdlib cimport calloc, free

from ...encode.payload.hashed cimport hashed
from .statement cimport (
    COUNT,
    DOCUMENT,
    FIELDS,
    GONE,
    LIFE,
    MEMBERS,
    NO_FIELDS,
    NO_MEMBERS,
    PLACE,
    SCORES,
    TEXT,
    TEXTS,
    Form,
    is_list,
)
from .tables cimport Entry, mixed

cdef enum:
    # Bits of the filter that recognises most keys without differences.
    NOTED_BITS = 4194304


cdef str group_of(Form form):
    """Return the group of an item; see Candidate."""
    if form == FIELDS or form == NO_FIELDS:
        return "field"
    if form == MEMBERS or form == NO_MEMBERS:
        return "member"
    if is_list(form) or form == PLACE:
        return "item"
    if form == DOCUMENT:
        return "document"
    if form == TEXT or form == TEXTS or form == GONE:
        return "value"
    return "time" if form == LIFE else "count" if form == COUNT else "score"


cdef class Watch:
    """Tracks values that later commands overwrite.

    Args:
        kept: the differences; see Kept.
        exact: whether to track the items of a key that the source names.
    """

    def __cinit__(self, kept, bint exact):
        self.kept = kept
        self.exact = self.watching = exact
        self.keys, self.present, self.expired = Numbers(), Numbers(), Numbers()
        self.found = []
        self.noted = <unsigned char *>calloc(NOTED_BITS // 8, 1)
        if self.noted is NULL:
            raise MemoryError("no memory for a verification")

    def __dealloc__(self):
        free(self.noted)

    cdef int note(self, const char *key, Py_ssize_t size) except -1:
        """Note that a key has stored differences."""
        cdef uint64_t at = hashed(key, size) % NOTED_BITS
        self.noted[at >> 3] |= <unsigned char>(1 << (at & 7))
        self.watching = True
        return 0

    cdef bint is_noted(self, const char *key, Py_ssize_t size) noexcept:
        """Return whether a key may have stored differences; False for most other keys."""
        cdef uint64_t at = hashed(key, size) % NOTED_BITS
        return self.noted[at >> 3] >> (at & 7) & 1

    cdef int overwrite(self, const Statement *s, const Item *item) except -1:
        """Forget the differences of an item that a later command writes or removes."""
        if s.form == TEXTS or s.form == GONE:
            return self.erase(item.name, item.name_size, item.keeps_time)
        if s.form == TEXT or s.form == DOCUMENT and s.time == 0:
            return self.erase(s.key, s.key_size, item.keeps_time)
        if not self.is_noted(s.key, s.key_size):
            return 0
        if s.form == DOCUMENT:
            self.kept.change(
                s.key[:s.key_size], item.name[:item.name_size], item.wanted[:item.wanted_size]
            )
        else:
            name = None if s.form == LIFE or is_list(s.form) else item.name[:item.name_size]
            self.kept.overwrite(
                s.key[:s.key_size], group_of(s.form), name, item.wanted is not NULL
            )
        if self.may_have_expired(s.key, s.key_size):
            if s.form == LIFE:
                self.expired.find(hashed(s.key, s.key_size)).number = 0
            elif item.wanted is not NULL:
                self.kept.remake(s.key[:s.key_size])
        return 0

    cdef int expire(self, const char *key, Py_ssize_t size) except -1:
        """Note that a key, including items written later, may have expired."""
        self.expired.find(hashed(key, size)).number = 1
        return self.note(key, size)

    cdef bint may_have_expired(self, const char *key, Py_ssize_t size) except -1:
        """Return whether missing items of a key may have expired."""
        if not len(self.expired) or not self.is_noted(key, size):
            return False
        return self.expired.find(hashed(key, size)).number != 0

    cdef int erase(self, const char *key, Py_ssize_t size, bint keeps_time) except -1:
        """Forget the differences of a key that is overwritten as a whole."""
        cdef Entry *entry
        if self.is_noted(key, size):
            self.kept.erase(key[:size], keeps_time)
        if not keeps_time and self.may_have_expired(key, size):
            self.expired.find(hashed(key, size)).number = 0
        if self.exact:
            entry = self.keys.find(hashed(key, size))
            entry.number = (entry.number | 1) + 1
        return 0

    cdef int find(self, const Item *item) except -1:
        """Note an item of the source that exists in the server."""
        if item.name is not NULL:
            self.found.append(hashed(item.name, item.name_size))
        return 0

    cdef int take_count(
        self, const Statement *s, long long n, long long known, long long row
    ) except -1:
        """Compare the number of items of a key with the number that the source has named.

        Args:
            s: the last command on the key; ``found`` contains its items.
            n: number of items that the key has in the server.
            known: for a list, the number of items that the source has named.
            row: row of the command.
        """
        cdef bytes key = s.key[:s.key_size]
        cdef Entry *entry
        cdef Entry *each
        cdef uint64_t base, salt
        if is_list(s.verb.form):
            return self.keep_count(key, b"LLEN", known, n, row)
        base = hashed(s.key, s.key_size)
        entry = self.keys.find(base)
        if entry.number & 1:
            return 0
        known = len(set(self.found))
        opened = self.kept.known(key)
        if opened >= 0 or known < n:
            known = max(opened, 0)
            salt = mixed(base, entry.number)
            for hash_of_item in self.found:
                each = self.present.find(mixed(salt, hash_of_item))
                known += each.number == 0
                each.number = 1
        entry.number |= known >= n
        verb = {FIELDS: b"HLEN", MEMBERS: b"SCARD", SCORES: b"ZCARD"}[s.verb.form]
        return self.keep_count(key, verb, known, n, row)

    cdef int keep_count(
        self, bytes key, bytes verb, long long known, long long n, long long row
    ) except -1:
        """Store a key that has more items than the source has named."""
        if n > known:
            self.kept.open(key, verb, known, row)
            self.note(key, len(key))
        else:
            self.kept.close(key)
        return 0
