from .cells cimport Cell


cdef const char *text_of_json(Cell *cell, Py_ssize_t i, Py_ssize_t *n) noexcept nogil
