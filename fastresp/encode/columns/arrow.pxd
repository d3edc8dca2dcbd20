from libc.stdint cimport int64_t

# The Arrow C data interface and C stream interface. Source:
# https://arrow.apache.org/docs/format/CDataInterface.html
cdef struct ArrowSchema:
    const char *format
    const char *name
    const char *metadata
    int64_t flags
    int64_t n_children
    ArrowSchema **children
    ArrowSchema *dictionary
    void (*release)(ArrowSchema *) noexcept nogil
    void *private_data


cdef struct ArrowArray:
    int64_t length
    int64_t null_count
    int64_t offset
    int64_t n_buffers
    int64_t n_children
    const void **buffers
    ArrowArray **children
    ArrowArray *dictionary
    void (*release)(ArrowArray *) noexcept nogil
    void *private_data


cdef struct ArrowArrayStream:
    int (*get_schema)(ArrowArrayStream *, ArrowSchema *) noexcept nogil
    int (*get_next)(ArrowArrayStream *, ArrowArray *) noexcept nogil
    const char *(*get_last_error)(ArrowArrayStream *) noexcept nogil
    void (*release)(ArrowArrayStream *) noexcept nogil
    void *private_data


cdef class Schema:
    cdef ArrowSchema schema             # owned
    cdef object unknown                 # by column name, why the column can't be sent
    cdef object names                   # all NestedNames, if a name has a NUL; otherwise None
    cdef bint single                    # whether structs are values of one column, not rows


cdef class Batch:
    cdef ArrowArray array               # owned


cdef class ArrowStream:
    cdef ArrowArrayStream stream        # owned; stream.release is NULL after the release
    cdef readonly Schema schema         # None after the release
    cdef object source                  # the object that exported the stream
    cdef object following               # returns the next stream
    cdef Batch single_batch             # the batch of __arrow_c_array__, or None
    cdef bint waiting                   # whether get_next() is running
    cdef bint ended                     # whether no more batches are wanted
    cdef int query_source(self) except -1
    cdef int open_stream(self, capsule) except -1
    cdef int open_array(self, schema, array) except -1
    cdef Batch next(self)
    cdef bint open_next(self) except -1
    cdef object failure(self, int code)
