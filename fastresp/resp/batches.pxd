from cpython.array cimport array

from .buffer cimport Buffer, Chunk


cdef class BatchedChunk(Chunk):
    cdef readonly Chunk inner
    cdef readonly array execs
    cdef readonly array waits
    cdef readonly array firsts
    cdef readonly Py_ssize_t opening


cdef class Batcher:
    cdef Buffer out
    cdef list markers
    cdef bytes prefix
    cdef Py_ssize_t most_commands
    cdef Py_ssize_t most_bytes
    cdef Py_ssize_t most_of_source
    cdef dict lacking
    cdef list opening
    cdef Py_ssize_t few_words
    cpdef BatchedChunk batch(
        self, Chunk inner, list ends=*, list numbers=*, bint first=*
    )
    cdef bint lacks(self, const char *command) except *
    cdef int finish(self, Py_ssize_t marker, Py_ssize_t row) except -1
