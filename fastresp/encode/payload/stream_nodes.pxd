"""Read the entries of a stream's node: a listpack, and the ID that its entries are relative to.

The listpack begins with the number of entries, of deleted entries and of shared names, these names,
and 0. An entry has flags, its ID (relative to the ID of the node), its fields, and the number of
all these words. If the entry shares the names of the node, its fields are only values; otherwise,
they are the number of fields, and a name and a value for each field.
Source: streamAppendItem() in t_stream.c of Redis.
"""

from libc.stdint cimport int64_t, uint8_t, uint64_t

from .decoding cimport Packed, Stored, damaged, end_packed, read_entry

cdef enum:
    ID_BYTES = 16
    # Flags of an entry. Source: stream.h.
    DELETED = 1
    SHARES_NAMES = 2

cdef extern from *:
    """
    /* More fields don't fit into a listpack. So sums can't overflow. */
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
    """Find the next entry that is not deleted; return 1, 0 at the end, or -1 if it is damaged."""
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
