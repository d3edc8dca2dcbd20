from .column_view cimport ColumnView


cdef class Columns:
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
    cdef int bind_conversions(self) except -1
    cdef set named_by(self, arguments, field)
    cdef int check_named(self, field) except -1
    cdef ColumnView *values_of(self, field) except NULL
    cdef list distinct(self, columns, field)
    cdef ColumnView *column_of(self, field) except NULL
    cdef ColumnView *pair_of(self, Py_ssize_t i, field) except NULL
    cdef ColumnView *conversion_of(self, ColumnView *column, field) except NULL
    cdef ColumnView *new_conversion(self) noexcept
    cdef int check_json(self, ColumnView *column, field) except -1
    cdef ColumnView *check(self, ColumnView *column, field) except NULL
    cdef ColumnView *sendable(self, Py_ssize_t i, field) except NULL
    cdef bint is_whole(self, field) except -1
    cdef ColumnView *find(self, field) except NULL
    cdef ColumnView *within(self, ColumnView *parent, field, Py_ssize_t depth) except NULL
    cdef object missing(self, field)
    cdef Py_ssize_t index(self, field) except -2
    cdef str described(self, ColumnView *column)
    cdef object error(self, field, str message)
