# cython: language_level=3, cdivision=True
"""Point cells to the memory of a batch."""

from libc.stdint cimport int64_t, uint8_t

from .arrow cimport ArrowArray
from .bounds cimport check_shape
from .cell cimport (
    FORM_NULL,
    LAYOUT_LARGE_LIST_VIEW,
    LAYOUT_LARGE_STRING,
    LAYOUT_LIST_VIEW,
    LAYOUT_RUNS,
    LAYOUT_STRING,
    LAYOUT_STRUCT,
    LAYOUT_VIEW,
    Cell,
)

cdef const char *EMPTY = b""        # NULL would mean null


cdef int bind(Cell *cell, ArrowArray *array, Py_ssize_t base) except -1:
    """Point a cell to the memory of a batch.

    Args:
        base: the parent's offset if the cell has the same rows as its parent; otherwise 0.
    """
    cdef Py_ssize_t i, first
    check_shape(cell, array)
    cell.offset = array.offset + base
    cell.length = array.length - base
    cell.run = 0
    cell.validity = NULL
    cell.values = NULL
    if array.n_buffers > 0 and array.buffers is not NULL and array.null_count != 0:
        cell.validity = <const uint8_t *>array.buffers[0]
    cell.may_be_null = cell.validity is not NULL or cell.form == FORM_NULL
    if array.n_buffers > 1:
        cell.values = array.buffers[1]
    if cell.layout == LAYOUT_VIEW:
        cell.variadic = <const char **>array.buffers + 2
        cell.n_variadic = array.n_buffers - 3
        cell.sizes = <const int64_t *>array.buffers[array.n_buffers - 1]
    elif cell.layout == LAYOUT_LIST_VIEW or cell.layout == LAYOUT_LARGE_LIST_VIEW:
        cell.sizes = <const int64_t *>array.buffers[2]
    elif cell.layout == LAYOUT_STRING or cell.layout == LAYOUT_LARGE_STRING:
        # If all strings are empty, the buffer may be NULL, and a NULL text would mean null.
        cell.empty = array.buffers[2] is NULL
        cell.bytes = EMPTY if cell.empty else <const char *>array.buffers[2]
    if array.dictionary is not NULL:
        bind(&cell.children[0], array.dictionary, 0)
        cell.may_be_null |= cell.children[0].may_be_null
        return 0
    first = cell.offset if cell.layout == LAYOUT_STRUCT else 0
    for i in range(cell.n_children):
        bind(&cell.children[i], array.children[i], first)
    if cell.layout == LAYOUT_RUNS:
        cell.validity = NULL
        cell.may_be_null = cell.children[1].may_be_null
    return 0
