# cython: language_level=3, cdivision=True
"""A cell: the kind of an Arrow column, and how to write the column's values as text."""

from libc.stdint cimport int32_t, int64_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memcpy

from .storage cimport integer_at

import re


cdef Cell *allocate(Py_ssize_t n) except NULL:
    """Allocate n empty cells."""
    cdef Cell *cells = <Cell *>calloc(n or 1, sizeof(Cell))
    if cells is NULL:
        raise MemoryError
    return cells


cdef void destroy(Cell *cell) noexcept:
    """Free the memory of a cell and its children."""
    cdef Py_ssize_t i
    for i in range(cell.n_children):
        destroy(&cell.children[i])
    free(cell.children)
    free(cell.name)
    free(cell.scratch.base)
    if cell.zone is not NULL:
        free(cell.zone.spans)
        free(cell.zone.offsets)
        free(cell.zone)


cdef Py_ssize_t number_in(str text) except -2:
    """Return the number at the end of a format string; -1 if there is no valid number."""
    return int(text) if re.fullmatch("[0-9]{1,9}", text) else -1


cdef void copy_properties(Cell *cell, Cell *inner) noexcept:
    """Set up a cell that refers to the values of another cell, ``inner``."""
    cell.form = FORM_OTHER
    cell.lasting = inner.lasting


cdef Cell *innermost(Cell *cell) noexcept nogil:
    """Return the cell that dictionaries, runs and fields of structs finally refer to."""
    while cell.form == FORM_OTHER:
        cell = cell.inner if cell.over is not NULL else &cell.children[cell.n_children - 1]
    return cell


cdef int make_field(Cell *cell, Cell *over, Cell *field, bytes name) except -1:
    """Set a cell to refer to a field of a struct; the field is null where the struct is null.

    Args:
        over: the struct, or a cell that refers to the struct.
        field: the field.
        name: the whole path, for error messages.
    """
    cell.over, cell.inner = over, field
    cell.text = text_of_field
    copy_properties(cell, field)
    cell.json = field.json
    set_name(cell, name)
    return 0


cdef int set_name(Cell *cell, bytes name) except -1:
    cell.name = <char *>malloc(len(name) + 1)
    if cell.name is NULL:
        raise MemoryError
    memcpy(cell.name, <const char *>name, len(name) + 1)
    cell.name_size = len(name)
    return 0


cdef int rename(Cell *cell, list names) except -1:
    """Set the names of a cell's children, and of their children, from NestedNames."""
    cdef Py_ssize_t i
    for i in range(min(cell.n_children, len(names))):
        name, within = names[i]
        free(cell.children[i].name)
        cell.children[i].name = NULL
        set_name(&cell.children[i], name.encode())
        rename(&cell.children[i], within)
    return 0


cdef str name_of(Cell *cell):
    """Return the name of a column, for error messages."""
    return cell.name[:cell.name_size].decode(errors="backslashreplace")


cdef void span(Cell *cell, Py_ssize_t i, Py_ssize_t *start, Py_ssize_t *end) noexcept nogil:
    """Set ``start`` and ``end`` to the range of a list's items among the items of all lists."""
    cdef Py_ssize_t at = cell.offset + i
    cdef const int32_t *small = <const int32_t *>cell.values
    cdef const int64_t *large = <const int64_t *>cell.values
    if cell.layout == LAYOUT_LIST:
        start[0], end[0] = small[at], small[at + 1]
    elif cell.layout == LAYOUT_LARGE_LIST:
        start[0], end[0] = large[at], large[at + 1]
    elif cell.layout == LAYOUT_LIST_VIEW:
        start[0] = small[at]
        end[0] = start[0] + (<const int32_t *>cell.sizes)[at]
    elif cell.layout == LAYOUT_LARGE_LIST_VIEW:
        start[0] = large[at]
        end[0] = start[0] + cell.sizes[at]
    else:
        start[0] = at * cell.width
        end[0] = start[0] + cell.width


cdef const char *text_of_written(Cell *cell, Py_ssize_t i, Py_ssize_t *n) noexcept nogil:
    """Return the text of a value that must be formatted."""
    cdef char *end = cell.write(cell, i, cell.scratch.base)
    n[0] = OUT_OF_RANGE if end is NULL else end - cell.scratch.base
    return NULL if end is NULL else cell.scratch.base


# The functions below write values that refer to other values.


cdef const char *text_of_dictionary(Cell *cell, Py_ssize_t i, Py_ssize_t *n) noexcept nogil:
    cdef Py_ssize_t at = inner_index(cell, i)
    if at < 0:
        n[0] = BAD_INDEX
        return NULL
    return value(&cell.children[0], at, n)


cdef const char *text_of_run(Cell *cell, Py_ssize_t i, Py_ssize_t *n) noexcept nogil:
    cdef Py_ssize_t at = inner_index(cell, i)
    if at < 0:
        n[0] = BAD_INDEX
        return NULL
    return value(&cell.children[1], at, n)


cdef const char *text_of_field(Cell *cell, Py_ssize_t i, Py_ssize_t *n) noexcept nogil:
    if resolve(cell.over, &i) is NULL:
        n[0] = BAD_INDEX if i < 0 else IS_NULL
        return NULL
    return value(cell.inner, i, n)


cdef Cell *followed(Cell *cell, Py_ssize_t *i) noexcept nogil:
    """Follow dictionaries, runs and paths as resolve() does; the value found may be null."""
    while cell.form == FORM_OTHER:
        if cell.over is not NULL:
            if resolve(cell.over, i) is NULL:
                return NULL
            cell = cell.inner
            continue
        if is_null(cell, i[0]):
            return NULL
        i[0] = inner_index(cell, i[0])
        if i[0] < 0:
            return NULL
        cell = &cell.children[1 if cell.text is text_of_run else 0]
    return cell


cdef Py_ssize_t inner_index(Cell *cell, Py_ssize_t i) noexcept nogil:
    """Return the index of a row's value in the dictionary or the runs; -1 if out of bounds."""
    cdef int64_t at = cell.offset + i
    if cell.text is text_of_run:
        return find_run(cell, at)
    at = integer_at(cell.storage, cell.values, at)
    return at if 0 <= at < cell.children[0].length else -1


cdef Py_ssize_t find_run(Cell *cell, int64_t at) noexcept nogil:
    """Return the index of the run that contains a row; -1 if there is no such run.

    The current run and the next run are tried before a binary search.
    """
    cdef Cell *ends = &cell.children[0]
    cdef Py_ssize_t low = cell.run, high, middle
    for low in range(low, min(low + 2, ends.length)):
        if run_end(ends, low) > at and (low == 0 or run_end(ends, low - 1) <= at):
            cell.run = low
            return low
    low, high = 0, ends.length
    while low < high:
        middle = (low + high) // 2
        if run_end(ends, middle) > at:
            high = middle
        else:
            low = middle + 1
    cell.run = low
    return low if low < ends.length else -1


cdef inline int64_t run_end(Cell *ends, Py_ssize_t i) noexcept nogil:
    return integer_at(ends.storage, ends.values, ends.offset + i)
