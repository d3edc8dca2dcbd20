from libc.stdint cimport uint64_t

from .pieces cimport Word


cdef class UniqueNames:
    cdef uint64_t *slots                # the slots of a hash table
    cdef Py_ssize_t room
    cdef Py_ssize_t keep(self, Word *words, Py_ssize_t size, int item, int name) except -1


cdef void *larger(void *memory, Py_ssize_t size) except NULL
