from cpython.object cimport PyObject

from ..resp.buffer cimport Buffer
from ..resp.values cimport Nulls
from .fields cimport Field, Rows


cdef enum OpKind:
    OP_COPY         # bytes ready to send: arguments without placeholders
    OP_VALUE        # one placeholder that is an argument by itself
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
    # All others; in OP_JOINED the part last written. And what is in it, borrowed:
    cdef Field field
    cdef PyObject *name
    cdef Py_ssize_t position
    cdef tuple parts                    # OP_JOINED: bytes or Field
    cdef Py_ssize_t arguments           # how many arguments it writes; 0 where the row decides
    cdef int digits                     # OP_JOINED: digits of the last length
    cdef frozenset used                 # OP_PAIRS: names and positions of what is not among them
    cdef tuple left_out                 # those that the first row has to have; None behind it
    cdef int width                      # OP_VECTOR: bytes of an item
    cdef Py_ssize_t length              # items of its first vector, -1 before that


cdef class Program:
    cdef tuple ops
    cdef bint counted                   # the number of arguments is the same for every row
    cdef bint checked                   # the name is fixed, and has been found harmless
    cdef int digits                     # of the last number of arguments, where it is not


cdef class Plan(Rows):
    cdef readonly tuple commands
    cdef tuple programs
    # Where the writing stands, for error messages.
    cdef Py_ssize_t program             # index of the command
    cdef Py_ssize_t op                  # index of the op in its program
    cdef object pair                    # name of the last pair

    cdef int put_row(
        self, Buffer b, object row, Py_ssize_t index, Nulls nulls, object default
    ) except -1
    cdef str field(self)
