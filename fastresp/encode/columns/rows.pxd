from cpython.object cimport PyObject

from .arrow cimport Batch
from ...resp.buffer cimport Buffer
from .cell cimport Cell
from ..chunk_writer cimport ChunkWriter
from ...resp.values cimport Nulls
from .steps cimport Steps


# The buffer while it is written to without the interpreter, and where the writing stands.
cdef struct Job:
    char *base
    char *p
    char *end
    long long *ends         # of each command,
    long long *rows         # and the row that it came from
    Py_ssize_t large        # arguments from this size on are not copied
    Py_ssize_t most         # arguments beyond this size are refused
    bint in_place           # some are not
    Nulls nulls
    PyObject *target        # borrowed
    Py_ssize_t whole        # commands of whole rows
    Py_ssize_t written      # arguments that a step has written
    # What can't be written: why, and where.
    int fault
    Py_ssize_t argument
    Cell *cell              # or NULL


cdef class Target(ChunkWriter):
    cdef Batch batch
    cdef object error                   # what was raised while no exception could be


cdef int put_rows(
    Job *job, Steps steps, Buffer b, Py_ssize_t before, Py_ssize_t *at, Py_ssize_t last,
    Py_ssize_t chunk_bytes,
) noexcept nogil
cdef void lend(Job *job, Buffer b) noexcept
cdef void give_back(Job *job, Buffer b) noexcept
