from .column_view cimport ColumnView

cdef enum:
    VALUE_MARK = 0xFF       # the first byte of a JSON value that is not a string: see VALUE

cdef bytes VALUE

cdef int make_plain(ColumnView *column, str kind, bytes extension) except -1
cdef const char *text_of_any(ColumnView *column, Py_ssize_t i, Py_ssize_t *n) noexcept nogil
cdef const char *json_value(
    ColumnView *column, Py_ssize_t i, Py_ssize_t *n, bint *marked
) noexcept nogil


# The position of a name in a JSON text.
cdef struct JsonKey:
    Py_ssize_t at
    Py_ssize_t size
    const char *text


cdef const JsonKey *find_duplicate(JsonKey *keys, Py_ssize_t n, const char *base) noexcept nogil
cdef ColumnView *find_invalid_field(ColumnView *column, Py_ssize_t i) noexcept nogil
cdef const char *text_of_json(ColumnView *column, Py_ssize_t i, Py_ssize_t *n) noexcept nogil
cdef const char *text_of_nested(ColumnView *column, Py_ssize_t i, Py_ssize_t *n) noexcept nogil


cdef inline Py_ssize_t character_size(const char *text, Py_ssize_t n) noexcept nogil:
    """Return the size of the UTF-8 character at ``text``; 0 if invalid. Source: RFC 3629."""
    cdef unsigned char first = text[0], second
    cdef Py_ssize_t size = 2 if first < 0xE0 else 3 if first < 0xF0 else 4, k
    if first < 0x80:
        return 1
    if first < 0xC2 or first > 0xF4 or size > n:
        return 0
    second = text[1]
    # An overlong form, a surrogate, or a code point beyond U+10FFFF.
    if (
        first == 0xE0 and second < 0xA0 or first == 0xED and second > 0x9F
        or first == 0xF0 and second < 0x90 or first == 0xF4 and second > 0x8F
    ):
        return 0
    for k in range(1, size):
        if <unsigned char>text[k] >> 6 != 2:
            return 0
    return size


cdef inline bint is_utf8(const char *text, Py_ssize_t n) noexcept nogil:
    cdef Py_ssize_t at = 0, size
    while at < n:
        size = character_size(text + at, n - at)
        if size == 0:
            return False
        at += size
    return True
