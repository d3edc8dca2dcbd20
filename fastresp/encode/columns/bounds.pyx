# cython: language_level=3, cdivision=True
"""Check that the values of an Arrow array from any library are within the array's memory.

The C data interface has no buffer sizes. These checks are possible: offsets don't decrease or
start below 0; lists and structs end within their children; run ends increase. Views must end
within buffers of known sizes, and indices must be within their dictionary; both are checked when
the values are written. The last offset defines the size of a buffer.
"""

from libc.stdint cimport INT64_MAX, int32_t, int64_t, uint32_t, uint64_t

from .arrow cimport ArrowArray
from .cell cimport (
    LAYOUT_DICTIONARY,
    LAYOUT_FIXED,
    LAYOUT_FIXED_LIST,
    LAYOUT_LARGE_LIST,
    LAYOUT_LARGE_LIST_VIEW,
    LAYOUT_LARGE_STRING,
    LAYOUT_LIST,
    LAYOUT_LIST_VIEW,
    LAYOUT_NONE,
    LAYOUT_RUNS,
    LAYOUT_STRING,
    LAYOUT_STRUCT,
    LAYOUT_VIEW,
    Cell,
    is_null,
    name_of,
)
from .storage cimport integer_at

from ...outcome.errors import SourceError


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


cdef void keep_sound(Cell *cell, int above) noexcept nogil:
    """Reduce the length of a cell so that it ends before the first damaged value.

    Children are checked first, so that references to damaged child values count as damaged.

    Args:
        cell: the cell, pointing to a batch.
        above: 1 for the struct of all columns, 0 for a column, below 0 for a nested column. The
            offsets of a column's own strings are not checked here, but by ``sound_rows()``.
    """
    cdef Py_ssize_t i, n = max(cell.length, 0)
    for i in range(cell.n_children):
        keep_sound(&cell.children[i], above - 1)
    cdef int64_t most = cell.children.length if cell.n_children else INT64_MAX
    if cell.layout in (LAYOUT_LIST, LAYOUT_LARGE_LIST, LAYOUT_STRING, LAYOUT_LARGE_STRING):
        n = n if cell.values is not NULL else 0
        if above or cell.n_children:
            n = rising(cell, 0, n, n, 0 if cell.empty else most)
    elif cell.layout in (LAYOUT_FIXED, LAYOUT_DICTIONARY, LAYOUT_VIEW):
        n = n if cell.values is not NULL else 0
    elif cell.layout == LAYOUT_LIST_VIEW or cell.layout == LAYOUT_LARGE_LIST_VIEW:
        n = viewed(cell, n, most)
    elif cell.layout == LAYOUT_FIXED_LIST and cell.width > 0:
        n = min(n, max(most // cell.width - cell.offset, 0))
    elif cell.layout == LAYOUT_STRUCT:
        for i in range(cell.n_children):
            n = min(n, cell.children[i].length)
    elif cell.layout == LAYOUT_RUNS:
        cell.children[0].length = min(run_ends(&cell.children[0]), cell.children[1].length)
    cell.length = n


cdef Py_ssize_t sound_rows(Cell *cell, Py_ssize_t first, Py_ssize_t last) noexcept nogil:
    """Return the index of the first damaged row in ``range(first, last)``; ``last`` if none is.

    Offsets are checked right before their values are written, while the next offsets are
    prefetched: 0.2 ns per value instead of 0.5.
    """
    cdef Py_ssize_t width = 4 if cell.layout == LAYOUT_STRING else 8
    cdef Py_ssize_t at, begin = (cell.offset + last + 1) * width
    if cell.layout == LAYOUT_STRING or cell.layout == LAYOUT_LARGE_STRING:
        for at in range(begin, begin + (last - first) * width, 64):
            fetch(<const char *>cell.values + at)
        return rising(cell, first, last, cell.length, 0 if cell.empty else INT64_MAX)
    return last


cdef Py_ssize_t rising(
    Cell *cell, Py_ssize_t first, Py_ssize_t last, Py_ssize_t length, int64_t most
) noexcept nogil:
    """Return the index of the first value with decreasing or too large offsets, or ``last``."""
    cdef Py_ssize_t at = cell.offset + first, n = last - first
    if n <= 0:
        return last
    length -= first
    if cell.layout == LAYOUT_STRING or cell.layout == LAYOUT_LIST:
        return first + rising_offsets(<const uint32_t *>cell.values + at, n, length, most)
    return first + rising_offsets(<const uint64_t *>cell.values + at, n, length, most)


ctypedef fused Offset:
    uint32_t
    uint64_t


cdef Py_ssize_t rising_offsets(
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


cdef Py_ssize_t viewed(Cell *cell, Py_ssize_t n, int64_t most) noexcept nogil:
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


cdef Py_ssize_t run_ends(Cell *ends) noexcept nogil:
    """Return the number of leading runs whose ends increase."""
    cdef Py_ssize_t i
    cdef int64_t before = 0, end
    for i in range(ends.length):
        end = integer_at(ends.storage, ends.values, ends.offset + i)
        if end <= before:
            return i
        before = end
    return ends.length
