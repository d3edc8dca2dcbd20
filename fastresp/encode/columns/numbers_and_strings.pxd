from .cell cimport Cell


cdef int make_plain(Cell *cell, str kind, bytes extension) except -1
