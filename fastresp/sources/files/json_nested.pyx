# cython: language_level=3, cdivision=True, boundscheck=False, wraparound=False
"""Read strings, objects and lists of JSON, and write them as text in a uniform form."""

from libc.stdlib cimport realloc
from libc.string cimport memcpy

from ...encode.columns.as_json cimport repeated
from .json_text cimport (
    BYTES,
    CLOSE,
    DIGIT,
    LITERAL,
    OPEN,
    QUOTE,
    SPACE,
    end_of_literal,
    end_of_number,
    is_null,
)

# The escapes of characters 8 to 13.
cdef const char *SHORT = b"btn_fr"
cdef const char *HEX = b"0123456789abcdef"

# What may follow inside an object or a list.
cdef enum Expected:
    VALUE
    VALUE_OR_END
    NAME
    NAME_OR_END
    COLON
    COMMA_OR_END

cdef enum:
    # Size of the stack of brackets.
    DEEPEST = 256


cdef Fault unescape(Text *t) noexcept nogil:
    """Read a string after its opening quote, up to its closing quote; write its characters."""
    cdef long code
    while t.p[0] != c'"':
        if t.p[0] == c'\\':
            code = escaped(t)
            if code < 0:
                return BROKEN
            t.out = put_utf8(t.out, code)
        elif is_text(t.p[0]):
            t.out[0] = t.p[0]
            t.out += 1
            t.p += 1
        else:
            return BROKEN
    t.p += 1
    return FINE


cdef Fault flatten(Text *t, Py_ssize_t most, Keys *keys) noexcept nogil:
    """Write an object or a list as json.dumps(ensure_ascii=False) does, without spaces.

    Args:
        most: maximum depth of nesting, less than 256.
        keys: used to find duplicate keys; NULL to allow them.
    """
    cdef char[DEEPEST] closing
    cdef Py_ssize_t[DEEPEST] first      # index of the first key of each open object
    cdef char *base = t.out
    cdef char *name
    cdef Py_ssize_t depth = 0
    cdef Expected expected = VALUE
    cdef unsigned char kind
    cdef char character
    cdef Fault fault = FINE
    while True:
        while BYTES[<unsigned char>t.p[0]] == SPACE:
            t.p += 1
        character = t.p[0]
        if t.p == t.end or character == c'\n':
            return BROKEN
        kind = BYTES[<unsigned char>character]
        if kind == CLOSE:
            if character != closing[depth - 1] or not (
                expected == COMMA_OR_END
                or expected == (NAME_OR_END if character == c'}' else VALUE_OR_END)
            ):
                return NOT_JSON
            depth -= 1
            expected = COMMA_OR_END
            if character == c'}' and keys is not NULL:
                keys.again = repeated(keys.keys + first[depth], keys.n - first[depth], base)
                if keys.again is not NULL:
                    return TWICE
                keys.n = first[depth]
        elif expected == COMMA_OR_END or expected == COLON:
            if character != (c',' if expected == COMMA_OR_END else c':'):
                return NOT_JSON
            expected = VALUE
            if character == c',' and closing[depth - 1] == c'}':
                expected = NAME
        elif kind == QUOTE:
            name = t.out
            fault = copy_string(t)
            if expected == NAME or expected == NAME_OR_END:
                if keys is not NULL and not add_key(keys, name - base, t.out - name):
                    return NO_MEMORY
                expected = COLON
            else:
                expected = COMMA_OR_END
        elif expected == NAME or expected == NAME_OR_END:
            return NOT_JSON
        elif kind == OPEN:
            if depth == most:
                return BROKEN
            closing[depth] = c'}' if character == c'{' else c']'
            first[depth] = 0 if keys is NULL else keys.n
            depth += 1
            expected = NAME_OR_END if character == c'{' else VALUE_OR_END
        else:
            fault = copy_token(t, kind)
            expected = COMMA_OR_END
        if fault:
            return fault
        if kind == CLOSE or kind == OPEN or character == c',' or character == c':':
            t.out[0] = character
            t.out += 1
            t.p += 1
        if depth == 0:
            return FINE


cdef bint add_key(Keys *keys, Py_ssize_t at, Py_ssize_t size) noexcept nogil:
    """Remember a key; return False if out of memory."""
    cdef Py_ssize_t room = max(2 * keys.room, 64)
    cdef void *memory
    if keys.n == keys.room:
        memory = realloc(keys.keys, room * sizeof(Key))
        if memory is NULL:
            return False
        keys.keys, keys.room = <Key *>memory, room
    keys.keys[keys.n].at, keys.keys[keys.n].size = at, size
    keys.n += 1
    return True


cdef Fault copy_token(Text *t, unsigned char kind) noexcept nogil:
    """Copy a number, true, false or null."""
    cdef const char *stop = NULL
    if kind == DIGIT:
        stop = end_of_number(t.p, t.end)
        if stop is NULL:
            return BROKEN
    elif kind == LITERAL:
        stop = end_of_literal(t.p, t.end)
        if stop is NULL:
            return NOT_LITERAL
    elif is_null(t.p, t.end):
        stop = t.p + 4
    else:
        return NOT_JSON if is_text(t.p[0]) or is_control(t) else BROKEN
    memcpy(t.out, t.p, stop - t.p)
    t.out += stop - t.p
    t.p = stop
    return FINE


cdef Fault copy_string(Text *t) noexcept nogil:
    """Copy a string with its quotes, and without unnecessary escapes."""
    cdef long code
    t.out[0] = c'"'
    t.out += 1
    t.p += 1
    while t.p[0] != c'"':
        if t.p[0] == c'\\' and is_text(t.p[1]):
            code = escaped(t)
            if code < 0:
                return NOT_JSON
            t.out = put_escaped(t.out, code)
        elif is_text(t.p[0]):
            t.out[0] = t.p[0]
            t.out += 1
            t.p += 1
        else:
            return NOT_JSON if is_control(t) else BROKEN
    t.out[0] = c'"'
    t.out += 1
    t.p += 1
    return FINE


cdef inline bint is_text(char character) noexcept nogil:
    """Return whether a string can contain this byte."""
    return <unsigned char>character >= 32 and <unsigned char>character != 0xFF


cdef inline bint is_control(Text *t) noexcept nogil:
    """Return whether a control character other than a line end follows."""
    return t.p != t.end and <unsigned char>t.p[0] < 32 and t.p[0] != c'\n'


cdef long escaped(Text *t) noexcept nogil:
    """Read an escape, and return its character; -1 if the escape is invalid."""
    cdef char character = t.p[1]
    cdef int k
    cdef long code, low
    t.p += 2
    if character == c'u':
        code = hex_of(t.p)
        if code < 0 or 0xDC00 <= code < 0xE000:
            return -1
        t.p += 4
        if 0xD800 <= code < 0xDC00:
            low = hex_of(t.p + 2) if t.p[0] == c'\\' and t.p[1] == c'u' else -1
            if low < 0xDC00 or low >= 0xE000:
                return -1
            t.p += 6
            return 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00)
        return code
    if character == c'"' or character == c'\\' or character == c'/':
        return character
    for k in range(6):
        if character == SHORT[k] and character != c'_':
            return k + 8
    return -1


cdef inline long hex_of(const char *p) noexcept nogil:
    """Return the value of four hexadecimal digits; -1 if a digit is invalid."""
    cdef long number = 0
    cdef int k
    cdef char c
    for k in range(4):
        c = p[k]
        if c'0' <= c <= c'9':
            number = number * 16 + (c - c'0')
        elif c'a' <= (c | 32) <= c'f':
            number = number * 16 + ((c | 32) - c'a') + 10
        else:
            return -1
    return number


cdef inline char *put_escaped(char *out, long code) noexcept nogil:
    """Write a character as UTF-8, or as the escape that JSON needs."""
    if code >= 32 and code != c'"' and code != c'\\':
        return put_utf8(out, code)
    out[0] = c'\\'
    if code >= 32:
        out[1] = <char>code
        return out + 2
    if 8 <= code <= 13 and code != 11:
        out[1] = SHORT[code - 8]
        return out + 2
    out[1], out[2], out[3], out[4], out[5] = c'u', c'0', c'0', HEX[code >> 4], HEX[code & 15]
    return out + 6


cdef inline char *put_utf8(char *out, long code) noexcept nogil:
    """Write a character as UTF-8."""
    cdef int k = 0
    if code < 128:
        out[0] = <char>code
    elif code < 0x800:
        out[0] = <char>(0xC0 | code >> 6)
        k = 1
    elif code < 0x10000:
        out[0] = <char>(0xE0 | code >> 12)
        k = 2
    else:
        out[0] = <char>(0xF0 | code >> 18)
        k = 3
    while k:
        out += 1
        k -= 1
        out[0] = <char>(0x80 | (code >> (6 * k) & 0x3F))
    return out + 1
