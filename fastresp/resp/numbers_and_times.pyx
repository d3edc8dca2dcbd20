# cython: language_level=3, cdivision=True
# distutils: language = c++
# distutils: extra_compile_args = -std=c++17
"""Write floats, times and decimals as text, and floats as the items of a vector field.

The text of a float is the shortest that round-trips, formatted like repr. Times are written as ISO
8601. The items of a vector are little-endian, and copied unchanged if possible.
"""

from cpython.buffer cimport (
    PyBUF_RECORDS_RO, PyBuffer_IsContiguous, PyBuffer_Release, PyObject_CheckBuffer,
    PyObject_GetBuffer,
)
from cpython.float cimport PyFloat_AS_DOUBLE, PyFloat_Check
from cpython.tuple cimport PyTuple_GET_ITEM, PyTuple_GET_SIZE
from libc.math cimport fabs, isinf, rint, signbit
from libc.string cimport memcpy, memmove, memset

from .buffer cimport Buffer, make_room, put_crlf, put_digits, put_header, refuse

import sys
from collections.abc import Mapping, Set

from ..outcome.errors import EncodeError
from ..outcome.messages import shown_value


cdef extern from *:
    """
    #include <charconv>

    template <typename T> static inline char *fastresp_shortest(char *p, T v) {
        return std::to_chars(p, p + 32, v, std::chars_format::scientific).ptr;
    }
    """
    char *shortest "fastresp_shortest"(char *p, double v) noexcept nogil
    char *shortest_single "fastresp_shortest"(char *p, float v) noexcept nogil


cdef enum:
    DAY_S = 86400
    SECOND_NS = 1000000000
    # 0001-01-01 and 10000-01-01, in days since 1970-01-01.
    FIRST_DAY = -719162
    END_DAY = 2932897
    WORDS = 4
    BILLION = 1000000000

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

cdef double[13] TENS = [1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12]


cdef char *put_double(char *p, double v) noexcept nogil:
    """Write the text of repr(float)."""
    cdef double a = fabs(v)
    cdef unsigned long long n
    p = put_sign(p, v)
    if a < 9007199254740992.0:
        n = <unsigned long long>a
        if <double>n == a:
            return put_point_zero(put_digits(p, n))
    # Most floats in practice have few decimals. Different numbers of up to 15 digits are different
    # doubles, so a number that round-trips has the digits of the shortest text.
    if 1e-4 <= a < 1e9:
        n = <unsigned long long>(a * 1e6 + 0.5)
        if <double>n / 1e6 == a:
            return put_millionths(p, n)
    return lay_out(p, shortest(p, a))


cdef char *put_single(char *p, float v) noexcept nogil:
    """Write the digits of str(numpy.float32), in the layout of repr(float)."""
    cdef float a = <float>fabs(v)
    p = put_sign(p, v)
    if a < 16777216 and <float><int>a == a:
        return put_point_zero(put_digits(p, <unsigned long long>a))
    return lay_out(p, shortest_single(p, a))


cdef char *put_half(char *p, unsigned short bits) noexcept nogil:
    """Write the digits of str(numpy.float16), in the layout of repr(float)."""
    cdef double v = half_value(bits)
    cdef double a = fabs(v), power, near
    cdef int exponent = 4, digits
    if a == 0 or not a < 65536:
        return put_double(p, v)
    # An exception: the nearest number with four digits, 0.01562, reads back as a different value.
    if a == 1.0 / 64:
        return put_double(put_sign(p, v), 0.01563)
    while exponent >= 0 and a < TENS[exponent]:
        exponent -= 1
    while exponent < 0 and a * TENS[-exponent] < 1:
        exponent -= 1
    for digits in range(1, 6):
        if digits > exponent:
            power = TENS[digits - 1 - exponent]
            near = rint(a * power) / power
        else:
            power = TENS[exponent - digits + 1]
            near = rint(a / power) * power
        if half_of(near) == bits & 0x7FFF:
            break
    return put_double(put_sign(p, v), near)


cdef unsigned short half_of(double v) noexcept nogil:
    """Return the bits of the nearest 16-bit float; round ties to even."""
    cdef unsigned long long bits
    cdef unsigned short sign
    cdef double a = fabs(v)
    sign = 0x8000 if signbit(v) else 0
    if v != v:
        return sign | 0x7E00
    if a >= 65520:
        return sign | 0x7C00
    # Smaller values are subnormal: multiples of 2**-24.
    if a < 1.0 / 16384:
        return sign | <unsigned short>rint(a * 16777216)
    memcpy(&bits, &a, 8)
    bits += (<unsigned long long>1 << 41) - 1 + (bits >> 42 & 1)
    return sign | <unsigned short>((bits >> 42) - ((1023 - 15) << 10))


cdef double half_value(unsigned short bits) noexcept nogil:
    cdef unsigned long long wide = bits & 0x7FFF
    cdef double v
    if wide < 0x400:
        v = <double>wide / 16777216
    else:
        wide = (wide << 42) + ((<unsigned long long>1008 if wide < 0x7C00 else 2016) << 52)
        memcpy(&v, &wide, 8)
    return -v if bits & 0x8000 else v


cdef inline char *put_sign(char *p, double v) noexcept nogil:
    if signbit(v) and v == v:
        p[0] = c'-'
        return p + 1
    return p


cdef inline char *put_point_zero(char *p) noexcept nogil:
    p[0] = c'.'
    p[1] = c'0'
    return p + 2


cdef inline char *put_millionths(char *p, unsigned long long n) noexcept nogil:
    """Write n / 10**6 without trailing zeros; n must not be a multiple of 10**6."""
    cdef unsigned int fraction = <unsigned int>(n % 1000000)
    cdef int i
    p = put_digits(p, n // 1000000)
    p[0] = c'.'
    for i in range(6, 0, -1):
        p[i] = <char>(48 + fraction % 10)
        fraction //= 10
    p += 7
    while p[-1] == c'0':
        p -= 1
    return p


cdef inline char *lay_out(char *p, char *end) noexcept nogil:
    """Rewrite a number such as '1.25e+02' at p in the layout of repr(float); return the end."""
    cdef int exponent, digits
    # Three digits of exponent, inf and nan are the same in both layouts.
    if end - p < 5 or end[-4] != c'e':
        return end
    exponent = 10 * (end[-2] - 48) + end[-1] - 48
    digits = <int>(end - p) - 4
    if digits > 1:
        digits -= 1
    if end[-3] == c'-':
        if exponent > 4:
            return end
        memmove(p + exponent + 2, p + 2, digits - 1)
        p[exponent + 1] = p[0]
        memset(p, c'0', exponent + 1)
        p[1] = c'.'
        return p + exponent + 1 + digits
    if exponent > 15:
        return end
    if digits <= exponent + 1:
        memmove(p + 1, p + 2, digits - 1)
        memset(p + digits, c'0', exponent + 1 - digits)
        return put_point_zero(p + exponent + 1)
    memmove(p + 1, p + 2, exponent)
    p[exponent + 1] = c'.'
    return p + digits + 1


cdef char *put_date(char *p, long long days) noexcept nogil:
    """Write a date, given as days since 1970-01-01, as date.isoformat does."""
    cdef unsigned int day, year, century, of_century, of_year, month
    if days < FIRST_DAY or days >= END_DAY:
        return NULL
    # Count from 0000-03-01: then the leap day ends a year, and the earlier months follow a pattern
    # of 153 days per five months. Source: Fliegel and Van Flandern, CACM 11 (1968), 657.
    day = <unsigned int>(days + 719468)
    century = (4 * day + 3) // 146097
    of_century = day - 146097 * century // 4
    year = (4 * of_century + 3) // 1461
    of_year = of_century - 1461 * year // 4
    month = (5 * of_year + 2) // 153
    day = of_year - (153 * month + 2) // 5 + 1
    year += 100 * century
    if month < 10:
        month += 3
    else:
        month -= 9
        year += 1
    p = put_two(put_two(p, year // 100), year % 100)
    p[0] = c'-'
    p = put_two(p + 1, month)
    p[0] = c'-'
    return put_two(p + 1, day)


cdef char *put_time(char *p, long long value, long long per_second) noexcept nogil:
    """Write a time of day as time.isoformat does, with nine decimals if six are too few."""
    cdef unsigned int second, fraction
    if value < 0 or value >= DAY_S * per_second:
        return NULL
    second = <unsigned int>(value // per_second)
    fraction = <unsigned int>(value % per_second * (SECOND_NS // per_second))
    p = put_two(p, second // 3600)
    p[0] = c':'
    p = put_two(p + 1, second // 60 % 60)
    p[0] = c':'
    p = put_two(p + 1, second % 60)
    if fraction == 0:
        return p
    p[0] = c'.'
    if fraction % 1000 == 0:
        return put_fraction(p + 1, fraction // 1000, 6)
    return put_fraction(p + 1, fraction, 9)


cdef char *put_timestamp(char *p, long long value, long long per_second) noexcept nogil:
    """Write a date and time, given as units since 1970-01-01, as datetime.isoformat does."""
    cdef long long day = DAY_S * per_second
    cdef long long days = value // day
    cdef long long of_day = value % day
    if of_day < 0:
        days -= 1
        of_day += day
    p = put_date(p, days)
    if p is NULL:
        return NULL
    p[0] = c'T'
    return put_time(p + 1, of_day, per_second)


cdef char *put_offset(char *p, int seconds) noexcept nogil:
    """Write a UTC offset of less than a day, as datetime.isoformat does."""
    p[0] = c'+'
    if seconds < 0:
        p[0] = c'-'
        seconds = -seconds
    p = put_two(p + 1, seconds // 3600)
    p[0] = c':'
    p = put_two(p + 1, seconds // 60 % 60)
    if seconds % 60:
        p[0] = c':'
        p = put_two(p + 1, seconds % 60)
    return p


cdef char *put_duration(char *p, long long value, long long per_second) noexcept nogil:
    """Write a duration as ISO 8601, such as P1DT2H3M4.5S; a negative duration has a sign."""
    cdef unsigned long long size = <unsigned long long>value
    cdef unsigned long long second = <unsigned long long>per_second
    if value < 0:
        size = 0 - size
    return put_days(
        p, value < 0, size // second // DAY_S, <int>(size // second % DAY_S),
        <int>(size % second * (SECOND_NS // second)),
    )


cdef char *put_days(
    char *p, bint negative, unsigned long long days, int seconds, int nanoseconds
) noexcept nogil:
    """Write a duration as ISO 8601, given as a sign, days, seconds and nanoseconds."""
    cdef int width = 9
    if negative:
        p[0] = c'-'
        p += 1
    p[0] = c'P'
    p += 1
    if days:
        p = put_digits(p, days)
        p[0] = c'D'
        p += 1
        if seconds == 0 and nanoseconds == 0:
            return p
    p[0] = c'T'
    p += 1
    if seconds >= 3600:
        p = put_digits(p, seconds // 3600)
        p[0] = c'H'
        p += 1
    if seconds % 3600 >= 60:
        p = put_digits(p, seconds // 60 % 60)
        p[0] = c'M'
        p += 1
    if seconds % 60 or nanoseconds or p[-1] == c'T':
        p = put_digits(p, seconds % 60)
        if nanoseconds:
            p[0] = c'.'
            while nanoseconds % 10 == 0:
                nanoseconds //= 10
                width -= 1
            p = put_fraction(p + 1, nanoseconds, width)
        p[0] = c'S'
        p += 1
    return p


cdef char *put_decimal(
    char *p, const unsigned long long *words, int nwords, int scale
) noexcept nogil:
    """Write a decimal as format(d, 'f') does.

    Args:
        words: an integer of ``nwords`` 64-bit words, lowest word first.
        scale: the integer is divided by 10**scale.
    """
    cdef unsigned long long[WORDS] n
    cdef char[80] digits
    cdef char *end
    cdef int i, count
    cdef bint carry = True, small = True
    memcpy(n, words, 8 * nwords)
    if n[nwords - 1] >> 63:
        p[0] = c'-'
        p += 1
        for i in range(nwords):
            n[i] = ~n[i] + carry
            carry = carry and n[i] == 0
    for i in range(1, nwords):
        small = small and n[i] == 0
    end = put_digits(digits, n[0]) if small else put_long(digits, n, nwords)
    count = <int>(end - digits)
    if scale <= 0:
        memcpy(p, digits, count)
        if small and n[0] == 0:
            return p + 1
        memset(p + count, c'0', -scale)
        return p + count - scale
    if count > scale:
        memcpy(p, digits, count - scale)
        p += count - scale
        p[0] = c'.'
        memcpy(p + 1, digits + count - scale, scale)
    else:
        memset(p, c'0', scale + 2 - count)
        p[1] = c'.'
        p += 1
        memcpy(p + 1 + scale - count, digits, count)
    return p + 1 + scale


cdef char *put_long(char *p, unsigned long long *n, int nwords) noexcept nogil:
    """Write an integer of several words in decimal; the words become zero."""
    cdef unsigned int[9] groups         # groups of nine digits; 256 bits have 78 digits
    cdef unsigned long long high, low, rest
    cdef int count = 0, i
    while nwords:
        rest = 0
        for i in range(nwords - 1, -1, -1):
            high = rest << 32 | n[i] >> 32
            low = high % BILLION << 32 | <unsigned int>n[i]
            n[i] = high // BILLION << 32 | low // BILLION
            rest = low % BILLION
        groups[count] = <unsigned int>rest
        count += 1
        while nwords and n[nwords - 1] == 0:
            nwords -= 1
    p = put_digits(p, groups[count - 1])
    for i in range(count - 2, -1, -1):
        p = put_fraction(p, groups[i], 9)
    return p


cdef inline char *put_two(char *p, unsigned int n) noexcept nogil:
    p[0] = <char>(48 + n // 10)
    p[1] = <char>(48 + n % 10)
    return p + 2


cdef inline char *put_fraction(char *p, unsigned int n, int width) noexcept nogil:
    """Write n in decimal, padded with zeros to ``width``."""
    cdef int i
    for i in range(width - 1, -1, -1):
        p[i] = <char>(48 + n % 10)
        n //= 10
    return p + width


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
            f"cannot send {shown_value(value)} (a {type(value).__name__}) as a vector: it has "
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
        raise EncodeError(
            f"item {i} is {shown_value(item)} (a {type(item).__name__}), not a number"
        )
    try:
        return float(item)
    except OverflowError:
        raise EncodeError(f"item {i} is {shown_value(item)}, too large for a float") from None


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
        f"cannot send {shown_value(value)} (a {type(value).__name__}) as a vector: it must be a "
        f"list, tuple, array or other sequence of numbers{hint}"
    )
