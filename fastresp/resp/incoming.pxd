from .grammar cimport ERROR_BYTES, whole_line_end


cdef class Incoming:
    cdef readonly Py_ssize_t offset     # bytes of earlier pieces
    cdef long long most                 # the maximum bytes of a reply
    cdef long long unanswered           # bytes of pieces since the last complete reply
    cdef str what                       # the expected contents of the pieces, for error messages
    # The current line:
    cdef char kind                      # its type byte
    cdef const char *text               # text after it; NULL while the line is incomplete
    cdef const char *text_end           # the start of its CRLF
    cdef Py_ssize_t line_offset         # stream offset of its type byte
    cdef const char *at                 # its start; NULL if it began in an earlier piece
    cdef bint cut                       # the last piece ended within the line
    cdef bytearray begun                # its kept bytes from earlier pieces
    cdef bytes joined                   # all its kept bytes
    cdef bint whole_text                # keep whole simple strings, not only the beginning
    cdef const char *piece              # the bytes being read
    cdef const char *piece_end
    cdef bint reading                   # feed() is running; reentrant calls are refused
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

        ``text`` is valid until the next call; for an error, it is only the beginning of the text.
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
