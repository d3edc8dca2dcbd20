from .arrow cimport Batch
from .cell cimport Cell
from .placeholders cimport Columns
from ...resp.values cimport Nulls


cdef enum StepKind:
    STEP_VALUE      # a value, as one argument
    STEP_JOINED     # an argument of several parts
    STEP_ITEMS      # the items of a list, or the pairs of a map or struct
    STEP_COPY       # nothing but what comes before it, the same for every row
    STEP_GROUP      # nothing: the end of the pairs that {**} stands for


cdef enum:
    # Values shorter than this are what room is made for beforehand.
    SHORT_BYTES = 4096


# A part of an argument: bytes, or a value and, once it was looked up, its text.
cdef struct Part:
    Cell *cell              # NULL for bytes
    const char *text
    Py_ssize_t size


cdef struct Step:
    StepKind kind
    bint pair               # a null leaves out the pair, not the command
    const char *text        # what comes before, the same for every row,
    Py_ssize_t size
    Py_ssize_t arguments    # and how many arguments that is
    Cell *cell
    Part *parts             # owned
    Py_ssize_t n_parts
    int digits              # of the length of all parts together, when it was last written


cdef struct Command:
    Step *steps             # owned
    Py_ssize_t n_steps
    bint may_vary           # some rows may make more arguments of it than others
    bint counted            # in this batch none do:
    const char *counted_start   # the header, and what comes before the first value,
    Py_ssize_t counted_size
    const char *start           # and that without the header
    Py_ssize_t size
    bint plain              # in this batch, and its name has not to be looked at
    Py_ssize_t most         # bytes that it has if no value of it is long,
    Py_ssize_t longest      # and its longest argument
    bint checked            # its name is fixed, and has been found harmless
    int digits              # of the last number of arguments, where it is not counted


cdef class Steps(Columns):
    cdef Command *commands              # owned
    cdef Py_ssize_t n_commands
    cdef Nulls nulls
    cdef int attach(self, Batch batch, Py_ssize_t most) except -1
    cdef void look(self, Py_ssize_t first, Py_ssize_t last) noexcept nogil
    cdef Cell *damaged(self) noexcept
    cdef int compile(self, Command *command, arguments) except -1
    cdef list planned(self, arguments)
    cdef int set_parts(self, Step *step, parts) except -1
    cdef const char *keep(self, bytes text) except NULL
