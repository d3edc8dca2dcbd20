# cython: language_level=3, cdivision=True, boundscheck=False, wraparound=False
"""Find the lines in which rows of a delimited text begin, by the rules of Arrow's parser."""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE

cdef enum:
    NEWLINE = 10
    RETURN = 13

cdef enum State:
    ROW         # before the first byte of a row
    FIELD       # before the first byte of a later field
    TEXT        # within a field
    QUOTED      # within the quotes of a field
    QUOTE       # after a quote within the quotes: the next byte decides whether the field is closed


cdef class RowLines:
    """Finds the lines in which some rows of a text begin. Empty lines are not rows.

    Args:
        delimiter: the byte between fields.
        quote: the byte that opens and closes a field, and is doubled within it; empty if there are
            no quotes.
        rows: the indexes of the rows to find, counted from 0, in ascending order.
        same_width: whether to count only rows with as many fields as the first row.
        returns: whether a carriage return without a newline ends a line, as on an old Mac.

    Attributes:
        found: for each row of ``rows`` found so far, the line in which the row begins, counted from
            1.
    """

    cdef unsigned char _delimiter, _quote, _last
    cdef bint _quotes, _same_width, _returns
    cdef bint[256] _plain       # whether a byte changes nothing within a field
    cdef State _state
    cdef Py_ssize_t _row, _line, _begun, _fields, _width, _wanted
    cdef list _rows
    cdef readonly list found

    def __cinit__(
        self, bytes delimiter not None, bytes quote not None, list rows not None,
        bint same_width=False, bint returns=False,
    ):
        self._delimiter = delimiter[0]
        self._quotes = bool(quote)
        self._quote = quote[0] if quote else 0
        for byte in range(256):
            self._plain[byte] = byte not in delimiter + quote + b"\r\n"
        self._same_width = same_width
        self._returns = returns
        self._state = ROW
        self._line = 1
        self._rows = rows
        self._wanted = rows[0] if rows else -1
        self.found = []

    def feed(self, bytes block not None):
        """Examine the next block; return False once all rows are found."""
        cdef const unsigned char *text = <const unsigned char *> PyBytes_AS_STRING(block)
        cdef Py_ssize_t place = 0, size = PyBytes_GET_SIZE(block)
        while self._wanted >= 0 and place < size:
            with nogil:
                place += self._passed(text + place, size - place)
            if self._row > self._wanted:
                self._note()
        return self._wanted >= 0

    def finish(self):
        """Record the last row, if no line end follows it."""
        if self._state != ROW and self._wanted >= 0:
            self._ended()
            if self._row > self._wanted:
                self._note()

    cdef int _note(self) except -1:
        """Record the wanted row, which has ended."""
        self.found.append(self._begun)
        more = len(self.found) < len(self._rows)
        self._wanted = self._rows[len(self.found)] if more else -1
        return 0

    cdef Py_ssize_t _passed(self, const unsigned char *text, Py_ssize_t size) noexcept nogil:
        """Skip bytes up to the end of the wanted row; return the number of skipped bytes."""
        cdef Py_ssize_t place = 0
        cdef unsigned char byte, last = self._last
        cdef State state = self._state
        while place < size:
            byte = text[place]
            place += 1
            if (state == TEXT or state == QUOTED) and self._plain[byte]:
                while place < size and self._plain[text[place]]:
                    place += 1
                last = 0
                continue
            if state == QUOTE:
                state = QUOTED if byte == self._quote else TEXT
            elif state == QUOTED:
                if byte == self._quote:
                    state = QUOTE
            elif state == ROW and byte != NEWLINE and byte != RETURN:
                self._begun, self._fields = self._line, 1
                state = FIELD
            if byte == NEWLINE:
                self._line += not (self._returns and last == RETURN)
            elif byte == RETURN:
                self._line += self._returns
            last = byte
            if state >= QUOTED:
                continue
            if byte == NEWLINE or byte == RETURN:
                if state != ROW:
                    state = ROW
                    self._ended()
                    if self._row > self._wanted:
                        self._state, self._last = state, last
                        return place
            elif byte == self._delimiter:
                self._fields += 1
                state = FIELD
            elif state == FIELD and self._quotes and byte == self._quote:
                state = QUOTED
            else:
                state = TEXT
        self._state, self._last = state, last
        return size

    cdef void _ended(self) noexcept nogil:
        """Count a row; with ``same_width``, only if it has as many fields as the first row."""
        if self._width == 0:
            self._width = self._fields
        self._row += not (self._same_width and self._fields != self._width)
