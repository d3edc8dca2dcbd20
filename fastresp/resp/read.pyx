# cython: language_level=3, cdivision=True
"""Parse RESP2 replies: into Python objects, or into the bytes of each reply."""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from cpython.object cimport PyObject
from cpython.ref cimport Py_INCREF, Py_XDECREF
from cpython.unicode cimport PyUnicode_Decode, PyUnicode_DecodeUTF8
from libc.string cimport memcpy

import codecs

from .grammar cimport (
    DEPTH, ELEMENT_BYTES, NESTED_ERROR_BYTES, Incoming, integer_end, integer_value, is_crlf,
    length_end, pass_crlf,
)

from ..outcome.errors import CommandError

cdef extern from "Python.h":
    int _PyBytes_Resize(PyObject **data, Py_ssize_t size) except -1

# The maximum initial allocation for a bulk string, which grows as bytes arrive.
cdef Py_ssize_t FIRST_BYTES = 1 << 20


cdef class StoredReplies(Incoming):
    """The base class of readers that store whole replies until they are taken."""

    cdef list ready             # whole replies that are ready to take
    cdef long long left         # number of missing elements of the innermost array
    cdef long long missing      # number of missing bytes of the bulk string and its CRLF
    cdef long long size         # known size of the current reply

    def __cinit__(self):
        self.what = "RESP2 replies"
        self.ready = []

    @property
    def waiting(self):
        """The number of whole replies that are ready to take."""
        return len(self.ready)

    def feed(self, data):
        """Read the next bytes of a stream of replies.

        Raises:
            ProtocolError: the bytes are not RESP2. Every later call raises the same error.
            RuntimeError: another call of this reader is running.
        """
        self.take_piece(data)

    def take(self):
        """Return the replies completed since the last call, as a list."""
        ready, self.ready = self.ready, []
        return ready

    cdef int grow(self, long long n, long long each) except -1:
        """Add n * ``each`` to the size of the current reply, in bytes."""
        if n > (self.most - self.size) // each:
            raise self.too_large(self.line_offset)
        self.size += n * each
        return 0

    cdef long long number(self, const char *p, const char *end) except? -1:
        cdef long long n
        if not integer_value(p, end, &n):
            raise self.error("a number is invalid", self.at)
        return n


cdef class ReplyReader(StoredReplies):
    """Builds Python objects from a stream of replies, as the bytes arrive.

    Args:
        encoding: decode strings to str with this encoding; None for bytes.
        max_reply_bytes: larger replies are an error; None for 512 MiB. Each array element counts
            64 bytes more than its size.

    Attributes:
        offset: the number of bytes parsed so far.
        others: the number of values other than strings: integers, nulls, errors, empty and inner
            arrays.
        failure: the UnicodeDecodeError that ended reading; None if there is no error.
    """

    cdef readonly object failure
    cdef readonly Py_ssize_t others
    cdef str encoding
    cdef bytes encoding_name
    cdef bint utf8
    cdef list inner             # the array being filled; None outside arrays
    cdef list outer             # the enclosing arrays, each with its number of missing elements
    cdef bytes payload          # a partly received bulk string, with room for more
    cdef long long promised     # the string's final size in bytes

    def __cinit__(self, encoding=None, *, max_reply_bytes=None):
        self.whole_text = True
        self.outer = []
        self.encoding = encoding
        if encoding is not None:
            self.encoding_name = encoding.encode("ascii")
            # UTF-8 is decoded without calling Python code.
            self.utf8 = encoding.lower().replace("_", "-") in ("utf-8", "utf8")
            codecs.lookup(encoding)     # raise LookupError here, not at the first reply

    @property
    def pending(self):
        """Whether a reply has begun and is incomplete."""
        return self.cut or self.inner is not None or self.payload is not None

    cdef int read(self, const char *p, const char *end) except -1:
        if self.failure is None:
            try:
                self.read_replies(p, end)
            except UnicodeDecodeError as failure:
                self.failure = failure
        return 0

    cdef int read_replies(self, const char *p, const char *end) except -1:
        cdef const char *q
        cdef long long n
        while p < end:
            if self.payload is not None:
                p = self.fill(p, end)
                continue
            if p[0] == c'$' and not self.cut:
                q = length_end(p + 1, end, &n)
                # The usual case: header, bulk string and both CRLFs are complete.
                if q is not NULL and 0 <= n <= end - q - 2:
                    self.size += n
                    if self.size > self.most:
                        raise self.too_large(self.offset_of(p))
                    if not is_crlf(q + n):
                        raise self.excess(q + n + (q[n] == c'\r'))
                    if self.left > 1 and self.inner is not None and self.encoding is None:
                        # Do the same as below without function calls, which saves an eighth of the
                        # time per item.
                        self.inner.append(PyBytes_FromStringAndSize(q, n))
                        self.left -= 1
                    else:
                        self.add(self.text_of(q, n))
                    p = q + n + 2
                    continue
            elif p[0] == c':' and not self.cut:
                q = integer_end(p + 1, end)
                if q is not NULL and integer_value(p + 1, q - 2, &n):
                    self.others += 1
                    self.add(n)
                    p = q
                    continue
            if not self.cut and p[0] not in (c'+', c'-', c':', c'$', c'*'):
                raise self.error("no reply starts like this", p)
            p = self.next_line(p, end)
            if self.text is not NULL:
                self.read_header(self.text, self.text_end)
        return 0

    cdef int read_header(self, const char *p, const char *end) except -1:
        """Handle a line: a value, or the header of a string or an array."""
        cdef long long n
        if self.kind == c'+':
            self.grow(end - p, 1)
            self.add(self.text_of(p, end - p))
        elif self.kind == c'-':
            if self.inner is not None:
                self.grow(NESTED_ERROR_BYTES, 1)
            self.others += 1
            self.add(CommandError(p[:end - p].decode("utf-8", "backslashreplace")))
        elif self.kind == c':':
            self.others += 1
            self.add(self.number(p, end))
        elif length_end(p, end + 2, &n) is NULL:
            if self.number(p, end) > self.most:
                raise self.too_large(self.line_offset)
            raise self.error("a length is invalid", self.at)
        elif n < 0:
            self.others += 1
            self.add(None)
        elif self.kind == c'$':
            self.grow(n, 1)
            self.payload = PyBytes_FromStringAndSize(NULL, min(n, FIRST_BYTES))
            self.promised = n
            self.missing = n + 2
        elif n == 0:
            self.others += 1
            self.add([])
        else:
            self.open(n)
        return 0

    cdef int open(self, long long n) except -1:
        """Begin an array of n elements."""
        if len(self.outer) + (self.inner is not None) >= DEPTH:
            raise self.error(f"arrays nested deeper than {DEPTH:,} levels", self.at)
        self.grow(n, ELEMENT_BYTES)
        if self.inner is not None:
            self.others += 1
            self.outer.append((self.inner, self.left))
        self.inner = []
        self.left = n
        return 0

    cdef const char *fill(self, const char *p, const char *end) except NULL:
        """Read the received part of a bulk string and its CRLF."""
        cdef Py_ssize_t filled = self.promised + 2 - self.missing
        cdef Py_ssize_t n = min(self.missing - 2, <long long>(end - p))
        if n > 0:
            if filled + n > len(self.payload):
                self.resize(min(self.promised, max(filled + n, 2 * len(self.payload))))
            memcpy(PyBytes_AS_STRING(self.payload) + filled, p, n)
            self.missing -= n
            p += n
        p = pass_crlf(p, end, &self.missing)
        if self.missing == 0:
            payload, self.payload = self.payload, None
            self.add(payload if self.encoding is None else self.text_of(payload, self.promised))
        elif self.missing <= 2 and p < end:
            raise self.excess(p)
        return p

    cdef int resize(self, Py_ssize_t size) except -1:
        cdef PyObject *data = <PyObject *>self.payload
        Py_INCREF(self.payload)
        self.payload = None
        try:
            _PyBytes_Resize(&data, size)    # in place: no other reference exists
            self.payload = <bytes>data
        finally:
            Py_XDECREF(data)
        return 0

    cdef object text_of(self, const char *data, Py_ssize_t n):
        if self.encoding is None:
            return PyBytes_FromStringAndSize(data, n)
        if self.utf8:
            return PyUnicode_DecodeUTF8(data, n, NULL)
        return PyUnicode_Decode(data, n, self.encoding_name, NULL)

    cdef int add(self, object value) except -1:
        """Add a complete value to the current array, or to the replies."""
        while self.inner is not None:
            self.inner.append(value)
            self.left -= 1
            if self.left > 0:
                return 0
            value = self.inner
            if self.outer:
                self.inner, self.left = self.outer.pop()
            else:
                self.inner = None
        self.size = 0
        self.ready.append(value)
        return 0


cdef class RawReplies(StoredReplies):
    """Splits a stream of replies into one bytes object per reply, as the bytes arrive.

    Args:
        max_reply_bytes: larger replies are an error; None for 512 MiB. Each array element counts
            64 bytes more than its size.

    Attributes:
        offset: the number of bytes parsed so far.
    """

    cdef bytearray parts        # bytes of the current reply from earlier pieces
    cdef bint whole             # whether the current element is the whole reply
    cdef object message         # the text of the current reply if it is an error, otherwise None

    def __cinit__(self, *, max_reply_bytes=None):
        self.parts = bytearray()

    @property
    def failure(self):
        """Always None, because nothing is decoded."""
        return None

    @property
    def pending(self):
        """Whether a reply has begun and is incomplete."""
        return self.left > 0

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
                    self.read_header(self.text, self.text_end)
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

    cdef int read_header(self, const char *p, const char *end) except -1:
        """Handle a line: an element, or the header of a string or an array."""
        cdef long long n
        cdef bint whole = self.whole
        self.whole = False
        if self.kind == c'+' or self.kind == c'-':
            self.grow(end - p, 1)
            if self.kind == c'-' and whole:
                self.message = p[:end - p].decode("utf-8", "backslashreplace")
        elif self.kind == c':':
            self.number(p, end)
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

    cdef int complete(self, const char *start, const char *p) except -1:
        """Add the reply that ends at p to ``ready``."""
        if self.message is not None:
            message, self.message = self.message, None
            self.ready.append(CommandError(message))
        elif self.parts:
            self.parts += start[:p - start]
            self.ready.append(bytes(self.parts))
        else:
            self.ready.append(PyBytes_FromStringAndSize(start, p - start))
        if self.parts:
            self.parts = bytearray()
        return 0
