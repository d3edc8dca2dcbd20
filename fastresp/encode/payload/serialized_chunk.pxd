from ...resp.buffer cimport Chunk
from ...resp.merge cimport MergedChunk


cdef class SerializedChunk(MergedChunk):
    cdef list sources                   # the chunks with the original commands
    cdef long long covered_rows         # number of rows covered up to the chunk's last command


cdef SerializedChunk make_chunk(Chunk keys, Py_ssize_t first_command, list sources)
