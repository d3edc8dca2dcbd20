from libc.stdint cimport uint64_t

cdef uint64_t crc64(uint64_t crc, const char *data, Py_ssize_t size) noexcept nogil
