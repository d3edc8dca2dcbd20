from cpython.object cimport PyObject

from ..resp.buffer cimport Buffer
from ..resp.values cimport Nulls
from .fields cimport Field, Rows


cdef enum OpKind:
    OP_COPY         # bytes that are ready to send: arguments without placeholders
    OP_VALUE        # one placeholder that is a whole argument
    OP_CONVERTED    # the same as JSON: {field!json}, {*!json}
    OP_VECTOR       # the same as floats: {field!f32}
    OP_JOINED       # an argument of several parts
    OP_ITEMS        # {*field}
    OP_PAIRS        # {**}


cdef class Op:
    cdef OpKind kind
    cdef bytes ready                    # OP_COPY, and its memory:
    cdef const char *text
    cdef Py_ssize_t size
    # All others; in OP_JOINED the part last written. Its name and position, borrowed:
    cdef Field field
    cdef PyObject *name
    cdef Py_ssize_t position
    cdef tuple parts                    # OP_JOINED: bytes or Field
    cdef Py_ssize_t arguments           # arguments it writes; 0 if it depends on the row
    cdef int digits                     # OP_JOINED: digits of the last length
    cdef frozenset used                 # OP_PAIRS: names and positions to leave out
    cdef tuple left_out                 # the names that the first row must have; None after it
    cdef int width                      # OP_VECTOR: bytes of an item
    cdef Py_ssize_t length              # items of its first vector; -1 before it


cdef class Program:
    cdef tuple ops
    cdef bint alone                     # besides lists and {**} it has at most a name and a key
    cdef bint deletes                   # it deletes null fields
    cdef bint counted                   # every row has the same number of arguments
    cdef bint checked                   # the name is fixed and passed the check
    cdef int digits                     # digits of the last number of arguments, if not counted


cdef Py_ssize_t n_deletes(Plan plan) except -1


cdef class Plan(Rows):
    cdef readonly tuple commands
    cdef tuple programs
    # The position being written, for error messages.
    cdef Py_ssize_t program             # index of the command
    cdef Py_ssize_t op                  # index of the op in its program
    cdef object pair                    # name of the last pair
    cdef Nulls pair_nulls               # how to handle a null in a field-value pair

    cdef int put_row(
        self, Buffer b, object row, Py_ssize_t index, Nulls nulls, object default
    ) except -1
    cdef str field(self)
