from .column_view cimport ColumnView

cdef enum:
    VALUE_MARK = 0xFF       # the first byte of a JSON value that is not a string: see VALUE

cdef bytes VALUE

cdef int make_plain(ColumnView *column, str kind, bytes extension) except -1
cdef const char *text_of_any(ColumnView *column, Py_ssize_t i, Py_ssize_t *n) noexcept nogil
cdef const char *json_value(
    ColumnView *column, Py_ssize_t i, Py_ssize_t *n, bint *marked
) noexcept nogil
cdef ColumnView *find_invalid_field(ColumnView *column, Py_ssize_t i) noexcept nogil
cdef const char *text_of_json(ColumnView *column, Py_ssize_t i, Py_ssize_t *n) noexcept nogil
cdef const char *text_of_nested(ColumnView *column, Py_ssize_t i, Py_ssize_t *n) noexcept nogil
