"""Values of JSON as text: strings without their escapes, objects and lists without spaces."""

cdef enum Fault:
    FINE
    BROKEN              # Arrow's parser says how
    NOT_JSON            # an object or a list
    NOT_LITERAL
    TWICE               # a key
    NO_MEMORY


# Text that is read, and text that is written; the latter never becomes longer.
cdef struct Text:
    const char *p
    const char *end     # of text that is followed by NUL
    char *out


cdef Fault unescape(Text *t) noexcept nogil
cdef Fault flatten(Text *t, Py_ssize_t most) noexcept nogil
