# cython: language_level=3, cdivision=True
"""Split RESP2 replies into the bytes of each reply, without objects for their values."""

from cpython.bytes cimport PyBytes_FromStringAndSize

from .grammar cimport (
    ELEMENT_BYTES,
    integer_value,
    is_crlf,
    length_end,
    pass_crlf,
)
from .incoming cimport Incoming

from ..outcome.errors import CommandError


cdef class RawReplies(Incoming):
    """Splits a stream of replies into one bytes object per reply, as the bytes arrive.

    Args:
        max_reply_bytes: larger replies are an error; None for 512 MiB. Each array element counts
            64 bytes more than its size.

    Attributes:
        offset: the number of bytes parsed so far.
    """

    cdef list ready             # whole replies that are ready to take
    cdef bytearray parts        # bytes of the current reply from earlier pieces
    cdef long long left         # number of missing elements of the current reply
    cdef long long missing      # number of missing bytes of the bulk string and its CRLF
    cdef long long size         # known size of the current reply
    cdef bint whole             # whether the current element is the whole reply
    cdef object words           # the text of the current reply if it is an error, otherwise None

    def __cinit__(self, *, max_reply_bytes=None):
        self.what = "RESP2 replies"
        self.ready = []
        self.parts = bytearray()

    @property
    def failure(self):
        """Always None, since nothing is decoded."""
        return None

    @property
    def waiting(self):
        """The number of whole replies that are ready to take."""
        return len(self.ready)

    @property
    def pending(self):
        """Whether a reply has begun and is incomplete."""
        return self.left > 0

    def feed(self, data):
        """Read the next bytes of a stream of replies.

        Raises:
            ProtocolError: the bytes are not RESP2. Every later call raises the same error.
            RuntimeError: another call of this object is running.
        """
        self.take_piece(data)

    def take(self):
        """Return the replies completed since the last call: bytes, or CommandErrors."""
        ready, self.ready = self.ready, []
        return ready

    cdef int read(self, const char *p, const char *end) except -1:
        cdef const char *start = p
        cdef const char *value
        cdef long long n
        while p < end:
            if self.left == 0:
                self.left, self.size, self.whole = 1, 0, True
            value = NULL
            if p[0] == c'$' and not self.cut and self.missing == 0:
                value = length_end(p + 1, end, &n)
            if value is not NULL and 0 <= n <= end - value - 2:
                # The usual case: header, bulk string and both CRLFs are complete.
                self.begin_line(p)
                self.grow(n, 1)
                if not is_crlf(value + n):
                    raise self.excess(value + n + (value[n] == c'\r'))
                self.left -= 1
                p = value + n + 2
            elif self.missing:
                p = self.read_value(p, end)
            else:
                if not self.cut and p[0] not in (c'+', c'-', c':', c'$', c'*'):
                    raise self.error("no reply starts like this", p)
                p = self.next_line(p, end)
                if self.text is not NULL:
                    self.understand(self.text, self.text_end)
            if self.left == 0:
                self.complete(start, p)
                start = p
        if start < end:
            self.parts += start[:end - start]
        return 0

    cdef const char *read_value(self, const char *p, const char *end) except NULL:
        """Skip the received part of a bulk string and its CRLF."""
        cdef long long n = min(self.missing - 2, <long long>(end - p))
        if n > 0:
            self.missing -= n
            p += n
        p = pass_crlf(p, end, &self.missing)
        if self.missing == 0:
            self.left -= 1
        elif self.missing <= 2 and p < end:
            raise self.excess(p)
        return p

    cdef int understand(self, const char *p, const char *end) except -1:
        """Handle a line: an element, or the header of a string or an array."""
        cdef long long n
        cdef bint whole = self.whole
        self.whole = False
        if self.kind == c'+' or self.kind == c'-':
            self.grow(end - p, 1)
            if self.kind == c'-' and whole:
                self.words = p[:end - p].decode("utf-8", "backslashreplace")
        elif self.kind == c':':
            if not integer_value(p, end, &n):
                raise self.error("a number is invalid", self.at)
        elif length_end(p, end + 2, &n) is NULL:
            raise self.error("a length is invalid", self.at)
        elif n > 0 and self.kind == c'*':
            self.grow(n, ELEMENT_BYTES)
            self.left += n
        elif n >= 0 and self.kind == c'$':
            self.grow(n, 1)
            self.missing = n + 2
            return 0
        self.left -= 1
        return 0

    cdef int grow(self, long long n, long long each) except -1:
        """Add n times ``each`` bytes to the size of the current reply."""
        if n > (self.most - self.size) // each:
            raise self.too_large(self.line_offset)
        self.size += n * each
        return 0

    cdef int complete(self, const char *start, const char *p) except -1:
        """Add the reply that ends at p to ``ready``."""
        if self.words is not None:
            words, self.words = self.words, None
            self.ready.append(CommandError(words))
        elif self.parts:
            self.parts += start[:p - start]
            self.ready.append(bytes(self.parts))
        else:
            self.ready.append(PyBytes_FromStringAndSize(start, p - start))
        if self.parts:
            self.parts = bytearray()
        return 0
