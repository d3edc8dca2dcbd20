"""Write texts and lengths in the format of RDB files. Source: rdb.c and listpack.c of Redis.

Each function writes at p and returns the end of the written bytes; p needs room for the text and
ENTRY_ROOM. Numbers are little-endian, as on all supported machines.
"""

from libc.stdint cimport int8_t, int16_t, int32_t, int64_t, uint32_t, uint64_t
from libc.string cimport memcpy

from ...resp.out cimport put_copy

cdef enum:
    # At most 9 bytes are needed before a text; in a listpack, 5 bytes before and 5 bytes after it.
    ENTRY_ROOM = 16
    # A longer text is not written as an integer: -2^31 has 11 characters.
    INTEGER_BYTES = 11
    # A listpack begins with its size in bytes and the number of entries, and ends with one byte.
    LISTPACK_HEADER = 6
    LISTPACK_END = 255
    # This number of entries means "this many or more": a reader then counts the entries.
    UNCOUNTED = 65535


cdef inline bint read_integer(const char *p, Py_ssize_t size, int64_t *value) noexcept nogil:
    """Return whether a text is a 64-bit integer as a server writes it; if so, set ``value``."""
    cdef const char *end = p + size
    cdef bint negative
    cdef uint64_t n = 0, most
    if not 0 < size <= 20:
        return False
    negative = p[0] == c'-'
    p += negative
    if p == end or not c'0' <= p[0] <= c'9':
        return False
    if p[0] == c'0':
        value[0] = 0
        return size == 1
    if end - p > 19:
        return False
    while p < end:
        if not c'0' <= p[0] <= c'9':
            return False
        n = n * 10 + <uint64_t>(p[0] - c'0')
        p += 1
    most = (<uint64_t>1 << 63) - (not negative)
    value[0] = <int64_t>(0 - n if negative else n)
    return n <= most


cdef inline bint fits(int64_t value, int bits) noexcept nogil:
    """Return whether a number fits in a signed integer of ``bits`` bits."""
    return value >> bits - 1 == 0 or value >> bits - 1 == -1


cdef inline char *put_length(char *p, uint64_t size) noexcept nogil:
    """Write a length in 6, 14, 32 or 64 bits, big-endian."""
    cdef int at, bytes = 8
    if size < 1 << 6:
        p[0] = <char>size
        return p + 1
    if size < 1 << 14:
        p[0] = <char>(0x40 | size >> 8)
        p[1] = <char>(size & 255)
        return p + 2
    p[0] = <char>0x81
    if size >> 32 == 0:
        p[0] = <char>0x80
        bytes = 4
    for at in range(bytes):
        p[1 + at] = <char>(size >> 8 * (bytes - 1 - at) & 255)
    return p + 1 + bytes


cdef inline char *put_text(char *p, const char *text, Py_ssize_t size) noexcept nogil:
    """Write a text; a short text that is an integer is written as an integer."""
    cdef int64_t value
    if size <= INTEGER_BYTES and read_integer(text, size, &value):
        if fits(value, 8):
            p[0] = <char>0xC0
            p[1] = <char><int8_t>value
            return p + 2
        if fits(value, 16):
            p[0] = <char>0xC1
            memcpy(p + 1, &value, 2)
            return p + 3
        if fits(value, 32):
            p[0] = <char>0xC2
            memcpy(p + 1, &value, 4)
            return p + 5
    return put_copy(put_length(p, size), text, size)


cdef inline int back_length(uint64_t size) noexcept nogil:
    """Return the number of bytes that put_back_length() writes.

    Each limit except for the first is one below the actual maximum: see is_disputed().
    """
    if size < 128:
        return 1
    return 2 if size < 16383 else 3 if size < 2097151 else 4 if size < 268435455 else 5


cdef inline bint is_disputed(Py_ssize_t size) noexcept nogil:
    """Return whether servers disagree on how to write a text of this size in a listpack.

    With its 5-byte header, such an entry has 16,383, 2,097,151 or 268,435,455 bytes. Servers up to
    Redis 8.2 write this size with one byte more than Valkey 9.1 and later. Some servers refuse the
    form that they do not write. Source: lpEncodeBacklen().
    """
    return size >= 16378 and (size == 16378 or size == 2097146 or size == 268435450)


cdef inline char *put_back_length(char *p, uint64_t size) noexcept nogil:
    """Write the size of an entry so that it can be read backwards: seven bits per byte."""
    cdef int at, bytes = back_length(size)
    for at in range(bytes):
        p[at] = <char>((size >> 7 * (bytes - 1 - at) & 127) | (128 if at else 0))
    return p + bytes


cdef inline char *put_number(char *p, int kind, int64_t value, int bytes) noexcept nogil:
    """Write ``kind`` as one byte, and the number in ``bytes`` bytes."""
    p[0] = <char>kind
    memcpy(p + 1, &value, bytes)
    return p + 1 + bytes


cdef inline char *put_entry(char *p, const char *text, Py_ssize_t size) noexcept nogil:
    """Write an entry of a listpack; a text that is an integer is written as an integer."""
    cdef char *start = p
    cdef int64_t value
    cdef uint32_t size32
    if not read_integer(text, size, &value):
        if size < 64:
            p[0] = <char>(0x80 | size)
            p += 1
        elif size < 4096:
            p[0] = <char>(0xE0 | size >> 8)
            p[1] = <char>(size & 255)
            p += 2
        else:
            p[0] = <char>0xF0
            size32 = <uint32_t>size
            memcpy(p + 1, &size32, 4)
            p += 5
        p = put_copy(p, text, size)
    elif 0 <= value < 128:
        p[0] = <char>value
        p += 1
    elif fits(value, 13):
        p[0] = <char>(0xC0 | (value & 0x1FFF) >> 8)
        p[1] = <char>(value & 255)
        p += 2
    elif fits(value, 16):
        p = put_number(p, 0xF1, value, 2)
    elif fits(value, 24):
        p = put_number(p, 0xF2, value, 3)
    elif fits(value, 32):
        p = put_number(p, 0xF3, value, 4)
    else:
        p = put_number(p, 0xF4, value, 8)
    return put_back_length(p, p - start)


cdef inline void put_listpack_header(char *p, Py_ssize_t size, Py_ssize_t entries) noexcept nogil:
    """Write the header of a listpack; ``size`` is in bytes and includes the header."""
    cdef uint32_t size32 = <uint32_t>size, count = <uint32_t>min(entries, UNCOUNTED)
    memcpy(p, &size32, 4)
    memcpy(p + 4, &count, 2)


cdef inline Py_ssize_t entry_size(const char *text, Py_ssize_t size) noexcept nogil:
    """Return the number of bytes that put_entry() writes."""
    cdef int64_t value
    cdef Py_ssize_t bytes
    if not read_integer(text, size, &value):
        bytes = size + (1 if size < 64 else 2 if size < 4096 else 5)
    elif 0 <= value < 128:
        bytes = 1
    elif fits(value, 13):
        bytes = 2
    elif fits(value, 16):
        bytes = 3
    elif fits(value, 24):
        bytes = 4
    elif fits(value, 32):
        bytes = 5
    else:
        bytes = 9
    return bytes + back_length(bytes)
