from cpython.array cimport array

from .buffer cimport Buffer, Chunk


cdef class BatchedChunk(Chunk):
    cdef readonly Chunk inner           # the commands without transactions
    cdef readonly array execs           # 'q': for each transaction the reply of its EXEC
    cdef readonly array firsts          # 'q': its first reply in ``inner``; one more at the end


cdef class Batcher:
    cdef Buffer out
    cdef bytes marker                   # SET and the key, up to the value
    cdef Py_ssize_t most_commands
    cdef Py_ssize_t most_bytes
    cdef int finish(self, Py_ssize_t row) except -1
