"""Values of JSON as text: strings without their escapes, objects and lists without spaces."""

from ...encode.columns.as_json cimport Key

cdef enum Fault:
    FINE
    BROKEN              # Arrow's parser says how
    NOT_JSON            # an object or a list
    NOT_LITERAL
    TWICE               # a key
    NOT_UTF8            # a key
    NO_MEMORY


# Text that is read, and text that is written; the latter never becomes longer.
cdef struct Text:
    const char *p
    const char *end     # of text that is followed by NUL
    char *out


# The keys of the objects that are open, and the one that comes twice; free() the memory.
cdef struct Keys:
    Key *keys
    Py_ssize_t n, room
    const Key *again


cdef Fault unescape(Text *t) noexcept nogil
cdef Fault flatten(Text *t, Py_ssize_t most, Keys *keys) noexcept nogil
