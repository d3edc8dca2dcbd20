# cython: language_level=3, cdivision=True
"""Read scores of sorted sets from text, and write scores as a server does in a listpack."""

from cpython.object cimport PyObject
from libc.math cimport isinf, signbit
from libc.stdint cimport int64_t, uint64_t
from libc.string cimport memcpy, memset

from ...resp.floats cimport put_double
from ...resp.out cimport put_signed

cdef extern from "Python.h":
    double PyOS_string_to_double(const char *text, char **end, PyObject *overflow) except? -1
    char *PyOS_double_to_string(double value, char code, int precision, int flags, int *type)
    void PyMem_Free(void *memory)

cdef double[23] TENS = [
    1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15, 1e16,
    1e17, 1e18, 1e19, 1e20, 1e21, 1e22,
]

cdef enum:
    # The product of a whole number up to 2^53 and a power of ten up to this exponent rounds once.
    EXACT_POWER = 22
    # Numbers with up to this many digits fit in 64 bits.
    SAFE_DIGITS = 18
    # The size of the longest text that verbs.is_score() accepts, with a NUL.
    SCORE_ROOM = 64

cdef uint64_t EXACT = <uint64_t>1 << 53
# Whole numbers up to this limit are written without a point. Source: double2ll() in util.c.
cdef double MAX_WHOLE = 4611686018427387903.0


cdef double read_score(const char *text, Py_ssize_t size) except? -1:
    """Return the score of a text that ``verbs.is_score()`` accepts, as strtod() would."""
    cdef const char *p = text
    cdef const char *end = text + size
    cdef bint negative = p[0] == c'-', point = False
    cdef int digits = 0, power = 0
    cdef uint64_t n = 0
    cdef double score
    if negative or p[0] == c'+':
        p += 1
    while p < end and digits <= SAFE_DIGITS:
        if c'0' <= p[0] <= c'9':
            n = n * 10 + <uint64_t>(p[0] - c'0')
            digits += n > 0
            power -= point
        elif p[0] == c'.':
            point = True
        else:
            break
        p += 1
    if p < end or n > EXACT or power < -EXACT_POWER:
        return read_slowly(text, size)
    score = <double>n / TENS[-power]
    return -score if negative else score


cdef double read_slowly(const char *text, Py_ssize_t size) except? -1:
    cdef char[SCORE_ROOM] copy
    memcpy(copy, text, size)
    copy[size] = 0
    return PyOS_string_to_double(copy, NULL, NULL)


cdef Py_ssize_t score_text(double score, bint shortest, char *text) except -1:
    """Write a score as a server does in a listpack; return the size of the text.

    Args:
        score: the score.
        shortest: whether to write the shortest digits, as servers do since 7.2, not 17 digits.
        text: room for 64 bytes.
    """
    cdef char *written
    cdef Py_ssize_t size
    if -MAX_WHOLE <= score <= MAX_WHOLE and <double><int64_t>score == score:
        return put_signed(text, <int64_t>score) - text
    if isinf(score):
        memcpy(text, b"-inf", 4)
        if score > 0:
            memcpy(text, b"inf", 3)
        return 3 + (score < 0)
    if shortest:
        return lay_out(score, text)
    written = PyOS_double_to_string(score, c'g', 17, 0, NULL)
    if written is NULL:
        raise MemoryError("no memory for a score")
    size = 0
    while written[size]:
        text[size] = written[size]
        size += 1
    PyMem_Free(written)
    return size


cdef Py_ssize_t lay_out(double score, char *text) noexcept:
    """Write the shortest digits of a score as fpconv_dtoa.c does; return the size of the text."""
    cdef char[32] shortest, digits
    cdef char *p = text
    cdef char *end = put_double(shortest, score)
    cdef char *c = shortest
    cdef int n = 0, power = 0, exponent = 0, sign = 1, whole
    cdef bint point = False
    if signbit(score):
        p[0] = c'-'
        p += 1
        c += 1
    while c < end and c[0] != c'e':
        if c[0] == c'.':
            point = True
        elif n or c[0] != c'0':
            digits[n] = c[0]
            n += 1
            power -= point
        else:
            power -= point
        c += 1
    if c < end:
        c += 1
        if c[0] == c'-':
            sign = -1
        c += c[0] == c'-' or c[0] == c'+'
        while c < end:
            exponent = exponent * 10 + (c[0] - c'0')
            c += 1
        power += sign * exponent
    while n > 1 and digits[n - 1] == c'0':
        n -= 1
        power += 1
    exponent = power + n - 1            # exponent of the first digit
    if power >= 0 and exponent < n + 7:
        memcpy(p, digits, n)
        memset(p + n, c'0', power)
        return p + n + power - text
    if power < 0 and (power > -7 or -4 < exponent < 4):
        whole = n + power
        if whole > 0:
            memcpy(p, digits, whole)
            p[whole] = c'.'
            memcpy(p + whole + 1, digits + whole, n - whole)
            return p + n + 1 - text
        p[0], p[1] = c'0', c'.'
        memset(p + 2, c'0', -whole)
        memcpy(p + 2 - whole, digits, n)
        return p + 2 - whole + n - text
    n = min(n, 18 - (score < 0))
    p[0] = digits[0]
    p += 1
    if n > 1:
        p[0] = c'.'
        memcpy(p + 1, digits + 1, n - 1)
        p += n
    p[0] = c'e'
    p[1] = c'-' if exponent < 0 else c'+'
    return put_signed(p + 2, -exponent if exponent < 0 else exponent) - text
