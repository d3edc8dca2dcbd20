# cython: language_level=3, cdivision=True, boundscheck=False, wraparound=False
"""Copy values of JSON into columns with the memory layout of Arrow."""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport int32_t, uint8_t
from libc.string cimport memcpy, memset

from .json_split cimport COLUMN_BITS, MARK_BIT, NULL_BIT, Column, Split, Value

cdef enum:
    MARKED = 0xFF               # MARK of json_text


cdef inline Py_ssize_t start(Split split, Py_ssize_t row) noexcept nogil:
    """Return where the values of a row begin."""
    return split.starts[row] if row < split.rows else split.n_values


cdef inline Column *column_of(Split split, Py_ssize_t i) noexcept nogil:
    """Return the column of a value."""
    return &split.columns[split.values[i].column & COLUMN_BITS]


def end_of_batch(Split split, Py_ssize_t first, Py_ssize_t most):
    """Return the end of the rows from ``first`` on that fit a batch, and their columns' numbers.

    Args:
        most: the largest product of rows and columns; one row always fits.
    """
    cdef Py_ssize_t row = first, i, begin, end, n = 0
    cdef Column *column
    with nogil:
        while row < split.rows:
            begin, end = start(split, row), start(split, row + 1)
            for i in range(begin, end):
                n += not column_of(split, i).chosen
            if row > first and n * (row + 1 - first) > most:
                break
            for i in range(begin, end):
                column_of(split, i).chosen = True
            row += 1
    numbers = []
    for i in range(start(split, first), start(split, row)):
        column = column_of(split, i)
        if column.chosen:
            column.chosen = False
            numbers.append(column - split.columns)
    return row, sorted(numbers)


def columns_of(Split split, Py_ssize_t first, Py_ssize_t last, list columns):
    """Return columns of strings for some rows, in the memory layout of Arrow.

    A null in the source has one byte of text, which Arrow ignores; that of a row without the key
    has no text. See is_absent() of encode/columns/cell.

    Args:
        first, last: the rows, without the last.
        columns: their numbers; 0 is the column of whole rows, and the names begin at 1.

    Returns:
        The memory, and for each column the number of nulls and where its validity bitmap
        (-1 without nulls), its offsets and its text begin and end.
    """
    cdef Py_ssize_t i, size = 0, rows = last - first
    cdef Py_ssize_t bits = aligned((rows + 7) // 8), ends = aligned((rows + 1) * 4)
    cdef Column *column
    cdef bytes memory
    cdef char *base
    cdef list places = []
    for i in columns:
        column = &split.columns[i]
        column.chosen, column.count, column.size, column.filled = True, 0, 0, 0
    with nogil:
        measure(split, start(split, first), start(split, last))
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


cdef void measure(Split split, Py_ssize_t first, Py_ssize_t last) noexcept nogil:
    """Count the values of the chosen columns and the bytes of their text."""
    cdef Py_ssize_t i
    cdef Column *column
    for i in range(first, last):
        column = column_of(split, i)
        column.count += not split.values[i].column & NULL_BIT
        column.size += split.values[i].size + (split.values[i].column & MARK_BIT != 0)


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
        if not column.chosen:
            continue
        if column.filled < row:
            fill(column, row)
        if column.validity is not NULL and not value.column & NULL_BIT:
            column.validity[row >> 3] |= 1 << (row & 7)
        if value.column & MARK_BIT:
            column.text[0] = <char>MARKED
            column.text += 1
        memcpy(column.text, value.text, value.size)
        column.text += value.size
        column.filled = row + 1
        column.offsets[row + 1] = <int32_t>(
            column.offsets[row] + value.size + (value.column & MARK_BIT != 0)
        )


cdef inline Py_ssize_t aligned(Py_ssize_t size) noexcept nogil:
    """Return a size up to the next multiple of 8, as Arrow's buffers are aligned."""
    return (size + 7) & ~7


cdef inline void fill(Column *column, Py_ssize_t row) noexcept nogil:
    """Set the offsets up to a row for values that are null."""
    cdef int32_t end = column.offsets[column.filled]
    while column.filled < row:
        column.filled += 1
        column.offsets[column.filled] = end
