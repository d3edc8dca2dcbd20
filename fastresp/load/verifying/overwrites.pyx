# cython: language_level=3, cdivision=True
"""Track values that later commands overwrite, and count the items of keys in the source."""

from libc.stdint cimport uint64_t
from libc.stdlib cimport calloc, free

from ...encode.payload.duplicates cimport Entry, Numbers, mixed
from ...encode.payload.hashed cimport hashed
from .write_command cimport (
    COUNT,
    DELETED,
    DOCUMENT,
    FIELDS,
    INDEX,
    MEMBERS,
    NO_FIELDS,
    NO_MEMBERS,
    SCORES,
    TEXT,
    TEXTS,
    TTL,
    ValueForm,
    is_list,
    next_item,
    parse_command,
)

cdef enum:
    # Bits of the filter, which recognises most keys that have no differences.
    FILTER_BITS = 4194304


cdef str group_of(ValueForm form):
    """Return the difference group of a command; see Candidate."""
    if form == FIELDS or form == NO_FIELDS:
        return "field"
    if form == MEMBERS or form == NO_MEMBERS:
        return "member"
    if is_list(form) or form == INDEX:
        return "item"
    if form == DOCUMENT:
        return "document"
    if form == TEXT or form == TEXTS or form == DELETED:
        return "value"
    return "time" if form == TTL else "count" if form == COUNT else "score"


cdef class OverwriteTracker:
    """Tracks values that later commands overwrite.

    Args:
        differences: the differences; see Differences.
        exact: whether to count the items of each key in the source.
    """

    def __cinit__(self, differences, bint exact):
        self.differences = differences
        self.exact = self.tracking = exact
        self.keys, self.present, self.expired = Numbers(), Numbers(), Numbers()
        self.found = []
        self.key_filter = <unsigned char *>calloc(FILTER_BITS // 8, 1)
        if self.key_filter is NULL:
            raise MemoryError("no memory for a verification")

    def __dealloc__(self):
        free(self.key_filter)

    cdef int add_key(self, const char *key, Py_ssize_t size) except -1:
        """Record that a key has stored differences."""
        cdef uint64_t at = hashed(key, size) % FILTER_BITS
        self.key_filter[at >> 3] |= <unsigned char>(1 << (at & 7))
        self.tracking = True
        return 0

    cdef bint may_have_differences(self, const char *key, Py_ssize_t size) noexcept:
        """Return whether a key may have stored differences; seldom True for a key without any."""
        cdef uint64_t at = hashed(key, size) % FILTER_BITS
        return self.key_filter[at >> 3] >> (at & 7) & 1

    cdef int overwrite(self, const WriteCommand *s, const Item *item) except -1:
        """Forget the differences of an item that a later command writes or removes."""
        if s.form == TEXTS or s.form == DELETED:
            return self.erase(item.name, item.name_size, item.keeps_ttl)
        if s.form == TEXT or s.form == DOCUMENT and s.whole:
            return self.erase(s.key, s.key_size, item.keeps_ttl)
        if not self.may_have_differences(s.key, s.key_size):
            return 0
        if s.form == DOCUMENT:
            self.differences.update_document(
                s.key[:s.key_size], item.name[:item.name_size], item.wanted[:item.wanted_size]
            )
        else:
            name = None if s.form == TTL or is_list(s.form) else item.name[:item.name_size]
            self.differences.overwrite(
                s.key[:s.key_size], group_of(s.form), name, item.wanted is not NULL
            )
        if self.may_have_expired(s.key, s.key_size):
            if s.form == TTL:
                self.expired.find(hashed(s.key, s.key_size)).number = 0
            elif item.wanted is not NULL:
                self.differences.forget_missing(s.key[:s.key_size])
        return 0

    cdef int pass_commands(self, ExpectedItems items, const Read *read) except -1:
        """Note which values are overwritten by commands that need no read."""
        cdef WriteCommand s
        cdef Item item
        cdef Py_ssize_t i
        for i in range(read.command, read.command + read.commands):
            items.move_to(i)
            parse_command(&s, &items.cursor.walk, &items.last, items.recheck)
            if read.form == DELETED:  # the command replaces its hash
                self.erase(s.key, s.key_size, False)
                continue
            item.name_size, item.wanted = 0, NULL
            if s.form == TTL:
                self.overwrite(&s, &item)
            for _ in range(s.count):
                next_item(&s, &item)
                self.overwrite(&s, &item)
        return 0

    cdef int expire(self, const char *key, Py_ssize_t size) except -1:
        """Record that a key may have expired; items that later rows write may then be missing."""
        self.expired.find(hashed(key, size)).number = 1
        return self.add_key(key, size)

    cdef bint may_have_expired(self, const char *key, Py_ssize_t size) except -1:
        """Return whether missing items of a key may have expired."""
        if not self.expired.count or not self.may_have_differences(key, size):
            return False
        return self.expired.find(hashed(key, size)).number != 0

    cdef int erase(self, const char *key, Py_ssize_t size, bint keeps_ttl) except -1:
        """Forget the differences of a key that is overwritten as a whole."""
        cdef Entry *entry
        if self.may_have_differences(key, size):
            self.differences.erase(key[:size], keeps_ttl)
        if not keeps_ttl and self.may_have_expired(key, size):
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

    cdef int compare_count(
        self, const WriteCommand *s, long long n, long long known, long long row
    ) except -1:
        """Compare the number of items of a key with the number of its items in the source.

        Args:
            s: the last command of the previous read, whose existing items are in ``found``.
            n: number of items of the key in the server.
            known: for a list, the number of its items in the source.
            row: row of the command.
        """
        cdef bytes key = s.key[:s.key_size]
        cdef Entry *entry
        cdef Entry *each
        cdef uint64_t base, salt
        if is_list(s.verb.form):
            return self.set_count(key, b"LLEN", known, n, row)
        base = hashed(s.key, s.key_size)
        entry = self.keys.find(base)
        if entry.number & 1:
            return 0
        known = len(set(self.found))
        named = self.differences.counts.get(key)
        if named is not None or known < n:
            known = 0 if named is None else named[1]
            salt = mixed(base, entry.number)
            for hash_of_item in self.found:
                each = self.present.find(mixed(salt, hash_of_item))
                known += each.number == 0
                each.number = 1
        entry.number |= known >= n
        verb = {FIELDS: b"HLEN", MEMBERS: b"SCARD", SCORES: b"ZCARD"}[s.verb.form]
        return self.set_count(key, verb, known, n, row)

    cdef int set_count(
        self, bytes key, bytes verb, long long known, long long n, long long row
    ) except -1:
        """Add a key to ``counts`` if it has more items than the source; otherwise, remove it."""
        if n > known:
            self.differences.counts[key] = verb, known, row
            self.add_key(key, len(key))
        else:
            self.differences.counts.pop(key, None)
        return 0
