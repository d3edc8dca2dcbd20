# cython: language_level=3, cdivision=True
"""Write booleans, numbers, strings and bytes of Arrow columns as text."""

from libc.stdint cimport (
    int8_t,
    int16_t,
    int32_t,
    int64_t,
    uint8_t,
    uint16_t,
    uint32_t,
    uint64_t,
)

from ...resp.out cimport put_digits, put_signed
from .cell cimport (
    DAMAGED,
    FORM_BOOL,
    FORM_BYTES,
    FORM_FLOAT,
    FORM_NONE,
    FORM_NULL,
    FORM_NUMBER,
    FORM_TEXT,
    FORM_VALUE,
    IS_NULL,
    NOT_ONE_ARGUMENT,
    Cell,
    is_null,
    number_in,
    value,
)
from ...resp.floats cimport (
    put_double,
    put_half,
    put_single,
)

cdef const char *BOOLS = b"01"
cdef const char *HEX = b"0123456789abcdef"
cdef const char *EMPTY = b""        # NULL would mean null


# The extension name of a string column with JSON values. A string that begins with VALUE_MARK, a
# byte that is not UTF-8, is the text of a number, a boolean, an object or a list. Any other string
# is a JSON string.
cdef bytes VALUE = b"fastresp.value"


cdef int make_plain(Cell *cell, str kind, bytes extension) except -1:
    """Set a cell to write booleans, strings, bytes, nulls, or numbers that are not decimals."""
    cell.form = FORM_NUMBER
    if kind == "n":
        cell.text, cell.form = text_of_null, FORM_NULL
    elif kind == "b":
        cell.text, cell.form = text_of_bool, FORM_BOOL
    elif kind == "c":
        cell.write = write_int8
    elif kind == "C":
        cell.write = write_uint8
    elif kind == "s":
        cell.write = write_int16
    elif kind == "S":
        cell.write = write_uint16
    elif kind == "i":
        cell.write = write_int32
    elif kind == "I":
        cell.write = write_uint32
    elif kind == "l":
        cell.write = write_int64
    elif kind == "L":
        cell.write = write_uint64
    elif kind in ("e", "f", "g"):
        cell.form = FORM_FLOAT
        cell.write = (
            write_half if kind == "e" else write_single if kind == "f" else write_double
        )
        cell.width = 2 if kind == "e" else 4 if kind == "f" else 8
    else:
        choose_string(cell, kind)
    if extension == b"arrow.uuid":
        cell.write, cell.form, cell.lasting = write_uuid, FORM_TEXT, False
    elif extension == b"arrow.bool8":
        cell.text, cell.form, cell.write = text_of_bool8, FORM_BOOL, NULL
    elif extension == VALUE:
        cell.text, cell.form, cell.plain = text_of_value, FORM_VALUE, False
    elif extension == b"arrow.json":
        cell.form = FORM_NUMBER     # already JSON
    return 0


cdef int choose_string(Cell *cell, str kind) except -1:
    cell.lasting = True
    cell.form = FORM_TEXT if kind in ("u", "U", "vu") else FORM_BYTES
    if kind in ("u", "z"):
        cell.text = text_of_string
        cell.plain = True
    elif kind in ("U", "Z"):
        cell.text = text_of_large_string
    elif kind in ("vu", "vz"):
        cell.text = text_of_view
    elif kind.startswith("w:"):
        cell.text = text_of_fixed
        cell.width = number_in(kind[2:])
        if cell.width < 0:
            cell.form, cell.text = FORM_NONE, NULL
    else:
        cell.form = FORM_NONE
    return 0


cdef const char *text_of_null(Cell *cell, Py_ssize_t i, Py_ssize_t *n) noexcept nogil:
    n[0] = IS_NULL
    return NULL


cdef const char *text_of_bool(Cell *cell, Py_ssize_t i, Py_ssize_t *n) noexcept nogil:
    cdef Py_ssize_t at = cell.offset + i
    n[0] = 1
    return &BOOLS[(<const uint8_t *>cell.values)[at >> 3] >> (at & 7) & 1]


cdef char *write_int8(Cell *cell, Py_ssize_t i, char *p) noexcept nogil:
    return put_signed(p, (<const int8_t *>cell.values)[cell.offset + i])


cdef char *write_int16(Cell *cell, Py_ssize_t i, char *p) noexcept nogil:
    return put_signed(p, (<const int16_t *>cell.values)[cell.offset + i])


cdef char *write_int32(Cell *cell, Py_ssize_t i, char *p) noexcept nogil:
    return put_signed(p, (<const int32_t *>cell.values)[cell.offset + i])


cdef char *write_int64(Cell *cell, Py_ssize_t i, char *p) noexcept nogil:
    return put_signed(p, (<const int64_t *>cell.values)[cell.offset + i])


cdef char *write_uint8(Cell *cell, Py_ssize_t i, char *p) noexcept nogil:
    return put_digits(p, (<const uint8_t *>cell.values)[cell.offset + i])


cdef char *write_uint16(Cell *cell, Py_ssize_t i, char *p) noexcept nogil:
    return put_digits(p, (<const uint16_t *>cell.values)[cell.offset + i])


cdef char *write_uint32(Cell *cell, Py_ssize_t i, char *p) noexcept nogil:
    return put_digits(p, (<const uint32_t *>cell.values)[cell.offset + i])


cdef char *write_uint64(Cell *cell, Py_ssize_t i, char *p) noexcept nogil:
    return put_digits(p, (<const uint64_t *>cell.values)[cell.offset + i])


cdef char *write_half(Cell *cell, Py_ssize_t i, char *p) noexcept nogil:
    cdef uint16_t bits = (<const uint16_t *>cell.values)[cell.offset + i]
    return put_half(p, bits)


cdef char *write_single(Cell *cell, Py_ssize_t i, char *p) noexcept nogil:
    cdef float number = (<const float *>cell.values)[cell.offset + i]
    return put_single(p, number)


cdef char *write_double(Cell *cell, Py_ssize_t i, char *p) noexcept nogil:
    cdef double number = (<const double *>cell.values)[cell.offset + i]
    return put_double(p, number)


cdef const char *text_of_string(Cell *cell, Py_ssize_t i, Py_ssize_t *n) noexcept nogil:
    return value(cell, i, n)        # value() handles this type inline


cdef const char *text_of_value(Cell *cell, Py_ssize_t i, Py_ssize_t *n) noexcept nogil:
    """Return a JSON value as one argument, with booleans as 1 or 0."""
    cdef bint marked
    cdef const char *text = json_value(cell, i, n, &marked)
    if marked and n[0] and (text[0] == c'{' or text[0] == c'['):
        n[0] = NOT_ONE_ARGUMENT
        return NULL
    return one_or_zero(text, n) if marked else text


cdef const char *text_of_any(Cell *cell, Py_ssize_t i, Py_ssize_t *n) noexcept nogil:
    """Return a JSON value of ``cell.inner``: objects and lists as JSON, booleans as 1 or 0."""
    cdef bint marked
    cdef const char *text
    if is_null(cell.inner, i):
        n[0] = IS_NULL
        return NULL
    text = json_value(cell.inner, i, n, &marked)
    return one_or_zero(text, n) if marked else text


cdef inline const char *one_or_zero(const char *text, Py_ssize_t *n) noexcept nogil:
    """Return ``1`` for ``true``, ``0`` for ``false``, and any other text unchanged."""
    if n[0] and (text[0] == c't' or text[0] == c'f'):
        n[0] = 1
        return &BOOLS[text[0] == c't']
    return text


cdef const char *json_value(
    Cell *cell, Py_ssize_t i, Py_ssize_t *n, bint *marked
) noexcept nogil:
    """Return a JSON value without VALUE_MARK; ``marked`` receives whether it had VALUE_MARK."""
    cdef const int32_t *offsets = <const int32_t *>cell.values + cell.offset + i
    cdef const char *text = cell.bytes + offsets[0]
    n[0] = offsets[1] - offsets[0]
    marked[0] = n[0] > 0 and <unsigned char>text[0] == VALUE_MARK
    if marked[0]:
        n[0] -= 1
        return text + 1
    return text


cdef const char *text_of_large_string(Cell *cell, Py_ssize_t i, Py_ssize_t *n) noexcept nogil:
    cdef const int64_t *offsets = <const int64_t *>cell.values + cell.offset + i
    n[0] = offsets[1] - offsets[0]
    return cell.bytes + offsets[0]


cdef const char *text_of_view(Cell *cell, Py_ssize_t i, Py_ssize_t *n) noexcept nogil:
    """Return the text of a view: up to 12 bytes are in the view; a longer text is in a buffer."""
    cdef const uint32_t *view = <const uint32_t *>cell.values + 4 * (cell.offset + i)
    cdef int64_t size = view[0]
    n[0] = size
    if size <= 12:
        return <const char *>&view[1]
    # The offset is read as unsigned, so that a negative offset is far beyond the buffer's end.
    if view[2] < cell.n_variadic and size + view[3] <= cell.sizes[view[2]]:
        return cell.variadic[view[2]] + view[3]
    n[0] = DAMAGED
    return NULL


cdef const char *text_of_fixed(Cell *cell, Py_ssize_t i, Py_ssize_t *n) noexcept nogil:
    n[0] = cell.width
    return <const char *>cell.values + (cell.offset + i) * cell.width if cell.width else EMPTY


cdef char *write_uuid(Cell *cell, Py_ssize_t i, char *p) noexcept nogil:
    """Write 16 bytes as str(uuid.UUID) does."""
    cdef const uint8_t *number = <const uint8_t *>cell.values + (cell.offset + i) * 16
    cdef int k
    for k in range(16):
        if k == 4 or k == 6 or k == 8 or k == 10:
            p[0] = c'-'
            p += 1
        p[0] = HEX[number[k] >> 4]
        p[1] = HEX[number[k] & 15]
        p += 2
    return p


cdef const char *text_of_bool8(Cell *cell, Py_ssize_t i, Py_ssize_t *n) noexcept nogil:
    n[0] = 1
    return &BOOLS[(<const int8_t *>cell.values)[cell.offset + i] != 0]
