# cython: language_level=3, cdivision=True
"""RESP2 and RESP3 replies: counted, their errors kept, nothing else built of them."""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from libc.stdint cimport uint32_t
from libc.stdlib cimport free, realloc
from libc.string cimport memcmp, memcpy

from .grammar cimport (
    BIG_NUMBER_BYTES,
    DEPTH,
    ELEMENTS,
    ERROR_BYTES,
    LINE_BYTES,
    NESTED_ERROR_BYTES,
    NUMBER_BYTES,
    SHOWN_BYTES,
    beyond,
    endless,
    reply_limit,
)

from ..outcome.errors import ProtocolError


# What the next byte belongs to.
cdef enum State:
    HEAD            # the type byte of a reply
    LINE            # a line of which the beginning is in self.line
    SKIP            # a simple string, whose text nobody needs
    PAYLOAD         # the bytes of a bulk string


cdef struct Frame:
    long long left      # elements of an aggregate that are still to come
    bint silent         # an attribute, or a push message: neither is (part of) a reply


cdef class ReplyScanner:
    """Count replies as their bytes come in; keep what went wrong.

    An attribute is not a reply, nor is a push message. An error anywhere in a reply (EXEC,
    scripts) is kept; one within an array is marked as nested.

    Args:
        max_reply_bytes: more bytes that make no reply whole are refused; None for 512 MiB.

    Attributes:
        replies: whole replies so far.
        failed: those of them that are an error, or hold one.
        errors: a list of ``(index of the reply, text, nested)``, to be emptied by who reads it.
        offset: bytes understood so far.
    """

    cdef readonly Py_ssize_t replies
    cdef readonly Py_ssize_t failed
    cdef readonly list errors
    cdef readonly Py_ssize_t offset
    cdef State state
    cdef char kind              # type byte of the line or the payload at hand
    cdef bytearray line         # the beginning of a line that the last piece cut off
    cdef Py_ssize_t line_offset     # where in the stream its type byte is
    cdef long long missing      # bytes of the payload and its CRLF that are still to come
    cdef bint marked            # this reply has been counted as failed
    cdef Py_ssize_t nested      # errors in it
    cdef Frame *frames          # owned, from realloc: aggregates that are open
    cdef Py_ssize_t depth
    cdef Py_ssize_t room
    cdef Py_ssize_t silent      # how many of them are attributes or push messages
    cdef const char *piece      # the bytes being read, for error messages
    cdef const char *piece_end
    cdef bint reading           # feed is at work: what Python runs meanwhile may not call it
    cdef object fault           # what ended this, as a rule a ProtocolError
    cdef long long most         # bytes of a reply
    cdef long long unanswered   # bytes of the pieces since a reply became whole

    def __cinit__(self, *, max_reply_bytes=None):
        self.most = reply_limit(max_reply_bytes)
        self.errors = []
        self.line = bytearray()

    def __dealloc__(self):
        free(self.frames)

    @property
    def pending(self):
        """Whether a reply has begun and is not whole."""
        return self.state != HEAD or self.depth > 0

    def feed(self, data):
        """Read the next bytes, cut anywhere; return how many replies became whole.

        Raises:
            ProtocolError: they are not RESP. So it is for every later call.
            RuntimeError: another call of this scanner's is not done.
        """
        cdef Py_ssize_t before
        cdef Py_buffer view
        PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
        try:
            if self.reading:
                raise RuntimeError("feed() was called while it was at work")
            if self.fault is not None:
                # Else it would hold the frames of all the calls that raised it.
                raise self.fault.with_traceback(None)
            before = self.replies
            self.reading = True
            self.piece = <const char *>view.buf
            self.piece_end = self.piece + view.len
            try:
                self.scan(self.piece, self.piece_end)
                self.unanswered = 0 if self.replies > before else self.unanswered + view.len
                if self.unanswered > self.most:
                    raise self.too_large(self.offset + view.len - self.unanswered)
            except BaseException as fault:
                # After a MemoryError, too, nobody knows what the next byte belongs to.
                self.fault = fault
                raise
            finally:
                self.reading = False
            self.offset += view.len
            return self.replies - before
        finally:
            PyBuffer_Release(&view)

    cdef int scan(self, const char *p, const char *end) except -1:
        cdef const char *line
        cdef uint32_t ok
        memcpy(&ok, b"+OK\r", 4)
        while p < end:
            if self.state != HEAD:
                p = self.resume(p, end)
                continue
            if self.depth == 0:
                while end - p >= 5 and memcmp(p, &ok, 4) == 0 and p[4] == c'\n':
                    self.replies += 1
                    p += 5
                if p == end:
                    break
            line = p + 1
            self.kind = p[0]
            if self.kind == c':':
                p = whole_integer(line, end)
                if p is not NULL:
                    self.complete()
                    continue
            p = line_end(line, end)
            if p is NULL:
                p = self.keep(line, end)
            else:
                self.read_line(line, p - 2, line - 1)
        return 0

    cdef const char *keep(self, const char *line, const char *end) except NULL:
        """Note the beginning of a line that the piece cuts off."""
        self.line_offset = self.offset_of(line - 1)
        if self.kind == c'+':
            self.state = SKIP
            del self.line[:]
            if end > line and end[-1] == c'\r':
                self.line.append(c'\r')
        else:
            self.state = LINE
            self.line[:] = line[:end - line]
            self.check_line(line - 1)
        return end

    cdef const char *resume(self, const char *p, const char *end) except NULL:
        """Go on with what the last piece cut off."""
        if self.state == PAYLOAD:
            return self.read_payload(p, end)
        cdef const char *stop
        cdef bytes text
        if self.line and self.line[-1] == c'\r' and p[0] == c'\n':
            stop = p + 1
        else:
            stop = line_end(p, end)
        if stop is NULL and self.offset_of(end) - self.line_offset > LINE_BYTES:
            raise ProtocolError(endless(self.kind), self.line_offset)
        if self.state == SKIP:
            if stop is NULL:
                self.line[:] = b"\r" if end[-1] == c'\r' else b""
                return end
            self.state = HEAD
            self.complete()
            return stop
        self.line += p[:(end if stop is NULL else stop) - p]
        self.check_line(NULL)
        if stop is NULL:
            return end
        self.state = HEAD
        text = bytes(self.line)
        self.read_line(text, <const char *>text + len(text) - 2, NULL)
        return stop

    cdef int check_line(self, const char *at) except -1:
        """Keep no more of a line than is wanted of it."""
        if self.kind not in b"-:$*_#,(!=%~>|":
            raise self.error("no reply begins like this", at)
        if self.kind == c'-':
            # The last two bytes may be the CRLF that ends the line.
            del self.line[ERROR_BYTES:max(ERROR_BYTES, len(self.line) - 2)]
        elif len(self.line) > self.longest() + 2:
            raise self.error("a line has no end", at)
        return 0

    cdef inline Py_ssize_t longest(self) noexcept:
        """How long the value of a line may be."""
        return BIG_NUMBER_BYTES if self.kind == c'(' or self.kind == c',' else NUMBER_BYTES

    cdef int read_line(self, const char *line, const char *end, const char *at) except -1:
        """Understand a whole line, without its type byte and CRLF.

        ``at``, for errors, is the type byte; NULL if that was in an earlier piece.
        """
        cdef char kind = self.kind
        cdef long long n
        if kind == c'+':
            self.complete()
        elif kind == c'-':
            self.take_error(line[:min(end - line, ERROR_BYTES)])
            self.complete()
        elif (
            end - line > NUMBER_BYTES and end - line > self.longest()
            and kind in b":$*_#,(!=%~>|"
        ):
            raise self.error("a line has no end", at)
        elif kind == c'$' or kind == c'!' or kind == c'=':
            n = self.number(line, end, at)
            if n == -1:
                self.complete()
            elif kind == c'=' and n < 4:
                raise self.error("a verbatim string is too short to name its format", at)
            else:
                self.missing = n + 2
                self.state = PAYLOAD
                if kind != c'$':
                    del self.line[:]
        elif kind == c'*' or kind == c'%' or kind == c'~' or kind == c'>' or kind == c'|':
            self.open(kind, self.number(line, end, at), at)
        elif kind == c':' or kind == c'(' or kind == c',' or kind == c'#' or kind == c'_':
            if not is_value(kind, line, end):
                self.refuse(at)
            self.complete()
        else:
            raise self.error("no reply begins like this", at)
        return 0

    cdef const char *read_payload(self, const char *p, const char *end) except NULL:
        """Pass over the bytes of a bulk string; keep those of a bulk error."""
        cdef long long text = min(self.missing - 2, <long long>(end - p))
        cdef Py_ssize_t kept
        if text > 0:
            if self.kind != c'$':
                kept = len(self.line)
                if self.kind == c'!' and kept < ERROR_BYTES:
                    self.line += p[:min(text, ERROR_BYTES - kept)]
                elif self.kind == c'=' and kept < 4:
                    self.line += p[:min(text, 4 - kept)]
                    if len(self.line) == 4 and self.line[3] != c':':
                        raise self.error(
                            "a verbatim string does not name its format", p + 3 - kept
                        )
            self.missing -= text
            p += text
        while self.missing <= 2 and p < end:
            if p[0] != (c'\r' if self.missing == 2 else c'\n'):
                raise self.error("a bulk string is longer than its header says", p)
            p += 1
            self.missing -= 1
            if self.missing == 0:
                self.state = HEAD
                if self.kind == c'!':
                    self.take_error(bytes(self.line))
                self.complete()
                break
        return p

    cdef long long number(self, const char *line, const char *end, const char *at) except -2:
        """The length in a header; -1 for a null."""
        cdef long long n = 0
        cdef const char *p = line
        if end - line == 2 and p[0] == c'-' and p[1] == c'1' and self.kind not in b"=|>":
            return -1
        if end == line or end - line > 18:
            self.refuse(at)
        while p < end:
            if not c'0' <= p[0] <= c'9':
                self.refuse(at)
            n = n * 10 + (p[0] - 48)
            p += 1
        if self.kind in b"$!=":
            if n > self.most:
                raise self.too_large(self.line_offset if at is NULL else self.offset_of(at))
        elif n > ELEMENTS:
            raise self.error("a length is out of range", at)
        return n

    cdef int open(self, char kind, long long n, const char *at) except -1:
        """Begin an aggregate of n elements or pairs."""
        cdef bint silent = kind == c'|' or (kind == c'>' and self.depth == 0)
        if n <= 0:
            if not silent:
                self.complete()
            return 0
        if kind == c'%' or kind == c'|':
            n *= 2
        if self.depth == self.room:
            self.grow(at)
        self.frames[self.depth] = Frame(n, silent)
        self.depth += 1
        self.silent += silent
        return 0

    cdef int grow(self, const char *at) except -1:
        cdef Py_ssize_t room = 2 * self.room or 16
        if self.room >= DEPTH:
            raise self.error(f"arrays in arrays, deeper than {DEPTH:,} levels", at)
        cdef Frame *frames = <Frame *>realloc(self.frames, room * sizeof(Frame))
        if frames is NULL:
            raise MemoryError(f"no memory for replies nested {room:,} levels deep")
        self.frames = frames
        self.room = room
        return 0

    cdef inline void complete(self) noexcept:
        """An element is whole; so may be those that it ends."""
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
        self.marked = False

    cdef int take_error(self, bytes text) except -1:
        if self.silent:
            return 0
        self.errors.append((self.replies, text, self.depth > 0))
        if not self.marked:
            self.marked = True
            self.failed += 1
            self.nested = 0
        self.nested += 1
        if self.nested > 1 + self.most // NESTED_ERROR_BYTES:
            raise self.too_large(self.offset)
        return 0

    cdef int refuse(self, const char *at) except -1:
        raise self.error("a line has no proper value", at)

    cdef object error(self, str message, const char *at):
        cdef Py_ssize_t offset = self.line_offset
        cdef const char *start
        cdef bytes around
        if at is NULL:
            around = b"%c" % self.kind + self.line[:SHOWN_BYTES - 1]
        else:
            offset = self.offset_of(at)
            start = at - min(SHOWN_BYTES, at - self.piece)
            around = start[:at - start + min(SHOWN_BYTES, self.piece_end - at)]
        return ProtocolError(f"not RESP replies: {message}: {around!r}", offset)

    cdef object too_large(self, Py_ssize_t offset):
        return ProtocolError(beyond("the reply is too large", self.most), offset)

    cdef Py_ssize_t offset_of(self, const char *at) noexcept:
        return self.offset + (at - self.piece)


cdef inline const char *whole_integer(const char *p, const char *end) noexcept nogil:
    """The end of an integer's line if it is all there and short; NULL to look closer."""
    if end - p > 20:
        end = p + 20
    if p < end and p[0] == c'-':
        p += 1
    if p == end or not c'0' <= p[0] <= c'9':
        return NULL
    while p < end and c'0' <= p[0] <= c'9':
        p += 1
    if end - p >= 2 and p[0] == c'\r' and p[1] == c'\n':
        return p + 2
    return NULL


cdef bint is_value(char kind, const char *p, const char *end) except -1:
    """Whether a line is an integer, a big number, a double, a boolean, a null."""
    if kind == c'_':
        return p == end
    if kind == c'#':
        return end - p == 1 and (p[0] == c't' or p[0] == c'f')
    if kind == c',':
        return is_double(p[:end - p])
    if end - p > 1 and (p[0] == c'-' or p[0] == c'+'):
        p += 1
    if p == end:
        return False
    while p < end:
        if not c'0' <= p[0] <= c'9':
            return False
        p += 1
    return True


cdef bint is_double(bytes text) except -1:
    try:
        float(text)
    except ValueError:
        return False
    return text == text.strip() and b"_" not in text
