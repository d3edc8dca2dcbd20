# cython: language_level=3, cdivision=True
"""The base class of all readers of replies: tracks the position and incomplete lines.

Replies arrive in arbitrary pieces. A piece is the bytes that one call of ``feed()`` receives.
"""

cimport cython
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer

from ..outcome.errors import ProtocolError


cdef class Incoming:
    """The base class of all reply readers. A subclass implements ``read()``.

    Args:
        max_reply_bytes: larger replies are an error; None for 512 MiB.

    Attributes:
        offset: the number of bytes parsed so far.
    """

    def __cinit__(self, *args, max_reply_bytes=None, **kwargs):
        self.most = reply_limit(max_reply_bytes)
        self.begun = bytearray()

    cdef int check_free(self) except -1:
        """Raise if another call is running, or if an earlier call found a fault."""
        if self.reading:
            raise RuntimeError("feed() was called while another feed() was running")
        if self.fault is not None:
            # With its traceback, the exception would keep the frames of all calls that raised it.
            raise self.fault.with_traceback(None)
        return 0

    cdef int take_piece(self, object data) except -1:
        """Read the next piece; after a fault, every later call raises the same error."""
        cdef Py_buffer view
        PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
        try:
            with cython.critical_section(self):
                self.check_free()
                self.reading = True
            self.piece = <const char *>view.buf
            self.piece_end = self.piece + view.len
            try:
                self.read(self.piece, self.piece_end)
            except BaseException as fault:
                # Even after a MemoryError, the position in the stream is unknown.
                self.fault = fault
                raise
            finally:
                self.reading = False
            self.offset += view.len
        finally:
            PyBuffer_Release(&view)
        return 0

    cdef int read(self, const char *p, const char *end) except -1:
        """Read a piece."""
        raise NotImplementedError

    cdef const char *join_line(self, const char *p, const char *end) except NULL:
        """Collect a line that spans several pieces; refuse a line that is too long."""
        cdef const char *stop
        cdef Py_ssize_t come, kept
        if self.cut:
            self.at = NULL
            stop = p + 1 if self.begun[-1] == c'\r' and p[0] == c'\n' else line_end(p, end)
        else:
            self.begin_line(p)
            del self.begun[:]
            stop = line_end(p, end)
        self.cut = stop is NULL
        if self.cut:
            stop = end
        self.begun += p[:stop - p]
        come = self.offset_of(stop) - self.line_offset
        if come > longest_line(self.kind):
            raise self.endless()
        if form_of(self.kind) == TEXT:
            kept = 1 + (LINE_BYTES if self.kind == c'+' and self.whole_text else ERROR_BYTES)
            # The last two bytes may be the line's CRLF.
            del self.begun[kept:max(kept, len(self.begun) - 2)]
        self.text = self.text_end = NULL
        if not self.cut:
            self.joined = bytes(self.begun)
            self.text = <const char *>self.joined + 1
            self.text_end = self.text + len(self.joined) - 3
        return stop

    cdef int count_unanswered(self, bint some, Py_ssize_t size) except -1:
        """Refuse a reply that is too large, for readers that don't store replies.

        Args:
            some: whether this piece completed a reply.
            size: the size of this piece in bytes.
        """
        self.unanswered = 0 if some else self.unanswered + size
        if self.unanswered > self.most:
            raise self.too_large(self.offset + size - self.unanswered)
        return 0

    cdef object error(self, str message, const char *at):
        """Return the exception for a fault; ``at`` points to the faulty byte of this piece.

        If ``at`` is NULL, the fault is in the current line, which began in an earlier piece.
        """
        cdef Py_ssize_t offset = self.line_offset
        cdef const char *start
        cdef bytes around
        if at is NULL:
            around = bytes(self.begun[:SHOWN_BYTES])
        else:
            offset = self.offset_of(at)
            start = at - min(SHOWN_BYTES, at - self.piece)
            around = start[:at - start + min(SHOWN_BYTES, self.piece_end - at)]
        return ProtocolError(f"not {self.what}: {message}: {around!r}", offset)

    cdef object excess(self, const char *at):
        return self.error("a bulk string is longer than its header says", at)

    cdef object endless(self):
        if form_of(self.kind) != TEXT:
            return self.error("a line does not end", self.at)
        return ProtocolError(
            f"a line that begins with {chr(self.kind)!r} does not end within {LINE_BYTES:,} bytes",
            self.line_offset,
        )

    cdef object too_large(self, Py_ssize_t offset):
        return ProtocolError(beyond("the reply is too large", self.most), offset)
