"""Values of JSON as text: strings without their escapes, objects and lists without spaces."""

from ...encode.columns.as_json cimport Key

cdef enum Fault:
    FINE
    BROKEN              # Arrow's parser has the message
    NOT_JSON            # an object or a list
    NOT_LITERAL
    TWICE               # a duplicate key
    NOT_UTF8            # a key that is not UTF-8
    NO_MEMORY


# Input text, and output text, which never becomes longer.
cdef struct Text:
    const char *p
    const char *end     # of text that is followed by NUL
    char *out


# The keys of the open objects, and a duplicate key; free() the memory.
cdef struct Keys:
    Key *keys
    Py_ssize_t n, room
    const Key *again


cdef Fault unescape(Text *t) noexcept nogil
cdef Fault flatten(Text *t, Py_ssize_t most, Keys *keys) noexcept nogil
