from .arrow cimport ArrowSchema
from .cell cimport Cell


# The target of a placeholder: a column, or a field within a column.
cdef struct Found:
    Cell *cell
    ArrowSchema *schema


cdef class Columns:
    cdef Cell root                      # the struct of all columns
    cdef Cell *columns                  # borrowed: the fields of the root, or the root itself
    cdef Py_ssize_t n_columns
    cdef Cell *fields                   # borrowed: the column with all fields of JSON rows, or NULL
    cdef Py_ssize_t own                 # index of the first column after ``fields``
    cdef Cell *document                 # borrowed: the column with whole rows as JSON, or NULL
    cdef bint named                     # whether the columns have names
    cdef Cell *forms                    # owned: cells for conversions and paths
    cdef Py_ssize_t n_forms
    cdef str text                       # the template's text
    cdef ArrowSchema *top               # borrowed from the schema until all cells are made
    cdef list names
    cdef dict places                    # indices of columns by name
    cdef object unknown                 # by column name, why the column can't be sent
    cdef bint single                    # whether {0} is the struct of all columns
    cdef bint by_row                    # whether a placeholder refers to columns, not the struct
    cdef list kept                      # objects that C pointers refer to
    cdef int bind_forms(self) except -1
    cdef set named_by(self, arguments, field)
    cdef list unnamed(self, set used, field)
    cdef Cell *values_of(self, field) except NULL
    cdef list distinct(self, columns, field)
    cdef Cell *cell_of(self, field) except NULL
    cdef Cell *pair_of(self, Py_ssize_t i, field) except NULL
    cdef Cell *form_of(self, Found found, field) except NULL
    cdef Cell *new_form(self) noexcept
    cdef int check_json(self, Found found, field) except -1
    cdef Cell *check(self, Found found, field) except NULL
    cdef Found column(self, Py_ssize_t i, field) except *
    cdef bint is_whole(self, field) except -1
    cdef Found find(self, field) except *
    cdef Found within(self, Found over, field, Py_ssize_t depth) except *
    cdef object missing(self, field)
    cdef Py_ssize_t index(self, field) except -2
    cdef str described(self, Found found)
