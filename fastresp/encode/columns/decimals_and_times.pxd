from .cell cimport Cell


cdef int make_time(Cell *cell, str kind, list zones) except -1
