from .arrow cimport ArrowSchema
from .cell cimport Cell

cdef bytes DOCUMENT

cdef int build(Cell *cell, ArrowSchema *schema, list zones) except -1
cdef bint set_json(Cell *cell) except -1
cdef bint is_fields(Cell *cell, ArrowSchema *schema) except -1
cdef bytes extension_name(ArrowSchema *schema)
cdef str type_name(ArrowSchema *schema)
cdef const char *text_of_milliseconds(Cell *cell, Py_ssize_t i, Py_ssize_t *n) noexcept nogil
