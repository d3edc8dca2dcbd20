"""The layout of each type's values, and functions that find the end of a value.

A layout is a string with a letter per part of a value:
  s  a string                 8  eight bytes: a time in ms, or a double
  l  a number                 i  16 bytes: the ID of a stream's entry
  a  a score as text          L  a number, since STREAM_2
  M  opcodes of a module      E  eight bytes, since STREAM_3
  (  a number, and as many repetitions of the parts up to the closing parenthesis
Source: rdbSaveObject() in rdb.c of Redis and Valkey.
"""

from libc.stdint cimport uint8_t, uint64_t

from .decoding cimport (
    INTSET, LISTPACK, NO_FORM, ZIPLIST, ZIPMAP, Cursor, Form, Stored, fail, read_number,
    read_stored, skip,
)
from .encoding cimport (
    BINARY_SORTED_SET, HASH_LISTPACK, HASH_ZIPLIST, HASH_ZIPMAP, INTEGER_SET, LIST_OF_NODES,
    LIST_OF_ZIPLISTS, LIST_ZIPLIST, MODULE_VALUE, PLAIN_HASH, PLAIN_LIST, PLAIN_SET, PLAIN_STRING,
    SET_LISTPACK, SORTED_SET_LISTPACK, SORTED_SET_ZIPLIST, STREAM_1, STREAM_2, STREAM_3,
    TEXT_SORTED_SET, TIMED_HASH, TIMED_HASH_LISTPACK, VALKEY_TIMED_HASH,
)


cdef inline bint is_stream(int kind) noexcept nogil:
    return kind in (STREAM_1, STREAM_2, STREAM_3)


cdef inline const char *layout_of(int kind) noexcept nogil:
    """Return the layout of a type; NULL if the type is unknown."""
    if kind in (PLAIN_LIST, PLAIN_SET, LIST_OF_ZIPLISTS):
        return b"(s)"
    if kind == TEXT_SORTED_SET:
        return b"(sa)"
    if kind == PLAIN_HASH:
        return b"(ss)"
    if kind == BINARY_SORTED_SET:
        return b"(s8)"
    if kind == MODULE_VALUE:
        return b"lM"
    if kind == LIST_OF_NODES:
        return b"(ls)"
    if is_stream(kind):
        # The nodes; the number of entries, and IDs; the groups, each with its pending entries and
        # its consumers, which have pending entries of their own.
        return b"(ss)lllLLLLL(sllL(i8l)(s8E(i)))"
    if kind == VALKEY_TIMED_HASH:
        return b"(ss8)"
    if kind == TIMED_HASH:
        return b"8(lss)"
    if kind == TIMED_HASH_LISTPACK:
        return b"8s"
    if kind == PLAIN_STRING or form_of(kind) != NO_FORM:
        return b"s"
    return NULL


cdef inline Form form_of(int kind) noexcept nogil:
    """Return the compact form of a type's elements; NO_FORM if each is stored as a string."""
    if kind == HASH_ZIPMAP:
        return ZIPMAP
    if kind == INTEGER_SET:
        return INTSET
    if kind in (LIST_ZIPLIST, SORTED_SET_ZIPLIST, HASH_ZIPLIST, LIST_OF_ZIPLISTS):
        return ZIPLIST
    if kind in (
        HASH_LISTPACK, SORTED_SET_LISTPACK, LIST_OF_NODES, SET_LISTPACK, TIMED_HASH_LISTPACK
    ) or is_stream(kind):
        return LISTPACK
    return NO_FORM


cdef inline bint pass_module(Cursor *c) noexcept nogil:
    """Move past the opcodes of a module's value. Source: RDB_MODULE_OPCODE in rdb.h."""
    cdef uint64_t opcode = 0, number
    cdef Stored text
    while True:
        if not read_number(c, &opcode):
            return False
        if opcode == 0:
            return True
        if opcode <= 2:             # a signed or unsigned number
            if not read_number(c, &number):
                return False
        elif opcode <= 4:           # a float or a double
            if not skip(c, 4 if opcode == 3 else 8):
                return False
        elif opcode > 5:
            return fail(c, b"an unknown opcode of a module")
        elif not read_stored(c, &text):
            return False


cdef inline bint pass_score(Cursor *c) noexcept nogil:
    """Move past a score in text form; a size byte of 253 or more means NaN or an infinity."""
    cdef uint8_t size
    if c.p == c.end:
        return False
    size = <uint8_t>c.p[0]
    c.p += 1
    return skip(c, size if size < 253 else 0)


cdef inline bint pass_part(Cursor *c, char letter, int kind) noexcept nogil:
    """Move past the part that a letter of a layout describes."""
    cdef uint64_t number
    cdef Stored text
    if letter == c's':
        return read_stored(c, &text)
    if letter == c'l' or (letter == c'L' and kind >= STREAM_2):
        return read_number(c, &number)
    if letter == c'8' or (letter == c'E' and kind >= STREAM_3):
        return skip(c, 8)
    if letter == c'i':
        return skip(c, 16)
    if letter == c'a':
        return pass_score(c)
    if letter == c'M':
        return pass_module(c)
    return True


cdef inline const char *group_end(const char *layout) noexcept nogil:
    """Return the remaining layout after the parenthesis that closes a group."""
    cdef int depth = 1
    while depth:
        depth += (layout[0] == c'(') - (layout[0] == c')')
        layout += 1
    return layout


cdef inline const char *pass_layout(Cursor *c, const char *layout, int kind) noexcept nogil:
    """Move past the bytes that a layout describes, up to its end or a closing parenthesis.

    Return the remaining layout; NULL if the bytes are damaged or end early.
    """
    cdef uint64_t count = 0
    while layout[0] != 0 and layout[0] != c')':
        if layout[0] != c'(':
            if not pass_part(c, layout[0], kind):
                return NULL
            layout += 1
            continue
        if not read_number(c, &count):
            return NULL
        while count:
            if pass_layout(c, layout + 1, kind) is NULL:
                return NULL
            count -= 1
        layout = group_end(layout + 1)
    return layout
