from .cell cimport Cell


cdef bint make_vector(Cell *cell, Cell *numbers, str kind) except -1
