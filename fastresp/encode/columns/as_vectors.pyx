# cython: language_level=3, cdivision=True
"""Write lists of numbers in Arrow columns as vectors of little-endian floats, for vector search."""

from libc.math cimport isfinite
from libc.stdint cimport uint16_t

from .cell cimport (
    BAD_INDEX,
    FORM_FLOAT,
    FORM_LIST,
    FORM_NONE,
    FORM_OTHER,
    IS_NULL,
    NO_MEMORY,
    NULL_INSIDE,
    OTHER_LENGTH,
    TOO_LARGE,
    Cell,
    innermost,
    is_null,
    resolve,
    span,
)
from ...resp.floats cimport half_of
from ...resp.out cimport reserve
from ...resp.vectors cimport width_of
from .storage cimport STORAGE_OTHER, Storage, number_at


cdef bint make_vector(Cell *cell, Cell *lists, str kind) except -1:
    """Set a cell to write lists as vectors; return False if these are not lists of numbers."""
    cdef Cell *items = &innermost(lists).children[0]
    if innermost(lists).form != FORM_LIST or items.form in (FORM_NONE, FORM_OTHER):
        return False
    if items.storage == STORAGE_OTHER:
        return False
    cell.inner = lists
    cell.width = width_of(kind)
    cell.vector = -1
    cell.lasting = items.form == FORM_FLOAT and items.width == cell.width
    if cell.lasting:
        cell.text = text_of_ready_vector
    else:
        cell.text = text_of_vector
    return True


cdef inline Py_ssize_t locate(
    Cell *cell, Py_ssize_t i, Py_ssize_t *count, Cell **found
) noexcept nogil:
    """Return the index of a vector's first item; -1 if the vector is invalid.

    Args:
        count: receives the vector's length, or the Fault if the vector is invalid.
        found: receives the cell that contains the items of all vectors.
    """
    cdef Py_ssize_t start, end, at
    cdef Cell *lists = cell.inner
    cdef Cell *items
    if lists.form == FORM_OTHER or is_null(lists, i):
        lists = resolve(lists, &i)
        if lists is NULL:
            count[0] = BAD_INDEX if i < 0 else IS_NULL
            return -1
    found[0] = items = &lists.children[0]
    span(lists, i, &start, &end)
    count[0] = end - start
    if cell.vector != count[0]:
        if cell.vector >= 0:
            count[0] = OTHER_LENGTH
            return -1
        cell.vector = count[0]
    if items.validity is not NULL:
        for at in range(start, end):
            if is_null(items, at):
                count[0] = NULL_INSIDE
                return -1
    return start + items.offset


cdef const char *text_of_ready_vector(Cell *cell, Py_ssize_t i, Py_ssize_t *n) noexcept nogil:
    """Return the bytes of a vector in Arrow memory, which can be sent unchanged."""
    cdef Cell *items
    cdef Py_ssize_t start = locate(cell, i, n, &items)
    if start < 0:
        return NULL
    n[0] *= cell.width
    # An empty array may have no memory, and NULL would mean null.
    if n[0] == 0:
        return cell.scratch.base
    return <const char *>items.values + start * cell.width


cdef const char *text_of_vector(Cell *cell, Py_ssize_t i, Py_ssize_t *n) noexcept nogil:
    """Convert the numbers of a vector, and return the vector's bytes."""
    cdef Cell *items
    cdef Py_ssize_t k, count, start = locate(cell, i, &count, &items)
    if start < 0:
        n[0] = count
        return NULL
    # Local variables stay in registers; the compiler must assume that a write changes the cell.
    cdef Storage storage = items.storage
    cdef const void *numbers = items.values
    cdef Py_ssize_t width = cell.width
    n[0] = count * width
    cdef char *to = reserve(&cell.scratch, cell.scratch.base, n[0])
    if to is NULL:
        n[0] = NO_MEMORY
        return NULL
    for k in range(count):
        if not convert(to + k * width, width, number_at(storage, numbers, start + k)):
            n[0] = TOO_LARGE
            return NULL
    return to


cdef inline bint convert(char *to, Py_ssize_t width, double number) noexcept nogil:
    """Write a number; return False if a finite number would become infinite."""
    if width == 8:
        (<double *>to)[0] = number
    elif width == 4:
        (<float *>to)[0] = <float>number
        return isfinite((<float *>to)[0]) or not isfinite(number)
    else:
        (<uint16_t *>to)[0] = half_of(number)
        return (<uint16_t *>to)[0] & 0x7FFF != 0x7C00 or not isfinite(number)
    return True
