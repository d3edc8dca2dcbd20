from libc.stdint cimport int64_t

from ...resp.buffer cimport put_copy
from .arrow_out cimport Values


cdef struct GrowingColumn:
    # A column under construction. The memory is owned, from malloc.
    char *data
    int64_t size                # bytes of all values, including an incomplete value
    int64_t room                # number of bytes allocated for data
    int64_t *offsets            # offsets of the values, and the end of the last value
    unsigned char *valid        # one bit per value, cleared for a null
    int64_t length              # number of whole values
    int64_t places              # capacity in values; a multiple of 8
    int64_t nulls
    int64_t expected            # predicted bytes of the next batch, from the last batch
    int64_t checked             # number of leading values that are already checked for UTF-8
    bint text                   # whether the values are text, not arbitrary bytes


cdef bint grow_data(GrowingColumn *column, int64_t n) noexcept nogil
cdef bint grow_places(GrowingColumn *column) noexcept nogil
cdef void clear(GrowingColumn *column) noexcept nogil
cdef Values *take_rows(GrowingColumn *column, int64_t rows) except NULL
cdef int64_t first_invalid(GrowingColumn *column) noexcept nogil


cdef inline bint put_bytes(GrowingColumn *column, const char *p, int64_t n) noexcept nogil:
    """Append bytes to the current value; return False if out of memory."""
    if column.room - column.size < n and not grow_data(column, n):
        return False
    put_copy(column.data + column.size, p, n)
    column.size += n
    return True


cdef inline bint end_value(GrowingColumn *column) noexcept nogil:
    """Complete the current value; return False if out of memory."""
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
