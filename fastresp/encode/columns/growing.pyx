# cython: language_level=3, cdivision=True
"""Columns of text or bytes under construction."""

from libc.stdint cimport INT32_MAX, int32_t
from libc.stdlib cimport calloc, free, realloc
from libc.string cimport memcpy, memset

from ..strings cimport is_utf8


cdef extern from *:
    """
    #include <stdlib.h>
    #if defined(__linux__)
    #include <sys/mman.h>
    #endif
    /* realloc(). For 4 MiB or more, request huge pages (Linux): a fresh page of 4 KiB costs five
       times as much as filling it. For smaller sizes, malloc usually reuses memory. */
    static char *fastresp_grown(char *memory, size_t size) {
    #if defined(__linux__) && defined(MADV_HUGEPAGE)
        const size_t huge = 1 << 21;
        char *grown, *first;
        if (size >= 2 * huge) {
            grown = (char *)realloc(memory, size + huge);
            if (grown) {
                first = (char *)(((size_t)grown + huge - 1) & ~(huge - 1));
                (void)madvise(first, size & ~(huge - 1), MADV_HUGEPAGE);
            }
            return grown;
        }
    #endif
        return (char *)realloc(memory, size);
    }
    """
    char *grown "fastresp_grown"(char *memory, size_t size) noexcept nogil

# The initial capacity of a column, in values and in bytes.
cdef int64_t FIRST_PLACES = 512
cdef int64_t FIRST_BYTES = 4096


cdef bint grow_data(GrowingColumn *column, int64_t n) noexcept nogil:
    """Allocate memory for n more bytes; return False if out of memory.

    The first allocation has at least the predicted size of a batch; each later allocation at least
    doubles the size.
    """
    cdef int64_t room = max(FIRST_BYTES, 2 * column.room, column.size + n)
    if column.room == 0:
        room = max(room, column.expected)
    cdef char *data = grown(column.data, room)
    if data is NULL:
        return False
    column.data, column.room = data, room
    return True


cdef bint grow_places(GrowingColumn *column) noexcept nogil:
    cdef int64_t places = max(FIRST_PLACES, 2 * column.places)
    cdef int64_t *offsets = <int64_t *>realloc(column.offsets, (places + 1) * sizeof(int64_t))
    cdef unsigned char *valid
    if offsets is NULL:
        return False
    column.offsets = offsets
    if column.places == 0:
        offsets[0] = 0
    valid = <unsigned char *>realloc(column.valid, places >> 3)
    if valid is NULL:
        return False
    memset(valid + (column.places >> 3), 0xFF, (places - column.places) >> 3)
    column.valid, column.places = valid, places
    return True


cdef void clear(GrowingColumn *column) noexcept nogil:
    free(column.data)
    free(column.offsets)
    free(column.valid)
    memset(column, 0, sizeof(GrowingColumn))


cdef Values *take_rows(GrowingColumn *column, int64_t rows) except NULL:
    """Remove and return the first ``rows`` values; later values stay, even if incomplete."""
    cdef GrowingColumn rest
    cdef int64_t start = column.offsets[rows]
    cdef Values *values = <Values *>calloc(1, sizeof(Values))
    memset(&rest, 0, sizeof(GrowingColumn))
    rest.text = column.text
    rest.expected = start + start // 16
    if not (
        values is not NULL and grow_places(&rest)
        and put_bytes(&rest, column.data + start, column.size - start)
        and put_ends(&rest, column, rows)
    ):
        free(values)
        clear(&rest)
        raise MemoryError("no memory for a batch of columns")
    rest.size = column.size - start
    rest.checked = max(column.checked - rows, 0)
    values.text, values.length, values.size = column.text, rows, start
    values.nulls = column.nulls - rest.nulls
    values.wide = start > INT32_MAX
    values.buffers[0] = bitmap_of(column, values)
    values.buffers[1] = offsets_of(column, values)
    # Don't always shrink: malloc would request new memory from the system for each batch.
    values.buffers[2] = shrunk(column.data, start) if start <= column.room // 2 else column.data
    column[0] = rest
    return values


cdef bint put_ends(GrowingColumn *rest, GrowingColumn *column, int64_t rows) noexcept nogil:
    """Copy to ``rest`` the ends and nulls of all values after the first ``rows``.

    Return False if out of memory.
    """
    cdef int64_t i
    for i in range(rows, column.length):
        rest.size = column.offsets[i + 1] - column.offsets[rows]
        if not (end_value(rest) if column.valid[i >> 3] >> (i & 7) & 1 else put_null(rest)):
            return False
    return True


cdef void *bitmap_of(GrowingColumn *column, Values *values) noexcept:
    if values.nulls:
        return shrunk(column.valid, (values.length + 7) >> 3)
    free(column.valid)
    return NULL


cdef void *offsets_of(GrowingColumn *column, Values *values) noexcept:
    """Return the offsets, narrowed in place to 32 bits unless ``wide`` is set.

    Each narrowed offset is written at or before its old location.
    """
    cdef int64_t i
    cdef int32_t offset
    cdef char *narrow = <char *>column.offsets
    if values.wide:
        return shrunk(column.offsets, (values.length + 1) * sizeof(int64_t))
    for i in range(values.length + 1):
        offset = <int32_t>column.offsets[i]
        memcpy(narrow + i * sizeof(int32_t), &offset, sizeof(int32_t))
    return shrunk(narrow, (values.length + 1) * sizeof(int32_t))


cdef void *shrunk(void *memory, int64_t size) noexcept:
    """Shrink memory to ``size`` bytes; return its address, which may be new."""
    cdef void *smaller = realloc(memory, max(size, 1))
    return memory if smaller is NULL else smaller


cdef int64_t first_invalid(GrowingColumn *column) noexcept nogil:
    """Check new values; return the index of the first that is not UTF-8, or -1."""
    cdef int64_t start = column.offsets[column.checked], i
    cdef int64_t end = column.offsets[column.length]
    cdef int64_t first = column.checked
    column.checked = column.length
    if is_ascii(column.data + start, end - start):
        return -1
    for i in range(first, column.length):
        if not is_utf8(column.data + column.offsets[i], column.offsets[i + 1] - column.offsets[i]):
            return i
    return -1


cdef inline bint is_ascii(const char *p, int64_t n) noexcept nogil:
    cdef unsigned char bits = 0
    cdef int64_t i
    for i in range(n):
        bits |= <unsigned char>p[i]
    return bits < 0x80
