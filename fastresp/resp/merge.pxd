from cpython.array cimport array

from .buffer cimport Chunk
from .mergeable cimport TAIL_BYTES, RULES_SIZE, ParsedCommand, MergeRule


# The last written command, with which the next command may be merged.
cdef struct Open:
    char *start
    char *name
    char *items
    const MergeRule *rule                    # NULL if no command may be merged with this command
    Py_ssize_t words
    Py_ssize_t item_words
    Py_ssize_t item_bytes
    Py_ssize_t first                    # index of the first original command
    bint small
    int slot                            # slot of the keys, if only keys of one slot are merged
    char tail[TAIL_BYTES]
    Py_ssize_t tail_size


cdef class MergedChunk(Chunk):
    cdef readonly array lasts           # 'q': number of original commands up to each end
    cdef array starts                   # 'q': offset of the items of each original command


cdef class Converter:
    cdef bint busy                      # whether merge() is running
    cdef Chunk converted(self, Chunk chunk)


cdef class Merger(Converter):
    cdef Py_ssize_t max_items
    cdef Py_ssize_t max_bytes
    cdef bint[RULES_SIZE] on            # whether commands of a rule may be merged
    cdef int digits                     # guessed number of digits in the next merged header
    cdef int key_digits                 # guessed number of digits of MSETEX's number of keys
    cdef bint by_slot                   # whether the keys of a merged command must have one slot
    cdef bint in_multi                  # whether a transaction is open: EXEC is still to come
    cdef Py_ssize_t fold(self, MergedChunk chunk, Py_ssize_t count) noexcept nogil
    cdef bint joins(self, const Open *o, const ParsedCommand *c, int slot) noexcept nogil
    cdef int slot_of(self, const ParsedCommand *c) noexcept nogil
    cdef bint fits(self, const Open *o, const ParsedCommand *c) noexcept nogil
    cdef void open(
        self, Open *o, const ParsedCommand *c, char *p, const char *read, Py_ssize_t first
    ) noexcept nogil
    cdef void track(self, const MergeRule *rule) noexcept nogil
    cdef char *widen(self, Open *o, char *p, long long *starts) noexcept nogil
    cdef char *end(self, Open *o, char *p, Py_ssize_t next, long long *starts) noexcept nogil
    cdef char *put_keys(
        self, Open *o, char *p, Py_ssize_t next, long long *starts
    ) noexcept nogil
    cdef int track_all(self, Chunk chunk) except -1
