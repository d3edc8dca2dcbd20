from ..resp.buffer cimport Buffer


cdef class ChunkWriter:
    cdef Buffer buffer
    cdef Py_ssize_t chunk_bytes
    cdef Py_ssize_t row_commands        # commands of a row, where none is left out
    cdef bint busy                      # in the midst of fill()
    cdef int begin(self) except -1
    cdef int check_free(self) except -1
