from .arrow cimport ArrowArray
from .cell cimport Cell


cdef int check_shape(Cell *cell, ArrowArray *array) except -1
cdef void keep_sound(Cell *cell, int above) noexcept nogil
cdef Py_ssize_t sound_rows(Cell *cell, Py_ssize_t first, Py_ssize_t last) noexcept nogil
