from cpython.array cimport array

from ...resp.buffer cimport Chunk
from ...resp.slots cimport SLOTS
from .serialized_chunk cimport SerializedChunk
from .serializer cimport Serializer


cdef struct Share:
    Py_ssize_t replies
    Py_ssize_t commands
    Py_ssize_t size


cdef class Spreader:
    cdef short[SLOTS] lanes             # lane of each slot
    cdef int count                      # number of lanes
    cdef Serializer serializer
    cdef long long row                  # index of the last counted row
    cdef Py_ssize_t commands            # number of commands in the chunks so far
    cdef Py_ssize_t rows                # number of rows covered by the chunks so far
    cdef int lane_of(self, const char *p) noexcept
    cdef Chunk numbered(self, Chunk chunk, int lane)
    cdef Chunk count_in(self, Chunk chunk)
    cdef dict parts(self, SerializedChunk whole, const int *chosen, const Share *shares)
