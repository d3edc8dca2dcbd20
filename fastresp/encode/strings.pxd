"""Hashes of strings, UTF-8, and duplicate names in a JSON text."""

from libc.stdint cimport uint64_t
from libc.stdlib cimport qsort
from libc.string cimport memcmp

cdef enum:
    FEW_KEYS = 16               # up to this number of keys are compared one by one


# The position of a name in a JSON text.
cdef struct JsonKey:
    Py_ssize_t at
    Py_ssize_t size
    const char *text


cdef inline Py_ssize_t character_size(const char *text, Py_ssize_t n) noexcept nogil:
    """Return the size of the UTF-8 character at ``text``; 0 if invalid. Source: RFC 3629."""
    cdef unsigned char first = text[0], second
    cdef Py_ssize_t size = 2 if first < 0xE0 else 3 if first < 0xF0 else 4, k
    if first < 0x80:
        return 1
    if first < 0xC2 or first > 0xF4 or size > n:
        return 0
    second = text[1]
    # An overlong form, a surrogate, or a code point beyond U+10FFFF.
    if (
        first == 0xE0 and second < 0xA0 or first == 0xED and second > 0x9F
        or first == 0xF0 and second < 0x90 or first == 0xF4 and second > 0x8F
    ):
        return 0
    for k in range(1, size):
        if <unsigned char>text[k] >> 6 != 2:
            return 0
    return size


cdef inline bint is_utf8(const char *text, Py_ssize_t n) noexcept nogil:
    cdef Py_ssize_t at = 0, size
    while at < n:
        size = character_size(text + at, n - at)
        if size == 0:
            return False
        at += size
    return True


cdef inline int compare_keys(const void *one, const void *other) noexcept nogil:
    cdef const JsonKey *a = <const JsonKey *>one
    cdef const JsonKey *b = <const JsonKey *>other
    if a.size != b.size:
        return 1 if a.size > b.size else -1
    return memcmp(a.text, b.text, a.size)


cdef inline const JsonKey *find_duplicate(
    JsonKey *keys, Py_ssize_t n, const char *base
) noexcept nogil:
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
            if keys[k].size == keys[i].size and compare_keys(&keys[k], &keys[i]) == 0:
                return &keys[i]
    if n > FEW_KEYS:
        qsort(keys, n, sizeof(JsonKey), compare_keys)
        for i in range(1, n):
            if compare_keys(&keys[i - 1], &keys[i]) == 0:
                return &keys[i]
    return NULL


cdef extern from "Python.h":
    ctypedef struct PyHash_FuncDef:
        Py_hash_t (*hash)(const void *, Py_ssize_t) noexcept nogil
    PyHash_FuncDef *PyHash_GetFuncDef() noexcept nogil


cdef extern from *:
    """
    #if defined(__GNUC__)
    #define fastresp_fetch(p) __builtin_prefetch(p, 1)
    #else
    #define fastresp_fetch(p)
    #endif
    """
    # Prefetch memory before it is read or written: a large table is not in the cache.
    void fetch "fastresp_fetch"(const void *p) noexcept nogil


cdef inline uint64_t hashed(const char *text, Py_ssize_t size) noexcept nogil:
    """Hash a string with Python's own hash function, SipHash.

    The secret of the hash function is random in each process, so attackers can't choose strings
    with equal hashes.
    """
    return <uint64_t>PyHash_GetFuncDef().hash(text, size)
