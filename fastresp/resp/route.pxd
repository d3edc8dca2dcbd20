from cpython.array cimport array

from .buffer cimport Buffer, Chunk
from .out cimport Reference
from .slots cimport SLOTS, LastRule, Walk


cdef class Share:
    cdef Buffer out
    cdef array places                   # 'q': index of each command in the stream of the source
    cdef array done                     # 'q': rows covered up to each command
    cdef Py_ssize_t room                # capacity of both
    cdef Py_ssize_t rows                # covered in all
    cdef int add(self, Py_ssize_t row, Py_ssize_t place, Py_ssize_t rows) except -1
    cdef int grow(self) except -1
    cdef int cut(self, Py_ssize_t commands) except -1
    cdef Chunk take(self)


cdef class Router:
    cdef list shares
    cdef list mergers
    cdef short[SLOTS] lanes             # of each slot
    cdef Py_ssize_t most_bytes
    cdef Py_ssize_t full_bytes
    cdef LastRule last
    cdef bint strict                    # whether it is a cluster
    cdef bint transactions
    cdef readonly object error
    cdef int transaction                # the lane of an open MULTI; -1 outside
    cdef Py_ssize_t begun               # commands before it in that lane's share
    cdef int of_transaction             # the slot of its first key; NO_KEY if it has none
    cdef Py_ssize_t commands            # in chunks
    cdef Py_ssize_t rows                # covered by these
    cdef Py_ssize_t row                 # the last one read
    cdef list given(self, bint everything)
    cdef int choose(
        self, Chunk chunk, Walk *walk, Py_ssize_t index, Py_ssize_t extra
    ) except -1
    cdef int refuse(self, Chunk chunk, Walk *walk, Py_ssize_t index, int slot) except -1
    cdef int ahead(
        self, Chunk chunk, Walk *walk, Py_ssize_t index, Py_ssize_t extra
    ) noexcept
    cdef int put(
        self, Buffer out, Walk *walk, const char *start, const char *end, const Reference *stop
    ) except -1
