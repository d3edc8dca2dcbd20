from cpython.object cimport PyObject
from libc.string cimport memcpy

from ...resp.buffer cimport Out, put_copy, reserve
from ...resp.values cimport Nulls
from .column_view cimport NO_MEMORY, ColumnView
from .steps cimport Step, Steps


# The state of a writer without the GIL: the output, the position, and the fault.
cdef struct WriteState:
    Out *out
    long long *ends         # end offset of each command
    long long *rows         # source row of each command
    Nulls nulls             # how to handle a null outside a field-value pair
    Nulls pair_nulls        # how to handle a null in a field-value pair
    Py_ssize_t deletes      # number of commands that delete null fields
    Py_ssize_t left_out     # number of nulls that commands omit
    Py_ssize_t counted_row  # row of the last put_command()
    Py_ssize_t deletes_before   # deletes at the start of counted_row
    Py_ssize_t left_out_before  # left_out at the start of counted_row
    Py_ssize_t commands     # number of commands written
    Py_ssize_t whole        # number of commands of completely written rows
    Py_ssize_t written      # number of arguments written by a step
    # The fault, and the value that caused it.
    int fault
    Py_ssize_t argument     # index of the argument in its command
    ColumnView *column      # column of the value, or NULL
    const char *name        # name of the field, or NULL
    Py_ssize_t name_size
    PyObject *error         # owned: the raised exception, or NULL


# These functions are declared here so that the compiler does not inline them into the loop over a
# command's steps: inlining would cost 10 more instructions per command.
cdef char *put_items(WriteState *state, ColumnView *column, Py_ssize_t row, char *p) noexcept nogil
cdef char *put_fields(WriteState *state, Step *step, Py_ssize_t row, char *p) noexcept nogil


cdef inline char *make_room(WriteState *state, char *p, Py_ssize_t n) noexcept nogil:
    """Make room for n more bytes at p; return NULL and set a Fault if out of memory."""
    p = reserve(state.out, p, n)
    if p is NULL:
        state.fault = NO_MEMORY
    return p


cdef inline char *put_constant(
    WriteState *state, const char *text, Py_ssize_t n, char *p
) noexcept nogil:
    """Write bytes that are the same for every row."""
    p = make_room(state, p, n)
    return NULL if p is NULL else put_copy(p, text, n)


cdef inline void copy_padded(char *p, const char *text, Py_ssize_t n) noexcept nogil:
    """Copy constant text in steps of 16 bytes; the text must be padded, and p must have room."""
    cdef Py_ssize_t i = 0
    while i < n:
        memcpy(p + i, text + i, 16)
        i += 16


cdef int put_rows(
    WriteState *state, Steps steps, Py_ssize_t before, Py_ssize_t *at, Py_ssize_t last,
    Py_ssize_t chunk_bytes,
) noexcept nogil
