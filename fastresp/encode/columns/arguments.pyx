# cython: language_level=3, cdivision=True
"""Write values as arguments: single values, list items, and the fields of a JSON row."""

from libc.stdint cimport int32_t

from ...resp.out cimport Out, put_bulk, put_copy, put_reference
from .cell cimport (
    ARGUMENT_TOO_LARGE,
    BAD_INDEX,
    FORM_MAP,
    FORM_STRUCT,
    IS_NOT_ALLOWED,
    IS_NULL,
    NO_MEMORY,
    NULL_KEY,
    Cell,
    is_null,
    resolve,
    span,
    value,
)
from .numbers_and_strings cimport VALUE_MARK
from ...resp.values cimport NULLS_EMPTY, NULLS_ERROR, NULLS_SKIP, Nulls
from .steps cimport SHORT_BYTES, Name, Step


cdef char *put_value(
    Job *job, Nulls nulls, Cell *cell, Py_ssize_t row, const char *before,
    Py_ssize_t before_size, char *p,
) noexcept nogil:
    """Write constant text, then a value as one argument.

    Return NULL for a Fault, or if the null value leaves out the argument.
    """
    cdef Py_ssize_t n
    cdef const char *text = value(cell, row, &n)
    if text is NULL:
        if n < 0 or nulls != NULLS_EMPTY:
            job.fault = <int>n if n < 0 or nulls == NULLS_SKIP else IS_NOT_ALLOWED
            return NULL
        text = before
    if n >= job.out.large or n > job.out.most:
        return put_large(job, cell, text, n, before, before_size, p)
    p = make_room(job, p, before_size + n + 32)
    if p is NULL:
        return NULL
    return put_bulk(put_copy(p, before, before_size), text, n)


cdef char *put_large(
    Job *job, Cell *cell, const char *text, Py_ssize_t n, const char *before,
    Py_ssize_t before_size, char *p,
) noexcept nogil:
    """Write constant text, then a large value; don't copy a value in the batch's memory."""
    if n > job.out.most:
        job.fault = ARGUMENT_TOO_LARGE
        return NULL
    p = make_room(job, p, before_size + 32 + (0 if cell.lasting else n))
    if p is NULL:
        return NULL
    p = put_copy(p, before, before_size)
    if not cell.lasting:
        return put_bulk(p, text, n)
    p = put_reference(job.out, p, text, n)
    if p is NULL:
        job.fault = NO_MEMORY
    return p


cdef char *put_items(Job *job, Cell *cell, Py_ssize_t row, char *p) noexcept nogil:
    """Write the items of a list, or the pairs of a map or struct, and count the arguments."""
    cdef Py_ssize_t at, start, end, k
    cdef Cell *names
    job.written = 0
    cell = resolve(cell, &row)
    if cell is NULL:
        return put_null(job, BAD_INDEX if row < 0 else IS_NULL, p)
    if cell.form == FORM_STRUCT:
        for k in range(cell.n_children):
            p = put_pair(job, NULL, 0, &cell.children[k], row, p)
            if p is NULL:
                return NULL
    else:
        span(cell, row, &start, &end)
        names = &cell.children[0].children[0] if cell.form == FORM_MAP else NULL
        for at in range(start, end):
            if names is not NULL:
                p = put_pair(job, names, at, &cell.children[0].children[1], at, p)
            else:
                p = put_item(job, &cell.children[0], at, p)
            if p is NULL:
                return NULL
    # Leave out the command for an empty or null list, and if the values of all pairs are null.
    return NULL if job.written == 0 and job.nulls == NULLS_SKIP else p


cdef char *put_fields(Job *job, Step *step, Py_ssize_t row, char *p) noexcept nogil:
    """Write a row's fields as pairs (``step.absent``: null names only), and count arguments."""
    # Local variables stay in registers, as in put_rows().
    cdef Out *out = job.out
    cdef Cell *keys = step.cell.children.children
    cdef Cell *values = &keys[1]
    cdef Name *names = step.names
    cdef const int32_t *numbers = <const int32_t *>keys.values + keys.offset
    cdef const int32_t *offsets = <const int32_t *>values.values + values.offset
    cdef const char *text = values.bytes
    cdef Py_ssize_t short = min(SHORT_BYTES, out.large, out.most), at = 0, last = 0, n
    cdef Py_ssize_t n_names = step.n_names, number = 0, written = 0
    cdef bint has_nulls = values.validity is not NULL, absent = step.absent
    cdef char *full = out.end - SHORT_BYTES - 64
    cdef char *end
    if not is_null(step.cell, row):
        span(step.cell, row, &at, &last)
    for at in range(at, last):
        number = numbers[at]
        if not 0 <= number < n_names:
            job.fault = BAD_INDEX
            return NULL
        if names[number].text is NULL:
            continue
        if has_nulls and is_null(values, at):
            if absent:
                end = put_constant(job, names[number].text, names[number].size, p)
                written += 1
            elif job.pair_nulls == NULLS_SKIP:
                job.left_out += 1
                continue
            else:
                end = put_value(
                    job, job.pair_nulls, step.values, at, names[number].text, names[number].size, p
                )
                written += 2
        elif absent:
            continue
        else:
            written += 2
            n = offsets[at + 1] - offsets[at]
            end = NULL
            if n < short and full - p > names[number].size:
                end = put_short_field(&names[number], text + offsets[at], n, p)
            if end is NULL:
                end = put_value(
                    job, job.pair_nulls, step.values, at, names[number].text, names[number].size, p
                )
        if end is NULL:
            job.written = written - (not absent)
            job.name = value(&keys.children[0], number, &job.name_size)
            return NULL
        p = end
        full = out.end - SHORT_BYTES - 64
    job.written = written
    return p


cdef inline char *put_short_field(
    Name *name, const char *text, Py_ssize_t n, char *p
) noexcept nogil:
    """Write a field with a JSON string or number; return NULL for other values."""
    if n and <unsigned char>text[0] == VALUE_MARK:
        text, n = text + 1, n - 1
        if n == 0 or text[0] > c'9':
            return NULL
    copy_padded(p, name.text, name.size)
    return put_bulk(p + name.size, text, n)


cdef char *put_null(Job *job, int fault, char *p) noexcept nogil:
    """Write an empty argument for a null list, if nulls are sent as empty strings.

    Otherwise, return NULL, and set the Fault unless nulls are left out.
    """
    if fault == IS_NULL and job.nulls == NULLS_EMPTY:
        job.written = 1
        return put_constant(job, b"$0\r\n\r\n", 6, p)
    job.fault = IS_NOT_ALLOWED if fault == IS_NULL and job.nulls == NULLS_ERROR else fault
    return NULL


cdef char *put_item(Job *job, Cell *cell, Py_ssize_t at, char *p) noexcept nogil:
    """Write one item of a list; return p unchanged if the item is left out."""
    cdef char *end = put_value(job, job.nulls, cell, at, NULL, 0, p)
    if end is not NULL:
        job.written += 1
        return end
    job.left_out += 1
    return NULL if job.fault else p


cdef char *put_pair(
    Job *job, Cell *names, Py_ssize_t at, Cell *values, Py_ssize_t row, char *p
) noexcept nogil:
    """Write a field-value pair; return p unchanged if the pair is left out.

    Args:
        names: the cell of a map's keys; NULL for a struct's field.
    """
    cdef Py_ssize_t start = p - job.out.base, n = values.name_size
    cdef const char *name = values.name
    cdef char *end
    if names is not NULL:
        name = value(names, at, &n)
        if name is NULL:
            job.fault = <int>n if n < 0 else NULL_KEY
            return NULL
    if n > job.out.most:
        job.fault = ARGUMENT_TOO_LARGE
        return NULL
    p = make_room(job, p, n + 32)
    if p is NULL:
        return NULL
    job.written += 1
    end = put_value(job, job.pair_nulls, values, row, NULL, 0, put_bulk(p, name, n))
    if end is not NULL:
        job.written += 1
        return end
    if job.fault:
        return NULL
    job.written -= 1
    job.left_out += 1
    return job.out.base + start
