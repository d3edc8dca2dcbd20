# cython: language_level=3, cdivision=True
"""RESP2 replies as Python objects: bytes or str, int, None, lists of these, errors."""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from cpython.object cimport PyObject
from cpython.ref cimport Py_INCREF, Py_XDECREF
from cpython.unicode cimport PyUnicode_Decode, PyUnicode_DecodeUTF8
from libc.string cimport memchr, memcpy

import codecs

from .grammar cimport (
    DEPTH,
    ELEMENT_BYTES,
    ERROR_BYTES,
    LINE_BYTES,
    NESTED_ERROR_BYTES,
    NUMBER_BYTES,
    beyond,
    endless,
    reply_limit,
)

from ..outcome.errors import CommandError, ProtocolError

cdef extern from "Python.h":
    int _PyBytes_Resize(PyObject **data, Py_ssize_t size) except -1

# So much memory a bulk string gets at once; then more as it comes, whatever its header promises.
cdef Py_ssize_t FIRST_BYTES = 1 << 20


cdef class ReplyReader:
    """Make objects of replies as their bytes come in.

    Args:
        encoding: of replies that are text, which become str; None for bytes.
        max_reply_bytes: a larger reply is refused; None for 512 MiB. An element of an array counts
            for 64 bytes besides its own.

    Attributes:
        offset: bytes understood so far.
        others: values that were no strings: integers, nulls, errors, empty and inner arrays.
        failure: the UnicodeDecodeError of a reply that is no text in the encoding, or None. Nothing
            is read from there on.
    """

    cdef readonly Py_ssize_t offset
    cdef readonly object failure
    cdef readonly Py_ssize_t others
    cdef str encoding
    cdef bytes encoding_name
    cdef bint utf8
    cdef list ready             # whole replies that were not taken
    cdef list inner             # the array that is being filled; None outside of arrays
    cdef long long left         # elements that it lacks
    cdef list outer             # the arrays around it, each with what it lacks
    cdef bytes payload          # a bulk string of which a part has come, and room for more
    cdef Py_ssize_t promised    # bytes that it will have
    cdef Py_ssize_t filled      # that have come, those of its line end among them
    cdef bytearray line         # a line of which a part has come
    cdef Py_ssize_t line_offset     # where in the stream the line at hand begins
    cdef long long most         # bytes of a reply
    cdef long long size         # of the reply at hand, by what is known of it
    cdef object fault           # what ended this

    def __init__(self, encoding=None, *, max_reply_bytes=None):
        self.most = reply_limit(max_reply_bytes)
        self.ready = []
        self.outer = []
        self.line = bytearray()
        self.encoding = encoding
        if encoding is not None:
            self.encoding_name = encoding.encode("ascii")
            # What decodes as it should with no call of Python's.
            self.utf8 = encoding.lower().replace("_", "-") in ("utf-8", "utf8")
            codecs.lookup(encoding)     # its LookupError now, not at the first reply

    @property
    def waiting(self):
        """How many whole replies there are to take."""
        return len(self.ready)

    @property
    def pending(self):
        """Whether a reply has begun and is not whole."""
        return self.inner is not None or self.payload is not None or len(self.line) > 0

    def feed(self, bytes data):
        """Read the next bytes, cut anywhere.

        Raises:
            ProtocolError: they are not RESP2. So it is for every later call.
        """
        cdef const char *start = PyBytes_AS_STRING(data)
        if self.fault is not None:
            raise self.fault.with_traceback(None)
        if self.failure is not None:
            return
        try:
            self.read(start, start, start + len(data))
        except UnicodeDecodeError as failure:
            self.failure = failure
            return
        except BaseException as fault:
            self.fault = fault
            raise
        self.offset += len(data)

    def take(self):
        """The replies that have become whole since the last time, as a list."""
        ready, self.ready = self.ready, []
        return ready

    cdef int read(self, const char *start, const char *p, const char *end) except -1:
        cdef const char *q
        cdef Py_ssize_t n
        while p < end:
            if self.payload is not None:
                p = self.fill(start, p, end)
                continue
            if p[0] == c'$' and not self.line:
                q = p + 1
                n = 0
                while q < end and c'0' <= q[0] <= c'9' and q - p < 10:
                    n = 10 * n + (q[0] - 48)
                    q += 1
                # A header, a bulk string and their ends, whole: nearly all that comes.
                if q > p + 1 and end - q >= n + 4 and q[0] == c'\r' and q[1] == c'\n':
                    self.size += n
                    if self.size > self.most:
                        raise self.too_large(self.offset + (p - start))
                    q += 2
                    if q[n] != c'\r' or q[n + 1] != c'\n':
                        q += n + (q[n] == c'\r')
                        raise self.excess(self.offset + (q - start))
                    if self.left > 1 and self.inner is not None and self.encoding is None:
                        # As below without the calls: an eighth of an item's time.
                        self.inner.append(PyBytes_FromStringAndSize(q, n))
                        self.left -= 1
                    else:
                        self.add(self.text(q, n))
                    p = q + n + 2
                    continue
            p = self.read_line(start, p, end)
        return 0

    cdef const char *read_line(self, const char *start, const char *p, const char *end) except NULL:
        """Read a line, or keep its beginning; return what is behind it."""
        cdef const char *stop = <const char *>memchr(p, c'\n', end - p)
        cdef Py_ssize_t size = (end if stop is NULL else stop + 1) - p
        cdef Py_ssize_t at = self.offset + (p - start)
        cdef bytes line
        cdef char kind
        if not self.line:
            self.line_offset = at
        kind = self.line[0] if self.line else p[0]
        if kind == c'+' or kind == c'-':
            if at + size - self.line_offset > LINE_BYTES:
                raise ProtocolError(endless(kind), self.line_offset)
        elif kind != c':' and kind != c'$' and kind != c'*':
            raise self.broken(f"{chr(<unsigned char>kind)!r}, which begins no RESP2")
        elif at + size - self.line_offset > NUMBER_BYTES + 3:
            raise self.broken("a number that does not end")
        if stop is NULL:
            self.line += p[:size]
            if kind == c'-':
                # The last byte may be the CR of its end.
                del self.line[ERROR_BYTES:max(ERROR_BYTES, len(self.line) - 1)]
            return end
        if self.line:
            line = bytes(self.line) + p[:size]
            self.line.clear()
            self.understand(PyBytes_AS_STRING(line), len(line))
        else:
            self.understand(p, size)
        return stop + 1

    cdef int understand(self, const char *p, Py_ssize_t size) except -1:
        """Begin what a line begins, or add what it is."""
        cdef char kind = p[0]
        cdef long long n
        if size < 3 or p[size - 2] != c'\r':
            raise self.broken(f"{p[:min(size, 16)]!r}, which is no line")
        p += 1
        size -= 3
        if kind == c'+':
            self.grow(size)
            self.add(self.text(p, size))
        elif kind == c'-':
            if self.inner is not None:
                self.grow(NESTED_ERROR_BYTES)
            self.others += 1
            text = p[:min(size, ERROR_BYTES - 1)]
            self.add(CommandError(text.decode("utf-8", "backslashreplace")))
        elif kind == c':':
            self.others += 1
            self.add(self.number(p, size))
        else:
            n = self.number(p, size)
            if n < -1:
                raise self.broken(f"{n} as a length")
            if n < 0:
                self.others += 1
                self.add(None)
            elif kind == c'$':
                self.grow(n)
                self.payload = PyBytes_FromStringAndSize(NULL, min(n, FIRST_BYTES))
                self.promised = n
                self.filled = 0
            elif n == 0:
                self.others += 1
                self.add([])
            else:
                if len(self.outer) + (self.inner is not None) >= DEPTH:
                    raise self.broken(f"arrays in arrays, deeper than {DEPTH:,} levels")
                self.grow(n, ELEMENT_BYTES)
                if self.inner is not None:
                    self.others += 1
                    self.outer.append((self.inner, self.left))
                self.inner = []
                self.left = n
        return 0

    cdef int grow(self, long long n, long long each=1) except -1:
        """Note that the reply at hand has so many bytes more, or so many elements."""
        if n > (self.most - self.size) // each:
            raise self.too_large(self.line_offset)
        self.size += n * each
        return 0

    cdef long long number(self, const char *p, Py_ssize_t size) except? -1:
        cdef bint negative = size > 0 and p[0] == c'-'
        cdef Py_ssize_t i = negative or (size > 0 and p[0] == c'+')
        cdef unsigned long long n = 0
        if i < size <= i + 19:
            while i < size and c'0' <= p[i] <= c'9':
                n = 10 * n + (p[i] - 48)
                i += 1
            if i == size and n <= (<unsigned long long>1 << 63) - (not negative):
                return <long long>(0 - n if negative else n)
        raise self.broken(f"{p[:size]!r} as a number")

    cdef const char *fill(self, const char *start, const char *p, const char *end) except NULL:
        """Take what has come of a bulk string, and of the line end behind it."""
        cdef Py_ssize_t size = self.promised
        cdef Py_ssize_t n = min(size - self.filled, end - p)
        if n > 0:
            if self.filled + n > len(self.payload):
                self.resize(min(size, max(self.filled + n, 2 * len(self.payload))))
            memcpy(PyBytes_AS_STRING(self.payload) + self.filled, p, n)
            self.filled += n
            p += n
        while p < end and self.filled < size + 2:
            if p[0] != (c'\r' if self.filled == size else c'\n'):
                raise self.excess(self.offset + (p - start))
            self.filled += 1
            p += 1
        if self.filled == size + 2:
            payload, self.payload = self.payload, None
            self.add(payload if self.encoding is None else self.text(payload, size))
        return p

    cdef int resize(self, Py_ssize_t size) except -1:
        cdef PyObject *data = <PyObject *>self.payload
        Py_INCREF(self.payload)
        self.payload = None
        try:
            _PyBytes_Resize(&data, size)    # in place, as nobody else has it
            self.payload = <bytes>data
        finally:
            Py_XDECREF(data)
        return 0

    cdef object text(self, const char *data, Py_ssize_t n):
        if self.encoding is None:
            return PyBytes_FromStringAndSize(data, n)
        if self.utf8:
            return PyUnicode_DecodeUTF8(data, n, NULL)
        return PyUnicode_Decode(data, n, self.encoding_name, NULL)

    cdef int add(self, object value) except -1:
        """Add a whole value to the array that it is in, or to the replies."""
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

    cdef object broken(self, str what):
        """The exception for the line at hand."""
        return ProtocolError(f"the reply has {what}", self.line_offset)

    cdef object excess(self, Py_ssize_t offset):
        return ProtocolError("the reply has a bulk string longer than it says", offset)

    cdef object too_large(self, Py_ssize_t offset):
        return ProtocolError(beyond("the reply is too large", self.most), offset)
