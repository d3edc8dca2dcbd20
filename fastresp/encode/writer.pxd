from ..resp.buffer cimport Buffer


cdef class ChunkWriter:
    cdef Buffer buffer
    cdef Py_ssize_t chunk_bytes
    cdef Py_ssize_t row_commands        # number of commands per row if no command is left out
    cdef Py_ssize_t start_row           # index of the first row to encode
    cdef bint busy                      # whether fill() is running
    cdef int begin(self) except -1
    cdef int check_free(self) except -1
