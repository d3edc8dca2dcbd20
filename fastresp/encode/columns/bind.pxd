from .arrow cimport ArrowArray
from .cell cimport Cell


cdef int bind(Cell *cell, ArrowArray *array, Py_ssize_t base) except -1
