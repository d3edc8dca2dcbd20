from .cells cimport Cell


cdef int make_plain(Cell *cell, str kind) except -1
