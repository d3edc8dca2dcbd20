from .arrow cimport Batch
from .cell cimport Cell
from .placeholders cimport Columns
from ...resp.values cimport Nulls


cdef enum StepKind:
    STEP_VALUE      # a value, as one argument
    STEP_JOINED     # an argument of several parts
    STEP_ITEMS      # the items of a list, or the pairs of a map or struct
    STEP_COPY       # only the constant text before it
    STEP_NAME       # the name of a column, if its value is null
    STEP_FIELDS     # the fields of a row, or the names of null ones


cdef enum:
    # Room is made in advance for values shorter than this.
    SHORT_BYTES = 4096


# A part of an argument: bytes, or a value and, once looked up, its text.
cdef struct Part:
    Cell *cell              # NULL for bytes
    const char *text
    Py_ssize_t size


# The name of a field, as one argument; NULL if the command leaves out the field.
cdef struct Name:
    const char *text
    Py_ssize_t size


cdef struct Step:
    StepKind kind
    bint pair               # a null leaves out the pair, not the command
    bint lists              # its arguments belong to a list or to {**}
    const char *text        # the constant text before it,
    Py_ssize_t size
    Py_ssize_t arguments    # and the arguments in that text
    Cell *cell
    Part *parts             # owned
    Py_ssize_t n_parts
    bint absent             # of fields: their names if they are null
    Cell *values            # of fields
    Name *names             # owned: of the fields of the batch
    Py_ssize_t n_names
    Py_ssize_t left_out     # in Steps.left_out: the names of fields that are left out
    int digits              # digits of the total length when last written


cdef struct Command:
    Step *steps             # owned
    Py_ssize_t n_steps
    bint deletes            # it deletes null fields
    bint alone              # besides lists or {**} it has at most a name and a key
    bint pairs              # it has a {**}
    bint may_vary           # the number of arguments may differ between rows
    bint counted            # in this batch they do not:
    const char *counted_start   # the header and the text before the first value,
    Py_ssize_t counted_size
    const char *start           # the same without the header
    Py_ssize_t size
    bint plain              # plain in this batch, with a name that need not be checked
    Py_ssize_t most         # its bytes if no value is long,
    Py_ssize_t longest      # and its longest argument
    bint checked            # its name is fixed and passed the check
    int digits              # digits of the last number of arguments, if not counted


cdef class Steps(Columns):
    cdef Command *commands              # owned
    cdef Py_ssize_t n_commands
    cdef list left_out                  # sets of names
    cdef dict texts                     # of the names of fields, by their step
    cdef bint skips_pairs               # a field-value pair with a null is left out
    cdef int attach(self, Batch batch, Py_ssize_t most) except -1
    cdef void look(self, Py_ssize_t first, Py_ssize_t last) noexcept nogil
    cdef Cell *damaged(self) noexcept
    cdef int look_up(self, Step *step) except -1
    cdef int compile(self, Command *command, arguments) except -1
    cdef list planned(self, arguments)
    cdef int set_parts(self, Step *step, parts) except -1
    cdef const char *keep(self, bytes text) except NULL
