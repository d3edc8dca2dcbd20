# cython: language_level=3, cdivision=True, boundscheck=False, wraparound=False
"""Find the lines in which rows of a delimited text begin, by the rules of Arrow's parser."""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE

cdef enum:
    NEWLINE = 10
    RETURN = 13

cdef enum State:
    ROW         # before the first byte of a row
    FIELD       # before the first byte of another field
    TEXT        # within a field
    QUOTED      # within its quotes
    QUOTE       # behind a quote in these: the next byte says whether it closes them
    RETURNED    # behind a carriage return that ended a row


cdef class RowLines:
    """Follow the rows of a text, and remember where some of them begin. Empty lines are no rows.

    Args:
        delimiter: the byte between fields.
        quote: the byte that opens and closes a field, and is doubled in it; empty if none does.
        rows: the rows to find, in ascending order, from 0.
        same_width: whether a row does not count if it has not as many fields as the first one.

    Attributes:
        found: the line of each row of ``rows`` passed so far, from 1.
    """

    cdef unsigned char _delimiter, _quote
    cdef bint _quotes, _same_width
    cdef State _state
    cdef Py_ssize_t _row, _line, _begun, _fields, _width, _wanted
    cdef list _rows
    cdef readonly list found

    def __cinit__(
        self, bytes delimiter not None, bytes quote not None, list rows not None,
        bint same_width=False,
    ):
        self._delimiter = delimiter[0]
        self._quotes = bool(quote)
        self._quote = quote[0] if quote else 0
        self._same_width = same_width
        self._state = ROW
        self._line = 1
        self._rows = rows
        self._wanted = rows[0] if rows else -1
        self.found = []

    def feed(self, bytes block not None):
        """Pass a block; return False once all rows are found."""
        cdef const unsigned char *text = <const unsigned char *> PyBytes_AS_STRING(block)
        cdef Py_ssize_t place
        cdef unsigned char byte
        cdef State state = self._state
        for place in range(PyBytes_GET_SIZE(block)):
            byte = text[place]
            if state == RETURNED:
                self._line += byte != NEWLINE       # which is counted below
                state = ROW
            if state == ROW and byte != NEWLINE and byte != RETURN:
                self._begun, self._fields = self._line, 1
                state = FIELD
            if state == QUOTE:
                state = QUOTED if byte == self._quote else TEXT
                if state == QUOTED:
                    continue
            if state == QUOTED:
                if byte == self._quote:
                    state = QUOTE
                elif byte == NEWLINE:
                    self._line += 1
            elif byte == NEWLINE or byte == RETURN:
                if state != ROW and self._ended():
                    return False
                self._line += byte == NEWLINE
                state = ROW if byte == NEWLINE else RETURNED
            elif byte == self._delimiter:
                self._fields += 1
                state = FIELD
            elif state == FIELD and self._quotes and byte == self._quote:
                state = QUOTED
            else:
                state = TEXT
        self._state = state
        return self._wanted >= 0

    def finish(self):
        """Note the last row, if no line end follows it."""
        if self._state not in (ROW, RETURNED) and self._wanted >= 0:
            self._ended()

    cdef bint _ended(self) except -1:
        """Count a row; return whether all are found."""
        if self._width == 0:
            self._width = self._fields
        if self._same_width and self._fields != self._width:
            return False
        if self._row == self._wanted:
            self.found.append(self._begun)
            if len(self.found) == len(self._rows):
                self._wanted = -1
                return True
            self._wanted = self._rows[len(self.found)]
        self._row += 1
        return False
