"""Write strings, lengths and listpacks in the format of RDB files.

A function with a parameter p writes at p and returns the end of the written bytes; p needs room for
the string and ENTRY_ROOM. Numbers are little-endian, as on all supported machines.
Source: rdb.c and listpack.c of Redis.
"""

from libc.stdint cimport int8_t, int16_t, int32_t, int64_t, uint32_t, uint64_t
from libc.string cimport memcpy, memmove

from ...resp.buffer cimport Buffer, make_room, put_bulk, put_copy
from .format cimport crc64

cdef enum:
    # A string needs at most 9 more bytes: its length. In a listpack, it needs 5 before and 5 after.
    ENTRY_ROOM = 16
    # A longer string is not written as an integer: -2^31 has 11 characters.
    INTEGER_BYTES = 11
    # A listpack begins with its size in bytes and the number of entries, and ends with one byte.
    LISTPACK_HEADER = 6
    LISTPACK_END = 255
    # This number of entries means "this many or more": a reader then counts the entries.
    UNCOUNTED = 65535
    # The guessed size of a length prefix in bytes, which is right for lengths from 64 to 16,383.
    GUESSED = 2


# How a value is stored: the first byte of a payload. Source: rdb.h of Redis and Valkey.
cdef enum ValueForm:
    PLAIN_STRING = 0
    PLAIN_LIST = 1
    PLAIN_SET = 2
    TEXT_SORTED_SET = 3                 # scores as text
    PLAIN_HASH = 4
    BINARY_SORTED_SET = 5
    MODULE_VALUE = 7
    HASH_ZIPMAP = 9
    LIST_ZIPLIST = 10
    INTEGER_SET = 11
    SORTED_SET_ZIPLIST = 12
    HASH_ZIPLIST = 13
    LIST_OF_ZIPLISTS = 14
    STREAM_1 = 15
    HASH_LISTPACK = 16
    SORTED_SET_LISTPACK = 17
    LIST_OF_NODES = 18
    STREAM_2 = 19
    SET_LISTPACK = 20
    STREAM_3 = 21
    VALKEY_TIMED_HASH = 22              # "timed": fields may have a time to live
    TIMED_HASH = 24
    TIMED_HASH_LISTPACK = 25

# How a node of a list stores its elements. Source: quicklist.h.
cdef enum:
    PLAIN_NODE = 1
    LISTPACK_NODE = 2


# A string by reference.
cdef struct Word:
    const char *text
    Py_ssize_t size


cdef inline bint read_integer(const char *p, Py_ssize_t size, int64_t *value) noexcept nogil:
    """Return whether a string is a 64-bit integer as servers write it; if so, set ``value``."""
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
    """Write a string; a short string that is an integer is stored as an integer."""
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
    """Return whether servers disagree on how to write a string of this size in a listpack.

    With its 5-byte header, such an entry has 16,383, 2,097,151 or 268,435,455 bytes. Redis up to
    8.2 and Valkey up to 8.1 write this size with one byte more than Valkey 9.1 and later. Some
    servers refuse the form that they do not write. Source: lpEncodeBacklen().
    """
    return size >= 16378 and (size == 16378 or size == 2097146 or size == 268435450)


cdef inline char *put_back_length(char *p, uint64_t size, int bytes) noexcept nogil:
    """Write the size of an entry so that it can be read backwards, with seven bits per byte."""
    cdef int at
    for at in range(bytes):
        p[at] = <char>((size >> 7 * (bytes - 1 - at) & 127) | (128 if at else 0))
    return p + bytes


cdef inline int integer_size(int64_t value) noexcept nogil:
    """Return the number of bytes of an integer in a listpack, without the back length."""
    if 0 <= value < 128:
        return 1
    if fits(value, 13):
        return 2
    return 3 if fits(value, 16) else 4 if fits(value, 24) else 5 if fits(value, 32) else 9


cdef inline char *put_entry(char *p, const char *text, Py_ssize_t size) noexcept nogil:
    """Write an entry of a listpack; a string that is an integer is stored as an integer."""
    cdef char *start = p
    cdef int64_t value
    cdef uint32_t size32
    cdef int bytes
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
    else:
        bytes = integer_size(value)
        if bytes == 1:
            p[0] = <char>value
        elif bytes == 2:
            p[0] = <char>(0xC0 | (value & 0x1FFF) >> 8)
            p[1] = <char>(value & 255)
        else:
            p[0] = <char>(0xF4 if bytes == 9 else 0xEE + bytes)
            memcpy(p + 1, &value, 8)    # one move, of which ``bytes - 1`` bytes are kept
        p += bytes
    return put_back_length(p, p - start, back_length(p - start))


cdef inline void put_listpack_header(char *p, Py_ssize_t size, Py_ssize_t entries) noexcept nogil:
    """Write the header of a listpack; ``size`` is in bytes and includes the header."""
    cdef uint32_t size32 = <uint32_t>size, count = <uint32_t>min(entries, UNCOUNTED)
    memcpy(p, &size32, 4)
    memcpy(p + 4, &count, 2)


cdef inline Py_ssize_t entry_size(const char *text, Py_ssize_t size) noexcept nogil:
    """Return the number of bytes that put_entry() writes."""
    cdef int64_t value
    cdef Py_ssize_t bytes = size + (1 if size < 64 else 2 if size < 4096 else 5)
    if read_integer(text, size, &value):
        bytes = integer_size(value)
    return bytes + back_length(bytes)


cdef inline int put_type(Buffer b, int kind, const Word *key) except -1:
    """Write the type of a value and, for a file, the key."""
    cdef char *p = make_room(b, 1)
    p[0] = <char>kind
    b.out.p = p + 1
    return put_word(b, key) if key is not NULL else 0


cdef inline int put_word(Buffer b, const Word *word) except -1:
    b.out.p = put_text(make_room(b, word.size + ENTRY_ROOM), word.text, word.size)
    return 0


cdef inline int put_size(Buffer b, uint64_t size) except -1:
    b.out.p = put_length(make_room(b, ENTRY_ROOM), size)
    return 0


cdef inline int put_item(Buffer b, const Word *word) except -1:
    """Write an entry of a listpack."""
    b.out.p = put_entry(make_room(b, word.size + ENTRY_ROOM), word.text, word.size)
    return 0


cdef inline Py_ssize_t begin_length(Buffer b) except -1:
    """Leave room for a length; return the offset of this room."""
    cdef char *p = make_room(b, ENTRY_ROOM)
    b.out.p = p + GUESSED
    return p - b.out.base


cdef inline int end_length(Buffer b, Py_ssize_t start) except -1:
    """Fill in the length of the bytes written since ``begin_length()`` returned ``start``."""
    cdef char[ENTRY_ROOM] length
    cdef char *p = make_room(b, ENTRY_ROOM)
    cdef char *begun = b.out.base + start
    cdef Py_ssize_t size = p - begun - GUESSED, width = put_length(length, size) - length
    if width != GUESSED:
        memmove(begun + width, begun + GUESSED, size)
    memcpy(begun, length, width)
    b.out.p = begun + width + size
    return 0


cdef inline int begin_listpack(Buffer b) except -1:
    b.out.p = make_room(b, LISTPACK_HEADER) + LISTPACK_HEADER
    return 0


cdef inline int end_listpack(Buffer b, Py_ssize_t start, Py_ssize_t entries) except -1:
    """End a listpack, and fill in its length; ``start`` is the result of ``begin_length()``."""
    cdef char *p = make_room(b, 1)
    cdef char *begun = b.out.base + start + GUESSED
    p[0] = <char>LISTPACK_END
    b.out.p = p + 1
    put_listpack_header(begun, b.out.p - begun, entries)
    return end_length(b, start)


cdef inline int put_footer(Buffer b, Py_ssize_t start, int version) except -1:
    """End the payload that began at ``start``: write the format version and the checksum."""
    cdef char *p = make_room(b, 10)
    cdef uint64_t crc
    p[0] = <char>(version & 255)
    p[1] = <char>(version >> 8)
    crc = crc64(0, b.out.base + start, p + 2 - b.out.base - start)
    memcpy(p + 2, &crc, 8)
    b.out.p = p + 10
    return 0


cdef inline int put_refused(Buffer b, const Word *key) except -1:
    """Write a RESTORE that every server refuses; the error is BUSYKEY if the key exists."""
    cdef char *p = make_room(b, key.size + 64)
    p = put_bulk(put_copy(p, b"*4\r\n$7\r\nRESTORE\r\n", 17), key.text, key.size)
    b.out.p = put_copy(p, b"$1\r\n0\r\n$0\r\n\r\n", 13)
    return 0
