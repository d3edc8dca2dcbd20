from .grammar cimport ERROR_BYTES, whole_line_end


cdef class Incoming:
    cdef readonly Py_ssize_t offset     # bytes of the pieces before this one
    cdef long long most                 # bytes that a reply may have
    cdef long long unanswered           # bytes of the pieces since a reply became whole
    cdef str what                       # the pieces should be, for error messages
    # The line at hand:
    cdef char kind                      # its type byte
    cdef const char *text               # what is behind that; NULL while the line is not whole
    cdef const char *text_end           # where its CRLF begins
    cdef Py_ssize_t line_offset         # where in the stream its type byte is
    cdef const char *at                 # where in the piece; NULL if that was in an earlier one
    cdef bint cut                       # the last piece ended within it
    cdef bytearray begun                # what came of it in earlier pieces, and is kept
    cdef bytes joined                   # all that is kept of it
    cdef bint whole_text                # of simple strings all is wanted, not the beginning
    cdef const char *piece              # the bytes being read
    cdef const char *piece_end
    cdef bint reading                   # feed is at work: what Python runs then may not call it
    cdef object fault                   # what ended this, as a rule a ProtocolError

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
        """Where in the stream a byte of the piece is."""
        return self.offset + (at - self.piece)

    cdef inline void begin_line(self, const char *p) noexcept nogil:
        self.at, self.kind, self.line_offset = p, p[0], self.offset_of(p)

    cdef inline const char *next_line(self, const char *p, const char *end) except NULL:
        """Look for the end of the line at p, or of the one that was cut; return what is behind it.

        Its ``text``, of an error no more than the beginning, lasts until the next call.
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
