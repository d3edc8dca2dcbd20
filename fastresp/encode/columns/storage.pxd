"""Read numbers from Arrow memory."""

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

from ...resp.floats cimport half_value


cdef enum Storage:
    STORAGE_OTHER           # not a number
    STORAGE_INT8
    STORAGE_UINT8
    STORAGE_INT16
    STORAGE_UINT16
    STORAGE_INT32
    STORAGE_UINT32
    STORAGE_INT64
    STORAGE_UINT64
    STORAGE_HALF            # after all integers
    STORAGE_SINGLE
    STORAGE_DOUBLE


cdef inline bint holds_integers(Storage storage) noexcept nogil:
    return STORAGE_OTHER < storage < STORAGE_HALF


cdef inline int64_t integer_at(Storage storage, const void *values, Py_ssize_t i) noexcept nogil:
    """Return an integer; an unsigned 64-bit integer is reinterpreted as signed."""
    if storage == STORAGE_INT8:
        return (<const int8_t *>values)[i]
    if storage == STORAGE_UINT8:
        return (<const uint8_t *>values)[i]
    if storage == STORAGE_INT16:
        return (<const int16_t *>values)[i]
    if storage == STORAGE_UINT16:
        return (<const uint16_t *>values)[i]
    if storage == STORAGE_INT32:
        return (<const int32_t *>values)[i]
    if storage == STORAGE_UINT32:
        return (<const uint32_t *>values)[i]
    return (<const int64_t *>values)[i]


cdef inline double number_at(Storage storage, const void *values, Py_ssize_t i) noexcept nogil:
    """Return any number as the nearest double."""
    if storage == STORAGE_DOUBLE:
        return (<const double *>values)[i]
    if storage == STORAGE_SINGLE:
        return <double>(<const float *>values)[i]
    if storage == STORAGE_HALF:
        return half_value((<const uint16_t *>values)[i])
    if storage == STORAGE_UINT64:
        return <double>(<const uint64_t *>values)[i]
    return <double>integer_at(storage, values, i)
