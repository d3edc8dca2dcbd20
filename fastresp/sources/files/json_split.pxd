"""Rows of JSON as values of columns."""

from libc.stdint cimport int32_t, uint8_t, uint32_t, uint64_t

from .json_nested cimport Fault, Keys, Text

cdef enum:
    MARK_BIT = 1 << 30          # a bit of Value.column


cdef struct Value:
    const char *text            # NULL if the value is null
    uint32_t size
    uint32_t column             # number of the column; MARK_BIT is set unless the value is a string


cdef struct Column:
    const char *name
    Py_ssize_t name_size
    uint64_t hash
    bint plain                  # the name needs no escapes in JSON
    bint nested                 # the values are written to ``lines``
    bint left_out               # the values are only in the whole row
    Py_ssize_t next             # the column that followed when this column was last read
    Py_ssize_t row              # the last row with this column; -1 if no row has it
    Py_ssize_t count, size      # number of non-null values in the last batch, and bytes of text
    # In the current batch:
    bint chosen                 # False between batches
    uint8_t *validity           # NULL if no value is null
    int32_t *offsets
    char *text
    Py_ssize_t filled           # index of the last offset that is set


cdef inline void add_size(Column *column, Value *value) noexcept nogil:
    """Count a value of a column."""
    column.count += value.text is not NULL
    column.size += value.size + (value.column >= MARK_BIT)


cdef class Split:
    cdef readonly str fault, twice
    cdef readonly Py_ssize_t rows, line_ends
    cdef readonly list names
    cdef readonly bint has_objects, has_lists
    cdef bytes block
    cdef list kept              # keeps the names of nested and known columns in memory
    cdef Value *nested          # the names of nested columns
    cdef Py_ssize_t n_nested, n_known
    cdef bint only, fields, documents
    cdef Py_ssize_t most
    cdef Column *columns        # the first is the column of whole rows
    cdef Py_ssize_t n_columns, room_of_columns
    cdef uint32_t *slots        # a hash table: numbers of columns, or 0
    cdef Py_ssize_t n_slots
    cdef Value *values
    cdef Py_ssize_t n_values, room_of_values
    cdef Py_ssize_t *starts     # index of the first value of each row
    cdef Py_ssize_t room_of_rows
    cdef char *texts            # text of values that differs from the block
    cdef char *lines            # JSON lines with the nested values
    cdef char *lines_end
    cdef Keys keys              # keys of nested objects
    cdef Py_ssize_t again       # the column of a duplicate key; 0 for a nested key

    cdef str name(self, Py_ssize_t i)
    cdef str repeated(self)
    cdef Fault read(self, Text *t) noexcept nogil
    cdef Fault read_row(self, Text *t) noexcept nogil
    cdef Fault read_field(self, Text *t, Py_ssize_t *before) noexcept nogil
    cdef Fault read_name(self, Text *t, Py_ssize_t *i) noexcept nogil
    cdef Fault read_value(self, Text *t, Py_ssize_t i, const char *start) noexcept nogil
    cdef void put_line(self, const char *text, Py_ssize_t size) noexcept nogil
    cdef bint put_value(
        self, Column *column, Py_ssize_t number, const char *text, Py_ssize_t size
    ) noexcept nogil
    cdef Py_ssize_t find(self, const char *name, Py_ssize_t size) noexcept nogil
    cdef Py_ssize_t add(self, const char *name, Py_ssize_t size) noexcept nogil
    cdef void place(self, Py_ssize_t i) noexcept nogil
    cdef bint grow_columns(self) noexcept nogil
    cdef bint grow_values(self) noexcept nogil
    cdef bint grow_rows(self) noexcept nogil
