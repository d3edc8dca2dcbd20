# cython: language_level=3, cdivision=True
"""Write values of Arrow columns as text, or as JSON (including nested values)."""

from libc.stdint cimport int8_t, int16_t, int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memchr

from ...resp.numbers_and_times cimport put_double, put_half, put_single
from ...resp.buffer cimport Out, cut, own_size, put_copy, put_digits, put_signed, reserve
from ..strings cimport JsonKey, character_size, find_duplicate, is_utf8
from .column_view cimport (
    BAD_INDEX, DAMAGED, IS_NULL, KIND_BOOL, KIND_BYTES, KIND_FLOAT, KIND_LIST, KIND_MAP, KIND_NONE,
    KIND_NULL, KIND_NUMBER, KIND_STRUCT, KIND_TEXT, KIND_VALUE, NOT_FINITE, NOT_ONE_ARGUMENT,
    NOT_UTF8, NO_MEMORY, NULL_KEY, SAME_KEY, STORAGE_HALF, STORAGE_OTHER, ColumnView, is_null,
    number_in, resolve, span, value,
)

cdef const char *BOOLS = b"01"
cdef const char *HEX = b"0123456789abcdef"
cdef const char *EMPTY = b""        # NULL would mean null
# The characters with a short escape in JSON, and the letters of their escapes.
cdef const char *ESCAPED = b'\n\r\t\b\f"\\'
cdef const char *LETTERS = b'nrtbf"\\'


# The extension name of a string column with JSON values. A string that begins with VALUE_MARK, a
# byte that is not UTF-8, is the text of a number, a boolean, an object or a list. Any other string
# is a JSON string.
cdef bytes VALUE = b"fastresp.value"


ctypedef char *(*Write)(ColumnView *, Py_ssize_t, char *) noexcept nogil

# The functions that write numbers, by Storage.
cdef Write[12] WRITERS
WRITERS[:] = [
    NULL, write_int8, write_uint8, write_int16, write_uint16, write_int32, write_uint32,
    write_int64, write_uint64, write_half, write_single, write_double,
]


cdef int make_plain(ColumnView *column, str kind, bytes extension) except -1:
    """Set up a column to write booleans, strings, bytes, nulls, or numbers except decimals."""
    column.kind = KIND_NUMBER
    if kind == "n":
        column.text, column.kind = text_of_null, KIND_NULL
    elif kind == "b":
        column.text, column.kind = text_of_bool, KIND_BOOL
    elif column.storage != STORAGE_OTHER:
        column.write = WRITERS[<int>column.storage]
        if column.storage >= STORAGE_HALF:
            column.kind = KIND_FLOAT
            column.width = 2 << (column.storage - STORAGE_HALF)
    else:
        choose_string(column, kind)
    if extension == b"arrow.uuid":
        column.write, column.kind, column.zero_copy = write_uuid, KIND_TEXT, False
    elif extension == b"arrow.bool8":
        column.text, column.kind, column.write = text_of_bool8, KIND_BOOL, NULL
    elif extension == VALUE:
        column.text, column.kind, column.plain = text_of_value, KIND_VALUE, False
    elif extension == b"arrow.json":
        column.kind = KIND_NUMBER     # already JSON
    return 0


cdef int choose_string(ColumnView *column, str kind) except -1:
    column.zero_copy = True
    column.kind = KIND_TEXT if kind in ("u", "U", "vu") else KIND_BYTES
    if kind in ("u", "z"):
        column.text = text_of_string
        column.plain = True
    elif kind in ("U", "Z"):
        column.text = text_of_large_string
    elif kind in ("vu", "vz"):
        column.text = text_of_view
    elif kind.startswith("w:"):
        column.text = text_of_fixed
        column.width = number_in(kind[2:])
        if column.width < 0:
            column.kind, column.text = KIND_NONE, NULL
    else:
        column.kind = KIND_NONE
    return 0


cdef const char *text_of_null(ColumnView *column, Py_ssize_t i, Py_ssize_t *n) noexcept nogil:
    n[0] = IS_NULL
    return NULL


cdef const char *text_of_bool(ColumnView *column, Py_ssize_t i, Py_ssize_t *n) noexcept nogil:
    cdef Py_ssize_t at = column.offset + i
    n[0] = 1
    return &BOOLS[(<const uint8_t *>column.values)[at >> 3] >> (at & 7) & 1]


cdef char *write_int8(ColumnView *column, Py_ssize_t i, char *p) noexcept nogil:
    return put_signed(p, (<const int8_t *>column.values)[column.offset + i])


cdef char *write_int16(ColumnView *column, Py_ssize_t i, char *p) noexcept nogil:
    return put_signed(p, (<const int16_t *>column.values)[column.offset + i])


cdef char *write_int32(ColumnView *column, Py_ssize_t i, char *p) noexcept nogil:
    return put_signed(p, (<const int32_t *>column.values)[column.offset + i])


cdef char *write_int64(ColumnView *column, Py_ssize_t i, char *p) noexcept nogil:
    return put_signed(p, (<const int64_t *>column.values)[column.offset + i])


cdef char *write_uint8(ColumnView *column, Py_ssize_t i, char *p) noexcept nogil:
    return put_digits(p, (<const uint8_t *>column.values)[column.offset + i])


cdef char *write_uint16(ColumnView *column, Py_ssize_t i, char *p) noexcept nogil:
    return put_digits(p, (<const uint16_t *>column.values)[column.offset + i])


cdef char *write_uint32(ColumnView *column, Py_ssize_t i, char *p) noexcept nogil:
    return put_digits(p, (<const uint32_t *>column.values)[column.offset + i])


cdef char *write_uint64(ColumnView *column, Py_ssize_t i, char *p) noexcept nogil:
    return put_digits(p, (<const uint64_t *>column.values)[column.offset + i])


cdef char *write_half(ColumnView *column, Py_ssize_t i, char *p) noexcept nogil:
    return put_half(p, (<const uint16_t *>column.values)[column.offset + i])


cdef char *write_single(ColumnView *column, Py_ssize_t i, char *p) noexcept nogil:
    return put_single(p, (<const float *>column.values)[column.offset + i])


cdef char *write_double(ColumnView *column, Py_ssize_t i, char *p) noexcept nogil:
    return put_double(p, (<const double *>column.values)[column.offset + i])


cdef const char *text_of_string(ColumnView *column, Py_ssize_t i, Py_ssize_t *n) noexcept nogil:
    return value(column, i, n)        # value() handles this type inline


cdef const char *text_of_value(ColumnView *column, Py_ssize_t i, Py_ssize_t *n) noexcept nogil:
    """Return a JSON value as one argument, with booleans as 1 or 0."""
    cdef bint marked
    cdef const char *text = json_value(column, i, n, &marked)
    if marked and n[0] and (text[0] == c'{' or text[0] == c'['):
        n[0] = NOT_ONE_ARGUMENT
        return NULL
    return one_or_zero(text, n) if marked else text


cdef const char *text_of_any(ColumnView *column, Py_ssize_t i, Py_ssize_t *n) noexcept nogil:
    """Return a JSON value of ``column.target``: objects and lists as JSON, booleans as 1 or 0."""
    cdef bint marked
    cdef const char *text
    if is_null(column.target, i):
        n[0] = IS_NULL
        return NULL
    text = json_value(column.target, i, n, &marked)
    return one_or_zero(text, n) if marked else text


cdef inline const char *one_or_zero(const char *text, Py_ssize_t *n) noexcept nogil:
    """Return ``1`` for ``true``, ``0`` for ``false``, and any other text unchanged."""
    if n[0] and (text[0] == c't' or text[0] == c'f'):
        n[0] = 1
        return &BOOLS[text[0] == c't']
    return text


cdef const char *json_value(
    ColumnView *column, Py_ssize_t i, Py_ssize_t *n, bint *marked
) noexcept nogil:
    """Return a JSON value without VALUE_MARK; ``marked`` receives whether it had VALUE_MARK."""
    cdef const int32_t *offsets = <const int32_t *>column.values + column.offset + i
    cdef const char *text = column.bytes + offsets[0]
    n[0] = offsets[1] - offsets[0]
    marked[0] = n[0] > 0 and <unsigned char>text[0] == VALUE_MARK
    if marked[0]:
        n[0] -= 1
        return text + 1
    return text


cdef const char *text_of_large_string(
    ColumnView *column, Py_ssize_t i, Py_ssize_t *n
) noexcept nogil:
    cdef const int64_t *offsets = <const int64_t *>column.values + column.offset + i
    n[0] = offsets[1] - offsets[0]
    return column.bytes + offsets[0]


cdef const char *text_of_view(ColumnView *column, Py_ssize_t i, Py_ssize_t *n) noexcept nogil:
    """Return a view's string: up to 12 bytes are in the view, a longer string is in a buffer."""
    cdef const uint32_t *view = <const uint32_t *>column.values + 4 * (column.offset + i)
    cdef int64_t size = view[0]
    n[0] = size
    if size <= 12:
        return <const char *>&view[1]
    # The offset is read as unsigned, so that a negative offset is far beyond the buffer's end.
    if view[2] < column.n_variadic and size + view[3] <= column.sizes[view[2]]:
        return column.variadic[view[2]] + view[3]
    n[0] = DAMAGED
    return NULL


cdef const char *text_of_fixed(ColumnView *column, Py_ssize_t i, Py_ssize_t *n) noexcept nogil:
    n[0] = column.width
    if column.width == 0:
        return EMPTY
    return <const char *>column.values + (column.offset + i) * column.width


cdef char *write_uuid(ColumnView *column, Py_ssize_t i, char *p) noexcept nogil:
    """Write 16 bytes as str(uuid.UUID) does."""
    cdef const uint8_t *number = <const uint8_t *>column.values + (column.offset + i) * 16
    cdef int k
    for k in range(16):
        if k == 4 or k == 6 or k == 8 or k == 10:
            p[0] = c'-'
            p += 1
        p[0] = HEX[number[k] >> 4]
        p[1] = HEX[number[k] & 15]
        p += 2
    return p


cdef const char *text_of_bool8(ColumnView *column, Py_ssize_t i, Py_ssize_t *n) noexcept nogil:
    n[0] = 1
    return &BOOLS[(<const int8_t *>column.values)[column.offset + i] != 0]


# Whether a byte of a string must be escaped in JSON.
cdef bint[256] SPECIAL


cdef int prepare() except -1:
    cdef int byte
    for byte in range(256):
        SPECIAL[byte] = byte < 32 or byte == c'"' or byte == c'\\'
    return 0


prepare()


cdef const char *text_of_json(ColumnView *column, Py_ssize_t i, Py_ssize_t *n) noexcept nogil:
    """Return a value of ``column.target`` as JSON; a null becomes 'null'."""
    cut(&column.scratch, 0)
    cdef int fault = put_json(&column.scratch, column.target, i, False)
    if fault:
        n[0] = fault
        return NULL
    n[0] = own_size(&column.scratch)
    return column.scratch.base


cdef const char *text_of_nested(ColumnView *column, Py_ssize_t i, Py_ssize_t *n) noexcept nogil:
    """Return a value of ``column.target`` as JSON, or NULL for a null."""
    cdef Py_ssize_t at = i
    if resolve(column.target, &at) is NULL:
        n[0] = BAD_INDEX if at < 0 else IS_NULL
        return NULL
    return text_of_json(column, i, n)


cdef ColumnView *find_invalid_field(ColumnView *column, Py_ssize_t i) noexcept nogil:
    """Return the field of ``column.target`` that can't be written; if none, ``column.target``."""
    cdef Py_ssize_t k
    cdef ColumnView *field
    for k in range(column.target.n_children if column.target.kind == KIND_STRUCT else 0):
        field = &column.target.children[k]
        cut(&column.scratch, 0)
        if not field.hidden and put_json(&column.scratch, field, i, False):
            return field
    return column.target


cdef int put_json(Out *out, ColumnView *column, Py_ssize_t i, bint quoted) noexcept nogil:
    """Write a value as JSON; if ``quoted`` is True, write numbers and booleans as strings."""
    column = resolve(column, &i)
    if column is NULL:
        return BAD_INDEX if i < 0 else put(out, b"null", 4)
    if column.kind == KIND_LIST:
        return put_list(out, column, i)
    if column.kind == KIND_STRUCT:
        return put_struct(out, column, i)
    if column.kind == KIND_MAP:
        return put_map(out, column, i)
    return put_scalar(out, column, i, quoted)


cdef int put_scalar(Out *out, ColumnView *column, Py_ssize_t i, bint quoted) noexcept nogil:
    cdef Py_ssize_t n
    cdef bint marked
    cdef const char *text
    if column.kind == KIND_VALUE:
        text = json_value(column, i, &n, &marked)
        if not marked:
            return put_string(out, text, n)
        return put(out, text, n) if is_utf8(text, n) else NOT_UTF8
    text = value(column, i, &n)
    if text is NULL:
        return <int>n
    if column.kind == KIND_BOOL:
        if text[0] == c'1':
            text, n = b"true", 4
        else:
            text, n = b"false", 5
    elif column.kind == KIND_FLOAT:
        # inf, -inf and nan end in a letter, which is above '9'.
        if text[n - 1] > c'9':
            return NOT_FINITE
    elif column.kind != KIND_NUMBER:
        return put_string(out, text, n)
    return put_string(out, text, n) if quoted else put(out, text, n)


cdef int put_list(Out *out, ColumnView *column, Py_ssize_t i) noexcept nogil:
    cdef Py_ssize_t start, end, at
    cdef int fault = put(out, b"[", 1)
    span(column, i, &start, &end)
    for at in range(start, end):
        fault = fault or (put(out, b",", 1) if at > start else 0)
        fault = fault or put_json(out, &column.children[0], at, False)
        if fault:
            return fault
    return fault or put(out, b"]", 1)


cdef int put_struct(Out *out, ColumnView *column, Py_ssize_t i) noexcept nogil:
    cdef Py_ssize_t k
    cdef int fault = put(out, b"{", 1)
    cdef bint first = True
    cdef ColumnView *field
    for k in range(column.n_children):
        field = &column.children[k]
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


cdef int put_map(Out *out, ColumnView *column, Py_ssize_t i) noexcept nogil:
    """Write a map, which Arrow stores as a list of structs with two fields, as a JSON object."""
    cdef Py_ssize_t start, end, at, key
    cdef JsonKey *keys
    cdef int fault = put(out, b"{", 1)
    cdef ColumnView *names = &column.children[0].children[0]
    cdef ColumnView *values = &column.children[0].children[1]
    span(column, i, &start, &end)
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
    cdef const char *found = <const char *>memchr(ESCAPED, character, 7)
    if found is not NULL:
        put(out, b"\\", 1)
        return put(out, &LETTERS[found - ESCAPED], 1)
    put(out, b"\\u00", 4)
    put(out, &HEX[character >> 4], 1)
    return put(out, &HEX[character & 15], 1)
