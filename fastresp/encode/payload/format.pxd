from libc.stdint cimport uint64_t

cdef enum:
    # The size of the longest score that mergeable.is_score() accepts, with a NUL.
    SCORE_ROOM = 64


cdef class Format:
    cdef readonly int rdb_version
    cdef bint listpacks        # from 7.0: hashes, lists and sorted sets in listpacks
    cdef bint newer            # from 7.2: sets in listpacks, and shortest scores
    cdef long long hash_entries, hash_value
    cdef long long set_entries, set_value, set_integers
    cdef long long zset_entries, zset_value
    cdef long long list_bytes, list_entries


cdef uint64_t crc64(uint64_t crc, const char *data, Py_ssize_t size) noexcept nogil


cdef double read_score(const char *text, Py_ssize_t size) except? -1
cdef Py_ssize_t shortest_score(double score, char *text) noexcept nogil
cdef Py_ssize_t score_text(double score, bint shortest, char *text) except -1
