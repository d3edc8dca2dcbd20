# cython: language_level=3, cdivision=True, boundscheck=False, wraparound=False
"""Follow the quotes of CSV ahead of Arrow's parser, which accepts text after a closing quote.

This is not a parser. A quote that opens a field by mistake swallows the rows up to the next quote;
only text after that quote reveals the mistake.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE

from libc.string cimport memchr

cdef enum:
    NEWLINE = 10
    RETURN = 13
    BACKSLASH = 92


cdef class Quotes:
    """Finds the quoted fields of a text, and the first faulty field.

    A faulty field has text after its closing quote, and contains line ends or has a backslash
    before that quote.

    Args:
        delimiter: the byte between fields.
        quote: the byte that opens and closes a field.
        escape: the byte before a quote that is text within a quoted field. If ``escape`` is empty
            or the same as ``quote``, such quotes are doubled.
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
    cdef bytes _held
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
        self._held = b""

    def feed(self, bytes block not None):
        """Examine the next block, and return it with each escaped quote replaced by two quotes.

        If the block has a faulty field, the result ends with the closing quote of that field. The
        last byte may be kept back until the next call.
        """
        if self._held:
            block, self._held = self._held + block, b""
        cdef const unsigned char *text = <const unsigned char *> PyBytes_AS_STRING(block)
        cdef Py_ssize_t size = PyBytes_GET_SIZE(block), place = 0, first = 0, copied = 0, found
        cdef list pieces = []
        cdef bint inside = self.opened != 0
        if not size:
            return block
        while place < size and not self.fault:
            if not inside:
                found = _next(text, size, place, self._quote)
                if found == size:
                    break
                inside = self._ends(text[found - 1] if found else self._before)
                place = found + 1
                if inside:
                    first = found
                    self._has_lines = False
                    self.opened = 0  # counted when it is needed
                continue
            found = self._next_inside(text, size, place)
            if found == size:
                break
            if found + 1 == size:  # the next byte decides the meaning
                self._held = block[found:]
                size = found
                break
            place = found + 2
            if text[found] == self._quote:
                if text[found + 1] != self._quote:
                    inside = False
                    place = found + 1
                    if not self._ends(text[place]):
                        self.backslash = not self._escapes and BACKSLASH == (
                            text[found - 1] if found else self._before
                        )
                        if self.backslash or self._spans(text, first, found):
                            self.fault = self._line(block, first)
                            size = place
                    self.opened = 0
            elif text[found + 1] == self._quote or text[found + 1] == self._escape:
                pieces.append(block[copied:found])
                if text[found + 1] == self._quote:
                    pieces.append(block[found + 1:found + 2])
                copied = found + 1
            else:
                place = found + 1
        if inside:
            self._has_lines = self._spans(text, first, size)
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
        held, self._held = self._held, b""
        if held == bytes([self._quote]):
            self.opened = 0
        return held

    cdef Py_ssize_t _line(self, bytes block, Py_ssize_t first) except -1:
        """Return the line of the open quote, which is at ``first`` or in an earlier block."""
        return self.opened or self.lines + 1 + self._count(block, first)

    cdef Py_ssize_t _count(self, bytes block, Py_ssize_t end) except -1:
        """Return the number of line ends before an index."""
        cdef Py_ssize_t found = block.count(b"\n", 0, end)
        if self._returns:
            found += block.count(b"\r", 0, end) - block.count(b"\r\n", 0, end)
        return found

    cdef bint _ends(self, unsigned char byte) noexcept:
        """Return whether a byte separates two fields."""
        return byte == self._delimiter or byte == NEWLINE or byte == RETURN

    cdef bint _spans(self, const unsigned char *text, Py_ssize_t first, Py_ssize_t end) noexcept:
        """Return whether the open field has a line end."""
        return (
            self._has_lines
            or _next(text, end, first, NEWLINE) < end
            or _next(text, end, first, RETURN) < end
        )

    cdef Py_ssize_t _next_inside(
        self, const unsigned char *text, Py_ssize_t size, Py_ssize_t place
    ) noexcept:
        """Return the index of the next quote or escape; ``size`` if there is none."""
        cdef Py_ssize_t quote = _next(text, size, place, self._quote)
        return _next(text, quote, place, self._escape) if self._escapes else quote


cdef Py_ssize_t _next(
    const unsigned char *text, Py_ssize_t size, Py_ssize_t place, unsigned char byte
) noexcept:
    """Return the index of the next ``byte`` from ``place``; ``size`` if there is none."""
    cdef const void *found = memchr(text + place, byte, size - place)
    return size if found is NULL else <const unsigned char *> found - text
