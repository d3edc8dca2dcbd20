from libc.stdint cimport uint16_t, uint64_t
from libc.string cimport memcpy

from .buffer cimport Chunk, Reference
from .grammar cimport known_length_end

cpdef enum:
    SLOTS = 16384
    # Returned instead of a slot:
    NO_KEY = -1
    UNKNOWN = -2
    SEVERAL = -3                        # keys in several slots; only from slot_of_all()
    # Other reasons to refuse a command: a MULTI without EXEC, and WATCH.
    OPEN = -4
    WATCHED = -5

cdef enum:
    LONGEST_NAME = 24
    # Number of entries in the name table: a power of two, about twice the number of names.
    RULES = 2048


# The effect of a command on a transaction, or on its connection.
cdef enum Bounds:
    NOTHING
    MULTI
    END                                 # EXEC or DISCARD
    WATCH
    CONNECTION                          # concerns only its own connection


# The key positions of a command; see commands.Positions.
cdef struct Rule:
    char name[LONGEST_NAME]             # in capitals
    int size                            # size of the name; 0 for an empty entry
    int first
    int last
    int step
    int count
    Bounds bounds


# The last name read, and its rule: most commands have the same name as their predecessor.
cdef struct LastRule:
    const Rule *table
    char name[LONGEST_NAME]             # as it was written
    long long size
    const Rule *rule


# Iterates over the arguments of a chunk.
cdef struct Walk:
    const char *base                    # the chunk's own memory
    const char *p                       # start of the next argument in this memory
    const Reference *large              # the next argument outside this memory
    const Reference *stop


cdef inline const char *next_argument(Walk *walk, long long *size) noexcept nogil:
    """Return the bytes of the next argument, and store their number in ``size``."""
    cdef const char *text = known_length_end(walk.p + 1, size)
    if walk.large < walk.stop and walk.large.offset == text - walk.base:
        walk.p = text + 2
        text = walk.large.data
        walk.large += 1
        return text
    walk.p = text + size[0] + 2
    return text


cdef inline const char *end_of(
    Chunk chunk, Py_ssize_t index, const Reference **large, Py_ssize_t *extra
) noexcept nogil:
    """Return the end of a command in the chunk's own memory.

    Args:
        large: the first large argument at or after the command's start; advanced past the command.
        extra: the size of all large arguments before the command; increased by the size of the
            command's large arguments.
    """
    cdef long long end = chunk.ends.data.as_longlongs[index]
    cdef const Reference *stop = chunk.references + chunk.n_references
    while large[0] < stop and large[0].offset + extra[0] < end:
        extra[0] += large[0].size
        large[0] += 1
    return chunk.data + end - extra[0]


cdef inline const char *start_of(Chunk chunk, Py_ssize_t index) noexcept:
    """Return the start of a command; if the chunk has large arguments, ``index`` must be 0."""
    return chunk.data + (chunk.ends.data.as_longlongs[index - 1] if index else 0)


cdef inline bint same_head(const char *p, const char *head, Py_ssize_t size) noexcept nogil:
    """Return whether two strings of ``size`` bytes, at least 8, are equal, without memcmp()."""
    cdef uint64_t a, b
    cdef Py_ssize_t i = 0
    while i + 8 < size:
        memcpy(&a, p + i, 8)
        memcpy(&b, head + i, 8)
        if a != b:
            return False
        i += 8
    memcpy(&a, p + size - 8, 8)
    memcpy(&b, head + size - 8, 8)
    return a == b


cdef int key_slot(const char *key, Py_ssize_t size) noexcept nogil
cdef int slot_of_first(Walk *walk, LastRule *last) noexcept nogil
cdef int slot_of_all(Walk *walk, LastRule *last) noexcept nogil
cdef tuple all_keys(Walk *walk, LastRule *last)


cdef class Rules:
    cdef Rule table[RULES]
    cdef int count
    cdef int add(self, bytes name, int first, int last, int step, int count) except -1
    cdef void start(self, LastRule *last) noexcept
