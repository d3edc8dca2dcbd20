# cython: language_level=3, cdivision=True
"""Count RESP2 and RESP3 replies, and keep only error replies as objects."""

from libc.stdint cimport uint32_t
from libc.stdlib cimport free, realloc
from libc.string cimport memcmp, memcpy

from .grammar cimport (
    DEPTH, ELEMENTS, ERROR_BYTES, NESTED_ERROR_BYTES, NO_FORM, PAYLOAD, TEXT, VALUE, Form, Incoming,
    form_of, integer_end, is_integer, length_end, pass_crlf, whole_line_end,
)


# A number may have any size; only this many bytes are kept.
cdef enum:
    NUMBER_BYTES = 18
    SHOWN_BYTES = 100   # maximum length of an unexpected line in a message


cdef struct Frame:
    long long left      # number of missing elements of an aggregate
    long long size      # number of all elements of the aggregate
    bint silent         # whether this is an attribute or a push message, not part of a reply


cdef class ReplyScanner(Incoming):
    """Counts replies as bytes arrive, and keeps error replies.

    RESP3 attributes and push messages do not count as replies. An error within a reply (EXEC,
    scripts) is kept with the index of the array element.

    Args:
        max_reply_bytes: more bytes than this without a complete reply are an error; None for
            512 MiB.

    Attributes:
        replies: the number of complete replies so far.
        errors: a list of ``(index of the reply, text, element)``; the caller empties the list.
            ``element`` is 0 if the reply is an error; otherwise the element's number, from 1.
        offset: the number of bytes parsed so far.
        asked: the index of a reply whose first number is kept; -1 to keep no number.
        answer: the reply's index and the number; None before the number arrives.
        declared: the indexes of replies that must be ``+OK``; any other reply is in ``errors``.
    """

    cdef readonly Py_ssize_t replies
    cdef public Py_ssize_t asked
    cdef readonly object answer
    cdef public set declared
    cdef readonly list errors
    cdef long long missing      # number of missing bytes of the payload and its CRLF
    cdef bytearray head         # the beginning of a payload that is an error or a verbatim string
    cdef Py_ssize_t nested      # number of errors in the current reply
    cdef Frame *frames          # owned, from realloc: open aggregates
    cdef Py_ssize_t depth
    cdef Py_ssize_t room
    cdef Py_ssize_t silent      # number of open attributes and push messages

    def __cinit__(self, *, max_reply_bytes=None):
        self.what = "RESP replies"
        self.errors = []
        self.head = bytearray()
        self.asked = -1
        self.declared = set()

    def __dealloc__(self):
        free(self.frames)

    @property
    def pending(self):
        """Whether a reply has begun and is incomplete."""
        return self.cut or self.missing > 0 or self.depth > 0

    def feed(self, data):
        """Read the next bytes of a stream; return the number of replies that they complete.

        Raises:
            ProtocolError: the bytes are not RESP. Every later call raises the same error.
            RuntimeError: another call of this scanner is running.
        """
        cdef Py_ssize_t before = self.replies
        self.take_piece(data)
        return self.replies - before

    cdef int read(self, const char *p, const char *end) except -1:
        cdef Py_ssize_t before = self.replies
        self.scan(p, end)
        self.count_unanswered(self.replies > before, end - p)
        return 0

    cdef int scan(self, const char *p, const char *end) except -1:
        cdef const char *after
        cdef long long n
        cdef uint32_t ok
        cdef Form form
        # Only read_line() looks for a requested number, and checks that a reply is OK.
        cdef bint asked = self.asked >= self.replies or len(self.declared) > 0
        memcpy(&ok, b"+OK\r", 4)
        while p < end:
            if self.missing:
                p = self.read_payload(p, end)
                continue
            if self.cut:
                p = self.read_line(p, end)
                continue
            if self.depth == 0:
                while end - p >= 5 and memcmp(p, &ok, 4) == 0 and p[4] == c'\n':
                    self.replies += 1
                    p += 5
                if p == end:
                    break
            if p[0] == c':' and not asked:
                after = integer_end(p + 1, end)
                if after is not NULL:
                    self.complete()
                    p = after
                    continue
            form = form_of(p[0])
            if form >= PAYLOAD and not asked:
                after = length_end(p + 1, end, &n)
                if after is not NULL:
                    self.begin_line(p)
                    self.read_length(n)
                    p = after
                    continue
            elif p[0] == c'+' and not asked:
                after = whole_line_end(p, end)
                if after is not NULL:
                    self.complete()
                    p = after
                    continue
            elif form == NO_FORM:
                raise self.error("no reply starts like this", p)
            p = self.read_line(p, end)
        return 0

    cdef const char *read_line(self, const char *p, const char *end) except NULL:
        """Read a line that the fast paths don't handle; return the position after the line."""
        cdef long long n
        p = self.next_line(p, end)
        if self.text is NULL:
            return p
        if self.kind == c'-':
            self.take_error(self.text[:self.text_end - self.text])
        elif self.depth == 0 and self.replies in self.declared:
            self.check_ok(self.text[:self.text_end - self.text])
        if form_of(self.kind) == TEXT:
            self.complete()
        elif form_of(self.kind) == VALUE:
            if not is_value(self.kind, self.text, self.text_end):
                self.refuse()
            if self.kind == c':' and self.replies == self.asked:
                self.keep_number(self.text[:self.text_end - self.text])
            self.complete()
        elif length_end(self.text, self.text_end + 2, &n) is NULL:
            self.refuse()
        else:
            self.read_length(n)
        return p

    cdef int read_length(self, long long n) except -1:
        """Begin the payload or aggregate whose header is the current line."""
        cdef char kind = self.kind
        if n < 0:
            if kind in (c'=', c'|', c'>'):
                self.refuse()
            self.complete()
        elif form_of(kind) == PAYLOAD:
            if n > self.most:
                raise self.too_large(self.line_offset)
            if kind == c'=' and n < 4:
                raise self.error("a verbatim string is too short to name its format", self.at)
            self.missing = n + 2
            if kind != c'$':
                del self.head[:]
        elif n > ELEMENTS:
            raise self.error("a length is out of range", self.at)
        else:
            self.open(kind, n)
        return 0

    cdef const char *read_payload(self, const char *p, const char *end) except NULL:
        """Skip the bytes of a bulk string; keep the text of a bulk error."""
        cdef long long size = min(self.missing - 2, <long long>(end - p))
        if size > 0:
            if self.kind != c'$':
                self.keep(p, size)
            self.missing -= size
            p += size
        p = pass_crlf(p, end, &self.missing)
        if self.missing == 0:
            if self.kind == c'!':
                self.take_error(bytes(self.head))
            self.complete()
        elif self.missing <= 2 and p < end:
            raise self.excess(p)
        return p

    cdef int keep(self, const char *p, Py_ssize_t size) except -1:
        """Keep the beginning of a bulk error; check the format of a verbatim string."""
        cdef Py_ssize_t kept = len(self.head)
        cdef Py_ssize_t wanted = ERROR_BYTES if self.kind == c'!' else 4
        if kept < wanted:
            self.head += p[:min(size, wanted - kept)]
            if self.kind == c'=' and len(self.head) == 4 and self.head[3] != c':':
                raise self.error("a verbatim string does not name its format", p + 3 - kept)
        return 0

    cdef int open(self, char kind, long long n) except -1:
        """Begin an aggregate of n elements or pairs."""
        cdef bint silent = kind == c'|' or (kind == c'>' and self.depth == 0)
        if n == 0:
            if not silent:
                self.complete()
            return 0
        if kind == c'%' or kind == c'|':
            n *= 2
        if self.depth == self.room:
            self.grow()
        self.frames[self.depth] = Frame(n, n, silent)
        self.depth += 1
        self.silent += silent
        return 0

    cdef int grow(self) except -1:
        cdef Py_ssize_t room = 2 * self.room or 16
        if self.room >= DEPTH:
            raise self.error(f"arrays nested deeper than {DEPTH:,} levels", self.at)
        cdef Frame *frames = <Frame *>realloc(self.frames, room * sizeof(Frame))
        if frames is NULL:
            raise MemoryError(f"no memory for replies nested {room:,} levels deep")
        self.frames = frames
        self.room = room
        return 0

    cdef inline void complete(self) noexcept:
        """Complete an element, and all aggregates that end with this element."""
        cdef Frame *top
        while self.depth:
            top = &self.frames[self.depth - 1]
            top.left -= 1
            if top.left:
                return
            self.depth -= 1
            if top.silent:
                self.silent -= 1
                return
        self.replies += 1
        self.nested = 0

    cdef int take_error(self, bytes text) except -1:
        if self.silent:
            return 0
        element = self.frames[0].size - self.frames[0].left + 1 if self.depth else 0
        self.errors.append((self.replies, text, element))
        self.nested += 1
        if self.nested > 1 + self.most // NESTED_ERROR_BYTES:
            raise self.too_large(self.offset)
        return 0

    cdef int keep_number(self, bytes text) except -1:
        """Keep a number of the requested reply, if it is the reply's first number."""
        if self.answer is None or self.answer[0] != self.replies:
            self.answer = self.replies, int(text[:NUMBER_BYTES])
        return 0

    cdef int check_ok(self, bytes line) except -1:
        """Add an error for a reply that is not OK; ``line`` is its first line, without the type."""
        cdef bytes kind = bytes([self.kind])
        # Attributes and push messages precede a reply, and bulk errors are reported at their end.
        if kind not in b"|>!" and kind + line != b"+OK":
            line = line[:SHOWN_BYTES]
            self.errors.append((self.replies, b"the reply was " + kind + line + b", not +OK", 0))
        return 0

    cdef int refuse(self) except -1:
        raise self.error("a line has an invalid value", self.at)


cdef bint is_value(char kind, const char *p, const char *end) except -1:
    """Return whether a line is a valid integer, big number, double, boolean or null."""
    if kind == c'_':
        return p == end
    if kind == c'#':
        return end - p == 1 and (p[0] == c't' or p[0] == c'f')
    if kind == c',':
        return is_double(p[:end - p])
    return is_integer(p, end)


cdef bint is_double(bytes text) except -1:
    try:
        float(text)
    except ValueError:
        return False
    return text == text.strip() and b"_" not in text
