from cpython.object cimport PyObject

from ..resp.buffer cimport Buffer
from ..resp.values cimport Nulls
from .fields cimport Field, FieldReader

cdef enum OpKind:
    OP_COPY         # bytes that are ready to send: arguments without placeholders
    OP_VALUE        # one placeholder that is a whole argument
    OP_CONVERTED    # a converted whole argument: {field!json}, {*!json}, {field!ms}
    OP_VECTOR       # a vector of floats: {field!f32}
    OP_JOINED       # an argument of several parts
    OP_ITEMS        # {*field}
    OP_PAIRS        # {**}


cdef class Op:
    cdef OpKind kind
    cdef bytes ready                    # OP_COPY: the bytes; text and size refer to them
    cdef const char *text
    cdef Py_ssize_t size
    cdef Field field                    # the placeholder; OP_JOINED: the last placeholder read
    cdef PyObject *name                 # borrowed: the placeholder's name
    cdef Py_ssize_t position            # the placeholder's position
    cdef tuple parts                    # OP_JOINED: bytes or Field
    cdef Py_ssize_t arguments           # number of arguments; 0 if it depends on the row
    cdef int digits                     # OP_JOINED: number of digits in the last length
    cdef frozenset used                 # OP_PAIRS: names and positions to leave out
    cdef tuple left_out                 # Fields that the first row must have; None after that row
    cdef int width                      # OP_VECTOR: number of bytes per item
    cdef Py_ssize_t length              # OP_VECTOR: number of items per vector; -1 if unknown


cdef class Program:
    cdef tuple ops
    cdef bint alone                     # whether at most two arguments are neither lists nor {**}
    cdef bint deletes                   # whether the command deletes null fields
    cdef bint counted                   # whether every row has the same number of arguments
    cdef bint checked                   # whether the name is fixed and passed the check
    cdef int digits                     # number of digits in the last number of arguments


cdef Py_ssize_t n_deletes(Plan plan) except -1


cdef class Plan(FieldReader):
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
