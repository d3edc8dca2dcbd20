# cython: language_level=3, cdivision=True
"""Write numbers as the little-endian floats of a vector field; copy them unchanged if possible."""

from cpython.buffer cimport (
    PyBUF_RECORDS_RO,
    PyBuffer_IsContiguous,
    PyBuffer_Release,
    PyObject_CheckBuffer,
    PyObject_GetBuffer,
)
from cpython.float cimport PyFloat_AS_DOUBLE, PyFloat_Check
from cpython.tuple cimport PyTuple_GET_ITEM, PyTuple_GET_SIZE
from libc.math cimport isinf
from libc.string cimport memcpy

from .buffer cimport make_room, refuse
from .floats cimport half_of, half_value
from .out cimport put_crlf, put_header
from .values cimport shown

import sys
from collections.abc import Mapping, Set

from ..outcome.errors import EncodeError


cdef bint LITTLE = sys.byteorder == "little"
cdef dict WIDTHS = {"f16": 2, "f32": 4, "f64": 8}
# The struct module's formats for floats, by width in bytes.
cdef dict FORMATS = {2: b"e", 4: b"f", 8: b"d"}


cdef union Raw:
    char[8] data
    double double_
    float single
    signed char i1
    unsigned char u1
    short i2
    unsigned short u2
    int i4
    unsigned int u4
    long long i8
    unsigned long long u8


cdef int width_of(object conversion) except -1:
    return WIDTHS.get(conversion, 0)


cdef int put_vector(Buffer b, object value, int width, Py_ssize_t *length) except -1:
    """Write one vector as an argument; all vectors of a placeholder must have the same length."""
    cdef Py_buffer view
    if isinstance(value, (str, bytes, bytearray)):
        raise not_numbers(value, width)
    if not PyObject_CheckBuffer(value):
        if isinstance(value, (Mapping, Set)) or not hasattr(value, "__len__"):
            raise not_numbers(value, width)
        # Copy the list, since code that converts an item to a float may change the list.
        return put_items(b, value if type(value) is tuple else tuple(value), width, length)
    mask = getattr(value, "mask", None)     # the mask of a numpy.ma array
    if mask is not None and mask.any():
        raise EncodeError(f"item {mask.argmax()} is masked: a vector can't contain nulls")
    try:
        PyObject_GetBuffer(value, &view, PyBUF_RECORDS_RO)
    except Exception as error:
        raise not_numbers(value, width) from error
    try:
        return put_view(b, value, &view, width, length)
    finally:
        PyBuffer_Release(&view)


cdef int put_items(Buffer b, tuple items, int width, Py_ssize_t *length) except -1:
    """Write the items of a sequence."""
    cdef Py_ssize_t i, n = PyTuple_GET_SIZE(items)
    cdef char *p = open_vector(b, n, width, length)
    cdef object item
    for i in range(n):
        item = <object>PyTuple_GET_ITEM(items, i)
        p = put_number(p, number(item, i), width, i)
    return close_vector(b, p, n, length)


cdef int put_view(
    Buffer b, object value, Py_buffer *view, int width, Py_ssize_t *length
) except -1:
    """Write the items of a buffer."""
    cdef bytes kind = b"B" if view.format is NULL else view.format
    cdef bytes letter = kind.lstrip(b"@=<>!")
    cdef bint swap = LITTLE if kind[:1] in (b">", b"!") else not LITTLE and kind[:1] == b"<"
    cdef Py_ssize_t i, n
    cdef const char *at = <const char *>view.buf
    cdef char *p
    if view.ndim != 1:
        raise EncodeError(
            f"cannot send {shown(value)} (a {type(value).__name__}) as a vector: it has "
            f"{view.ndim} dimensions, not one"
        )
    # A memoryview of bytes is most likely an encoded vector.
    if letter == b"B" and isinstance(value, memoryview):
        raise not_numbers(value, width)
    if letter == b"O":
        return put_items(b, tuple(value), width, length)
    if len(letter) != 1 or letter not in b"efdbhilqnBHILQN":
        raise not_numbers(value, width)
    n = view.shape[0]
    p = open_vector(b, n, width, length)
    if letter == FORMATS[width] and LITTLE and not swap and PyBuffer_IsContiguous(view, c'C'):
        memcpy(p, at, view.len)
        return close_vector(b, p + view.len, n, length)
    for i in range(n):
        p = put_number(p, number_at(at, letter[0], view.itemsize, swap), width, i)
        at += view.strides[0]
    return close_vector(b, p, n, length)


cdef str other_length(Py_ssize_t first):
    """Return the message for a vector whose length differs from the first vector's."""
    return (
        f"the vector's length differs from the first one's, {first:,}; all vectors of an index "
        "must have the same length"
    )


cdef char *open_vector(Buffer b, Py_ssize_t n, int width, Py_ssize_t *length) except NULL:
    """Write the header, and make room for the whole vector."""
    if length[0] >= 0 and n != length[0]:
        raise EncodeError(f"{other_length(length[0])} (this one has {n:,})")
    if n * width > b.out.most:
        refuse(b, n * width)
    return put_header(make_room(b, n * width + 32), c'$', n * width)


cdef int close_vector(Buffer b, char *p, Py_ssize_t n, Py_ssize_t *length) noexcept:
    b.out.p = put_crlf(p)
    length[0] = n
    return 1


cdef double number(object item, Py_ssize_t i) except? -1:
    """Return the value of an item of a sequence."""
    if PyFloat_Check(item):
        return PyFloat_AS_DOUBLE(item)
    if item is None:
        raise EncodeError(f"item {i} is None: a vector can't contain nulls")
    # NumPy's bools and dates also have __float__; types without a dtype count as "f".
    kind = getattr(getattr(item, "dtype", None), "kind", "f")
    if not hasattr(item, "__float__") or isinstance(item, bool) or kind not in "fiu":
        raise EncodeError(f"item {i} is {shown(item)} (a {type(item).__name__}), not a number")
    try:
        return float(item)
    except OverflowError:
        raise EncodeError(f"item {i} is {shown(item)}, too large for a float") from None


cdef double number_at(const char *p, char kind, Py_ssize_t size, bint swap) noexcept:
    """Return the value of an item of ``size`` bytes in a buffer; ``kind`` is the struct format."""
    cdef Raw raw
    cdef Py_ssize_t i
    for i in range(size):
        raw.data[i] = p[size - 1 - i] if swap else p[i]
    if kind == c'd':
        return raw.double_
    if kind == c'f':
        return raw.single
    if kind == c'e':
        return half_value(raw.u2)
    if kind >= c'a':
        if size == 1:
            return raw.i1
        if size == 2:
            return raw.i2
        return raw.i4 if size == 4 else raw.i8
    if size == 1:
        return raw.u1
    if size == 2:
        return raw.u2
    return raw.u4 if size == 4 else raw.u8


cdef inline char *put_number(char *p, double v, int width, Py_ssize_t i) except NULL:
    """Write item i of a vector as a little-endian float of ``width`` bytes."""
    cdef unsigned long long bits
    cdef unsigned int single_bits
    cdef float single = <float>v
    cdef int k
    if width == 8:
        memcpy(&bits, &v, 8)
    elif width == 4:
        memcpy(&single_bits, &single, 4)
        bits = single_bits
    else:
        bits = half_of(v)
    if not isinf(v) and width < 8 and isinf(single if width == 4 else half_value(bits)):
        raise EncodeError(f"item {i} is {v!r}, too large for f{8 * width}")
    for k in range(width):
        p[k] = <char>(bits >> 8 * k)
    return p + width


cdef object not_numbers(object value, int width):
    hint = ""
    if isinstance(value, (bytes, bytearray, memoryview)):
        hint = f"; write the field without !f{8 * width} if it contains an encoded vector"
    return EncodeError(
        f"cannot send {shown(value)} (a {type(value).__name__}) as a vector: it must be a list, "
        f"tuple, array or other sequence of numbers{hint}"
    )
