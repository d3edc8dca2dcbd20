from .arrow cimport ArrowArray
from .cells cimport Cell


cdef int check_shape(Cell *cell, ArrowArray *array) except -1
cdef void keep_sound(Cell *cell) noexcept nogil
