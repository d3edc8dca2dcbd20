# cython: language_level=3, cdivision=True, boundscheck=False, wraparound=False
"""Prepare JSON for Arrow's parser: mark numbers so that they keep their text, arrays as lines.

This is not a parser: it leaves all other checks to Arrow's.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE

from libc.string cimport memcmp, memcpy

from ...outcome.errors import SourceError
from ...outcome.messages import Hint, Message

# The first byte of a number that was turned into a string. It does not occur in UTF-8, and no JSON
# escape produces it, so no string of the source can start with it.
MARK = b"\xff"

cdef enum:
    MARKED = 0xFF
    # `1,`, the shortest number with its required comma, grows by three bytes.
    GROWTH = 3

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

cdef enum Fault:
    FINE
    DEEP
    NO_OBJECT
    SECOND_OBJECT
    LINE_ENDS
    NOT_NUMBER
    NOT_UTF8
    NOT_JSON

# The escapes of the characters from 8 on.
cdef const char *SHORT = b"btn_fr"
cdef const char *HEX = b"0123456789abcdef"

cdef dict WORDS = {
    NO_OBJECT: "not a JSON object; fix it: each line must be one JSON object",
    SECOND_OBJECT: "extra text after the JSON object; fix it: each line must be one JSON object",
    LINE_ENDS: "the line ends inside its JSON object; fix it: each line must be one JSON object",
    NOT_NUMBER: "a number is not valid JSON, or no comma or bracket follows it; fix it",
    NOT_JSON: "an object, a list or a literal is not valid JSON; fix it",
    NOT_UTF8: Message(
        "not UTF-8; set ", Hint("encoding", ...), " to the file's encoding, such as 'latin-1'"
    ),
}

cdef unsigned char[256] BYTES
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


def mark_numbers(bytes text, Py_ssize_t most_depth):
    """Turn each number into a string of MARK and its text; count the objects.

    Args:
        text: whole lines, each empty or one JSON object.
        most_depth: maximum nesting of objects and arrays.

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
        fault = mark(start, start + size, &end, most_depth, &objects, &line_ends)
    if fault == DEEP:
        raise SourceError(
            f"the JSON is nested more than {most_depth} levels deep; load such rows from Python"
        )
    if fault:
        raise SourceError(WORDS[fault])
    return memoryview(marked)[:end - out], objects, line_ends


cdef Fault mark(
    const char *p,
    const char *end,
    char **written,
    Py_ssize_t most,
    Py_ssize_t *objects,
    Py_ssize_t *line_ends,
) noexcept nogil:
    cdef char *out = written[0]
    cdef const char *stop
    cdef char character
    cdef Py_ssize_t depth = 0
    cdef bint found = False             # an object in this line
    cdef unsigned char kind
    while p < end:
        character = p[0]
        kind = BYTES[<unsigned char>character]
        out[0] = character
        out += 1
        p += 1
        if kind == SPACE or (depth and (kind == OTHER or kind == LITERAL)):
            continue
        if kind == OPEN:
            if depth == 0:
                if found or character != c'{':
                    return SECOND_OBJECT if found else NO_OBJECT
                found = True
                objects[0] += 1
            depth += 1
            if depth > most:
                return DEEP
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
        elif kind == DIGIT:
            p -= 1
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


def mark_values(bytes text, Py_ssize_t most_depth, bytes structured):
    """Turn each value but strings and nulls into a string of MARK and its JSON text.

    Objects and lists are written as json.dumps(ensure_ascii=False) does without spaces.

    Args:
        text: whole lines, each empty or one JSON object.
        most_depth: maximum nesting of objects and arrays, up to 255.
        structured: the names, in quotes as in JSON, whose objects and lists stay; in them numbers
            and booleans become strings. Each name has a NUL before and after it.

    Returns, Raises:
        as mark_numbers().
    """
    cdef Py_ssize_t size = PyBytes_GET_SIZE(text), objects = 0, line_ends = 0
    cdef bytes marked = PyBytes_FromStringAndSize(NULL, size * GROWTH + 1)
    cdef const char *start = PyBytes_AS_STRING(text)
    cdef const char *names = PyBytes_AS_STRING(structured)
    cdef Py_ssize_t names_size = PyBytes_GET_SIZE(structured)
    cdef char *out = PyBytes_AS_STRING(marked)
    cdef Values values = Values(start, start + size, out, most_depth, names, names_size)
    cdef Fault fault
    with nogil:
        fault = mark_rows(&values, &objects, &line_ends)
    if fault == DEEP:
        raise SourceError(
            f"the JSON is nested more than {most_depth} levels deep; load such rows from Python"
        )
    if fault:
        raise SourceError(WORDS[fault])
    return memoryview(marked)[:values.out - out], objects, line_ends


cdef struct Values:
    const char *p
    const char *end
    char *out
    Py_ssize_t most
    const char *names
    Py_ssize_t names_size


cdef Fault mark_rows(Values *v, Py_ssize_t *objects, Py_ssize_t *line_ends) noexcept nogil:
    """Mark the values of rows. Arrow's parser checks commas and colons outside of flat values."""
    cdef const char *key = NULL
    cdef Py_ssize_t depth = 0, size = 0
    cdef bint found = False             # an object in this line
    cdef unsigned char kind
    cdef Fault fault = FINE
    while v.p < v.end:
        kind = BYTES[<unsigned char>v.p[0]]
        if kind == SPACE or (kind == OTHER and depth) or (kind == CLOSE and depth):
            depth -= kind == CLOSE
            v.out[0] = v.p[0]
            v.out += 1
            v.p += 1
        elif kind == NEWLINE:
            if depth:
                return LINE_ENDS
            found = False
            line_ends[0] += 1
            v.out[0] = v.p[0]
            v.out += 1
            v.p += 1
        elif depth == 0:
            if found or v.p[0] != c'{':
                return SECOND_OBJECT if found else NO_OBJECT
            found = True
            objects[0] += 1
            depth = 1
            v.out[0] = v.p[0]
            v.out += 1
            v.p += 1
        elif kind == QUOTE:
            key = v.p
            fault = copy_string(v)
            size = v.p - key
        elif kind == OPEN and (depth > 1 or is_among(v, key, size)):
            depth += 1
            if depth > v.most:
                return DEEP
            v.out[0] = v.p[0]
            v.out += 1
            v.p += 1
        elif kind == OPEN or kind == DIGIT or kind == LITERAL:
            fault = flatten(v)
        else:
            return NOT_UTF8
        if fault:
            return fault
    return LINE_ENDS if depth else FINE


cdef bint is_among(Values *v, const char *key, Py_ssize_t size) noexcept nogil:
    """Whether a name in quotes is one of the structured ones."""
    cdef const char *p = v.names
    cdef const char *end = v.names + v.names_size
    cdef const char *stop
    while key is not NULL and p + 1 < end:
        p += 1
        stop = p
        while stop < end and stop[0]:
            stop += 1
        if stop - p == size and memcmp(p, key, size) == 0:
            return True
        p = stop
    return False


cdef Fault copy_string(Values *v) noexcept nogil:
    """Copy a string; Arrow's parser checks its escapes."""
    cdef const char *p = v.p + 1
    while True:
        while p < v.end and IN_STRING[<unsigned char>p[0]]:
            p += 1
        if p == v.end or p[0] == c'\n':
            return LINE_ENDS
        if <unsigned char>p[0] == MARKED:
            return NOT_UTF8
        p += 1
        if (p - 1)[0] == c'"':
            break
        # A backslash: the next character does not end the string, unless it is a line end.
        if p < v.end and (p[0] == c'"' or p[0] == c'\\'):
            p += 1
    memcpy(v.out, v.p, p - v.p)
    v.out += p - v.p
    v.p = p
    return FINE


cdef enum Expected:
    VALUE
    VALUE_OR_END
    NAME
    NAME_OR_END
    COLON
    COMMA_OR_END


cdef Fault flatten(Values *v) noexcept nogil:
    """Write a value that is not a string as a string: MARK and its JSON text, escaped."""
    cdef unsigned char[256] closing
    cdef Py_ssize_t depth = 0
    cdef Expected expected = VALUE
    cdef unsigned char kind
    cdef char character
    cdef Fault fault = FINE
    v.out[0], v.out[1] = c'"', <char>MARKED
    v.out += 2
    while True:
        while v.p < v.end and BYTES[<unsigned char>v.p[0]] == SPACE:
            v.p += 1
        if v.p == v.end or v.p[0] == c'\n':
            return LINE_ENDS
        character = v.p[0]
        kind = BYTES[<unsigned char>character]
        if kind == CLOSE:
            if depth == 0 or character != <char>closing[depth - 1] or not (
                expected == COMMA_OR_END
                or expected == (NAME_OR_END if character == c'}' else VALUE_OR_END)
            ):
                return NOT_JSON
            depth -= 1
            expected = COMMA_OR_END
        elif expected == COMMA_OR_END or expected == COLON:
            if character != (c',' if expected == COMMA_OR_END else c':'):
                return NOT_JSON
            expected = VALUE
            if character == c',' and closing[depth - 1] == <unsigned char>c'}':
                expected = NAME
        elif kind == QUOTE:
            fault = escape_string(v)
            expected = COLON if expected == NAME or expected == NAME_OR_END else COMMA_OR_END
        elif expected == NAME or expected == NAME_OR_END:
            return NOT_JSON
        elif kind == OPEN:
            if depth + 2 > v.most:
                return DEEP
            closing[depth] = <unsigned char>(c'}' if character == c'{' else c']')
            depth += 1
            expected = NAME_OR_END if character == c'{' else VALUE_OR_END
        else:
            fault = copy_token(v, kind)
            expected = COMMA_OR_END
        if fault:
            return fault
        if kind == CLOSE or kind == OPEN or character == c',' or character == c':':
            v.out[0] = character
            v.out += 1
            v.p += 1
        if depth == 0:
            break
    v.out[0] = c'"'
    v.out += 1
    return FINE if ends_value(v.p, v.end) else NOT_JSON


cdef Fault copy_token(Values *v, unsigned char kind) noexcept nogil:
    """Copy a number, true, false or null."""
    cdef const char *stop = NULL
    if kind == DIGIT:
        stop = end_of_number(v.p, v.end)
        if stop is NULL:
            return NOT_NUMBER
    elif v.end - v.p > 4 and (memcmp(v.p, b"true", 4) == 0 or memcmp(v.p, b"null", 4) == 0):
        stop = v.p + 4
    elif v.end - v.p > 5 and memcmp(v.p, b"false", 5) == 0:
        stop = v.p + 5
    else:
        return NOT_UTF8 if kind == NO_TEXT else NOT_JSON
    memcpy(v.out, v.p, stop - v.p)
    v.out += stop - v.p
    v.p = stop
    return FINE


cdef Fault escape_string(Values *v) noexcept nogil:
    """Write a string into a string: its quotes and backslashes are escaped."""
    cdef const char *p = v.p + 1
    cdef char *out = put_escape(v.out, c'"')
    cdef const char *stop
    cdef long code, low
    while True:
        stop = p
        while stop < v.end and IN_STRING[<unsigned char>stop[0]]:
            if <unsigned char>stop[0] < 32:
                return NOT_JSON
            stop += 1
        memcpy(out, p, stop - p)
        out += stop - p
        p = stop
        if p == v.end or p[0] == c'\n':
            return LINE_ENDS
        if <unsigned char>p[0] == MARKED:
            return NOT_UTF8
        p += 1
        if (p - 1)[0] == c'"':
            break
        if p == v.end or p[0] == c'\n':
            return LINE_ENDS
        p += 1
        if (p - 1)[0] != c'u':
            out = put_short(out, (p - 1)[0])
            if out is NULL:
                return NOT_JSON
            continue
        code = hex_of(p, v.end)
        p += 4
        if 0xD800 <= code < 0xDC00 and v.end - p > 6 and p[0] == c'\\' and p[1] == c'u':
            low = hex_of(p + 2, v.end)
            if 0xDC00 <= low < 0xE000:
                code = 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00)
                p += 6
        if code < 0 or 0xD800 <= code < 0xE000:
            return NOT_JSON
        out = put_code(out, code)
    v.out = put_escape(out, c'"')
    v.p = p
    return FINE


cdef inline char *put_escape(char *out, char character) noexcept nogil:
    """Write a character with a backslash before it, into a string."""
    if character == c'"':
        out[0], out[1] = c'\\', c'"'
        return out + 2
    out[0], out[1], out[2] = c'\\', c'\\', character
    return out + 3


cdef inline char *put_short(char *out, char character) noexcept nogil:
    """Write an escape of one character; NULL if it is none."""
    if character == c'/':
        out[0] = character
        return out + 1
    if character == c'"' or character == c'\\':
        out[0], out[1], out[2], out[3] = c'\\', c'\\', c'\\', character
        return out + 4
    if character == c'b' or character == c'f' or character == c'n' or character == c'r' or (
        character == c't'
    ):
        return put_escape(out, character)
    return NULL


cdef inline char *put_code(char *out, long code) noexcept nogil:
    """Write a character as UTF-8, or as the escape that JSON needs."""
    cdef int k
    if code < 128:
        if code == c'"' or code == c'\\':
            return put_short(out, <char>code)
        if code >= 32:
            out[0] = <char>code
            return out + 1
        if 8 <= code <= 13 and code != 11:
            return put_escape(out, SHORT[code - 8])
        out = put_escape(out, c'u')
        out[0] = out[1] = c'0'
        out[2], out[3] = HEX[code >> 4], HEX[code & 15]
        return out + 4
    if code < 0x800:
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


cdef inline long hex_of(const char *p, const char *end) noexcept nogil:
    """Return the number of four hexadecimal digits; -1 if they are none."""
    cdef long number = 0
    cdef int k
    cdef char c
    if end - p < 4:
        return -1
    for k in range(4):
        c = p[k]
        if c'0' <= c <= c'9':
            number = number * 16 + (c - c'0')
        elif c'a' <= (c | 32) <= c'f':
            number = number * 16 + ((c | 32) - c'a') + 10
        else:
            return -1
    return number


cdef inline bint ends_value(const char *p, const char *end) noexcept nogil:
    """Whether a comma, a bracket or a line end follows."""
    while p < end and BYTES[<unsigned char>p[0]] == SPACE:
        p += 1
    return p == end or p[0] == c',' or p[0] == c'\n' or BYTES[<unsigned char>p[0]] == CLOSE


cdef inline const char *end_of_digits(const char *p, const char *end) noexcept nogil:
    """Return the end of one or more digits; NULL if there are none."""
    cdef const char *start = p
    while p < end and c'0' <= p[0] <= c'9':
        p += 1
    return p if p > start else NULL


cdef inline const char *end_of_decimal(const char *p, const char *end) noexcept nogil:
    """Return the end of a JSON number without its sign; NULL if it is not one."""
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


cdef const char *end_of_number(const char *p, const char *end) noexcept nogil:
    """Return the end of a number followed by a comma, bracket or line end; else NULL."""
    if p[0] == c'-':
        p += 1
    if end - p > 3 and memcmp(p, b"NaN", 3) == 0:
        p += 3
    elif end - p > 8 and memcmp(p, b"Infinity", 8) == 0:
        p += 8
    else:
        p = end_of_decimal(p, end)
    return p if p is not NULL and ends_value(p, end) else NULL


def unmark(const int[::1] offsets, const unsigned char[::1] text):
    """Remove MARK from the strings of an Arrow array.

    Args:
        offsets: where each string begins, and where the last one ends.
        text: the text of all strings.

    Returns:
        The number of strings that had MARK and, if any, the new offsets and text.
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
    """Turn one JSON array, which arrives in blocks, into lines: one per item.

    Line ends between the tokens of an item become spaces; everything else is unchanged.
    """

    cdef Py_ssize_t depth
    cdef bint begun
    cdef bint quoted
    cdef bint escaped

    def feed(self, bytes block not None):
        """Return the lines of the next block.

        Raises:
            SourceError: there is text after the array.
        """
        cdef Py_ssize_t size = PyBytes_GET_SIZE(block)
        cdef bytes lines = PyBytes_FromStringAndSize(PyBytes_AS_STRING(block), size)
        cdef bint more
        cdef char *p = PyBytes_AS_STRING(lines)
        with nogil:
            more = self.split(p, p + size)
        if more:
            raise SourceError("extra text after the end of the JSON array; remove it")
        return lines

    def finish(self):
        """Check that the array was closed.

        Raises:
            SourceError: it was not.
        """
        if self.depth or not self.begun:
            raise SourceError("it ends inside its JSON array; check that the file is complete")

    cdef bint split(self, char *p, char *end) noexcept nogil:
        """Put line ends between items, in place; True if there is text after the array."""
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
