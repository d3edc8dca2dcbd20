from .arrow cimport ArrowSchema
from .cell cimport Cell


# The target of a placeholder: a column, or a field within a column.
cdef struct Column:
    Cell *cell
    ArrowSchema *schema


cdef class Columns:
    cdef Cell root                      # the struct of all columns
    cdef Cell *columns                  # borrowed: the fields of the root, or the root itself
    cdef Py_ssize_t n_columns
    cdef Cell *fields                   # borrowed: the column with all fields of JSON rows, or NULL
    cdef Py_ssize_t first_own           # index of the first column after ``fields``
    cdef Cell *document                 # borrowed: the column with whole rows as JSON, or NULL
    cdef bint named                     # whether the columns have names
    cdef Cell *conversions              # owned: cells for conversions and paths
    cdef Py_ssize_t n_conversions
    cdef str text                       # the template's text
    cdef ArrowSchema *top               # borrowed from the schema until all cells are made
    cdef list names
    cdef dict indices_of                # indices of columns by name
    cdef object unknown                 # by column name, why the column can't be sent
    cdef bint single                    # whether {0} is the struct of all columns
    cdef bint by_row                    # whether a placeholder refers to columns, not the struct
    cdef list kept_alive                # objects that C pointers refer to
    cdef int bind_conversions(self) except -1
    cdef set named_by(self, arguments, field)
    cdef list unnamed(self, set used, field)
    cdef Cell *values_of(self, field) except NULL
    cdef list distinct(self, columns, field)
    cdef Cell *cell_of(self, field) except NULL
    cdef Cell *pair_of(self, Py_ssize_t i, field) except NULL
    cdef Cell *conversion_of(self, Column column, field) except NULL
    cdef Cell *new_conversion(self) noexcept
    cdef int check_json(self, Column column, field) except -1
    cdef Cell *check(self, Column column, field) except NULL
    cdef Column column(self, Py_ssize_t i, field) except *
    cdef bint is_whole(self, field) except -1
    cdef Column find(self, field) except *
    cdef Column within(self, Column parent, field, Py_ssize_t depth) except *
    cdef object missing(self, field)
    cdef Py_ssize_t index(self, field) except -2
    cdef str described(self, Column column)
