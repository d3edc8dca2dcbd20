# cython: language_level=3, cdivision=True
"""Write values of Arrow columns as text, and any values, including nested values, as JSON."""

from libc.stdint cimport int8_t, int16_t, int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc, qsort
from libc.string cimport memcmp

from ...resp.numbers_and_times cimport put_double, put_half, put_single
from ...resp.buffer cimport Out, cut, own_size, put_copy, put_digits, put_signed, reserve
from .cell cimport (
    BAD_INDEX,
    DAMAGED,
    KIND_BOOL,
    KIND_BYTES,
    KIND_FLOAT,
    KIND_LIST,
    KIND_MAP,
    KIND_NONE,
    KIND_NULL,
    KIND_NUMBER,
    KIND_STRUCT,
    KIND_TEXT,
    KIND_VALUE,
    IS_NULL,
    NOT_FINITE,
    NOT_ONE_ARGUMENT,
    NOT_UTF8,
    NO_MEMORY,
    NULL_KEY,
    SAME_KEY,
    Cell,
    is_null,
    number_in,
    resolve,
    span,
    value,
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
    cell.kind = KIND_NUMBER
    if kind == "n":
        cell.text, cell.kind = text_of_null, KIND_NULL
    elif kind == "b":
        cell.text, cell.kind = text_of_bool, KIND_BOOL
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
        cell.kind = KIND_FLOAT
        cell.write = (
            write_half if kind == "e" else write_single if kind == "f" else write_double
        )
        cell.width = 2 if kind == "e" else 4 if kind == "f" else 8
    else:
        choose_string(cell, kind)
    if extension == b"arrow.uuid":
        cell.write, cell.kind, cell.zero_copy = write_uuid, KIND_TEXT, False
    elif extension == b"arrow.bool8":
        cell.text, cell.kind, cell.write = text_of_bool8, KIND_BOOL, NULL
    elif extension == VALUE:
        cell.text, cell.kind, cell.plain = text_of_value, KIND_VALUE, False
    elif extension == b"arrow.json":
        cell.kind = KIND_NUMBER     # already JSON
    return 0


cdef int choose_string(Cell *cell, str kind) except -1:
    cell.zero_copy = True
    cell.kind = KIND_TEXT if kind in ("u", "U", "vu") else KIND_BYTES
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
            cell.kind, cell.text = KIND_NONE, NULL
    else:
        cell.kind = KIND_NONE
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
    """Return a JSON value of ``cell.target``: objects and lists as JSON, booleans as 1 or 0."""
    cdef bint marked
    cdef const char *text
    if is_null(cell.target, i):
        n[0] = IS_NULL
        return NULL
    text = json_value(cell.target, i, n, &marked)
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


cdef enum:
    FEW_KEYS = 16               # up to this number of keys are compared one by one

# Whether a byte of a string must be escaped in JSON.
cdef bint[256] SPECIAL


cdef int prepare() except -1:
    cdef int byte
    for byte in range(256):
        SPECIAL[byte] = byte < 32 or byte == c'"' or byte == c'\\'
    return 0


prepare()


cdef const char *text_of_json(Cell *cell, Py_ssize_t i, Py_ssize_t *n) noexcept nogil:
    """Return a value of ``cell.target`` as JSON; a null becomes 'null'."""
    cut(&cell.scratch, 0)
    cdef int fault = put_json(&cell.scratch, cell.target, i, False)
    if fault:
        n[0] = fault
        return NULL
    n[0] = own_size(&cell.scratch)
    return cell.scratch.base


cdef const char *text_of_nested(Cell *cell, Py_ssize_t i, Py_ssize_t *n) noexcept nogil:
    """Return a value of ``cell.target`` as JSON, or NULL for a null."""
    cdef Py_ssize_t at = i
    if resolve(cell.target, &at) is NULL:
        n[0] = BAD_INDEX if at < 0 else IS_NULL
        return NULL
    return text_of_json(cell, i, n)


cdef Cell *find_invalid_field(Cell *cell, Py_ssize_t i) noexcept nogil:
    """Return the field of ``cell.target`` whose value can't be written, or ``cell.target``."""
    cdef Py_ssize_t k
    cdef Cell *field
    for k in range(cell.target.n_children if cell.target.kind == KIND_STRUCT else 0):
        field = &cell.target.children[k]
        cut(&cell.scratch, 0)
        if not field.hidden and put_json(&cell.scratch, field, i, False):
            return field
    return cell.target


cdef int put_json(Out *out, Cell *cell, Py_ssize_t i, bint quoted) noexcept nogil:
    """Write a value as JSON; if ``quoted`` is True, write numbers and booleans as strings."""
    cell = resolve(cell, &i)
    if cell is NULL:
        return BAD_INDEX if i < 0 else put(out, b"null", 4)
    if cell.kind == KIND_LIST:
        return put_list(out, cell, i)
    if cell.kind == KIND_STRUCT:
        return put_struct(out, cell, i)
    if cell.kind == KIND_MAP:
        return put_map(out, cell, i)
    return put_scalar(out, cell, i, quoted)


cdef int put_scalar(Out *out, Cell *cell, Py_ssize_t i, bint quoted) noexcept nogil:
    cdef Py_ssize_t n
    cdef bint marked
    cdef const char *text
    if cell.kind == KIND_VALUE:
        text = json_value(cell, i, &n, &marked)
        return put_checked(out, text, n) if marked else put_string(out, text, n)
    text = value(cell, i, &n)
    if text is NULL:
        return <int>n
    if cell.kind == KIND_BOOL:
        if text[0] == c'1':
            text, n = b"true", 4
        else:
            text, n = b"false", 5
    elif cell.kind == KIND_FLOAT:
        # inf, -inf and nan end in a letter, which is above '9'.
        if text[n - 1] > c'9':
            return NOT_FINITE
    elif cell.kind != KIND_NUMBER:
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
    cdef JsonKey *keys
    cdef int fault = put(out, b"{", 1)
    cdef Cell *names = &cell.children[0].children[0]
    cdef Cell *values = &cell.children[0].children[1]
    span(cell, i, &start, &end)
    keys = <JsonKey *>malloc((end - start + 1) * sizeof(JsonKey))
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
    if fault == 0 and find_duplicate(keys, end - start, out.base) is not NULL:
        fault = SAME_KEY
    free(keys)
    return fault


cdef const JsonKey *find_duplicate(JsonKey *keys, Py_ssize_t n, const char *base) noexcept nogil:
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
        qsort(keys, n, sizeof(JsonKey), compare)
        for i in range(1, n):
            if compare(&keys[i - 1], &keys[i]) == 0:
                return &keys[i]
    return NULL


cdef int compare(const void *one, const void *other) noexcept nogil:
    cdef const JsonKey *a = <const JsonKey *>one
    cdef const JsonKey *b = <const JsonKey *>other
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
