from cpython.object cimport PyObject

from .cell cimport Cell
from ...resp.out cimport Out
from ...resp.values cimport Nulls
from .steps cimport Steps


# What is written to without the interpreter, and where the writing stands.
cdef struct Job:
    Out *out
    long long *ends         # of each command,
    long long *rows         # and the row that it came from
    Nulls nulls
    Py_ssize_t commands     # written, and marked
    Py_ssize_t whole        # commands of whole rows
    Py_ssize_t written      # arguments that a step has written
    # What can't be written: why, and where.
    int fault
    Py_ssize_t argument
    Cell *cell              # or NULL
    PyObject *error         # owned: what was raised, or NULL


cdef int put_rows(
    Job *job, Steps steps, Py_ssize_t before, Py_ssize_t *at, Py_ssize_t last,
    Py_ssize_t chunk_bytes,
) noexcept nogil
