"""Text of JSON: classes of bytes, the ends of numbers and literals, nested values as text."""

from libc.string cimport memcmp

from ...encode.strings cimport JsonKey

cdef enum Byte:
    OTHER
    SPACE
    NEWLINE
    QUOTE
    OPEN
    CLOSE
    DIGIT
    LITERAL
    NO_TEXT

cdef unsigned char[256] BYTES

cdef enum Fault:
    FINE
    BROKEN              # Arrow's parser has the message
    NOT_JSON            # an object or a list is invalid
    NOT_LITERAL
    NOT_NUMBER
    NOT_UTF8
    DUPLICATE_KEY
    TOO_DEEP
    NO_OBJECT
    SECOND_OBJECT
    LINE_ENDS
    NO_MEMORY


# Input text, and output text, which is never longer than the input.
cdef struct Text:
    const char *p
    const char *end     # the end of the input, where a NUL follows
    char *out


# The keys of the open objects, and a duplicate key. The owner must free() ``keys``.
cdef struct Keys:
    JsonKey *keys
    Py_ssize_t n, room
    const JsonKey *duplicate


cdef Fault unescape(Text *t) noexcept nogil
cdef Fault flatten(Text *t, Py_ssize_t max_depth, Keys *keys) noexcept nogil


cdef inline bint ends_value(const char *p, const char *end) noexcept nogil:
    """Return whether a comma, a bracket or a line end follows."""
    while p < end and BYTES[<unsigned char>p[0]] == SPACE:
        p += 1
    return p == end or p[0] == c',' or p[0] == c'\n' or BYTES[<unsigned char>p[0]] == CLOSE


cdef inline const char *end_of_digits(const char *p, const char *end) noexcept nogil:
    """Return the end of one or more digits; NULL if there is no digit."""
    cdef const char *start = p
    while p < end and c'0' <= p[0] <= c'9':
        p += 1
    return p if p > start else NULL


cdef inline const char *end_of_decimal(const char *p, const char *end) noexcept nogil:
    """Return the end of a JSON number without its sign; NULL if no number follows."""
    cdef const char *start = p
    p = end_of_digits(p, end)
    if p is NULL or (start[0] == c'0' and p > start + 1):
        return NULL
    if p < end and p[0] == c'.':
        p = end_of_digits(p + 1, end)
    if p is not NULL and p < end and (p[0] == c'e' or p[0] == c'E'):
        p += 1
        if p < end and (p[0] == c'+' or p[0] == c'-'):
            p += 1
        p = end_of_digits(p, end)
    return p


cdef inline const char *end_of_number(const char *p, const char *end) noexcept nogil:
    """Return the end of a number followed by a comma, bracket or line end; otherwise NULL."""
    if p[0] == c'-':
        p += 1
    if end - p > 3 and memcmp(p, b"NaN", 3) == 0:
        p += 3
    elif end - p > 8 and memcmp(p, b"Infinity", 8) == 0:
        p += 8
    else:
        p = end_of_decimal(p, end)
    return p if p is not NULL and ends_value(p, end) else NULL


cdef inline const char *end_of_literal(const char *p, const char *end) noexcept nogil:
    """Return the end of true or false; NULL if neither follows."""
    if end - p > 4 and memcmp(p, b"true", 4) == 0:
        return p + 4
    return p + 5 if end - p > 5 and memcmp(p, b"false", 5) == 0 else NULL


cdef inline bint is_null(const char *p, const char *end) noexcept nogil:
    """Return whether null follows."""
    return end - p > 4 and memcmp(p, b"null", 4) == 0
