from cpython.array cimport array

from .batches cimport Batcher
from .buffer cimport Buffer, Chunk
from .out cimport Reference
from .slots cimport LastRule, Rules


# A command of a chunk.
cdef struct Place:
    const char *start
    const char *end
    const Reference *large              # the command's first large argument
    const Reference *stop               # the end of the command's large arguments
    Py_ssize_t chunk                    # index of the chunk
    Py_ssize_t index                    # index of the command in the chunk
    int marker                          # index of the command's marker


cdef class Gatherer:
    cdef Batcher batcher
    cdef object merger
    cdef array rows
    cdef bint by_slot
    cdef Rules rules
    cdef LastRule last
    cdef Buffer out
    cdef list held
    cdef Py_ssize_t size                # number of gathered bytes
    cdef Py_ssize_t count               # number of gathered commands
    cdef bint broken                    # whether commands may be lost, so no more may be sent
    cdef Py_ssize_t commands            # number of commands in the returned chunks
    cdef Py_ssize_t covered             # number of rows covered by the returned chunks
    cdef list order(self, list chunks)
    cdef Py_ssize_t find(self, list chunks, Place *places) except -1
    cdef Chunk copy(self, list chunks, const Place *ordered, Py_ssize_t begin, Py_ssize_t end)
