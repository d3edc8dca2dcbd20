# cython: language_level=3, cdivision=True, boundscheck=False, wraparound=False
"""Prepare JSON for Arrow's parser: mark numbers to keep their text, and turn arrays into lines.

This is not a parser: Arrow's parser makes all other checks.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE

from libc.string cimport memcpy

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

cdef enum Fault:
    FINE
    DEEP
    NO_OBJECT
    SECOND_OBJECT
    LINE_ENDS
    NOT_NUMBER
    NOT_UTF8

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
    if fault == DEEP:
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
    Py_ssize_t most,
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
            raise SourceError(
                "extra text after the end of the JSON array; remove it, or, if each line is a row, "
                'write it as a JSON object such as {"id": 1}'
            )
        return lines

    def finish(self):
        """Check that the array was closed.

        Raises:
            SourceError: the array was not closed.
        """
        if self.depth or not self.begun:
            raise SourceError("it ends inside its JSON array; check that the file is complete")

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
