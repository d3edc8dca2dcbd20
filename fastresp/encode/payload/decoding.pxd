"""Read lengths, strings and compact forms in the format of RDB files.

The bytes are not trusted: every length is checked before it is used. Numbers are little-endian, as
on all supported machines, except in lengths.
Source: rdb.c, listpack.c, ziplist.c, intset.c, zipmap.c and lzf_d.c of Redis.
"""

from libc.stdint cimport int8_t, int16_t, int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memcpy

from ...resp.buffer cimport put_signed
from .encoding cimport LISTPACK_END, LISTPACK_HEADER, UNCOUNTED, Word, back_length, is_disputed

cdef enum:
    # If the two high bits of a length are set, the other 6 bits say how a string is encoded: as an
    # integer, or compressed.
    PLAIN_LENGTH = -1
    INT8_TEXT = 0
    INT16_TEXT = 1
    INT32_TEXT = 2
    LZF_TEXT = 3
    # Three bytes of LZF expand to at most 264 bytes.
    LZF_RATIO = 88
    # A ziplist begins with its size, the offset of the last entry, and the number of entries.
    ZIPLIST_HEADER = 10
    # A size up to this has one byte, a larger size 5 bytes: in a ziplist, the size of the previous
    # entry; in a zipmap, the size of a string.
    ONE_BYTE = 253
    # A zipmap of this many pairs or more has to be counted.
    LARGE_ZIPMAP = 254
    INTSET_HEADER = 8
    # How a server writes the size of an entry that is_disputed(): in back_length() bytes, or in one
    # byte less.
    LONG_SIZE = 1
    SHORT_SIZE = 2

cdef extern from *:
    """
    /* A longer string is damaged: the longest that a server writes is a listpack of 4 GiB. */
    #define FASTRESP_TEXT_BYTES (1LL << 32)
    """
    const uint64_t MAX_TEXT_BYTES "FASTRESP_TEXT_BYTES"


# A position in bytes. After a function returned False, ``fault`` says why the bytes are damaged; it
# is NULL if more bytes are needed.
cdef struct Cursor:
    const char *p
    const char *end
    const char *fault
    Py_ssize_t largest              # size of the largest string so far, after decompression


# A string as it is stored: bytes, an integer, or bytes compressed with LZF.
cdef struct Stored:
    const char *text                # NULL if the string is stored as an integer
    Py_ssize_t size
    Py_ssize_t expanded             # size after decompression; 0 if not compressed
    int64_t integer


cdef inline bint fail(Cursor *c, const char *fault) noexcept nogil:
    c.fault = fault
    return False


cdef inline bint read_length(Cursor *c, uint64_t *n, int *kind) noexcept nogil:
    """Read a length, or a string's encoding; ``kind`` receives PLAIN_LENGTH or the encoding."""
    cdef uint8_t first
    cdef int bytes, at
    if c.p == c.end:
        return False
    first = <uint8_t>c.p[0]
    kind[0] = PLAIN_LENGTH
    if first < 0x40:
        n[0] = first
        c.p += 1
        return True
    if first < 0x80:
        if c.end - c.p < 2:
            return False
        n[0] = (first & 63) << 8 | <uint8_t>c.p[1]
        c.p += 2
        return True
    if first >= 0xC0:
        kind[0] = first & 63
        c.p += 1
        return True
    if first > 0x81:
        return fail(c, b"a length of an unknown size")
    bytes = 8 if first & 1 else 4
    if c.end - c.p <= bytes:
        return False
    n[0] = 0
    for at in range(bytes):
        n[0] = n[0] << 8 | <uint8_t>c.p[1 + at]
    c.p += 1 + bytes
    return True


cdef inline bint read_number(Cursor *c, uint64_t *n) noexcept nogil:
    """Read a number that is written as a length."""
    cdef int kind
    if not read_length(c, n, &kind):
        return False
    return kind == PLAIN_LENGTH or fail(c, b"a string instead of a number")


cdef inline bint skip(Cursor *c, uint64_t size) noexcept nogil:
    if <uint64_t>(c.end - c.p) < size:
        return False
    c.p += size
    return True


cdef inline bint read_stored(Cursor *c, Stored *s) noexcept nogil:
    """Read a string, as it is stored."""
    cdef uint64_t size = 0, expanded = 0
    cdef int kind
    cdef int16_t int16
    cdef int32_t int32
    if not read_length(c, &size, &kind):
        return False
    s.expanded = 0
    s.text = NULL
    if kind == LZF_TEXT:
        if not read_number(c, &size) or not read_number(c, &expanded):
            return False
        if expanded == 0 or expanded > MAX_TEXT_BYTES or size < (expanded - 1) // LZF_RATIO + 1:
            return fail(c, b"a compressed string with an impossible size")
        s.expanded = <Py_ssize_t>expanded
    elif kind != PLAIN_LENGTH:
        if kind > LZF_TEXT:
            return fail(c, b"a string of an unknown encoding")
        size = <uint64_t>1 << kind
        if <uint64_t>(c.end - c.p) < size:
            return False
        if kind == INT8_TEXT:
            s.integer = <int8_t>c.p[0]
        elif kind == INT16_TEXT:
            memcpy(&int16, c.p, 2)
            s.integer = int16
        else:
            memcpy(&int32, c.p, 4)
            s.integer = int32
        c.p += size
        return True
    if size > MAX_TEXT_BYTES:
        return fail(c, b"a string with an impossible size")
    if <uint64_t>(c.end - c.p) < size:
        return False
    s.text = c.p
    s.size = <Py_ssize_t>size
    c.p += size
    c.largest = max(c.largest, s.size, s.expanded)
    return True


cdef inline bint expand(const char *p, Py_ssize_t size, char *out, Py_ssize_t room) noexcept nogil:
    """Decompress LZF; return whether the result has exactly ``room`` bytes."""
    cdef const char *end = p + size
    cdef char *start = out
    cdef char *stop = out + room
    cdef const char *copied
    cdef Py_ssize_t n, back
    while p < end:
        n = <uint8_t>p[0]
        p += 1
        if n < 32:
            n += 1
            if n > end - p or n > stop - out:
                return False
            memcpy(out, p, n)
            p += n
            out += n
            continue
        back = (n & 31) << 8
        n >>= 5
        if n == 7:
            if p == end:
                return False
            n += <uint8_t>p[0]
            p += 1
        n += 2
        if p == end:
            return False
        back += <uint8_t>p[0] + 1
        p += 1
        if back > out - start or n > stop - out:
            return False
        copied = out - back
        if back >= n:
            memcpy(out, copied, n)
            out += n
            continue
        while n:                    # the copy repeats itself
            out[0] = copied[0]
            out += 1
            copied += 1
            n -= 1
    return out == stop


cdef enum Form:
    NO_FORM
    ZIPMAP
    ZIPLIST
    INTSET
    LISTPACK


# A compact form (listpack, ziplist, zipmap or intset) that is being read.
cdef struct Packed:
    Form form
    const char *start
    const char *p                   # the next entry
    const char *end                 # the byte that ends the form; of an intset, the end
    const char *fault               # why the form is damaged; NULL if it is sound
    Py_ssize_t entries              # number of entries read
    Py_ssize_t counted              # number of entries in the header; -1 if unknown
    Py_ssize_t before               # ziplist: size of the last entry; intset: bytes per integer
    int disputed                    # flags LONG_SIZE, SHORT_SIZE: how disputed sizes are written
    Py_ssize_t tail                 # ziplist: offset of the last entry in the header
    bint is_value                   # zipmap: whether the next entry is a value


cdef inline bint damaged(Packed *f, const char *fault) noexcept nogil:
    f.fault = fault
    return False


cdef inline bint open_packed(Packed *f, Form form, const char *p, Py_ssize_t size) noexcept nogil:
    """Begin to read a compact form; return whether its header is valid."""
    cdef uint32_t size32 = 0
    cdef uint16_t count = 0
    cdef Py_ssize_t header = (
        INTSET_HEADER if form == INTSET else 1 if form == ZIPMAP
        else ZIPLIST_HEADER if form == ZIPLIST else LISTPACK_HEADER
    )
    f.form, f.start, f.p, f.end = form, p, p + header, p + size - 1
    f.fault = NULL
    f.entries = f.before = 0
    f.counted = -1
    f.is_value = False
    if form == INTSET:
        f.end = p + size
        if size < header:
            return damaged(f, b"an intset without a header")
        memcpy(&size32, p, 4)
        f.before = size32
        memcpy(&size32, p + 4, 4)
        f.counted = size32
        if f.before not in (2, 4, 8) or size != header + f.before * f.counted:
            return damaged(f, b"an intset with the wrong size")
        return True
    if size <= header or <uint8_t>f.end[0] != LISTPACK_END:
        return damaged(f, b"a compact form without an end")
    if form == ZIPMAP:
        if <uint8_t>p[0] < LARGE_ZIPMAP:
            f.counted = 2 * <uint8_t>p[0]
        return True
    memcpy(&size32, p, 4)
    memcpy(&count, f.p - 2, 2)
    if size32 != size:
        return damaged(f, b"a compact form with the wrong size")
    if count != UNCOUNTED:
        f.counted = count
    if form == ZIPLIST:
        memcpy(&size32, p + 4, 4)
        f.tail = size32
    return True


cdef inline bint is_back_length(const char *p, uint64_t size, int bytes) noexcept nogil:
    """Return whether ``bytes`` bytes at p are ``size`` in the format of put_back_length()."""
    cdef int at
    for at in range(bytes):
        if <uint8_t>p[at] != ((size >> 7 * (bytes - 1 - at) & 127) | (128 if at else 0)):
            return False
    return True


cdef inline int64_t read_integer_of(const char *p, int bytes) noexcept nogil:
    """Return a signed number of 1 to 8 bytes."""
    cdef uint64_t n = 0
    memcpy(&n, p, bytes)
    return <int64_t>(n << 64 - 8 * bytes) >> 64 - 8 * bytes


cdef inline int read_listpack_entry(Packed *f, Stored *s) noexcept nogil:
    cdef const char *p = f.p
    cdef Py_ssize_t room = f.end - p, header = 1, size = 0
    cdef int back
    cdef uint32_t size32
    cdef uint8_t first = <uint8_t>p[0]
    s.text = NULL
    if first < 0x80:
        s.integer = first
    elif first < 0xC0:
        size = first & 63
        s.text = p + 1
    elif first < 0xF0 and room < 2:
        return damaged(f, b"an entry beyond the end")
    elif first < 0xE0:
        header = 2
        s.integer = <int64_t>(<uint64_t>((first & 31) << 8 | <uint8_t>p[1]) << 51) >> 51
    elif first < 0xF0:
        header = 2
        size = (first & 15) << 8 | <uint8_t>p[1]
        s.text = p + 2
    elif first == 0xF0:
        header = 5
        if room < header:
            return damaged(f, b"an entry beyond the end")
        memcpy(&size32, p + 1, 4)
        size = size32
        s.text = p + 5
    elif first <= 0xF4:
        header = first - 0xF0 + 2 if first < 0xF4 else 9
        if room < header:
            return damaged(f, b"an entry beyond the end")
        s.integer = read_integer_of(p + 1, <int>header - 1)
    else:
        return damaged(f, b"an entry of an unknown kind")
    s.size = size
    size += header
    back = back_length(size)
    if size + back > room:
        return damaged(f, b"an entry beyond the end")
    p += size
    if size < 128:
        if p[0] != size:
            return damaged(f, b"an entry with the wrong size")
    else:
        if is_disputed(s.size):
            if is_back_length(p, size, back):
                f.disputed |= LONG_SIZE
            else:
                f.disputed |= SHORT_SIZE
                back -= 1
        if not is_back_length(p, size, back):
            return damaged(f, b"an entry with the wrong size")
    f.p = p + back
    return True


cdef inline int read_ziplist_entry(Packed *f, Stored *s) noexcept nogil:
    cdef const char *p = f.p
    cdef Py_ssize_t room = f.end - p, header = 1, before = <uint8_t>p[0], size = 0
    cdef uint32_t size32
    cdef uint8_t first
    if before > ONE_BYTE:
        if room < 6:
            return damaged(f, b"an entry beyond the end")
        memcpy(&size32, p + 1, 4)
        before = size32
        header = 5
    if before != f.before:
        return damaged(f, b"an entry with the wrong size of its predecessor")
    if room <= header:
        return damaged(f, b"an entry beyond the end")
    first = <uint8_t>p[header]
    header += 1
    s.text = NULL
    if first < 0x40:
        size = first
    elif first < 0x80:
        if room <= header:
            return damaged(f, b"an entry beyond the end")
        size = (first & 63) << 8 | <uint8_t>p[header]
        header += 1
    elif first < 0xC0:
        if room < header + 4:
            return damaged(f, b"an entry beyond the end")
        size = (
            <Py_ssize_t><uint8_t>p[header] << 24 | <uint8_t>p[header + 1] << 16
            | <uint8_t>p[header + 2] << 8 | <uint8_t>p[header + 3]
        )
        header += 4
    elif 0xF1 <= first <= 0xFD:
        s.integer = first - 0xF1
    else:
        size = (
            2 if first == 0xC0 else 4 if first == 0xD0 else 8 if first == 0xE0
            else 3 if first == 0xF0 else 1 if first == 0xFE else 0
        )
        if size == 0:
            return damaged(f, b"an entry of an unknown kind")
    if size > room - header:
        return damaged(f, b"an entry beyond the end")
    if first < 0xC0:
        s.text = p + header
    elif size:
        s.integer = read_integer_of(p + header, <int>size)
    s.size = size
    f.before = header + size
    f.p = p + f.before
    return True


cdef inline int read_zipmap_entry(Packed *f, Stored *s) noexcept nogil:
    """Read a field or a value; unused bytes may follow a value."""
    cdef Py_ssize_t room = f.end - f.p, header = 1, size = <uint8_t>f.p[0], unused = 0
    cdef uint32_t size32
    if size > ONE_BYTE:
        header = 5
        if size == LISTPACK_END or room < header:
            return damaged(f, b"an entry beyond the end")
        memcpy(&size32, f.p + 1, 4)
        size = size32
    if f.is_value:
        if room <= header:
            return damaged(f, b"an entry beyond the end")
        unused = <uint8_t>f.p[header]
        header += 1
    if size + unused > room - header:
        return damaged(f, b"an entry beyond the end")
    s.text = f.p + header
    s.size = size
    f.p += header + size + unused
    f.is_value = not f.is_value
    return True


cdef inline int end_packed(Packed *f) noexcept nogil:
    """Check a compact form after its last entry; return 0, or -1 if it is damaged."""
    if f.counted >= 0 and f.entries != f.counted:
        f.fault = b"a compact form with the wrong number of entries"
    elif f.form == ZIPLIST and f.start + f.tail != f.end - f.before:
        if f.entries or f.tail != ZIPLIST_HEADER:
            f.fault = b"a ziplist with the wrong offset of its last entry"
    return -1 if f.fault is not NULL else 0


cdef inline int read_entry(Packed *f, Stored *s) noexcept nogil:
    """Read the next entry of a compact form; return 1, or 0 at the end, or -1 if damaged."""
    cdef bint sound = True
    if f.p == f.end:
        return end_packed(f)
    s.expanded = s.integer = 0
    if f.form == LISTPACK:
        sound = read_listpack_entry(f, s)
    elif f.form == ZIPLIST:
        sound = read_ziplist_entry(f, s)
    elif f.form == INTSET:
        s.text = NULL
        s.integer = read_integer_of(f.p, <int>f.before)
        if f.entries and s.integer <= read_integer_of(f.p - f.before, <int>f.before):
            sound = damaged(f, b"an intset that is not in ascending order")
        f.p += f.before
    else:
        sound = read_zipmap_entry(f, s)
    f.entries += 1
    return 1 if sound else -1
