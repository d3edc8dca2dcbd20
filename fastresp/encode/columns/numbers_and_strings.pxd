from .cell cimport Cell


cdef enum:
    VALUE_MARK = 0xFF       # the first byte of a JSON value that is not a string: see VALUE

cdef bytes VALUE

cdef int make_plain(Cell *cell, str kind, bytes extension) except -1
cdef const char *text_of_any(Cell *cell, Py_ssize_t i, Py_ssize_t *n) noexcept nogil
cdef const char *json_value(
    Cell *cell, Py_ssize_t i, Py_ssize_t *n, bint *marked
) noexcept nogil
