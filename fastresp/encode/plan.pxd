from cpython.object cimport PyObject

from ..resp.buffer cimport Buffer
from ..resp.values cimport Nulls
from .fields cimport Field, Rows


cdef enum OpKind:
    OP_COPY         # bytes that are ready to send: arguments without placeholders
    OP_VALUE        # one placeholder that is a whole argument
    OP_CONVERTED    # a JSON placeholder that is a whole argument: {field!json}, {*!json}
    OP_VECTOR       # a vector of floats: {field!f32}
    OP_JOINED       # an argument of several parts
    OP_ITEMS        # {*field}
    OP_PAIRS        # {**}


cdef class Op:
    cdef OpKind kind
    cdef bytes ready                    # OP_COPY: the bytes; text and size refer to them
    cdef const char *text
    cdef Py_ssize_t size
    # Other ops: the placeholder, and its borrowed name and position. OP_JOINED: the last part.
    cdef Field field
    cdef PyObject *name
    cdef Py_ssize_t position
    cdef tuple parts                    # OP_JOINED: bytes or Field
    cdef Py_ssize_t arguments           # number of arguments; 0 if it depends on the row
    cdef int digits                     # OP_JOINED: number of digits in the last length
    cdef frozenset used                 # OP_PAIRS: names and positions to leave out
    cdef tuple left_out                 # names that the first row must have; None after that row
    cdef int width                      # OP_VECTOR: bytes of an item
    cdef Py_ssize_t length              # OP_VECTOR: items of the first vector; -1 before it


cdef class Program:
    cdef tuple ops
    cdef bint alone                     # at most a name and a key besides lists and {**}
    cdef bint deletes                   # the command deletes null fields
    cdef bint counted                   # every row has the same number of arguments
    cdef bint checked                   # the name is fixed and passed the check
    cdef int digits                     # if not counted: digits in the last number of arguments


cdef Py_ssize_t n_deletes(Plan plan) except -1


cdef class Plan(Rows):
    cdef readonly tuple commands
    cdef tuple programs
    # The position being written, for error messages.
    cdef Py_ssize_t program             # index of the command
    cdef Py_ssize_t op                  # index of the op in its program
    cdef object pair                    # name of the current pair
    cdef Nulls pair_nulls               # how to handle a null in a field-value pair

    cdef int put_row(
        self, Buffer b, object row, Py_ssize_t index, Nulls nulls, object default
    ) except -1
    cdef str field(self)
