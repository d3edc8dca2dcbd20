from libc.stdint cimport int64_t
from libc.string cimport memcpy

from .arrow_out cimport Values


cdef struct GrowingColumn:
    # A column while it grows. All memory is owned, from malloc.
    char *data
    int64_t size                # bytes, those of a value that is not whole among them
    int64_t room
    int64_t *offsets            # as many as there are values, and one
    unsigned char *valid        # a bit for each place, cleared for a null
    int64_t length              # whole values
    int64_t places              # that there is room for; a multiple of 8
    int64_t nulls
    int64_t expected            # bytes: as many as the last batch had
    int64_t checked             # so many values were looked at: they are UTF-8, or were told
    bint text


cdef bint grow_data(GrowingColumn *column, int64_t n) noexcept nogil
cdef bint grow_places(GrowingColumn *column) noexcept nogil
cdef void clear(GrowingColumn *column) noexcept nogil
cdef Values *take_rows(GrowingColumn *column, int64_t rows) except NULL
cdef int64_t first_invalid(GrowingColumn *column) noexcept nogil


cdef inline bint put_bytes(GrowingColumn *column, const char *p, int64_t n) noexcept nogil:
    """Append to the value at hand; False without memory."""
    if column.room - column.size < n and not grow_data(column, n):
        return False
    memcpy(column.data + column.size, p, n)
    column.size += n
    return True


cdef inline bint end_value(GrowingColumn *column) noexcept nogil:
    """The value at hand is whole; False without memory."""
    if column.length == column.places and not grow_places(column):
        return False
    column.length += 1
    column.offsets[column.length] = column.size
    return True


cdef inline bint put_null(GrowingColumn *column) noexcept nogil:
    cdef int64_t at = column.length
    if not end_value(column):
        return False
    column.valid[at >> 3] &= <unsigned char>~(1 << (at & 7))
    column.nulls += 1
    return True
