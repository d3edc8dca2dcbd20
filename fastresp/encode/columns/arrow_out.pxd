from libc.stdint cimport int64_t

from .arrow cimport ArrowArray


cdef struct Values:
    # The memory of a column, from malloc. The last holder frees the memory.
    const void *buffers[3]              # validity (NULL for no nulls), offsets or times, data
    int64_t length
    int64_t nulls
    int64_t size                        # bytes of data
    int holders
    bint times                          # whether these are times, which have only two buffers
    bint text                           # whether these are UTF-8 text, not arbitrary bytes
    bint wide                           # whether offsets have 64 bits, not 32


cdef class Column:
    cdef Values *values                 # this column is one of the holders
    cdef bint is_null(self, int64_t i) noexcept


cdef class StringColumn(Column):
    @staticmethod
    cdef StringColumn of(Values *values)


cdef class StringBatch:
    cdef readonly tuple names
    cdef readonly tuple columns
    cdef void fill(self, ArrowArray *out) except *
