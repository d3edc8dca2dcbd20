# cython: language_level=3, cdivision=True
# distutils: language = c++
# distutils: extra_compile_args = -std=c++17
"""Write floats of 64, 32 and 16 bits as the shortest text that round-trips, formatted like repr."""

from libc.math cimport fabs, rint, signbit
from libc.string cimport memcpy, memmove, memset

from .out cimport put_digits


cdef extern from *:
    """
    #include <charconv>

    template <typename T> static inline char *fastresp_shortest(char *p, T v) {
        return std::to_chars(p, p + 32, v, std::chars_format::scientific).ptr;
    }
    """
    char *shortest "fastresp_shortest"(char *p, double v) noexcept nogil
    char *shortest_single "fastresp_shortest"(char *p, float v) noexcept nogil


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
    # Otherwise the exponent has three digits, or the text is inf or nan.
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
