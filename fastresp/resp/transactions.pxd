from cpython.array cimport array

from .buffer cimport Buffer, Chunk, Reference
from .slots cimport LastRule, Rules


cdef class BatchedChunk(Chunk):
    cdef readonly Chunk inner
    cdef readonly array execs
    cdef readonly array waits
    cdef readonly array firsts
    cdef readonly Py_ssize_t opening
    cdef readonly dict lacking


cdef class Batcher:
    cdef Buffer out
    cdef list markers
    cdef bytes prefix
    cdef Py_ssize_t max_commands
    cdef Py_ssize_t max_bytes
    cdef Py_ssize_t most_of_source
    cdef dict lacking
    cdef list opening
    cdef Py_ssize_t few_words
    cdef bytes script                   # the transaction's script; None for MULTI and EXEC
    cdef public array reached           # 'q': for a script, the number of rows in each marker
    cdef Py_ssize_t header              # offset of the script call being written
    cdef int header_digits              # guessed number of digits of ``words``
    cdef Py_ssize_t words               # number of arguments in the script call so far
    cpdef BatchedChunk batch(
        self, Chunk inner, list ends=*, list numbers=*, bint first=*
    )
    cdef bint lacks(self, const char *command) except *
    cdef int open(self, Py_ssize_t marker) except -1
    cdef int pass_on(
        self, Chunk inner, const char *start, const char *end, const Reference *first,
        const Reference *stop, long long row, Py_ssize_t marker,
    ) except -1
    cdef int end_failing(self, Py_ssize_t marker) except -1
    cdef int append_value(self, Py_ssize_t row) except -1
    cdef int finish(self, Py_ssize_t marker, Py_ssize_t row) except -1


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
