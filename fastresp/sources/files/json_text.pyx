# cython: language_level=3, cdivision=True, boundscheck=False, wraparound=False
"""The text of JSON before it is parsed: numbers marked so that they keep theirs, arrays as lines.

No parser: what is not looked at here is left to the one that comes after.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE

from libc.string cimport memcmp, memcpy

from ...outcome.errors import SourceError
from ...outcome.messages import Hint, Message

# The byte that begins a number which became a string. It is in no UTF-8 text, and no escape of
# JSON stands for it, so no string of the source can look like one.
MARK = b"\xff"

cdef enum:
    MARKED = 0xFF
    # `1,` is the shortest number with what has to follow it, and takes three bytes more.
    GROWTH = 3

cdef enum Byte:
    OTHER
    SPACE
    NEWLINE
    QUOTE
    OPEN
    CLOSE
    DIGIT
    NO_TEXT

cdef enum Fault:
    FINE
    DEEP
    NO_OBJECT
    SECOND_OBJECT
    LINE_ENDS
    NOT_NUMBER
    NOT_UTF8

cdef dict WORDS = {
    NO_OBJECT: "this is no JSON object; fix it: a line is one JSON object",
    SECOND_OBJECT: "something follows its JSON object; fix it: a line is one JSON object",
    LINE_ENDS: "the line ends within its JSON object; fix it: a line is one JSON object",
    NOT_NUMBER: "a number is not one of JSON, or is not followed by a comma or a bracket; fix it",
    NOT_UTF8: Message(
        "this is not UTF-8; give ", Hint("encoding", ...),
        " if it is another one, such as 'latin-1'"
    ),
}

cdef unsigned char[256] BYTES
# Whether a string goes on with it.
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
    BYTES[<unsigned char>b'"'] = QUOTE
    BYTES[<unsigned char>b'\n'] = NEWLINE
    BYTES[MARKED] = NO_TEXT
    for byte in range(256):
        IN_STRING[byte] = byte != MARKED and byte not in b'"\\\n'
    return 0


prepare()


def mark_numbers(bytes text, Py_ssize_t most_depth):
    """Make a string of each number, with MARK before its text; count the objects.

    Args:
        text: whole lines, each empty or one JSON object.
        most_depth: how deeply objects and arrays may be nested.

    Returns:
        The lines as a memoryview, how many of them are objects, and how many line ends there are.

    Raises:
        SourceError: a line is no object, or more than one, or too deep; or a number is none.
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
            f"its JSON is nested more than {most_depth} levels deep; load such rows from Python"
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
        if kind == SPACE or (kind == OTHER and depth):
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
                # A backslash: what follows it ends nothing, but for a line end.
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


cdef inline const char *end_of_digits(const char *p, const char *end) noexcept nogil:
    """Behind one digit or more; NULL where there is none."""
    cdef const char *start = p
    while p < end and c'0' <= p[0] <= c'9':
        p += 1
    return p if p > start else NULL


cdef inline const char *end_of_decimal(const char *p, const char *end) noexcept nogil:
    """Behind a number by the grammar of JSON, but for its sign; NULL where it is none."""
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
    """Behind a number, which has to be the last thing before a comma or a bracket; else NULL."""
    cdef const char *start
    if p[0] == c'-':
        p += 1
    if end - p > 3 and memcmp(p, b"NaN", 3) == 0:
        p += 3
    elif end - p > 8 and memcmp(p, b"Infinity", 8) == 0:
        p += 8
    else:
        p = end_of_decimal(p, end)
    start = p
    while start is not NULL and start < end and BYTES[<unsigned char>start[0]] == SPACE:
        start += 1
    if start is NULL or start == end or start[0] == c',' or start[0] == c'\n':
        return p
    return p if BYTES[<unsigned char>start[0]] == CLOSE else NULL


def unmark(const int[::1] offsets, const unsigned char[::1] text):
    """Take MARK off the strings of an Arrow array.

    Args:
        offsets: where each string begins, and where the last one ends.
        text: all of them.

    Returns:
        How many had it; and if any had, the offsets and the text of the array without it.
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
    """Turn one JSON array, which comes in blocks, into lines: one for each of its items.

    Line ends between the tokens of an item become spaces; all else stays as it is.
    """

    cdef Py_ssize_t depth
    cdef bint begun
    cdef bint quoted
    cdef bint escaped

    def feed(self, bytes block not None):
        """Return the lines of the next block.

        Raises:
            SourceError: something follows the array.
        """
        cdef Py_ssize_t size = PyBytes_GET_SIZE(block)
        cdef bytes lines = PyBytes_FromStringAndSize(PyBytes_AS_STRING(block), size)
        cdef bint more
        cdef char *p = PyBytes_AS_STRING(lines)
        with nogil:
            more = self.split(p, p + size)
        if more:
            raise SourceError("something follows the end of its JSON array")
        return lines

    def finish(self):
        """Check that the array came to its end.

        Raises:
            SourceError: it did not.
        """
        if self.depth or not self.begun:
            raise SourceError("it ends within its JSON array; is it whole?")

    cdef bint split(self, char *p, char *end) noexcept nogil:
        """Put line ends between items, in place; True where something follows the array."""
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
