from .arrow cimport ArrowSchema
from .column_view cimport ColumnView

cdef bytes DOCUMENT

cdef int build(ColumnView *column, ArrowSchema *schema, list zones) except -1
cdef bint set_json(ColumnView *column) except -1
cdef bint is_fields(ColumnView *column) except -1
cdef bytes extension_name(ArrowSchema *schema)
cdef str type_name(ArrowSchema *schema)
cdef const char *text_of_milliseconds(
    ColumnView *column, Py_ssize_t i, Py_ssize_t *n
) noexcept nogil
cdef bint make_vector(ColumnView *column, ColumnView *lists, str kind) except -1
