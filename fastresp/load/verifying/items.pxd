from ...resp.buffer cimport Chunk
from .asks cimport Ask, Cursor
from .statement cimport Item, LastVerb, Statement
from .watch cimport Watch


cdef class Items:
    cdef Chunk chunk
    cdef Cursor cursor
    cdef LastVerb last
    cdef bint again
    cdef Statement statement            # the first command that the read covers
    cdef Item *items                    # owned, from realloc
    cdef Py_ssize_t count, room
    cdef int start(self, Chunk chunk) except -1
    cdef int pass_commands(self, const Ask *ask, Watch watch) except -1
    cdef int move_to(self, Py_ssize_t command) except -1
    cdef int fill(self, const Ask *ask) except -1
    cdef int add_items(self, Statement *s, const Ask *ask, Py_ssize_t command) except -1
