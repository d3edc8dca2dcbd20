"""Hash a string with Python's own hash function, SipHash.

The secret of the hash function is random in each process, so attackers can't choose strings with
equal hashes.
"""

from libc.stdint cimport uint64_t

cdef extern from "Python.h":
    ctypedef struct PyHash_FuncDef:
        Py_hash_t (*hash)(const void *, Py_ssize_t) noexcept nogil
    PyHash_FuncDef *PyHash_GetFuncDef() noexcept nogil


cdef extern from *:
    """
    #if defined(__GNUC__)
    #define fastresp_fetch(p) __builtin_prefetch(p, 1)
    #else
    #define fastresp_fetch(p)
    #endif
    """
    # Prefetch memory before it is read or written: a large table is not in the cache.
    void fetch "fastresp_fetch"(const void *p) noexcept nogil


cdef inline uint64_t hashed(const char *text, Py_ssize_t size) noexcept nogil:
    return <uint64_t>PyHash_GetFuncDef().hash(text, size)
