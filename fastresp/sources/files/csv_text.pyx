# cython: language_level=3, cdivision=True, boundscheck=False, wraparound=False
"""Find the quotes and the lines of delimited text, by the rules of Arrow's parser.

This is not a parser. A quote that opens a field by mistake swallows the rows up to the next quote,
which closes the field. The only sign of the mistake is text after the closing quote; Arrow's parser
accepts such text.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE

from libc.string cimport memchr

cdef enum:
    NEWLINE = 10
    RETURN = 13
    BACKSLASH = 92

cdef enum State:
    ROW         # before the first byte of a row
    FIELD       # before the first byte of a later field
    TEXT        # within a field
    QUOTED      # within the quotes of a field
    QUOTE       # after a quote within the quotes: the next byte decides whether the field is closed


cdef class Quotes:
    """Finds the quoted fields of a text, and the first faulty field.

    A field is faulty if it has text after its closing quote, and either contains line ends or has a
    backslash before this quote.

    Args:
        delimiter: the byte between fields.
        quote: the byte that opens and closes a field.
        escape: the byte before a quote that is part of a quoted field's text. If ``escape`` is
            empty or equals ``quote``, such quotes are doubled.
        returns: whether a carriage return without a newline ends a line.

    Attributes:
        lines: number of line ends so far.
        opened: the line of the open quote, counted from 1; 0 if every quote is closed.
        size: number of bytes from the open quote to the end of the last block.
        fault: the line in which the faulty field begins, counted from 1; 0 if no field is faulty.
        backslash: whether the faulty field has a backslash before its closing quote.
    """

    cdef unsigned char _delimiter, _quote, _escape
    cdef bint _escapes, _returns, _has_lines
    cdef unsigned char _before
    cdef bytes _pending
    cdef readonly Py_ssize_t lines, opened, size, fault
    cdef readonly bint backslash

    def __cinit__(
        self, bytes delimiter not None, bytes quote not None, bytes escape not None,
        bint returns=False,
    ):
        self._delimiter = delimiter[0]
        self._quote = quote[0]
        self._escapes = bool(escape) and escape != quote
        self._escape = escape[0] if self._escapes else 0
        self._returns = returns
        self._before = NEWLINE
        self._pending = b""

    def feed(self, bytes block not None):
        """Examine the next block, and return it with each escaped quote replaced by two quotes.

        If the block has a faulty field, the result ends with the closing quote of that field. The
        last byte may be kept back until the next call.
        """
        if self._pending:
            block, self._pending = self._pending + block, b""
        cdef const unsigned char *text = <const unsigned char *> PyBytes_AS_STRING(block)
        cdef Py_ssize_t size = PyBytes_GET_SIZE(block), index = 0, first = 0, copied = 0, found
        cdef list pieces = []
        cdef bint inside = self.opened != 0
        if not size:
            return block
        while index < size and not self.fault:
            if not inside:
                found = _next(text, size, index, self._quote)
                if found == size:
                    break
                inside = self._is_separator(text[found - 1] if found else self._before)
                index = found + 1
                if inside:
                    first = found
                    self._has_lines = False
                    self.opened = 0  # the line is determined when it is needed
                continue
            found = self._next_inside(text, size, index)
            if found == size:
                break
            if found + 1 == size:  # the next byte decides the meaning
                self._pending = block[found:]
                size = found
                break
            index = found + 2
            if text[found] == self._quote:
                if text[found + 1] != self._quote:
                    inside = False
                    index = found + 1
                    if not self._is_separator(text[index]):
                        self.backslash = not self._escapes and BACKSLASH == (
                            text[found - 1] if found else self._before
                        )
                        if self.backslash or self._has_line_end(text, first, found):
                            self.fault = self._line(block, first)
                            size = index
                    self.opened = 0
            elif text[found + 1] == self._quote or text[found + 1] == self._escape:
                pieces.append(block[copied:found])
                if text[found + 1] == self._quote:
                    pieces.append(block[found + 1:found + 2])
                copied = found + 1
            else:
                index = found + 1
        if inside:
            self._has_lines = self._has_line_end(text, first, size)
            self.size = size - first if self.opened == 0 else self.size + size
            self.opened = self._line(block, first)
        self.lines += self._count(block, size)
        if size:
            self._before = text[size - 1]
        if not pieces:
            return block[:size]
        pieces.append(block[copied:size])
        return b"".join(pieces)

    def finish(self):
        """End the text, and return the byte that ``feed()`` kept back; empty if there is no byte.

        If the byte is a quote, it closes the open field.
        """
        pending, self._pending = self._pending, b""
        if pending == bytes([self._quote]):
            self.opened = 0
        return pending

    cdef Py_ssize_t _line(self, bytes block, Py_ssize_t first) except -1:
        """Return the line of the open quote, which is at ``first`` or in an earlier block."""
        return self.opened or self.lines + 1 + self._count(block, first)

    cdef Py_ssize_t _count(self, bytes block, Py_ssize_t end) except -1:
        """Return the number of line ends before an index."""
        cdef Py_ssize_t found = block.count(b"\n", 0, end)
        if self._returns:
            found += block.count(b"\r", 0, end) - block.count(b"\r\n", 0, end)
        return found

    cdef bint _is_separator(self, unsigned char byte) noexcept:
        """Return whether a byte separates two fields."""
        return byte == self._delimiter or byte == NEWLINE or byte == RETURN

    cdef bint _has_line_end(
        self, const unsigned char *text, Py_ssize_t first, Py_ssize_t end
    ) noexcept:
        """Return whether the open field has a line end."""
        return (
            self._has_lines
            or _next(text, end, first, NEWLINE) < end
            or _next(text, end, first, RETURN) < end
        )

    cdef Py_ssize_t _next_inside(
        self, const unsigned char *text, Py_ssize_t size, Py_ssize_t index
    ) noexcept:
        """Return the index of the next quote or escape; ``size`` if there is none."""
        cdef Py_ssize_t quote = _next(text, size, index, self._quote)
        return _next(text, quote, index, self._escape) if self._escapes else quote


cdef Py_ssize_t _next(
    const unsigned char *text, Py_ssize_t size, Py_ssize_t index, unsigned char byte
) noexcept:
    """Return the index of the next ``byte`` from ``index``; ``size`` if there is none."""
    cdef const void *found = memchr(text + index, byte, size - index)
    return size if found is NULL else <const unsigned char *> found - text


cdef class RowLines:
    """Finds the lines in which some rows of a text begin. Empty lines are not rows.

    Args:
        delimiter, returns: as for ``Quotes``.
        quote: as for ``Quotes``, but doubled within a field; empty if there are no quotes.
        rows: the indexes of the rows to find, counted from 0, in ascending order.
        same_width: whether to count only rows with as many fields as the first row.

    Attributes:
        found: for each row found so far, the line in which it begins, counted from 1.
    """

    cdef unsigned char _delimiter, _quote, _last
    cdef bint _quotes, _same_width, _returns
    cdef bint[256] _plain       # whether a byte changes nothing within a field
    cdef State _state
    cdef Py_ssize_t _row, _line, _row_line, _fields, _width, _next_row
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
        self._next_row = rows[0] if rows else -1
        self.found = []

    def feed(self, bytes block not None):
        """Examine the next block; return False once all rows are found."""
        cdef const unsigned char *text = <const unsigned char *> PyBytes_AS_STRING(block)
        cdef Py_ssize_t index = 0, size = PyBytes_GET_SIZE(block)
        while self._next_row >= 0 and index < size:
            with nogil:
                index += self._skip(text + index, size - index)
            if self._row > self._next_row:
                self._record()
        return self._next_row >= 0

    def finish(self):
        """Record the last row, if no line end follows it."""
        if self._state != ROW and self._next_row >= 0:
            self._end_row()
            if self._row > self._next_row:
                self._record()

    cdef int _record(self) except -1:
        """Record the wanted row, which has ended."""
        self.found.append(self._row_line)
        more = len(self.found) < len(self._rows)
        self._next_row = self._rows[len(self.found)] if more else -1
        return 0

    cdef Py_ssize_t _skip(self, const unsigned char *text, Py_ssize_t size) noexcept nogil:
        """Skip bytes up to the end of the wanted row; return the number of skipped bytes."""
        cdef Py_ssize_t index = 0
        cdef unsigned char byte, last = self._last
        cdef State state = self._state
        while index < size:
            byte = text[index]
            index += 1
            if (state == TEXT or state == QUOTED) and self._plain[byte]:
                while index < size and self._plain[text[index]]:
                    index += 1
                last = 0
                continue
            if state == QUOTE:
                state = QUOTED if byte == self._quote else TEXT
            elif state == QUOTED:
                if byte == self._quote:
                    state = QUOTE
            elif state == ROW and byte != NEWLINE and byte != RETURN:
                self._row_line, self._fields = self._line, 1
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
                    self._end_row()
                    if self._row > self._next_row:
                        self._state, self._last = state, last
                        return index
            elif byte == self._delimiter:
                self._fields += 1
                state = FIELD
            elif state == FIELD and self._quotes and byte == self._quote:
                state = QUOTED
            else:
                state = TEXT
        self._state, self._last = state, last
        return size

    cdef void _end_row(self) noexcept nogil:
        """Count a row; with ``same_width``, only if it has as many fields as the first row."""
        if self._width == 0:
            self._width = self._fields
        self._row += not (self._same_width and self._fields != self._width)
