# cython: language_level=3, cdivision=True
"""A cell: the kind of an Arrow column, how to write its values as text, and where the values are.

Arrays come from any library, and the C data interface has no buffer sizes, so the last offset
defines the size of a buffer. These checks are possible: offsets neither decrease nor start below
0; lists and structs end within their children; run ends increase. When a value is written, its view
must end within a buffer of known size, and its index must be within its dictionary.
"""

from libc.stdint cimport INT64_MAX, int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memcpy

from .arrow cimport ArrowArray

import re

from ...outcome.errors import SourceError


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


cdef void copy_properties(Cell *cell, Cell *target) noexcept:
    """Set up a cell that refers to the values of another cell, ``target``."""
    cell.kind = KIND_OTHER
    cell.zero_copy = target.zero_copy


cdef Cell *innermost(Cell *cell) noexcept nogil:
    """Return the cell that dictionaries, runs and fields of structs finally refer to."""
    while cell.kind == KIND_OTHER:
        cell = cell.target if cell.parent is not NULL else &cell.children[cell.n_children - 1]
    return cell


cdef int make_field(Cell *cell, Cell *parent, Cell *field, bytes name) except -1:
    """Set a cell to refer to a field of a struct; the field is null where the struct is null.

    Args:
        parent: the struct, or a cell that refers to the struct.
        field: the field.
        name: the whole path, for error messages.
    """
    cell.parent, cell.target = parent, field
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
    cdef Py_ssize_t at = target_index(cell, i)
    if at < 0:
        n[0] = BAD_INDEX
        return NULL
    return value(&cell.children[0], at, n)


cdef const char *text_of_run(Cell *cell, Py_ssize_t i, Py_ssize_t *n) noexcept nogil:
    cdef Py_ssize_t at = target_index(cell, i)
    if at < 0:
        n[0] = BAD_INDEX
        return NULL
    return value(&cell.children[1], at, n)


cdef const char *text_of_field(Cell *cell, Py_ssize_t i, Py_ssize_t *n) noexcept nogil:
    if resolve(cell.parent, &i) is NULL:
        n[0] = BAD_INDEX if i < 0 else IS_NULL
        return NULL
    return value(cell.target, i, n)


cdef Cell *follow(Cell *cell, Py_ssize_t *i) noexcept nogil:
    """Follow dictionaries, runs and paths as resolve() does; the value found may be null."""
    while cell.kind == KIND_OTHER:
        if cell.parent is not NULL:
            if resolve(cell.parent, i) is NULL:
                return NULL
            cell = cell.target
            continue
        if is_null(cell, i[0]):
            return NULL
        i[0] = target_index(cell, i[0])
        if i[0] < 0:
            return NULL
        cell = &cell.children[1 if cell.text is text_of_run else 0]
    return cell


cdef Py_ssize_t target_index(Cell *cell, Py_ssize_t i) noexcept nogil:
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
    cell.may_be_null = cell.validity is not NULL or cell.kind == KIND_NULL
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


cdef extern from *:
    """
    #if defined(__GNUC__)
    #define fastresp_fetch(p) __builtin_prefetch(p)
    #else
    #define fastresp_fetch(p)
    #endif
    """
    # Prefetch a cache line; any address is allowed.
    void fetch "fastresp_fetch"(const char *p) noexcept nogil


cdef int check_shape(Cell *cell, ArrowArray *array) except -1:
    """Refuse an array without the buffers and children of its type.

    Raises:
        SourceError: the array does not match its type.
    """
    cdef Py_ssize_t i, buffers = 0, children = cell.n_children
    if cell.layout in (LAYOUT_STRUCT, LAYOUT_FIXED_LIST):
        buffers = 1
    elif cell.layout in (LAYOUT_FIXED, LAYOUT_LIST, LAYOUT_LARGE_LIST, LAYOUT_DICTIONARY):
        buffers = 2
    elif cell.layout not in (LAYOUT_NONE, LAYOUT_RUNS):
        buffers = 3
    if cell.layout == LAYOUT_DICTIONARY:
        children = 0
    cdef bint fits = (
        array.offset >= 0 and array.length >= 0 and array.length < INT64_MAX - array.offset
        and array.n_buffers >= buffers and (buffers == 0 or array.buffers is not NULL)
        and array.n_children >= children and (children == 0 or array.children is not NULL)
        and (cell.layout == LAYOUT_DICTIONARY) == (array.dictionary is not NULL)
    )
    for i in range(children if fits else 0):
        fits = fits and array.children[i] is not NULL
    if not fits:
        column = f"column {name_of(cell)!r}" if cell.name_size else "the array"
        raise SourceError(
            f"{column} does not match its type: its length, buffers or children are wrong; this "
            "is a bug in the library that made it"
        )
    return 0


cdef void trim_damage(Cell *cell, int above) noexcept nogil:
    """Reduce the length of a cell so that it ends before the first damaged value.

    Children are checked first, so that references to damaged child values count as damaged.

    Args:
        cell: the cell, pointing to a batch.
        above: 1 for the struct of all columns, 0 for a column, below 0 for a nested column. The
            offsets of a column's own strings are not checked here, but by ``find_damage()``.
    """
    cdef Py_ssize_t i, n = max(cell.length, 0)
    for i in range(cell.n_children):
        trim_damage(&cell.children[i], above - 1)
    cdef int64_t most = cell.children.length if cell.n_children else INT64_MAX
    if cell.layout in (LAYOUT_LIST, LAYOUT_LARGE_LIST, LAYOUT_STRING, LAYOUT_LARGE_STRING):
        n = n if cell.values is not NULL else 0
        if above or cell.n_children:
            n = find_bad_offset(cell, 0, n, n, 0 if cell.empty else most)
    elif cell.layout in (LAYOUT_FIXED, LAYOUT_DICTIONARY, LAYOUT_VIEW):
        n = n if cell.values is not NULL else 0
    elif cell.layout == LAYOUT_LIST_VIEW or cell.layout == LAYOUT_LARGE_LIST_VIEW:
        n = count_valid_views(cell, n, most)
    elif cell.layout == LAYOUT_FIXED_LIST and cell.width > 0:
        n = min(n, max(most // cell.width - cell.offset, 0))
    elif cell.layout == LAYOUT_STRUCT:
        for i in range(cell.n_children):
            n = min(n, cell.children[i].length)
    elif cell.layout == LAYOUT_RUNS:
        cell.children[0].length = min(count_valid_runs(&cell.children[0]), cell.children[1].length)
    cell.length = n


cdef Py_ssize_t find_damage(Cell *cell, Py_ssize_t first, Py_ssize_t last) noexcept nogil:
    """Return the index of the first damaged row in ``range(first, last)``; ``last`` if none is.

    Offsets are checked right before their values are written, while the next offsets are
    prefetched: 0.2 ns per value instead of 0.5.
    """
    cdef Py_ssize_t width = 4 if cell.layout == LAYOUT_STRING else 8
    cdef Py_ssize_t at, begin = (cell.offset + last + 1) * width
    if cell.layout == LAYOUT_STRING or cell.layout == LAYOUT_LARGE_STRING:
        for at in range(begin, begin + (last - first) * width, 64):
            fetch(<const char *>cell.values + at)
        return find_bad_offset(cell, first, last, cell.length, 0 if cell.empty else INT64_MAX)
    return last


cdef Py_ssize_t find_bad_offset(
    Cell *cell, Py_ssize_t first, Py_ssize_t last, Py_ssize_t length, int64_t most
) noexcept nogil:
    """Return the index of the first value with decreasing or too large offsets, or ``last``."""
    cdef Py_ssize_t at = cell.offset + first, n = last - first
    if n <= 0:
        return last
    length -= first
    if cell.layout == LAYOUT_STRING or cell.layout == LAYOUT_LIST:
        return first + count_valid_offsets(<const uint32_t *>cell.values + at, n, length, most)
    return first + count_valid_offsets(<const uint64_t *>cell.values + at, n, length, most)


ctypedef fused Offset:
    uint32_t
    uint64_t


cdef Py_ssize_t count_valid_offsets(
    const Offset *offsets, Py_ssize_t n, Py_ssize_t length, int64_t most
) noexcept nogil:
    """Return the number of leading values whose offsets neither decrease nor exceed ``most``.

    Signed offsets are read as unsigned integers, since C defines unsigned differences. If no offset
    is below 0, the highest bit of a difference means that the offsets decrease.
    """
    cdef int sign = 8 * sizeof(Offset) - 1
    cdef Offset wrong = offsets[n]
    cdef Py_ssize_t i
    # Without a branch, so that the compiler can vectorise it.
    for i in range(n):
        wrong |= offsets[i] | (offsets[i + 1] - offsets[i])
    if wrong >> sign:
        i = 0
        while i < n and not (offsets[i] | offsets[i + 1] | (offsets[i + 1] - offsets[i])) >> sign:
            i += 1
        n = i
    if offsets[length] >> sign:
        return 0
    most = min(most, <int64_t>offsets[length])
    while n and <int64_t>offsets[n] > most:
        n -= 1
    return n


cdef Py_ssize_t count_valid_views(Cell *cell, Py_ssize_t n, int64_t most) noexcept nogil:
    """Return the number of leading list views that end within the items."""
    cdef bint large = cell.layout == LAYOUT_LARGE_LIST_VIEW
    cdef int64_t start, size
    cdef Py_ssize_t i
    if cell.values is NULL or cell.sizes is NULL:
        return 0
    for i in range(cell.offset, cell.offset + n):
        start = (<const int64_t *>cell.values)[i] if large else (<const int32_t *>cell.values)[i]
        size = cell.sizes[i] if large else (<const int32_t *>cell.sizes)[i]
        if start < 0 or size < 0 or start > most or size > most - start:
            # The view of a null is never read.
            if not is_null(cell, i - cell.offset):
                return i - cell.offset
    return n


cdef Py_ssize_t count_valid_runs(Cell *ends) noexcept nogil:
    """Return the number of leading runs whose ends increase."""
    cdef Py_ssize_t i
    cdef int64_t before = 0, end
    for i in range(ends.length):
        end = integer_at(ends.storage, ends.values, ends.offset + i)
        if end <= before:
            return i
        before = end
    return ends.length
