# cython: language_level=3, cdivision=True
"""Views of Arrow columns: their types, how to write a value as text, and where the values are.

Arrays come from any library, and the C data interface has no buffer sizes, so the last offset
defines the size of a buffer. These checks are possible: offsets neither decrease nor start below
0; lists and structs end within their children; run ends increase. When a value is written, a string
view must end within a buffer of known size, and an index must be within its dictionary.
"""

from libc.stdint cimport INT64_MAX, int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free

from .arrow cimport ArrowArray

import re

from ...outcome.errors import SourceError


cdef ColumnView *allocate(Py_ssize_t n) except NULL:
    """Allocate n zeroed ColumnViews."""
    cdef ColumnView *columns = <ColumnView *>calloc(n or 1, sizeof(ColumnView))
    if columns is NULL:
        raise MemoryError
    return columns


cdef void destroy(ColumnView *column) noexcept:
    """Free the memory of a column and its children."""
    cdef Py_ssize_t i
    for i in range(column.n_children):
        destroy(&column.children[i])
    free(column.children)
    free(column.scratch.base)
    free(column.zone)


cdef Py_ssize_t number_in(str text) except -2:
    """Return the number at the end of a format string; -1 if there is no valid number."""
    return int(text) if re.fullmatch("[0-9]{1,9}", text) else -1


cdef void refer(ColumnView *column, ColumnView *target) noexcept:
    """Set up a column that refers to the values of another column: a dictionary's or runs'."""
    column.kind = KIND_OTHER
    # Two functions: with both in one, a value of a dictionary takes 18 more instructions.
    column.text = text_of_run if column.layout == LAYOUT_RUNS else text_of_dictionary
    column.target = target
    column.zero_copy = target.zero_copy


cdef ColumnView *innermost(ColumnView *column) noexcept nogil:
    """Follow dictionaries, runs and paths; return the column with the values."""
    while column.kind == KIND_OTHER:
        column = column.target
    return column


cdef int make_field(
    ColumnView *column, ColumnView *parent, ColumnView *field, bytes name, list kept
) except -1:
    """Set up a column that refers to a field of a struct; a null struct makes its field null.

    Args:
        parent: the struct, or a column that refers to the struct.
        field: the struct's field.
        name: the whole path, for error messages.
        kept: as for ``build()``.
    """
    refer(column, field)
    column.parent, column.text = parent, text_of_field
    column.json, column.schema = field.json, field.schema
    return set_name(column, name, kept)


cdef int set_name(ColumnView *column, bytes name, list kept) except -1:
    kept.append(name)
    column.name, column.name_size = name, len(name)
    return 0


cdef int rename(ColumnView *column, list names, list kept) except -1:
    """Set the names of a column's children, and of their children, from NestedNames."""
    cdef Py_ssize_t i
    for i in range(min(column.n_children, len(names))):
        name, within = names[i]
        set_name(&column.children[i], name.encode(), kept)
        rename(&column.children[i], within, kept)
    return 0


cdef str name_of(ColumnView *column):
    """Return the name of a column, for error messages."""
    return column.name[:column.name_size].decode(errors="backslashreplace")


cdef void span(ColumnView *column, Py_ssize_t i, Py_ssize_t *start, Py_ssize_t *end) noexcept nogil:
    """Set ``start`` and ``end`` to the range of a list's items among the items of all lists."""
    cdef Py_ssize_t at = column.offset + i
    cdef const int32_t *small = <const int32_t *>column.values
    cdef const int64_t *large = <const int64_t *>column.values
    if column.layout == LAYOUT_LIST:
        start[0], end[0] = small[at], small[at + 1]
    elif column.layout == LAYOUT_LARGE_LIST:
        start[0], end[0] = large[at], large[at + 1]
    elif column.layout == LAYOUT_LIST_VIEW:
        start[0] = small[at]
        end[0] = start[0] + (<const int32_t *>column.sizes)[at]
    elif column.layout == LAYOUT_LARGE_LIST_VIEW:
        start[0] = large[at]
        end[0] = start[0] + column.sizes[at]
    else:
        start[0] = at * column.width
        end[0] = start[0] + column.width


cdef const char *text_of_written(ColumnView *column, Py_ssize_t i, Py_ssize_t *n) noexcept nogil:
    """Return the text of a value that must be formatted."""
    cdef char *end = column.write(column, i, column.scratch.base)
    n[0] = OUT_OF_RANGE if end is NULL else end - column.scratch.base
    return NULL if end is NULL else column.scratch.base


# The functions below write values that refer to other values.


cdef const char *text_of_dictionary(ColumnView *column, Py_ssize_t i, Py_ssize_t *n) noexcept nogil:
    cdef int64_t at = integer_at(column.storage, column.values, column.offset + i)
    if not 0 <= at < column.target.length:
        n[0] = BAD_INDEX
        return NULL
    return value(column.target, at, n)


cdef const char *text_of_run(ColumnView *column, Py_ssize_t i, Py_ssize_t *n) noexcept nogil:
    cdef Py_ssize_t at = find_run(column, column.offset + i)
    if at < 0:
        n[0] = BAD_INDEX
        return NULL
    return value(column.target, at, n)


cdef const char *text_of_field(ColumnView *column, Py_ssize_t i, Py_ssize_t *n) noexcept nogil:
    if resolve(column.parent, &i) is NULL:
        n[0] = BAD_INDEX if i < 0 else IS_NULL
        return NULL
    return value(column.target, i, n)


cdef ColumnView *follow(ColumnView *column, Py_ssize_t *i) noexcept nogil:
    """Follow dictionaries, runs and paths as resolve() does; the value found may be null."""
    while column.kind == KIND_OTHER:
        if column.parent is not NULL:
            if resolve(column.parent, i) is NULL:
                return NULL
        elif is_null(column, i[0]):
            return NULL
        else:
            i[0] = target_index(column, i[0])
            if i[0] < 0:
                return NULL
        column = column.target
    return column


cdef Py_ssize_t target_index(ColumnView *column, Py_ssize_t i) noexcept nogil:
    """Return the index of a row's value in the dictionary or the runs; -1 if out of bounds."""
    cdef int64_t at = column.offset + i
    if column.layout == LAYOUT_RUNS:
        return find_run(column, at)
    at = integer_at(column.storage, column.values, at)
    return at if 0 <= at < column.children[0].length else -1


cdef Py_ssize_t find_run(ColumnView *column, int64_t at) noexcept nogil:
    """Return the index of the run that contains a row; -1 if there is no such run.

    The current run and the next run are tried before a binary search.
    """
    cdef ColumnView *ends = &column.children[0]
    cdef Py_ssize_t low = column.run, high, middle
    for low in range(low, min(low + 2, ends.length)):
        if run_end(ends, low) > at and (low == 0 or run_end(ends, low - 1) <= at):
            column.run = low
            return low
    low, high = 0, ends.length
    while low < high:
        middle = (low + high) // 2
        if run_end(ends, middle) > at:
            high = middle
        else:
            low = middle + 1
    column.run = low
    return low if low < ends.length else -1


cdef inline int64_t run_end(ColumnView *ends, Py_ssize_t i) noexcept nogil:
    return integer_at(ends.storage, ends.values, ends.offset + i)


cdef const char *EMPTY = b""        # NULL would mean null


cdef int bind(ColumnView *column, ArrowArray *array, Py_ssize_t base) except -1:
    """Point a column to the memory of a batch.

    Args:
        base: the parent's offset if the column has the same rows as its parent; otherwise 0.
    """
    cdef Py_ssize_t i, first
    check_shape(column, array)
    column.offset = array.offset + base
    column.length = array.length - base
    column.run = 0
    column.validity = NULL
    column.values = NULL
    if array.n_buffers > 0 and array.buffers is not NULL and array.null_count != 0:
        column.validity = <const uint8_t *>array.buffers[0]
    column.may_be_null = column.validity is not NULL or column.kind == KIND_NULL
    if array.n_buffers > 1:
        column.values = array.buffers[1]
    if column.layout == LAYOUT_VIEW:
        column.variadic = <const char **>array.buffers + 2
        column.n_variadic = array.n_buffers - 3
        column.sizes = <const int64_t *>array.buffers[array.n_buffers - 1]
    elif column.layout == LAYOUT_LIST_VIEW or column.layout == LAYOUT_LARGE_LIST_VIEW:
        column.sizes = <const int64_t *>array.buffers[2]
    elif column.layout == LAYOUT_STRING or column.layout == LAYOUT_LARGE_STRING:
        # If all strings are empty, the buffer may be NULL, and a NULL text would mean null.
        column.empty = array.buffers[2] is NULL
        column.bytes = EMPTY if column.empty else <const char *>array.buffers[2]
    if array.dictionary is not NULL:
        bind(&column.children[0], array.dictionary, 0)
        column.may_be_null |= column.children[0].may_be_null
        return 0
    first = column.offset if column.layout == LAYOUT_STRUCT else 0
    for i in range(column.n_children):
        bind(&column.children[i], array.children[i], first)
    if column.layout == LAYOUT_RUNS:
        column.validity = NULL
        column.may_be_null = column.children[1].may_be_null
    return 0


cdef int check_shape(ColumnView *column, ArrowArray *array) except -1:
    """Refuse an array whose length, buffers or children do not match its type.

    Raises:
        SourceError: the array does not match its type.
    """
    cdef Py_ssize_t i, buffers = 0, children = column.n_children
    if column.layout in (LAYOUT_STRUCT, LAYOUT_FIXED_LIST):
        buffers = 1
    elif column.layout in (LAYOUT_FIXED, LAYOUT_LIST, LAYOUT_LARGE_LIST, LAYOUT_DICTIONARY):
        buffers = 2
    elif column.layout not in (LAYOUT_NONE, LAYOUT_RUNS):
        buffers = 3
    if column.layout == LAYOUT_DICTIONARY:
        children = 0
    cdef bint fits = (
        array.offset >= 0 and array.length >= 0 and array.length < INT64_MAX - array.offset
        and array.n_buffers >= buffers and (buffers == 0 or array.buffers is not NULL)
        and array.n_children >= children and (children == 0 or array.children is not NULL)
        and (column.layout == LAYOUT_DICTIONARY) == (array.dictionary is not NULL)
    )
    for i in range(children if fits else 0):
        fits = fits and array.children[i] is not NULL
    if not fits:
        what = f"column {name_of(column)!r}" if column.name_size else "the array"
        raise SourceError(
            f"{what} does not match its type: its length, buffers or children are wrong; this "
            "is a bug in the library that made it"
        )
    return 0


cdef void trim_damage(ColumnView *column, int above) noexcept nogil:
    """Reduce the length of a column so that it ends before the first damaged value.

    Children are checked first, so that references to damaged child values count as damaged.

    Args:
        column: the column, pointing to a batch.
        above: 1 for the struct of all columns, 0 for a column, below 0 for a nested column. The
            string offsets of a column are checked by ``find_damage()``, not here.
    """
    cdef Py_ssize_t i, n_runs, n = max(column.length, 0)
    for i in range(column.n_children):
        trim_damage(&column.children[i], above - 1)
    cdef int64_t most = column.children.length if column.n_children else INT64_MAX
    if column.layout in (LAYOUT_LIST, LAYOUT_LARGE_LIST, LAYOUT_STRING, LAYOUT_LARGE_STRING):
        n = n if column.values is not NULL else 0
        if above or column.n_children:
            n = find_bad_offset(column, 0, n, n, 0 if column.empty else most)
    elif column.layout in (LAYOUT_FIXED, LAYOUT_DICTIONARY, LAYOUT_VIEW):
        n = n if column.values is not NULL else 0
    elif column.layout == LAYOUT_LIST_VIEW or column.layout == LAYOUT_LARGE_LIST_VIEW:
        n = count_valid_views(column, n, most)
    elif column.layout == LAYOUT_FIXED_LIST and column.width > 0:
        n = min(n, max(most // column.width - column.offset, 0))
    elif column.layout == LAYOUT_STRUCT:
        for i in range(column.n_children):
            n = min(n, column.children[i].length)
    elif column.layout == LAYOUT_RUNS:
        n_runs = count_valid_runs(&column.children[0])
        column.children[0].length = min(n_runs, column.children[1].length)
    column.length = n


cdef Py_ssize_t find_damage(ColumnView *column, Py_ssize_t first, Py_ssize_t last) noexcept nogil:
    """Return the index of the first damaged row in ``range(first, last)``, or ``last``.

    Offsets are checked right before their values are written, while the next offsets are
    prefetched: 0.2 ns per value instead of 0.5.
    """
    cdef Py_ssize_t width = 4 if column.layout == LAYOUT_STRING else 8
    cdef Py_ssize_t at, begin = (column.offset + last + 1) * width
    if column.layout == LAYOUT_STRING or column.layout == LAYOUT_LARGE_STRING:
        for at in range(begin, begin + (last - first) * width, 64):
            fetch(<const char *>column.values + at)
        return find_bad_offset(column, first, last, column.length, 0 if column.empty else INT64_MAX)
    return last


cdef Py_ssize_t find_bad_offset(
    ColumnView *column, Py_ssize_t first, Py_ssize_t last, Py_ssize_t length, int64_t most
) noexcept nogil:
    """Return the index of the first value with decreasing or too large offsets, or ``last``."""
    cdef Py_ssize_t at = column.offset + first, n = last - first
    if n <= 0:
        return last
    length -= first
    if column.layout == LAYOUT_STRING or column.layout == LAYOUT_LIST:
        return first + count_valid_offsets(<const uint32_t *>column.values + at, n, length, most)
    return first + count_valid_offsets(<const uint64_t *>column.values + at, n, length, most)


ctypedef fused Offset:
    uint32_t
    uint64_t


cdef Py_ssize_t count_valid_offsets(
    const Offset *offsets, Py_ssize_t n, Py_ssize_t length, int64_t most
) noexcept nogil:
    """Return the number of leading values whose offsets neither decrease nor exceed ``most``.

    Signed offsets are read as unsigned integers, because C does not define the overflow of a signed
    subtraction. If no offset is below 0, the highest bit of a difference is set for a decrease.
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


cdef Py_ssize_t count_valid_views(ColumnView *column, Py_ssize_t n, int64_t most) noexcept nogil:
    """Return the number of leading list views that end within the items."""
    cdef bint large = column.layout == LAYOUT_LARGE_LIST_VIEW
    cdef const int32_t *narrow = <const int32_t *>column.values
    cdef const int64_t *wide = <const int64_t *>column.values
    cdef int64_t start, size
    cdef Py_ssize_t i
    if column.values is NULL or column.sizes is NULL:
        return 0
    for i in range(column.offset, column.offset + n):
        start = wide[i] if large else narrow[i]
        size = column.sizes[i] if large else (<const int32_t *>column.sizes)[i]
        if start < 0 or size < 0 or start > most or size > most - start:
            # The view of a null is never read.
            if not is_null(column, i - column.offset):
                return i - column.offset
    return n


cdef Py_ssize_t count_valid_runs(ColumnView *ends) noexcept nogil:
    """Return the number of leading runs whose ends increase."""
    cdef Py_ssize_t i
    cdef int64_t before = 0, end
    for i in range(ends.length):
        end = integer_at(ends.storage, ends.values, ends.offset + i)
        if end <= before:
            return i
        before = end
    return ends.length
