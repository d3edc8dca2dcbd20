from .grammar cimport ERROR_BYTES, whole_line_end


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
        """Find the end of the line at p, or of a line begun in an earlier piece; return the end.

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
