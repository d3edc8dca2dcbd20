from cpython.object cimport PyObject

from .cell cimport Cell
from ...resp.out cimport Out
from ...resp.values cimport Nulls
from .steps cimport Steps


# The state of writing without the GIL: the output, the position, and the fault.
cdef struct Job:
    Out *out
    long long *ends         # of each command,
    long long *rows         # and its source row
    Nulls nulls             # what a null does, and what in a field-value pair
    Nulls pair_nulls
    bint alone              # of the command: see Command
    Py_ssize_t deletes      # commands that delete fields because they are null
    Py_ssize_t left_out     # nulls that commands do without
    Py_ssize_t counted_row  # the row of the last put_command(), and both before it
    Py_ssize_t deletes_before
    Py_ssize_t left_out_before
    Py_ssize_t commands     # commands written and marked
    Py_ssize_t whole        # commands of whole rows
    Py_ssize_t written      # arguments written by a step
    # The fault, and its place.
    int fault
    Py_ssize_t argument
    Cell *cell              # or NULL
    const char *name        # of the field, or NULL
    Py_ssize_t name_size
    PyObject *error         # owned: the exception raised, or NULL


cdef int put_rows(
    Job *job, Steps steps, Py_ssize_t before, Py_ssize_t *at, Py_ssize_t last,
    Py_ssize_t chunk_bytes,
) noexcept nogil
