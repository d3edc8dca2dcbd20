"""The grammar of RESP, and the base class of all readers of replies. Sizes are in bytes."""

from libc.string cimport memchr, memcmp

# Exported to Python code.
cpdef enum:
    # The largest bulk string that a server accepts by default, 512 MiB: proto-max-bulk-len.
    # Source: redis.conf. Also the default limit for one reply.
    BULK_BYTES = 536870912
    # Longer error texts are cut. Redis itself cuts a quoted argument at 128 bytes.
    ERROR_BYTES = 4096

cdef enum:
    # Lua and modules can nest replies; deeper nesting is an attack or a bug.
    DEPTH = 1024
    # Longer lengths are invalid: no server has that much memory. So sums can't overflow.
    LENGTH_DIGITS = 18
    # The limit for a length or integer, without type byte and CRLF. Servers write up to 20 bytes.
    NUMBER_BYTES = 32
    # The limit for big numbers and doubles of RESP3, which may have thousands of digits.
    BIG_NUMBER_BYTES = 65536
    # The limit for the line of a simple string or an error. Scripts may return long lines.
    LINE_BYTES = 16777216
    # Counted for each element of an array in addition to its size, and for each error in an array:
    # about the memory of the objects.
    ELEMENT_BYTES = 64
    NESTED_ERROR_BYTES = 1024
    # The number of bytes that an error message shows on each side of a fault.
    SHOWN_BYTES = 16

cdef extern from *:
    """
    /* The most elements in a reply, as in hiredis. */
    #define FASTRESP_ELEMENTS ((1LL << 32) - 1)
    /* The largest limit allowed, so that sums can't overflow. */
    #define FASTRESP_MOST_BYTES (1LL << 60)
    """
    const long long ELEMENTS "FASTRESP_ELEMENTS"
    const long long MAX_BYTES "FASTRESP_MOST_BYTES"


# The part after a type byte.
cdef enum Form:
    NO_FORM     # not a RESP type byte
    TEXT        # the remaining line, any text: simple strings and errors
    VALUE       # the remaining line, with a rule per type: numbers, booleans, null
    PAYLOAD     # a length, this many bytes and a CRLF: strings, errors, verbatim strings
    AGGREGATE   # a number of elements or pairs: arrays, maps, sets, pushes, attributes


cdef inline Form form_of(char kind) noexcept nogil:
    if kind in (c'+', c'-'):
        return TEXT
    if kind in (c':', c'(', c',', c'#', c'_'):
        return VALUE
    if kind in (c'$', c'!', c'='):
        return PAYLOAD
    if kind in (c'*', c'%', c'~', c'>', c'|'):
        return AGGREGATE
    return NO_FORM


cdef inline Py_ssize_t longest_line(char kind) noexcept nogil:
    """Return the size limit for a line of this type, including type byte and CRLF."""
    if kind in (c'+', c'-'):
        return LINE_BYTES
    return (BIG_NUMBER_BYTES if kind in (c'(', c',') else NUMBER_BYTES) + 3


cdef inline const char *line_end(const char *p, const char *end) noexcept nogil:
    """Return the position after the next CRLF, or NULL; a lone CR or LF is part of the line."""
    while True:
        p = <const char *>memchr(p, c'\r', end - p)
        if p is NULL or end - p < 2:
            return NULL
        if p[1] == c'\n':
            return p + 2
        p += 1


cdef inline const char *whole_line_end(const char *p, const char *end) noexcept nogil:
    """Return the position after the line at p; NULL if the line is incomplete or too long."""
    cdef const char *stop = line_end(p, end)
    if stop is NULL or stop - p > longest_line(p[0]):
        return NULL
    return stop


cdef inline const char *digits_end(const char *p, const char *end) noexcept nogil:
    while p < end and c'0' <= p[0] <= c'9':
        p += 1
    return p


cdef inline const char *length_end(const char *p, const char *end, long long *n) noexcept nogil:
    """Read the length at p, after the type byte, into n; return the position after the CRLF.

    Return NULL if the length is incomplete or invalid. A length of -1 means null.
    """
    cdef const char *first = p
    cdef unsigned long long value = 0
    if end - p > LENGTH_DIGITS + 2:
        end = p + LENGTH_DIGITS + 2
    while p < end and c'0' <= p[0] <= c'9':
        value = value * 10 + <unsigned long long>(p[0] - 48)
        p += 1
    if p == first:
        if end - p < 4 or memcmp(p, b"-1\r\n", 4) != 0:
            return NULL
        n[0] = -1
        return p + 4
    if end - p < 2 or not is_crlf(p):
        return NULL
    n[0] = <long long>value
    return p + 2


cdef inline const char *known_length_end(const char *p, long long *n) noexcept nogil:
    """Read a length as length_end() does, but faster, in a command that is known to be valid."""
    n[0] = p[0] - 48
    p += 1
    while p[0] != c'\r':
        n[0] = n[0] * 10 + (p[0] - 48)
        p += 1
    return p + 2


cdef inline const char *integer_end(const char *p, const char *end) noexcept nogil:
    """Return the position after a line with an integer.

    Return NULL if the line is incomplete, longer than 20 bytes or invalid, or has a plus sign.
    """
    if end - p > 20:
        end = p + 20
    if p < end and p[0] == c'-':
        p += 1
    if p == end or not c'0' <= p[0] <= c'9':
        return NULL
    p = digits_end(p + 1, end)
    return p + 2 if end - p >= 2 and is_crlf(p) else NULL


cdef inline bint is_integer(const char *p, const char *end) noexcept nogil:
    """Return whether a string is an integer of any size."""
    if end - p > 1 and (p[0] == c'-' or p[0] == c'+'):
        p += 1
    return p < end and digits_end(p, end) == end


cdef inline bint integer_value(const char *p, const char *end, long long *n) noexcept nogil:
    """Read a 64-bit integer into n; return False if the string is not a 64-bit integer."""
    cdef bint negative = p < end and p[0] == c'-'
    cdef unsigned long long value = 0
    if not is_integer(p, end):
        return False
    p += p[0] == c'-' or p[0] == c'+'
    if end - p > 19:
        return False
    while p < end:
        value = value * 10 + <unsigned long long>(p[0] - 48)
        p += 1
    n[0] = <long long>(0 - value if negative else value)
    return value <= (<unsigned long long>1 << 63) - (not negative)


cdef inline bint is_crlf(const char *p) noexcept nogil:
    return p[0] == c'\r' and p[1] == c'\n'


cdef inline const char *pass_crlf(
    const char *p, const char *end, long long *missing
) noexcept nogil:
    """Skip the received part of the CRLF after a payload; stop at any other byte.

    Args:
        missing: the number of missing bytes of payload and CRLF; reduced by the skipped bytes.
    """
    while 0 < missing[0] <= 2 and p < end:
        if p[0] != (c'\r' if missing[0] == 2 else c'\n'):
            break
        p += 1
        missing[0] -= 1
    return p


cdef inline long long reply_limit(object most) except -1:
    """Return the limit for one reply in bytes: ``most``, or 512 MiB if ``most`` is None."""
    if most is None:
        return BULK_BYTES
    if not isinstance(most, int) or isinstance(most, bool) or most < 1:
        raise ValueError(f"max_reply_bytes must be a number of bytes above 0 or None, not {most!r}")
    return min(most, MAX_BYTES)


cdef inline str beyond(str what, long long most):
    """Return the message for a reply that is too large."""
    return f"{what}, more than the {most:,} bytes that a reply may have (max_reply_bytes)"


cdef class Incoming:
    cdef readonly Py_ssize_t offset     # number of bytes in earlier pieces
    cdef long long most                 # the maximum number of bytes of a reply
    cdef long long unanswered           # number of bytes in pieces since the last complete reply
    cdef str what                       # the expected contents of the pieces, for error messages
    cdef char kind                      # type byte of the current line
    cdef const char *text               # text after the type byte; NULL if the line is incomplete
    cdef const char *text_end           # start of the line's CRLF
    cdef Py_ssize_t line_offset         # stream offset of the line's type byte
    cdef const char *at                 # start of the line; NULL if in an earlier piece
    cdef bint cut                       # whether the last piece ended within the line
    cdef bytearray begun                # kept bytes of the line from earlier pieces
    cdef bytes joined                   # all kept bytes of the line
    cdef bint whole_text                # whether to keep whole simple strings, not only the start
    cdef const char *piece              # the piece being read
    cdef const char *piece_end
    cdef bint reading                   # whether feed() is running; reentrant calls are refused
    cdef object fault                   # the error that ended reading, usually a ProtocolError

    cdef int check_free(self) except -1
    cdef int take_piece(self, object data) except -1
    cdef int read(self, const char *p, const char *end) except -1
    cdef const char *join_line(self, const char *p, const char *end) except NULL
    cdef int count_unanswered(self, bint some, Py_ssize_t size) except -1
    cdef object error(self, str message, const char *at)
    cdef object excess(self, const char *at)
    cdef object endless(self)
    cdef object too_large(self, Py_ssize_t offset)

    cdef inline Py_ssize_t offset_of(self, const char *at) noexcept nogil:
        """Return the stream offset of a byte of the piece."""
        return self.offset + (at - self.piece)

    cdef inline void begin_line(self, const char *p) noexcept nogil:
        self.at, self.kind, self.line_offset = p, p[0], self.offset_of(p)

    cdef inline const char *next_line(self, const char *p, const char *end) except NULL:
        """Set ``text`` to the current line, which an earlier piece may have begun; return its end.

        ``text`` is valid until the next call. The text of an error is cut to ERROR_BYTES.
        """
        cdef const char *stop = NULL
        if not self.cut:
            stop = whole_line_end(p, end)
        if stop is NULL:
            stop = self.join_line(p, end)
        else:
            self.begin_line(p)
            self.text, self.text_end = p + 1, stop - 2
        if self.kind == c'-' and self.text_end - self.text > ERROR_BYTES:
            self.text_end = self.text + ERROR_BYTES
        return stop
