from ...resp.values cimport Nulls
from .arrow cimport Batch
from .column_view cimport ColumnView

cdef enum StepKind:
    STEP_VALUE      # a value, as one argument
    STEP_JOINED     # an argument of several parts
    STEP_ITEMS      # the items of a list, or the pairs of a map or struct
    STEP_COPY       # only constant text
    STEP_NAME       # the name of a column, if its value is null
    STEP_FIELDS     # the fields of a row, or the names of its null fields


cdef enum:
    # Values shorter than this get room in advance.
    SHORT_BYTES = 4096


# A part of an argument: constant text, or a column with the text of the current value.
cdef struct ArgumentPart:
    ColumnView *column      # NULL for constant text
    const char *text
    Py_ssize_t size


# The name of a field, as one argument; its text is NULL if the command leaves out the field.
cdef struct FieldName:
    const char *text
    Py_ssize_t size


cdef struct Step:
    StepKind kind
    bint pair               # whether a null leaves out the pair, not the command
    bint lists              # whether the arguments belong to a list or to {**}
    const char *text        # the constant text before the step's value
    Py_ssize_t size
    Py_ssize_t arguments    # the number of arguments in the constant text
    ColumnView *column
    ArgumentPart *parts     # owned
    Py_ssize_t n_parts
    bint absent             # STEP_FIELDS: whether to write only the names of null fields
    ColumnView *values      # STEP_FIELDS: the column of the fields' values
    FieldName *names        # owned: the names of the batch's fields
    Py_ssize_t n_names
    Py_ssize_t left_out     # index in Steps.left_out
    int digits              # number of digits in the last total length


cdef struct CommandSteps:
    Step *steps             # owned
    Py_ssize_t n_steps
    bint deletes            # whether the command deletes null fields
    bint alone              # whether lists and {**} follow at most a name and a key
    bint pairs              # whether it has a {**}
    bint varies             # whether the number of arguments may differ between rows
    bint counted            # whether this number is the same for all rows of this batch
    const char *counted_start   # the header and the text before the first value
    Py_ssize_t counted_size
    const char *start           # the text without the header
    Py_ssize_t size
    bint plain              # whether put_plain() may write the command
    Py_ssize_t most         # the maximum size in bytes if all values are short
    Py_ssize_t longest      # the maximum size of an argument if all values are short
    bint checked            # whether the name is fixed and passed the check
    int digits              # if not counted: number of digits in the last number of arguments


cdef class Steps:
    cdef ColumnView root                # the struct of all columns
    cdef ColumnView *columns            # borrowed: the fields of the root, or the root itself
    cdef Py_ssize_t n_columns
    cdef ColumnView *fields             # borrowed: all fields of JSON rows as one column, or NULL
    cdef Py_ssize_t first_own           # index of the first column after ``fields``
    cdef ColumnView *document           # borrowed: whole rows as JSON, or NULL
    cdef bint named                     # whether the columns have names
    cdef ColumnView *conversions        # owned: columns for conversions and paths
    cdef Py_ssize_t n_conversions
    cdef str text                       # the template's text
    cdef list names
    cdef dict indices_of                # indices of columns by name
    cdef object unknown                 # why columns can't be sent, by name
    cdef bint single                    # whether {0} is the struct of all columns
    cdef bint by_row                    # whether a placeholder refers to columns, not the struct
    cdef list kept_alive                # objects that C pointers refer to
    cdef CommandSteps *commands         # owned
    cdef Py_ssize_t n_commands
    cdef list left_out                  # sets of the names of fields to leave out
    cdef dict texts                     # the names of fields as arguments, by step
    cdef bint skips_pairs               # whether to leave out field-value pairs with a null
    cdef int attach(self, Batch batch, Py_ssize_t most) except -1
    cdef void check_rows(self, Py_ssize_t first, Py_ssize_t last) noexcept nogil
    cdef ColumnView *values_of(self, field) except NULL
    cdef ColumnView *column_of(self, field) except NULL
    cdef ColumnView *pair_of(self, Py_ssize_t i, field) except NULL
    cdef ColumnView *conversion_of(self, ColumnView *column, field) except NULL
    cdef ColumnView *new_conversion(self) noexcept
    cdef int check_json(self, ColumnView *column, field) except -1
    cdef ColumnView *check(self, ColumnView *column, field) except NULL
    cdef ColumnView *sendable(self, Py_ssize_t i, field) except NULL
    cdef ColumnView *find(self, field) except NULL
    cdef ColumnView *within(self, ColumnView *parent, field, Py_ssize_t depth) except NULL
    cdef str described(self, ColumnView *column)
    cdef ColumnView *damaged(self) noexcept
    cdef int load_names(self, Step *step) except -1
    cdef int compile(self, CommandSteps *command, arguments) except -1
    cdef int set_parts(self, Step *step, parts) except -1
    cdef const char *keep_text(self, bytes text) except NULL
