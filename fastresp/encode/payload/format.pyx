# cython: language_level=3, cdivision=True
"""The storage format of a server's values: limits for compact encodings, checksums and scores."""

from cpython.object cimport PyObject
from libc.math cimport isinf, signbit
from libc.stdint cimport int64_t, uint64_t
from libc.string cimport memcpy, memset, strlen

from ...resp.numbers_and_times cimport put_double
from ...resp.buffer cimport put_signed

import re

from ...outcome.errors import TransportError

# The defaults are the same in all versions. Source: createStaticConfig in config.c.
DEFAULTS = {
    "hash-max-listpack-entries": 512,
    "hash-max-listpack-value": 64,
    "set-max-listpack-entries": 128,
    "set-max-listpack-value": 64,
    "set-max-intset-entries": 512,
    "zset-max-listpack-entries": 128,
    "zset-max-listpack-value": 64,
    "list-max-listpack-size": -2,
}
# The maximum bytes of a list's node for list-max-listpack-size -1 to -5. Source: quicklist.c.
cdef tuple NODE_BYTES = (4096, 8192, 16384, 32768, 65536)
# The maximum bytes of a list's node if list-max-listpack-size is a number of elements. Source:
# SIZE_SAFETY_LIMIT in quicklist.c.
cdef long long SAFE_NODE_BYTES = 8192
cdef long long MAX_ENTRIES = <long long>1 << 62
# The RDB version that DUMP writes on each server version, newest first. Servers accept older RDB
# versions. Valkey 9 refuses versions 12 to 79, which other products use. Source: each rdb.h.
cdef tuple REDIS = (((7, 4), 12), ((7, 2), 11), ((7, 0), 10), ((6, 2), 9))
cdef tuple VALKEY = (((9, 0), 80), ((7, 2), 11))


cdef class Format:
    """The encodings that a server would choose for values.

    Args:
        rdb_version: the version of the server's RDB files: 9 for Redis 6.2, 10 for 7.0, 11 for 7.2.
        limits: the server's settings, such as ``hash-max-listpack-entries``; defaults apply to
            missing settings.

    Raises:
        ValueError: the version is below 9.
    """

    def __init__(self, rdb_version=11, limits=None):
        if rdb_version < 9:
            raise ValueError(f"rdb_version must be 9 or more, not {rdb_version!r}")
        limits = {**DEFAULTS, **(limits or {})}
        self.rdb_version = rdb_version
        self.listpacks = rdb_version >= 10
        self.newer = rdb_version >= 11
        self.hash_entries = limits["hash-max-listpack-entries"]
        self.hash_value = limits["hash-max-listpack-value"]
        self.set_entries = limits["set-max-listpack-entries"]
        self.set_value = limits["set-max-listpack-value"]
        self.set_integers = limits["set-max-intset-entries"]
        self.zset_entries = limits["zset-max-listpack-entries"]
        self.zset_value = limits["zset-max-listpack-value"]
        size = limits["list-max-listpack-size"]
        if size < 0:
            self.list_bytes, self.list_entries = NODE_BYTES[min(-size, 5) - 1], MAX_ENTRIES
        else:
            self.list_bytes, self.list_entries = SAFE_NODE_BYTES, max(size, 1)


cdef tuple number_of(version):
    """Return the numbers of a server's version; empty if it is unknown."""
    found = re.match(r"(\d+)\.(\d+)", version or "")
    return (int(found[1]), int(found[2])) if found else ()


def has_short_sizes(version, *, valkey):
    """Return whether a server writes disputed sizes in fewer bytes; None if unknown.

    See ``is_disputed()``. Measured with versions up to Redis 8.2 and Valkey 9.1.

    Args:
        version: the server's version, such as ``"7.0.15"``.
        valkey: whether the server is Valkey.
    """
    number = number_of(version)
    if not number:
        return None
    if valkey:
        return None if (8, 1) < number < (9, 1) else number >= (9, 1)
    return False if number <= (8, 2) else None


def format_of(version, limits, *, valkey, instead=""):
    """Return the format of values for a server.

    Args:
        version: the server's version, such as ``"7.0.15"``.
        limits: the server's settings.
        valkey: whether the server is Valkey.
        instead: an alternative for the user, added to the message about an unknown version.

    Raises:
        TransportError: the server is too old, or its version is unknown.
    """
    number = number_of(version)
    if not number:
        raise TransportError(
            "can't make values for RESTORE: the server does not report its version; allow INFO"
            f"{instead}"
        )
    for since, rdb_version in VALKEY if valkey else REDIS:
        if number >= since:
            # Before 7.0, settings have other names.
            renamed = {name.replace("-ziplist-", "-listpack-"): limits[name] for name in limits}
            return Format(rdb_version, renamed)
    raise TransportError(
        f"can't make values for RESTORE: the server has version {version}, and must be 6.2 or later"
    )


# Source: crc64.c of Redis. The initial value is 0, and nothing is inverted.
cdef uint64_t POLYNOMIAL = 0x95AC9329AC4BC9B5

cdef extern from *:
    """
    #include <stdint.h>
    #if defined(__GNUC__) && defined(__x86_64__)
    #include <immintrin.h>
    #define fastresp_can_fold() __builtin_cpu_supports("pclmul")
    /* While 16 more bytes follow, fold the first 16 bytes into the next 16 bytes, so that the
       checksum stays the same. The first 8 bytes end 192 bits before the end of the next 16 bytes,
       the second 8 bytes end 128 bits before it: each half is multiplied by its power of x.
       Return the end of the folded bytes. */
    __attribute__((target("pclmul,sse2")))
    static const char *fastresp_fold(
        char *folded, const char *data, const char *end, uint64_t far, uint64_t near
    ) {
        const __m128i powers = _mm_set_epi64x((long long)near, (long long)far);
        __m128i x = _mm_loadu_si128((const __m128i *)folded);
        for (data += 16; end - data >= 16; data += 16)
            x = _mm_xor_si128(
                _mm_xor_si128(
                    _mm_clmulepi64_si128(x, powers, 0x00), _mm_clmulepi64_si128(x, powers, 0x11)),
                _mm_loadu_si128((const __m128i *)data));
        _mm_storeu_si128((__m128i *)folded, x);
        return data;
    }
    #else
    #define fastresp_can_fold() 0
    #define fastresp_fold(folded, data, end, far, near) (data)
    #endif
    """
    bint can_fold "fastresp_can_fold"() noexcept nogil
    const char *fold "fastresp_fold"(
        char *folded, const char *data, const char *end, uint64_t far, uint64_t near
    ) noexcept nogil

# TABLES[k][byte]: the checksum of a byte followed by k zero bytes.
cdef uint64_t[8][256] TABLES


cdef void fill_tables() noexcept:
    cdef uint64_t crc
    cdef int byte, k, _
    for byte in range(256):
        crc = byte
        for _ in range(8):
            crc = crc >> 1 ^ (POLYNOMIAL if crc & 1 else 0)
        TABLES[0][byte] = crc
    for k in range(1, 8):
        for byte in range(256):
            crc = TABLES[k - 1][byte]
            TABLES[k][byte] = TABLES[0][crc & 255] ^ crc >> 8


cdef uint64_t power(int n) noexcept:
    """Return x to the power of n, modulo the polynomial.

    Bits are reflected: the least significant bit is the coefficient of the highest power.
    """
    cdef uint64_t found = <uint64_t>1 << 63
    cdef int _
    for _ in range(n):
        found = found >> 1 ^ (POLYNOMIAL if found & 1 else 0)
    return found


fill_tables()
# Powers 192 and 128, less one: the product of reflected numbers is shifted by one bit.
cdef uint64_t FAR = power(191), NEAR = power(127)
cdef bint FOLDS = can_fold()
cdef enum:
    FOLDED_BYTES = 64


cdef uint64_t crc64(uint64_t crc, const char *data, Py_ssize_t size) noexcept nogil:
    """Return the CRC-64 of bytes; ``crc`` is the checksum of the preceding bytes, 0 at first."""
    cdef const char *end = data + size
    cdef uint64_t word
    cdef char[16] folded
    if FOLDS and size >= FOLDED_BYTES:
        memcpy(folded, data, 16)
        memcpy(&word, data, 8)
        word ^= crc
        memcpy(folded, &word, 8)
        data = fold(folded, data, end, FAR, NEAR)
        crc = by_table(0, folded, folded + 16)
    return by_table(crc, data, end)


cdef inline uint64_t by_table(uint64_t crc, const char *data, const char *end) noexcept nogil:
    cdef uint64_t word
    while end - data >= 8:
        memcpy(&word, data, 8)
        word ^= crc
        crc = (
            TABLES[7][word & 255] ^ TABLES[6][word >> 8 & 255]
            ^ TABLES[5][word >> 16 & 255] ^ TABLES[4][word >> 24 & 255]
            ^ TABLES[3][word >> 32 & 255] ^ TABLES[2][word >> 40 & 255]
            ^ TABLES[1][word >> 48 & 255] ^ TABLES[0][word >> 56]
        )
        data += 8
    while data < end:
        crc = TABLES[0][(crc ^ <unsigned char>data[0]) & 255] ^ crc >> 8
        data += 1
    return crc


def checksum(const unsigned char[::1] data not None, uint64_t crc=0):
    """Return the CRC-64 of bytes.

    Args:
        data: the bytes.
        crc: the checksum of the preceding bytes.
    """
    cdef Py_ssize_t size = data.shape[0]
    if size:
        with nogil:
            crc = crc64(crc, <const char *>&data[0], size)
    return crc


cdef uint64_t product(uint64_t a, uint64_t b) noexcept:
    """Multiply two polynomials modulo the checksum's polynomial; the highest bit is x^0."""
    cdef uint64_t bit = <uint64_t>1 << 63, found = 0
    while bit:
        if a & bit:
            found ^= b
        b = b >> 1 ^ (POLYNOMIAL if b & 1 else 0)
        bit >>= 1
    return found


def shifted(uint64_t crc, uint64_t zeros):
    """Return what the checksum ``crc`` becomes when this number of zero bytes is appended.

    The checksum is linear: if zero bytes in a file are overwritten with ``bytes``, and ``n`` bytes
    follow, the checksum ``old`` of the file becomes ``old ^ shifted(checksum(bytes), n)``.
    """
    cdef uint64_t factor = <uint64_t>1 << 55  # x^8: a zero byte
    while zeros:
        if zeros & 1:
            crc = product(factor, crc)
        factor = product(factor, factor)
        zeros >>= 1
    return crc


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

cdef uint64_t EXACT = <uint64_t>1 << 53
# Whole numbers up to this limit are written without a point. Source: double2ll() in util.c.
cdef double MAX_WHOLE = 4611686018427387903.0


cdef double read_score(const char *text, Py_ssize_t size) except? -1:
    """Parse a score that ``mergeable.is_score()`` accepts, as strtod() would."""
    cdef const char *p = text
    cdef const char *end = text + size
    cdef bint negative = p[0] == c'-', point = False
    cdef int digits = 0, power = 0
    cdef uint64_t n = 0
    cdef double score
    cdef char[SCORE_ROOM] copy
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
        memcpy(copy, text, size)
        copy[size] = 0
        return PyOS_string_to_double(copy, NULL, NULL)
    score = <double>n / TENS[-power]
    return -score if negative else score


cdef Py_ssize_t shortest_score(double score, char *text) noexcept nogil:
    """Write a score in the shortest digits, as servers from 7.2 on do; return the size of the text.

    ``text`` needs room for SCORE_ROOM bytes.
    """
    if -MAX_WHOLE <= score <= MAX_WHOLE and <double><int64_t>score == score:
        return put_signed(text, <int64_t>score) - text
    if isinf(score):
        memcpy(text, b"-inf", 4)
        if score > 0:
            memcpy(text, b"inf", 3)
        return 3 + (score < 0)
    return lay_out(score, text)


cdef Py_ssize_t score_text(double score, bint shortest, char *text) except -1:
    """Write a score as a server does in a listpack; return the size of the text.

    Args:
        score: the score.
        shortest: True for the shortest digits; False for 17 digits, as servers before 7.2 write.
        text: room for SCORE_ROOM bytes.
    """
    cdef char *written
    cdef Py_ssize_t size
    if shortest or isinf(score) or (
        -MAX_WHOLE <= score <= MAX_WHOLE and <double><int64_t>score == score
    ):
        return shortest_score(score, text)
    written = PyOS_double_to_string(score, c'g', 17, 0, NULL)
    if written is NULL:
        raise MemoryError("no memory for a score")
    size = strlen(written)
    memcpy(text, written, size)
    PyMem_Free(written)
    return size


cdef Py_ssize_t lay_out(double score, char *text) noexcept nogil:
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
