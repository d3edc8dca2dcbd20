# cython: language_level=3, cdivision=True, boundscheck=False, wraparound=False
"""Copy values of JSON into columns with the memory layout of Arrow."""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport int32_t, uint8_t
from libc.string cimport memcpy, memset

from ...resp.out cimport put_copy
from .json_split cimport MARK_BIT, Column, Split, Value, add_size

cdef enum:
    MARKED = 0xFF               # MARK of json_text.pyx: the value is not a JSON string


# Where the next field of a row is written.
cdef struct Pairs:
    int32_t count               # number of earlier fields
    Py_ssize_t nulls            # number of nulls among the earlier fields
    int32_t *numbers
    uint8_t *validity
    int32_t *offsets
    char *text


cdef inline Py_ssize_t start(Split split, Py_ssize_t row) noexcept nogil:
    """Return the index of a row's first value."""
    return split.starts[row] if row < split.rows else split.n_values


cdef inline Column *column_of(Split split, Py_ssize_t i) noexcept nogil:
    """Return the column of a value."""
    return &split.columns[split.values[i].column & ~MARK_BIT]


def columns_of(Split split, Py_ssize_t first, Py_ssize_t last, list columns):
    """Return columns of strings for some rows, in the memory layout of Arrow.

    Args:
        first, last: the range of rows; ``last`` is excluded.
        columns: column numbers: 0 for whole rows; names begin at 1.

    Returns:
        The memory, and a tuple for each column: the number of nulls; the positions in the memory at
        which the validity bitmap (-1 if there are no nulls), the offsets and the text start; and
        the position at which the text ends.
    """
    cdef Py_ssize_t i, size = 0, rows = last - first
    cdef Py_ssize_t bits = aligned((rows + 7) // 8), ends = aligned((rows + 1) * 4)
    cdef Column *column
    cdef bytes memory
    cdef char *base
    cdef list places = []
    for i in columns:
        column = &split.columns[i]
        column.chosen, column.filled = True, 0
        if rows < split.rows:
            column.count = column.size = 0
    for i in range(start(split, first), start(split, last) if rows < split.rows else 0):
        if column_of(split, i).chosen:
            add_size(column_of(split, i), &split.values[i])
    for i in columns:
        column = &split.columns[i]
        size += (bits if column.count < rows else 0) + ends + aligned(column.size)
    memory = PyBytes_FromStringAndSize(NULL, size)
    base = PyBytes_AS_STRING(memory)
    size = 0
    for i in columns:
        column = &split.columns[i]
        column.validity = NULL
        place = -1
        if column.count < rows:
            column.validity, place = <uint8_t *>base + size, size
            size += bits
        column.offsets = <int32_t *>(base + size)
        column.text = base + size + ends
        places.append((
            rows - column.count, place, size, size + ends, size + ends + column.size
        ))
        size += ends + aligned(column.size)
        column.offsets[0] = 0
        if column.validity is not NULL:
            memset(column.validity, 0, bits)
    with nogil:
        for i in range(rows):
            copy_row(split, start(split, first + i), start(split, first + i + 1), i)
    for i in columns:
        fill(&split.columns[i], rows)
        split.columns[i].chosen = False
    return memory, places


def fields_of(Split split, Py_ssize_t first, Py_ssize_t last, list left_out):
    """Return the fields of some rows, in the memory layout of Arrow.

    Args:
        first, last: the range of rows; ``last`` is excluded.
        left_out: the numbers of the columns whose values are left out.

    Returns:
        The memory, and a tuple: the number of fields; the number of nulls; the positions in the
        memory at which the name numbers, the validity bitmap, the offsets and the text of the
        values start; and the position at which the text ends. The memory begins with the offsets
        of the rows.
    """
    cdef Py_ssize_t i, rows = last - first
    # The maximum: some values may be left out. All text is part of the block, except for MARK.
    cdef Py_ssize_t most = start(split, last) - start(split, first)
    cdef Py_ssize_t keys = aligned((rows + 1) * 4), bits = keys + aligned(most * 4)
    cdef Py_ssize_t ends = bits + aligned((most + 7) // 8), text = ends + aligned((most + 1) * 4)
    cdef bytes memory = PyBytes_FromStringAndSize(NULL, text + PyBytes_GET_SIZE(split.block))
    cdef char *base = PyBytes_AS_STRING(memory)
    cdef int32_t *rows_end = <int32_t *>base
    cdef Pairs pairs
    memset(base + bits, 0, ends - bits)
    pairs.count = pairs.nulls = 0
    pairs.numbers, pairs.validity = <int32_t *>(base + keys), <uint8_t *>base + bits
    pairs.offsets, pairs.text = <int32_t *>(base + ends), base + text
    pairs.offsets[0] = rows_end[0] = 0
    for i in [0, *left_out]:
        split.columns[i].chosen = True
    with nogil:
        for i in range(rows):
            add_pairs(split, start(split, first + i), start(split, first + i + 1), &pairs)
            rows_end[i + 1] = pairs.count
    for i in [0, *left_out]:
        split.columns[i].chosen = False
    return memory, (pairs.count, pairs.nulls, keys, bits, ends, text, pairs.text - base)


def names_of(Split split):
    """Return the offsets (32 bits each) and the text of the names of all columns."""
    cdef Py_ssize_t i, size = 0, n = split.n_columns - 1
    cdef bytes offsets = PyBytes_FromStringAndSize(NULL, (n + 1) * 4)
    cdef int32_t *ends = <int32_t *>PyBytes_AS_STRING(offsets)
    ends[0] = 0
    for i in range(n):
        size += split.columns[i + 1].name_size
        ends[i + 1] = <int32_t>size
    cdef bytes text = PyBytes_FromStringAndSize(NULL, size)
    for i in range(n):
        memcpy(
            PyBytes_AS_STRING(text) + ends[i], split.columns[i + 1].name,
            split.columns[i + 1].name_size,
        )
    return offsets, text


cdef inline void add_pairs(
    Split split, Py_ssize_t first, Py_ssize_t last, Pairs *pairs
) noexcept nogil:
    """Append the values of a row, and the numbers of their names."""
    cdef Py_ssize_t i
    cdef int32_t count = pairs.count
    cdef Value *value
    for i in range(first, last):
        value = &split.values[i]
        if column_of(split, i).chosen:
            continue
        pairs.numbers[count] = <int32_t>(value.column & ~MARK_BIT) - 1
        if value.text is NULL:
            pairs.nulls += 1
        else:
            pairs.validity[count >> 3] |= 1 << (count & 7)
        pairs.offsets[count + 1] = <int32_t>(
            pairs.offsets[count] + value.size + (value.column >= MARK_BIT)
        )
        if value.column >= MARK_BIT:
            pairs.text[0] = <char>MARKED
            pairs.text += 1
        pairs.text = put_copy(pairs.text, value.text, value.size)
        count += 1
    pairs.count = count


cdef inline void copy_row(
    Split split, Py_ssize_t first, Py_ssize_t last, Py_ssize_t row
) noexcept nogil:
    """Copy the values of a row into their columns."""
    cdef Py_ssize_t i
    cdef Column *column
    cdef Value *value
    for i in range(first, last):
        value = &split.values[i]
        column = column_of(split, i)
        if not column.chosen or value.text is NULL:
            continue
        if column.filled < row:
            fill(column, row)
        if column.validity is not NULL:
            column.validity[row >> 3] |= 1 << (row & 7)
        if value.column >= MARK_BIT:
            column.text[0] = <char>MARKED
            column.text += 1
        column.text = put_copy(column.text, value.text, value.size)
        column.filled = row + 1
        column.offsets[row + 1] = <int32_t>(
            column.offsets[row] + value.size + (value.column >= MARK_BIT)
        )


cdef inline Py_ssize_t aligned(Py_ssize_t size) noexcept nogil:
    """Return a size rounded up to a multiple of 8, the alignment of Arrow's buffers."""
    return (size + 7) & ~7


cdef inline void fill(Column *column, Py_ssize_t row) noexcept nogil:
    """Set the missing offsets up to a row, for null values."""
    cdef int32_t end = column.offsets[column.filled]
    while column.filled < row:
        column.filled += 1
        column.offsets[column.filled] = end
