from ...resp.buffer cimport Chunk
from ...resp.merge cimport MergedChunk


cdef class SerializedChunk(MergedChunk):
    cdef list sources                   # the chunks with the commands
    cdef long long covered_rows         # up to its last command


cdef SerializedChunk serialized(Chunk taken, Py_ssize_t first_command, list held)
