# cython: language_level=3, cdivision=True
"""The checksum of DUMP payloads and RDB files: CRC-64 with the polynomial of Jones, reflected."""

from libc.stdint cimport uint64_t
from libc.string cimport memcpy

# Source: crc64.c of Redis. The initial value is 0, and nothing is inverted.
cdef uint64_t POLYNOMIAL = 0x95AC9329AC4BC9B5

cdef extern from *:
    """
    #include <stdint.h>
    #if defined(__GNUC__) && defined(__x86_64__)
    #include <immintrin.h>
    #define fastresp_can_fold() __builtin_cpu_supports("pclmul")
    /* While 16 more bytes follow, fold the first 16 bytes into the next 16 bytes, with the same
       checksum. The first 8 bytes are 192 bits before the end of the next 16 bytes, and the second
       8 bytes are 128 bits before it: each half is multiplied by its power of x. Return the end. */
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
# One less than 192 and 128: a product of reflected numbers is shifted by one bit.
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
    """Multiply two polynomials modulo the checksum's polynomial; the highest bit is power 0."""
    cdef uint64_t bit = <uint64_t>1 << 63, found = 0
    while bit:
        if a & bit:
            found ^= b
        b = b >> 1 ^ (POLYNOMIAL if b & 1 else 0)
        bit >>= 1
    return found


def shifted(uint64_t crc, uint64_t zeros):
    """Return the checksum after ``zeros`` zero bytes are appended to bytes with checksum ``crc``.

    The checksum is linear: if zeros in a file are replaced by ``bytes``, the new checksum is
    ``old ^ shifted(checksum(bytes), size of the following bytes)``.
    """
    cdef uint64_t factor = <uint64_t>1 << 55  # x^8: a zero byte
    while zeros:
        if zeros & 1:
            crc = product(factor, crc)
        factor = product(factor, factor)
        zeros >>= 1
    return crc
