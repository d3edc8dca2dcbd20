"""Values of JSON as text: strings without their escapes, objects and lists without spaces."""

from ...encode.columns.as_json cimport Key

cdef enum Fault:
    FINE
    BROKEN              # Arrow's parser has the message
    NOT_JSON            # an object or a list is invalid
    NOT_LITERAL
    TWICE               # a duplicate key
    NOT_UTF8            # a key that is not UTF-8
    NO_MEMORY


# Input text, and output text, which is never longer than the input.
cdef struct Text:
    const char *p
    const char *end     # the end of the input, where a NUL follows
    char *out


# The keys of the open objects, and a duplicate key. The owner must free() ``keys``.
cdef struct Keys:
    Key *keys
    Py_ssize_t n, room
    const Key *again


cdef Fault unescape(Text *t) noexcept nogil
cdef Fault flatten(Text *t, Py_ssize_t most, Keys *keys) noexcept nogil
