from .arguments cimport Job
from .steps cimport Steps


cdef int put_rows(
    Job *job, Steps steps, Py_ssize_t before, Py_ssize_t *at, Py_ssize_t last,
    Py_ssize_t chunk_bytes,
) noexcept nogil
