# cython: language_level=3, cdivision=True
"""The reads for a chunk of the source: commands that read its values back from the server."""

from libc.stdlib cimport free, realloc

from .statement cimport DOCUMENT, MEMBERS, NO_MEMBERS, PLACE, TEXT, is_list

cdef enum:
    MIN_ROOM = 64


cdef class Asks:
    """The reads for a chunk, in the order of their replies; keeps the chunk for the comparison."""

    def __dealloc__(self):
        free(self.asks)

    cdef Ask *add(self, Kind kind, Form form, Py_ssize_t command) except NULL:
        """Add a read that covers one command and one item; the caller corrects the numbers."""
        cdef Py_ssize_t room = max(2 * self.room, MIN_ROOM)
        cdef Ask *asks
        if self.count == self.room:
            asks = <Ask *>realloc(self.asks, room * sizeof(Ask))
            if asks is NULL:
                raise MemoryError(f"no memory for {room:,} questions")
            self.asks, self.room = asks, room
        self.count += 1
        self.asks[self.count - 1] = Ask(kind, form, command, 1, 0, 1, 0)
        return &self.asks[self.count - 1]


cdef Kind kind_of(Form form) noexcept:
    """Return the kind of reply to a read of this form."""
    if form == TEXT or form == DOCUMENT:
        return ONE
    if form == MEMBERS or form == NO_MEMBERS:
        return FLAGS
    if is_list(form) or form == PLACE:
        return RANGE
    return SEVERAL
