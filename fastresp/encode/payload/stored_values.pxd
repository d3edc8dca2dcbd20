"""How values are stored, and how their items are read.

A node of a stream is an ID and a listpack. The listpack begins with three counts (entries,
deleted entries, and names that entries share), these names, and 0. An entry has flags, an ID
relative to the ID of the node, fields, and the number of all these words. If the entry shares the
names of the node, the fields are only values; otherwise, they are the number of fields, and then a
name and a value for each field.
Source: streamAppendItem() in t_stream.c of Redis.
"""

from libc.stdint cimport int64_t, uint8_t, uint64_t

from .decoding cimport Cursor, Form, Packed, Stored, damaged, end_packed, read_entry
from .encoding cimport STREAM_1, STREAM_2, STREAM_3, Word
from .format cimport SCORE_ROOM

# How the values of a type are stored.
cdef struct ValueType:
    const char *layout                  # see stored_values.pyx; NULL for an unknown type
    Form form                           # the compact form of the elements; NO_FORM for strings
    int words                           # number of words per item, as in Elements


cdef inline bint is_stream(int kind) noexcept nogil:
    return kind in (STREAM_1, STREAM_2, STREAM_3)


cdef ValueType *value_type(int kind) noexcept nogil
cdef bint pass_part(Cursor *c, char letter, int kind) noexcept nogil
cdef const char *group_end(const char *layout) noexcept nogil


cdef enum:
    MAX_WORDS = 3
    # value_end(): the value has more bytes, or is damaged.
    INCOMPLETE = -1
    DAMAGED = -2


# Return the size in bytes of the value that begins at ``data``, or INCOMPLETE, or DAMAGED. Checks
# the lengths of strings, but not the contents of compact forms, which Elements checks.
cdef Py_ssize_t value_end(int kind, const char *data, Py_ssize_t size) noexcept nogil
# Return why a value is damaged, after value_end() returned DAMAGED.
cdef str why_damaged(int kind, const char *data, Py_ssize_t size)
# Return the size of the largest string in a value, after decompression. Raise SourceError if the
# value is damaged, or its size is not ``size``.
cdef Py_ssize_t largest_text(int kind, const char *data, Py_ssize_t size) except -1
# Return the type of a value as the command TYPE names it; "module" for values of modules.
cdef str type_name(int kind)
# Return the address of bytes, even if there are no bytes.
cdef const char *first_byte(const unsigned char[::1] data) noexcept


cdef enum:
    ID_BYTES = 16
    # Flags of an entry. Source: stream.h.
    DELETED = 1
    SHARES_NAMES = 2

cdef extern from *:
    """
    /* More fields than a listpack has room for, and few enough that sums can't overflow. */
    #define FASTRESP_STREAM_FIELDS (1LL << 32)
    """
    const int64_t MAX_FIELDS "FASTRESP_STREAM_FIELDS"


cdef struct StreamNode:
    uint64_t ms                     # the ID that the IDs of the entries are relative to
    uint64_t sequence
    Packed names                    # at the first shared name
    int64_t shared                  # number of shared names
    Packed name                     # at the next name of the current entry
    bint own_names                  # whether the current entry does not share names
    int64_t fields                  # number of fields to read of the current entry
    int64_t words                   # number of words in the current entry


cdef inline bint read_id(StreamNode *n, const Stored *s) noexcept nogil:
    """Read the ID that the entries of a node are relative to; return False if it is invalid."""
    cdef int at
    if s.text is NULL or s.expanded or s.size != ID_BYTES:
        return False
    n.ms = n.sequence = 0
    for at in range(8):
        n.ms = n.ms << 8 | <uint8_t>s.text[at]
        n.sequence = n.sequence << 8 | <uint8_t>s.text[8 + at]
    return True


cdef inline bint read_signed(Packed *f, int64_t *number) noexcept nogil:
    cdef Stored s
    if f.p == f.end or read_entry(f, &s) < 1 or s.text is not NULL:
        return damaged(f, b"an entry of a stream without a number")
    number[0] = s.integer
    return True


cdef inline bint read_text(Packed *f, Packed *source, Stored *s) noexcept nogil:
    """Read a name or a value of an entry."""
    if source.p == source.end or read_entry(source, s) < 1:
        return damaged(f, b"an entry of a stream that ends early")
    return True


cdef inline bint pass_texts(Packed *f, int64_t count) noexcept nogil:
    cdef Stored s
    while count > 0:
        if not read_text(f, f, &s):
            return False
        count -= 1
    return True


cdef inline bint open_stream_node(StreamNode *n, Packed *f) noexcept nogil:
    """Read the data that the entries of a node share."""
    cdef int64_t number = 0
    n.fields = 0
    if not (read_signed(f, &number) and read_signed(f, &number) and read_signed(f, &n.shared)):
        return False
    n.names = f[0]
    if not pass_texts(f, n.shared) or not read_signed(f, &number):
        return False
    return (n.shared >= 0 and number == 0) or damaged(f, b"a node of a stream without names")


cdef inline bint end_stream_entry(StreamNode *n, Packed *f) noexcept nogil:
    cdef int64_t number = 0
    if not read_signed(f, &number):
        return False
    return number == n.words or damaged(f, b"an entry of a stream with the wrong size")


cdef inline int open_stream_entry(
    StreamNode *n, Packed *f, uint64_t *ms, uint64_t *sequence
) noexcept nogil:
    """Find the next entry that is not deleted; return 1, or 0 at the end, or -1 if damaged."""
    cdef int64_t flags = 0, ms_after = 0, sequence_after = 0
    while f.p != f.end:
        if not (
            read_signed(f, &flags) and read_signed(f, &ms_after) and read_signed(f, &sequence_after)
        ):
            return -1
        n.fields = n.shared
        n.own_names = not flags & SHARES_NAMES
        if n.own_names and not read_signed(f, &n.fields):
            return -1
        if not 0 < n.fields <= MAX_FIELDS:
            damaged(f, b"an entry of a stream without fields")
            return -1
        n.words = 2 * n.fields + 4 if n.own_names else n.fields + 3
        if not flags & DELETED:
            n.name = n.names
            ms[0] = n.ms + <uint64_t>ms_after
            sequence[0] = n.sequence + <uint64_t>sequence_after
            return 1
        if not pass_texts(f, 2 * n.fields if n.own_names else n.fields):
            return -1
        n.fields = 0
        if not end_stream_entry(n, f):
            return -1
    return end_packed(f)


cdef inline bint read_field(StreamNode *n, Packed *f, Stored *name, Stored *value) noexcept nogil:
    """Read a field of the current entry."""
    if not read_text(f, f if n.own_names else &n.name, name) or not read_text(f, f, value):
        return False
    n.fields -= 1
    return n.fields > 0 or end_stream_entry(n, f)


# Memory for a decompressed string.
cdef struct Scratch:
    char *memory                        # owned, from malloc
    Py_ssize_t size


cdef class Elements:
    cdef readonly int words             # number of words (strings) per item
    cdef Word[MAX_WORDS] item           # the last item, of next_item()
    cdef const char *fault              # why the value is damaged; NULL if it is sound
    cdef Py_ssize_t size                # size of the value in bytes
    cdef Cursor cursor
    cdef int kind
    cdef int next_word                  # index in the item of the next word
    cdef Form form                      # the form of all nodes; NO_FORM for plain strings
    cdef uint64_t left                  # number of plain items or nodes to read
    cdef uint64_t first_expiry          # the time that the expiries of a hash are relative to
    cdef Packed node                    # the compact form being read
    cdef StreamNode stream              # the data that the entries of a stream's node share
    cdef Scratch[MAX_WORDS + 1] scratch
    cdef char[MAX_WORDS][SCORE_ROOM] numbers

    cdef bint open(self, int kind, const char *data, Py_ssize_t size) noexcept nogil
    cdef int next(self, Word *word) noexcept nogil
    cdef int next_item(self) noexcept nogil
    cdef object error(self)
    cdef void release(self, Py_ssize_t most) noexcept nogil
    cdef int stop(self, const char *fault) noexcept nogil
    cdef char *expanded(self, int at, const Stored *s) noexcept nogil
    cdef bint keep(self, int at, const Stored *s) noexcept nogil
    cdef bint keep_number(self, int at, int64_t number) noexcept nogil
    cdef int keep_expiry(self, int64_t expiry) noexcept nogil
    cdef int keep_double(self, int64_t bits) noexcept nogil
    cdef int read_plain(self) noexcept nogil
    cdef int read_score(self) noexcept nogil
    cdef int open_node(self) noexcept nogil
    cdef int read_entries(self) noexcept nogil
    cdef int read_stream(self) noexcept nogil
