"""Write the parts of a value into a buffer."""

from libc.stdint cimport uint64_t
from libc.string cimport memcpy, memmove

from ...resp.buffer cimport Buffer, make_room
from ...resp.out cimport put_bulk, put_copy
from .crc64 cimport crc64
from .strings cimport (
    ENTRY_ROOM,
    LISTPACK_END,
    LISTPACK_HEADER,
    put_entry,
    put_length,
    put_listpack_header,
    put_text,
)

# The guessed number of bytes of a length prefix, which is right for lengths from 64 to 16,383.
cdef enum:
    GUESSED = 2


# A text in the data, by reference.
cdef struct Word:
    const char *text
    Py_ssize_t size


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


cdef inline Py_ssize_t begin(Buffer b) except -1:
    """Leave room for a length; return the offset of this room."""
    cdef char *p = make_room(b, ENTRY_ROOM)
    b.out.p = p + GUESSED
    return p - b.out.base


cdef inline int end(Buffer b, Py_ssize_t start) except -1:
    """Fill in the length of the bytes written since ``begin()`` returned ``start``."""
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
    """End a listpack, and fill in its length; ``start`` is the result of ``begin()``."""
    cdef char *p = make_room(b, 1)
    cdef char *begun = b.out.base + start + GUESSED
    p[0] = <char>LISTPACK_END
    b.out.p = p + 1
    put_listpack_header(begun, b.out.p - begun, entries)
    return end(b, start)


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
    """Write a RESTORE that every server refuses, with BUSYKEY if the key exists."""
    cdef char *p = make_room(b, key.size + 64)
    p = put_bulk(put_copy(p, b"*4\r\n$7\r\nRESTORE\r\n", 17), key.text, key.size)
    b.out.p = put_copy(p, b"$1\r\n0\r\n$0\r\n\r\n", 13)
    return 0
