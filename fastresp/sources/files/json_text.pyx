# cython: language_level=3, cdivision=True, boundscheck=False, wraparound=False
"""Text of JSON: mark numbers to keep their text, turn arrays into lines, rewrite nested values.

This is not a parser: Arrow's parser makes all other checks.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE

from libc.stdlib cimport realloc
from libc.string cimport memcpy

from ...encode.strings cimport find_duplicate

from ...outcome.errors import SourceError
from ...outcome.messages import Hint, Message

# The first byte of a number that was turned into a string. It does not occur in UTF-8, and no JSON
# escape produces it, so no string of the source can start with it.
MARK = b"\xff"

cdef enum:
    MARKED = 0xFF
    # The marked text is less than 3 times as long: `1,`, the shortest number with its required
    # comma, grows by three bytes.
    GROWTH = 3

WRONG_ENCODING = Message(
    "not UTF-8; set ", Hint("encoding", ...), " to the file's encoding, such as 'latin-1'"
)
cdef dict WORDS = {
    NO_OBJECT: "not a JSON object; fix it: each row, a line or an element of the array, must be a "
    'JSON object such as {"id": 1}',
    SECOND_OBJECT: "extra text after the JSON object; fix it: each line must be one JSON object",
    LINE_ENDS: "the line ends inside its JSON object; fix it: each line must be one JSON object",
    NOT_NUMBER: "a number is not valid JSON, or no comma or bracket follows it; fix it",
    NOT_UTF8: WRONG_ENCODING,
}

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

# Whether a string continues after this byte.
cdef bint[256] IN_STRING


cdef int prepare() except -1:
    cdef unsigned char character
    cdef int byte
    for character in b" \t\r":
        BYTES[character] = SPACE
    for character in b"{[":
        BYTES[character] = OPEN
    for character in b"}]":
        BYTES[character] = CLOSE
    for character in b"-0123456789NI":      # NaN and Infinity, which Python writes
        BYTES[character] = DIGIT
    for character in b"tf":         # true and false
        BYTES[character] = LITERAL
    BYTES[<unsigned char>b'"'] = QUOTE
    BYTES[<unsigned char>b'\n'] = NEWLINE
    BYTES[MARKED] = NO_TEXT
    for byte in range(256):
        IN_STRING[byte] = byte != MARKED and byte not in b'"\\\n'
    return 0


prepare()


def mark_numbers(bytes text, Py_ssize_t max_depth, bint literals=False):
    """Turn each number into a string: MARK and the number's text. Count the objects.

    Args:
        text: whole lines, each empty or one JSON object.
        max_depth: maximum nesting of objects and arrays.
        literals: whether to mark true and false in the same way.

    Returns:
        The lines as a memoryview, the number of objects, and the number of line ends.

    Raises:
        SourceError: a line is not exactly one object or is nested too deeply, or a number is
            invalid.
    """
    cdef Py_ssize_t size = PyBytes_GET_SIZE(text), objects = 0, line_ends = 0
    cdef bytes marked = PyBytes_FromStringAndSize(NULL, size * GROWTH + 1)
    cdef const char *start = PyBytes_AS_STRING(text)
    cdef char *out = PyBytes_AS_STRING(marked)
    cdef char *end = out
    cdef Fault fault
    with nogil:
        fault = mark(start, start + size, &end, max_depth, literals, &objects, &line_ends)
    if fault == TOO_DEEP:
        raise SourceError(
            f"the JSON is nested more than {max_depth} levels deep; load such rows from Python"
        )
    if fault:
        raise SourceError(WORDS[fault])
    return memoryview(marked)[:end - out], objects, line_ends


cdef Fault mark(
    const char *p,
    const char *end,
    char **written,
    Py_ssize_t max_depth,
    bint literals,
    Py_ssize_t *objects,
    Py_ssize_t *line_ends,
) noexcept nogil:
    cdef char *out = written[0]
    cdef const char *stop
    cdef char character
    cdef Py_ssize_t depth = 0
    cdef bint found = False             # whether this line has an object
    cdef unsigned char kind
    while p < end:
        character = p[0]
        kind = BYTES[<unsigned char>character]
        out[0] = character
        out += 1
        p += 1
        stop = NULL
        if kind == LITERAL and literals and depth:
            stop = end_of_literal(p - 1, end)
        if kind == SPACE or (depth and (kind == OTHER or (kind == LITERAL and stop is NULL))):
            continue
        if kind == OPEN:
            if depth == 0:
                if found or character != c'{':
                    return SECOND_OBJECT if found else NO_OBJECT
                found = True
                objects[0] += 1
            depth += 1
            if depth > max_depth:
                return TOO_DEEP
        elif kind == NEWLINE:
            if depth:
                return LINE_ENDS
            found = False
            line_ends[0] += 1
        elif depth == 0:
            return SECOND_OBJECT if found else NO_OBJECT
        elif kind == QUOTE:
            while True:
                while p < end and IN_STRING[<unsigned char>p[0]]:
                    out[0] = p[0]
                    out += 1
                    p += 1
                if p == end or p[0] == c'\n':
                    return LINE_ENDS
                if <unsigned char>p[0] == MARKED:
                    return NOT_UTF8
                character = p[0]
                out[0] = character
                out += 1
                p += 1
                if character == c'"':
                    break
                # A backslash: the next character does not end the string, unless it is a line end.
                if p < end and (p[0] == c'"' or p[0] == c'\\'):
                    out[0] = p[0]
                    out += 1
                    p += 1
        elif kind == CLOSE:
            depth -= 1
        elif kind == DIGIT or kind == LITERAL:
            p -= 1
            if kind == DIGIT:
                stop = end_of_number(p, end)
                if stop is NULL:
                    return NOT_NUMBER
            (out - 1)[0], out[0] = c'"', <char>MARKED
            out += 1
            while p < stop:
                out[0] = p[0]
                out += 1
                p += 1
            out[0] = c'"'
            out += 1
        else:
            return NOT_UTF8
    written[0] = out
    return LINE_ENDS if depth else FINE


def unmark(const int[::1] offsets, const unsigned char[::1] text):
    """Remove MARK from the strings of an Arrow array.

    Args:
        offsets: where each string begins, and where the last string ends.
        text: the text of all strings.

    Returns:
        The number of strings that had MARK; the new offsets; and the new text. The offsets and the
        text are None if no string had MARK.
    """
    cdef Py_ssize_t i, size, n = 0, count = offsets.shape[0] - 1
    cdef const unsigned char *p
    cdef bytes ends, rest
    cdef int *end
    cdef char *out
    for i in range(count):
        if offsets[i] < offsets[i + 1] and text[offsets[i]] == MARKED:
            n += 1
    if n == 0:
        return 0, None, None
    ends = PyBytes_FromStringAndSize(NULL, 4 * (count + 1))
    rest = PyBytes_FromStringAndSize(NULL, offsets[count] - offsets[0] - n)
    end = <int *>PyBytes_AS_STRING(ends)
    out = PyBytes_AS_STRING(rest)
    end[0] = 0
    for i in range(count):
        p = &text[0] + offsets[i]
        size = offsets[i + 1] - offsets[i]
        if size and p[0] == MARKED:
            p += 1
            size -= 1
        memcpy(out, p, size)
        out += size
        end[i + 1] = end[i] + <int>size
    return n, ends, rest


cdef class ArrayLines:
    """Turns one JSON array, which arrives in blocks, into lines: one per item.

    Line ends between the tokens of an item become spaces; all other bytes are unchanged.
    """

    cdef Py_ssize_t depth
    cdef bint begun
    cdef bint quoted
    cdef bint escaped

    def feed(self, bytes block not None):
        """Return the lines of the next block, which is empty at the end of the text.

        Raises:
            SourceError: there is text after the array, or the text ends before the array.
        """
        cdef Py_ssize_t size = PyBytes_GET_SIZE(block)
        # With NULL: otherwise Python would share the object of a single byte.
        cdef bytes lines = PyBytes_FromStringAndSize(NULL, size)
        cdef bint more
        cdef char *p = PyBytes_AS_STRING(lines)
        memcpy(p, PyBytes_AS_STRING(block), size)
        if not size and (self.depth or not self.begun):
            raise SourceError("it ends inside its JSON array; check that the file is complete")
        with nogil:
            more = self.split(p, p + size)
        if more:
            raise SourceError(
                "extra text after the end of the JSON array; remove it, or, if each line is a row, "
                'write it as a JSON object such as {"id": 1}'
            )
        return lines

    cdef bint split(self, char *p, char *end) noexcept nogil:
        """Put line ends between items, in place; return True if text follows the array."""
        cdef unsigned char kind
        while p < end:
            kind = BYTES[<unsigned char>p[0]]
            if self.quoted:
                if self.escaped:
                    self.escaped = False
                elif p[0] == c'\\':
                    self.escaped = True
                elif kind == QUOTE:
                    self.quoted = False
            elif self.depth == 0 and kind != SPACE and kind != NEWLINE:
                if self.begun or p[0] != c'[':
                    return True
                self.begun = True
                self.depth = 1
                p[0] = c' '
            elif kind == QUOTE:
                self.quoted = True
            elif kind == OPEN:
                self.depth += 1
            elif kind == CLOSE:
                self.depth -= 1
                if self.depth == 0:
                    p[0] = c' '
            elif kind == NEWLINE or p[0] == c'\r':
                p[0] = c' '
            elif p[0] == c',' and self.depth == 1:
                p[0] = c'\n'
            p += 1
        return False


# Strings, objects and lists as text in a uniform form.


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


cdef Fault flatten(Text *t, Py_ssize_t max_depth, Keys *keys) noexcept nogil:
    """Write an object or a list as json.dumps(ensure_ascii=False) does, without spaces.

    Args:
        max_depth: maximum depth of nesting, less than 256.
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
                keys.duplicate = find_duplicate(
                    keys.keys + first[depth], keys.n - first[depth], base
                )
                if keys.duplicate is not NULL:
                    return DUPLICATE_KEY
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
            if depth == max_depth:
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
        memory = realloc(keys.keys, room * sizeof(JsonKey))
        if memory is NULL:
            return False
        keys.keys, keys.room = <JsonKey *>memory, room
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
