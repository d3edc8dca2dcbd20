# cython: language_level=3, cdivision=True
"""Write values of Arrow columns, including nested values, as the JSON text of json.dumps."""

from libc.stdlib cimport free, malloc, qsort
from libc.string cimport memcmp

from .cell cimport (
    BAD_INDEX,
    FORM_BOOL,
    FORM_FLOAT,
    FORM_LIST,
    FORM_MAP,
    FORM_NUMBER,
    FORM_STRUCT,
    FORM_VALUE,
    IS_NULL,
    NO_MEMORY,
    NOT_FINITE,
    NOT_UTF8,
    NULL_KEY,
    SAME_KEY,
    Cell,
    resolve,
    span,
    value,
)
from .numbers_and_strings cimport json_value
from ...resp.out cimport Out, cut, own_size, put_copy, reserve

cdef enum:
    FEW_KEYS = 16               # up to this number of keys are compared one by one

# Whether a byte of a string must be escaped in JSON.
cdef bint[256] SPECIAL
cdef const char *HEX = b"0123456789abcdef"


cdef int prepare() except -1:
    cdef int byte
    for byte in range(256):
        SPECIAL[byte] = byte < 32 or byte == c'"' or byte == c'\\'
    return 0


prepare()


cdef const char *text_of_json(Cell *cell, Py_ssize_t i, Py_ssize_t *n) noexcept nogil:
    """Return a value of ``cell.inner`` as JSON; a null becomes 'null'."""
    cut(&cell.scratch, 0)
    cdef int fault = put_json(&cell.scratch, cell.inner, i, False)
    if fault:
        n[0] = fault
        return NULL
    n[0] = own_size(&cell.scratch)
    return cell.scratch.base


cdef const char *text_of_nested(Cell *cell, Py_ssize_t i, Py_ssize_t *n) noexcept nogil:
    """Return a value of ``cell.inner`` as JSON, or NULL for a null."""
    cdef Py_ssize_t at = i
    if resolve(cell.inner, &at) is NULL:
        n[0] = BAD_INDEX if at < 0 else IS_NULL
        return NULL
    return text_of_json(cell, i, n)


cdef Cell *culprit(Cell *cell, Py_ssize_t i) noexcept nogil:
    """Return the field of ``cell.inner`` whose value can't be written, or ``cell.inner``."""
    cdef Py_ssize_t k
    cdef Cell *field
    for k in range(cell.inner.n_children if cell.inner.form == FORM_STRUCT else 0):
        field = &cell.inner.children[k]
        cut(&cell.scratch, 0)
        if not field.hidden and put_json(&cell.scratch, field, i, False):
            return field
    return cell.inner


cdef int put_json(Out *out, Cell *cell, Py_ssize_t i, bint quoted) noexcept nogil:
    """Write a value as JSON; if ``quoted`` is True, write numbers and booleans as strings."""
    cell = resolve(cell, &i)
    if cell is NULL:
        return BAD_INDEX if i < 0 else put(out, b"null", 4)
    if cell.form == FORM_LIST:
        return put_list(out, cell, i)
    if cell.form == FORM_STRUCT:
        return put_struct(out, cell, i)
    if cell.form == FORM_MAP:
        return put_map(out, cell, i)
    return put_scalar(out, cell, i, quoted)


cdef int put_scalar(Out *out, Cell *cell, Py_ssize_t i, bint quoted) noexcept nogil:
    cdef Py_ssize_t n
    cdef bint marked
    cdef const char *text
    if cell.form == FORM_VALUE:
        text = json_value(cell, i, &n, &marked)
        return put_checked(out, text, n) if marked else put_string(out, text, n)
    text = value(cell, i, &n)
    if text is NULL:
        return <int>n
    if cell.form == FORM_BOOL:
        if text[0] == c'1':
            text, n = b"true", 4
        else:
            text, n = b"false", 5
    elif cell.form == FORM_FLOAT:
        # inf, -inf and nan end in a letter, which is above '9'.
        if text[n - 1] > c'9':
            return NOT_FINITE
    elif cell.form != FORM_NUMBER:
        return put_string(out, text, n)
    if not quoted:
        return put(out, text, n)
    return put_string(out, text, n)


cdef int put_checked(Out *out, const char *text, Py_ssize_t n) noexcept nogil:
    """Write JSON text after checking that it is UTF-8."""
    cdef Py_ssize_t at = 0, step
    while at < n:
        step = character_size(text + at, n - at)
        if step == 0:
            return NOT_UTF8
        at += step
    return put(out, text, n)


cdef int put_list(Out *out, Cell *cell, Py_ssize_t i) noexcept nogil:
    cdef Py_ssize_t start, end, at
    cdef int fault = put(out, b"[", 1)
    span(cell, i, &start, &end)
    for at in range(start, end):
        fault = fault or (put(out, b",", 1) if at > start else 0)
        fault = fault or put_json(out, &cell.children[0], at, False)
        if fault:
            return fault
    return fault or put(out, b"]", 1)


cdef int put_struct(Out *out, Cell *cell, Py_ssize_t i) noexcept nogil:
    cdef Py_ssize_t k
    cdef int fault = put(out, b"{", 1)
    cdef bint first = True
    cdef Cell *field
    for k in range(cell.n_children):
        field = &cell.children[k]
        if field.hidden:
            continue
        fault = fault or (0 if first else put(out, b",", 1))
        fault = fault or put_string(out, field.name, field.name_size)
        fault = fault or put(out, b":", 1)
        fault = fault or put_json(out, field, i, False)
        if fault:
            return fault
        first = False
    return fault or put(out, b"}", 1)


cdef int put_map(Out *out, Cell *cell, Py_ssize_t i) noexcept nogil:
    """Write a map, which Arrow stores as a list of structs with two fields, as a JSON object."""
    cdef Py_ssize_t start, end, at, key
    cdef Key *keys
    cdef int fault = put(out, b"{", 1)
    cdef Cell *names = &cell.children[0].children[0]
    cdef Cell *values = &cell.children[0].children[1]
    span(cell, i, &start, &end)
    keys = <Key *>malloc((end - start + 1) * sizeof(Key))
    if keys is NULL:
        return NO_MEMORY
    for at in range(start, end):
        key = at
        if resolve(names, &key) is NULL:
            fault = NULL_KEY
        fault = fault or (put(out, b",", 1) if at > start else 0)
        keys[at - start].at = own_size(out)
        fault = fault or put_json(out, names, at, True)
        keys[at - start].size = own_size(out) - keys[at - start].at
        fault = fault or put(out, b":", 1)
        fault = fault or put_json(out, values, at, False)
        if fault:
            break
    fault = fault or put(out, b"}", 1)
    if fault == 0 and repeated(keys, end - start, out.base) is not NULL:
        fault = SAME_KEY
    free(keys)
    return fault


cdef const Key *repeated(Key *keys, Py_ssize_t n, const char *base) noexcept nogil:
    """Return a duplicate name; NULL if there is no duplicate.

    Args:
        keys: the names, which may be reordered.
        n: the number of names.
        base: the text that contains the names.
    """
    cdef Py_ssize_t i, k
    for i in range(n):
        keys[i].text = base + keys[i].at
        for k in range(i if n <= FEW_KEYS else 0):
            if keys[k].size == keys[i].size and compare(&keys[k], &keys[i]) == 0:
                return &keys[i]
    if n > FEW_KEYS:
        qsort(keys, n, sizeof(Key), compare)
        for i in range(1, n):
            if compare(&keys[i - 1], &keys[i]) == 0:
                return &keys[i]
    return NULL


cdef int compare(const void *one, const void *other) noexcept nogil:
    cdef const Key *a = <const Key *>one
    cdef const Key *b = <const Key *>other
    if a.size != b.size:
        return 1 if a.size > b.size else -1
    return memcmp(a.text, b.text, a.size)


cdef inline int put(Out *out, const char *text, Py_ssize_t n) noexcept nogil:
    cdef char *p = reserve(out, out.p, n)
    if p is NULL:
        return NO_MEMORY
    out.p = put_copy(p, text, n)
    return 0


cdef int put_string(Out *out, const char *text, Py_ssize_t n) noexcept nogil:
    """Write a string in quotes, escaped as json.dumps does with ensure_ascii=False."""
    cdef Py_ssize_t at = 0, start, step
    if reserve(out, out.p, n + 2) is NULL:
        return NO_MEMORY
    put(out, b'"', 1)
    while at < n:
        start = at
        while at < n and not SPECIAL[<unsigned char>text[at]]:
            step = character_size(text + at, n - at)
            if step == 0:
                return NOT_UTF8
            at += step
        put(out, text + start, at - start)
        if at < n:
            # Room for this character, and for the remaining text if no character must be escaped.
            if reserve(out, out.p, n - at + 8) is NULL:
                return NO_MEMORY
            put_escaped(out, text[at])
            at += 1
    return put(out, b'"', 1)


cdef int put_escaped(Out *out, char character) noexcept nogil:
    if character == c'\n':
        return put(out, b"\\n", 2)
    if character == c'\r':
        return put(out, b"\\r", 2)
    if character == c'\t':
        return put(out, b"\\t", 2)
    if character == c'\b':
        return put(out, b"\\b", 2)
    if character == c'\f':
        return put(out, b"\\f", 2)
    if character == c'"':
        return put(out, b'\\"', 2)
    if character == c'\\':
        return put(out, b"\\\\", 2)
    put(out, b"\\u00", 4)
    put(out, &HEX[character >> 4], 1)
    return put(out, &HEX[character & 15], 1)
