from libc.stdint cimport int64_t

from ..encode.columns.arrow cimport ArrowArray, ArrowArrayStream, ArrowSchema


cdef struct Values:
    # The memory of a column, which all that it was given to hold together. Owned, from malloc.
    const void *buffers[3]              # validity (NULL where nothing is null), offsets, data
    int64_t length
    int64_t nulls
    int64_t size                        # bytes of data
    int holders
    bint text                           # UTF-8, and not any bytes
    bint wide                           # offsets of 64 bits, else of 32


cdef class StringColumn:
    cdef Values *values                 # a share of it

    @staticmethod
    cdef StringColumn of(Values *values)


cdef class StringBatch:
    cdef readonly tuple names
    cdef readonly tuple columns
    cdef void fill(self, ArrowArray *out) except *


cdef class Outflow:
    cdef tuple names
    cdef tuple text
    cdef object batches
    cdef bytes words                    # of the last error
    cdef int next(self, ArrowArray *out) except -1
